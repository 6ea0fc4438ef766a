"""JoinGroup (11): enter a classic group; answered when its next generation is formed. Versions 0-9."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from odradek.broker.handlers.group_requests import caller
from odradek.broker.requests.context import ApiHandler, BrokerContext, LaterResponse, RequestContext
from odradek.model.errors import KafkaError
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.runtime.prompt import PromptFuture

_SINCE_NULL_PROTOCOL: Final = 7


def handle(
    broker: BrokerContext, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | LaterResponse | Awaitable[JoinGroupResponse]:
    try:
        response = broker.groups.join(request, caller(context))
    except KafkaError as error:
        return _refusal(context, request, error)
    if isinstance(response, PromptFuture):
        return LaterResponse(response, partial(_answer, context, request))
    return _later(context, request, response)


async def _later(
    context: RequestContext, request: JoinGroupRequest, response: Awaitable[JoinGroupResponse]
) -> JoinGroupResponse:
    try:
        return _for_version(context, await response)
    except KafkaError as error:
        return _refusal(context, request, error)


def _answer(
    context: RequestContext, request: JoinGroupRequest, response: PromptFuture[JoinGroupResponse]
) -> JoinGroupResponse:
    if isinstance(error := response.exception(), KafkaError):
        return _refusal(context, request, error)
    return _for_version(context, response.result())


def _refusal(context: RequestContext, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    refused = JoinGroupResponse(error_code=error.code, member_id=request.member_id, protocol_name=None)
    return _for_version(context, refused)


def _for_version(context: RequestContext, response: JoinGroupResponse) -> JoinGroupResponse:
    if context.api_version < _SINCE_NULL_PROTOCOL and response.protocol_name is None:
        return response.replace(protocol_name="")
    return response


SERVED = ApiHandler(11, handle)
