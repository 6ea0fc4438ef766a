"""GetTelemetrySubscriptions (71): the metrics that a client is asked to push (KIP-714). Version 0.

A client without an id gets one. Each client gets the union of all subscriptions that match it; without any it gets no metrics
and the default interval, and asks again after it.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.telemetry.instances import COMPRESSION_TYPES
from odradek.model.errors import KafkaError
from odradek.protocol.messages.configs.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    instance_id = request.client_instance_id
    if not instance_id.int:
        instance_id = broker.runtime.entropy.uuid()
    telemetry = broker.client_telemetry
    configs = broker.image.resource_configs
    instance = telemetry.instance(instance_id, context.client_id, context.connection, configs)
    try:
        instance.get(broker.runtime.clock.monotonic())
    except KafkaError as error:
        telemetry.refused(error.code)
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=instance.subscribed.interval_ms,
        telemetry_max_bytes=broker.config.metrics.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.subscribed.requested),
    )


SERVED = ApiHandler(71, handle)
