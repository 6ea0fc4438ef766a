"""SyncGroup (14): the leader hands in the assignment; everyone is answered once it is durable. Versions 0-5."""

from __future__ import annotations

from functools import partial
from typing import Final

from odradek.broker.handlers.group_answers import encode_assigned
from odradek.broker.handlers.group_requests import AnswerTicket, caller, plain_caller
from odradek.broker.requests.context import (
    FEW_ELEMENTS,
    ApiHandler,
    BrokerContext,
    Encode,
    LaterResponse,
    RequestContext,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, HeldReply, at_once
from odradek.protocol import MalformedMessage, RequestHeader, TooManyElements, decode
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.runtime.prompt import PromptFuture

_SINCE_PROTOCOL: Final = 5


def handle(
    broker: BrokerContext, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | LaterResponse:
    if not _names_protocol(context.api_version, request):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return LaterResponse(broker.groups.sync(request, caller(context)), _answer)
    except KafkaError as error:
        return _refusal(error)


def handle_plain(
    broker: BrokerContext,
    connection: Connection,
    header: RequestHeader,
    frame: memoryview,
    position: int,
    encode: Encode,
) -> Chunks | PromptFuture[Chunks | None] | None:
    """Serves a request without what `handle` needs around it. Returns None, with nothing done, for one that cannot be read,
    that has many assignments, or that names no protocol."""
    try:
        request, _ = decode(SyncGroupRequest, header.api_version, frame, position, FEW_ELEMENTS)
    except (MalformedMessage, TooManyElements):
        return None
    if not _names_protocol(header.api_version, request):
        return None
    ticket = AnswerTicket(partial(_encoded, header, encode), _refusal)
    try:
        broker.groups.begin_sync(request, plain_caller(connection, header), ticket)
    except KafkaError as error:
        return at_once(encode(_refusal(error)))
    return ticket.reply


def _encoded(header: RequestHeader, encode: Encode, response: SyncGroupResponse) -> Chunks | HeldReply:
    encoded = encode_assigned(header.api_version, header.correlation_id, response)
    return encode(response) if encoded is None else [encoded]


def _names_protocol(version: int, request: SyncGroupRequest) -> bool:
    """Returns whether the request names the group's protocol, if its version can."""
    return version < _SINCE_PROTOCOL or (
        request.protocol_type is not None and request.protocol_name is not None
    )


def _answer(response: PromptFuture[SyncGroupResponse]) -> SyncGroupResponse:
    if isinstance(error := response.exception(), KafkaError):
        return _refusal(error)
    return response.result()


def _refusal(error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


SERVED = ApiHandler(14, handle, short=handle_plain)
