"""SyncGroup (14): the leader hands in the assignment; everyone is answered once it is durable. Versions 0-5."""

from __future__ import annotations

from typing import Final

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.coordinators.group_requests import caller
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse

_SINCE_PROTOCOL: Final = 5


async def handle(
    broker: BrokerContext, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _SINCE_PROTOCOL and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return await broker.groups.sync(request, caller(context))
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)


SERVED = ApiHandler(14, handle)
