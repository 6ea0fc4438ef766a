"""Metrics of clients (KIP-714) over the wire: subscriptions as settings, pushes of every compression, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from tests.scenarios.administration.test_metrics import ask, listen, listeners, of, scrape

from odradek.broker.metrics.listener import MetricsListener
from odradek.model.errors import ErrorCode
from odradek.model.ids import kafka_id
from odradek.protocol.messages.configs.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.configs.push_telemetry import PushTelemetryRequest
from odradek.records.codec import Codec, compress
from odradek.telemetry.otlp import OtlpPoint, PointKind, written_metrics

__all__ = ["listeners"]

CLIENT_METRICS, SET = 16, 0
SENT = OtlpPoint(
    name="org.apache.kafka.producer.record.send.total", kind=PointKind.COUNTER, value=5.0, is_delta=True
)
OTHER = OtlpPoint(name="com.example.secret", kind=PointKind.GAUGE, value=1.0)


def payload(points: Iterable[OtlpPoint] = (SENT, OTHER)) -> bytes:
    return written_metrics(points, resource=(("group_id", "g"),), start_ns=1, now_ns=2)


async def subscribe(wire: Any, name: str, **settings: str) -> int:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=value)
        for key, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    response = await wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return int(response.responses[0].error_code)


async def get(wire: Any, instance: UUID | None = None) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance or UUID(int=0))
    response = await wire.ask(request, 0)
    assert isinstance(response, GetTelemetrySubscriptionsResponse)
    return response


async def push(wire: Any, got: GetTelemetrySubscriptionsResponse, metrics: bytes, **more: Any) -> ErrorCode:
    terms = {"client_instance_id": got.client_instance_id, "subscription_id": got.subscription_id, **more}
    response = await wire.ask(PushTelemetryRequest(metrics=metrics, **terms), 0)
    return ErrorCode.of(response.error_code)


async def test_a_client_is_asked_pushes_and_is_shown(scene: Any, listeners: list[MetricsListener]) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    nothing = await get(wire)
    assert (nothing.requested_metrics, nothing.push_interval_ms) == ([], 300_000)
    assert await subscribe(wire, "all", metrics="org.apache.kafka.", interval_ms="60000") == 0

    got = await get(wire, nothing.client_instance_id)

    assert got.client_instance_id == nothing.client_instance_id
    assert got.subscription_id != nothing.subscription_id
    assert got.requested_metrics == ["org.apache.kafka."]
    assert (got.push_interval_ms, got.telemetry_max_bytes) == (60_000, 1 << 20)
    assert got.accepted_compression_types == [4, 3, 1, 2]
    assert got.delta_temporality
    assert await push(wire, got, payload()) is ErrorCode.NONE
    assert await push(wire, got, payload()) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await push(wire, got, payload(), terminating=True) is ErrorCode.NONE
    assert await push(wire, got, payload()) is ErrorCode.INVALID_REQUEST

    listener = listen(broker, listeners)
    samples = await scrape(listener)
    instance = kafka_id(got.client_instance_id)
    client_id = next(
        dict(labels)["client_id"] for name, labels in samples if name == "odradek_client_telemetry_info"
    )
    sent = "org_apache_kafka_producer_record_send_total"
    assert of(samples, sent, client_id=client_id, client_instance_id=instance) == 10, "changes are added up"
    assert of(samples, "odradek_client_telemetry_instances") == 1
    assert of(samples, "odradek_client_telemetry_pushes_total") == 2
    assert of(samples, "odradek_client_telemetry_errors_total", error="THROTTLING_QUOTA_EXCEEDED") == 1
    assert not any("secret" in name for name, _ in samples), "only what was asked for is kept"
    [shown] = json.loads((await ask(listener, "/clients")).body)
    assert shown["client_instance_id"] == instance
    assert shown["labels"] == {"group_id": "g"}
    assert shown["metrics"] == [{"name": SENT.name, "labels": {}, "value": 10.0}]
    assert shown["has_ended"]
    assert shown["interval_ms"] == 60_000


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_compression_is_read(scene: Any, codec: Codec) -> None:
    broker = await scene.start()
    wire = await scene.connect()
    await subscribe(wire, "all", metrics="*")
    got = await get(wire)
    assert got.requested_metrics == ["*", ""], "each client knows one of the two spellings of all metrics"
    metrics = compress(codec, payload())
    assert await push(wire, got, metrics, compression_type=int(codec)) is ErrorCode.NONE
    [instance] = broker.context.client_telemetry.instances.present(0.0)
    values = [(value.name, value.value) for value in instance.series.values.values()]
    assert values == [(SENT.name, 5.0), (OTHER.name, 1.0)]


@pytest.mark.parametrize(
    ("metrics", "more", "code"),
    [
        (b"\xff", {}, ErrorCode.INVALID_RECORD),
        (b"no zstd", {"compression_type": 4}, ErrorCode.INVALID_RECORD),
        (compress(Codec.ZSTD, bytes(5 << 20)), {"compression_type": 4}, ErrorCode.INVALID_RECORD),
        (b"", {"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(101), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"", {"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        (b"", {"client_instance_id": UUID(int=0)}, ErrorCode.INVALID_REQUEST),
        (b"", {}, ErrorCode.NONE),
    ],
    ids=["no protobuf", "no zstd", "a bomb", "compression", "too large", "subscription", "id", "nothing"],
)
async def test_what_is_wrong_with_a_push_is_said(
    scene: Any, metrics: bytes, more: dict[str, Any], code: ErrorCode
) -> None:
    broker = await scene.start(telemetry_max_bytes="1000" if len(metrics) > 101 else "100")
    wire = await scene.connect()
    await subscribe(wire, "all", metrics="*")
    assert await push(wire, await get(wire), metrics, **more) is code
    assert broker.context.client_telemetry.instances.room.count == 0


async def test_subscriptions_survive_a_restart_and_wrong_ones_are_refused(scene: Any) -> None:
    await scene.start()
    wire = await scene.connect()
    assert await subscribe(wire, "kept", metrics="a.", match="client_id=.*") == 0
    assert await subscribe(wire, "wrong", match="client_id=(a") == ErrorCode.INVALID_CONFIG
    assert await subscribe(wire, "wrong", interval_ms="1") == ErrorCode.INVALID_REQUEST
    await scene.stop()
    await scene.start()
    wire = await scene.connect()
    assert (await get(wire)).requested_metrics == ["a."]
