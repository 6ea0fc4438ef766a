"""JoinGroup (11): enter a classic group; answered when its next generation is formed. Versions 0-9."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from odradek.broker.handlers.group_answers import encode_joined
from odradek.broker.handlers.group_requests import AnswerTicket, caller, plain_caller
from odradek.broker.requests.context import (
    FEW_ELEMENTS,
    ApiHandler,
    BrokerContext,
    Encode,
    LaterResponse,
    RequestContext,
)
from odradek.model.errors import KafkaError
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, HeldReply, at_once
from odradek.protocol import MalformedMessage, RequestHeader, TooManyElements, decode
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.runtime.prompt import PromptFuture

_SINCE_NULL_PROTOCOL: Final = 7


def handle(
    broker: BrokerContext, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | LaterResponse | Awaitable[JoinGroupResponse]:
    version = context.api_version
    try:
        response = broker.groups.join(request, caller(context))
    except KafkaError as error:
        return _refusal(version, request.member_id, error)
    if isinstance(response, PromptFuture):
        return LaterResponse(response, partial(_answer, version, request.member_id))
    return _later(version, request.member_id, response)


def handle_plain(
    broker: BrokerContext,
    connection: Connection,
    header: RequestHeader,
    frame: memoryview,
    position: int,
    encode: Encode,
) -> Chunks | PromptFuture[Chunks | None] | None:
    """Serves a request without what `handle` needs around it. Returns None, with nothing done, for one that cannot be read."""
    version = header.api_version
    try:
        request, _ = decode(JoinGroupRequest, version, frame, position, FEW_ELEMENTS)
    except (MalformedMessage, TooManyElements):
        return None
    ticket = AnswerTicket(partial(_encoded, header, encode), partial(_refusal, version, request.member_id))
    try:
        if not broker.groups.try_join(request, plain_caller(connection, header), ticket):
            return None
    except KafkaError as error:
        return at_once(encode(_refusal(version, request.member_id, error)))
    return ticket.reply


def _encoded(header: RequestHeader, encode: Encode, response: JoinGroupResponse) -> Chunks | HeldReply:
    encoded = encode_joined(header.api_version, header.correlation_id, response)
    return encode(_for_version(header.api_version, response)) if encoded is None else [encoded]


async def _later(version: int, member_id: str, response: Awaitable[JoinGroupResponse]) -> JoinGroupResponse:
    try:
        return _for_version(version, await response)
    except KafkaError as error:
        return _refusal(version, member_id, error)


def _answer(version: int, member_id: str, response: PromptFuture[JoinGroupResponse]) -> JoinGroupResponse:
    if isinstance(error := response.exception(), KafkaError):
        return _refusal(version, member_id, error)
    return _for_version(version, response.result())


def _refusal(version: int, member_id: str, error: KafkaError) -> JoinGroupResponse:
    refused = JoinGroupResponse(error_code=error.code, member_id=member_id, protocol_name=None)
    return _for_version(version, refused)


def _for_version(version: int, response: JoinGroupResponse) -> JoinGroupResponse:
    if version < _SINCE_NULL_PROTOCOL and response.protocol_name is None:
        return response.replace(protocol_name="")
    return response


SERVED = ApiHandler(11, handle, short=handle_plain)
