"""ConsumerGroupHeartbeat (68): be a member of a consumer group, which the broker assigns (KIP-848). Versions 0-1.

Nothing waits: whatever a member has to do or to wait for, it learns by its next heartbeat. UNSUPPORTED_VERSION where the
feature `group.version` is at 0.
"""

from __future__ import annotations

from odradek.broker.cluster.features import GROUP_VERSION, level_of
from odradek.broker.handlers.group_requests import caller
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    if level_of(broker.image, GROUP_VERSION) < 1:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        return await broker.groups.consumer_heartbeat(request, caller(context))
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


SERVED = ApiHandler(68, handle)
