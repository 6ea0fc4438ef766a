"""SyncGroup (14): the leader hands in the assignment; everyone is answered once it is durable. Versions 0-5."""

from __future__ import annotations

from typing import Final

from odradek.broker.handlers.group_requests import caller
from odradek.broker.requests.context import ApiHandler, BrokerContext, LaterResponse, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.runtime.prompt import PromptFuture

_SINCE_PROTOCOL: Final = 5


def handle(
    broker: BrokerContext, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | LaterResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _SINCE_PROTOCOL and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return LaterResponse(broker.groups.sync(request, caller(context)), _answer)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)


def _answer(response: PromptFuture[SyncGroupResponse]) -> SyncGroupResponse:
    if isinstance(error := response.exception(), KafkaError):
        return SyncGroupResponse(error_code=error.code)
    return response.result()


SERVED = ApiHandler(14, handle)
