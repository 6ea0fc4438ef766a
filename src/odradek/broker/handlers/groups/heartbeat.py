"""Heartbeat (12): a member of a classic group is alive, and learns whether to join again. Versions 0-4."""

from __future__ import annotations

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(
    broker: BrokerContext, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse:
    try:
        return await broker.groups.heartbeat(request)
    except KafkaError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return (
                HeartbeatResponse()
            )  # as Kafka: clients do not expect it here, and the session begins again anyway
        return HeartbeatResponse(error_code=error.code)


SERVED = ApiHandler(12, handle)
