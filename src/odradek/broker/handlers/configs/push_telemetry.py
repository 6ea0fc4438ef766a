"""PushTelemetry (72): metrics of a client, in OpenTelemetry's format (KIP-714). Version 0.

Checks come in Kafka's order: the id, the end of the client, the interval, the subscription, compression, size. A payload that
cannot be read is INVALID_RECORD, as where a receiver of Kafka's fails.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.telemetry.instances import check_instance_id
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.protocol.messages.configs.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.telemetry import events

_log = events.caused_by_peers("broker")


async def handle(
    broker: BrokerContext, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    telemetry = broker.client_telemetry
    try:
        check_instance_id(request.client_instance_id)
        configs = broker.image.resource_configs
        instance = telemetry.instance(
            request.client_instance_id, context.client_id, context.connection, configs
        )
        instance.push(
            broker.runtime.clock.monotonic(),
            subscription_id=request.subscription_id,
            compression=request.compression_type,
            size_bytes=len(request.metrics),
            size_bytes_max=broker.config.metrics.telemetry_max_bytes,
            terminating=request.terminating,
        )
    except KafkaError as error:
        telemetry.refused(error.code)
        return PushTelemetryResponse(error_code=error.code)
    try:
        turn = broker.turns.begin()
        await telemetry.receive(instance, request.compression_type, request.metrics, turn)
    except OdradekError as error:
        _log.info("client_metrics_unreadable", peer=context.connection.peer, reason=str(error))
        instance.last_error = ErrorCode.INVALID_RECORD
        telemetry.refused(ErrorCode.INVALID_RECORD)
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
    return PushTelemetryResponse()


SERVED = ApiHandler(72, handle)
