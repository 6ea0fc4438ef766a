"""ShareGroupHeartbeat (76): be a member of a share group (KIP-932). Version 1.

Nothing waits: a member learns its partitions by its next heartbeat. UNSUPPORTED_VERSION where `share.version` is at 0.
"""

from __future__ import annotations

from odradek.broker.cluster.features import SHARE_VERSION, level_of
from odradek.broker.handlers.group_requests import caller
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    if level_of(broker.image, SHARE_VERSION) < 1:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        return await broker.groups.share_heartbeat(request, caller(context))
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


SERVED = ApiHandler(76, handle)
