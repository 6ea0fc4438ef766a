"""A client that pushes its metrics: asks, pushes changes, asks again when it must, says goodbye, and never disturbs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.client.network.connections import BrokerConnections
from odradek.client.network.errors import TimedOutError
from odradek.client.network.metrics import MetricName
from odradek.client.network.metrics_push import MetricsPush, telemetry_name
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import kafka_id
from odradek.protocol import Api, Message
from odradek.protocol.messages.configs.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.messages.configs.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.records.codec import Codec, decompress
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.runtime.turns import in_one_go
from odradek.telemetry.otlp import PushedMetrics, read_steps

ID = UUID(int=42)
SENT = MetricName("producer-metrics", "record-send-total", (("client-id", "c"),))
LAG = MetricName("consumer-fetch-manager-metrics", "records-lag", (("client-id", "c"), ("topic", "t")))
NEVER = MetricName("producer-metrics", "request-latency-avg", (("client-id", "c"),))
SECONDS_MAX = 20


class FakeBroker:
    """A connection whose broker answers by `codes`, the first code for the first push; then without errors."""

    def __init__(
        self, *codes: ErrorCode | KafkaError, metrics: list[str] | None = None, offers: bool = True
    ) -> None:
        self._codes = list(codes)
        self._metrics = ["*"] if metrics is None else metrics
        self._offers = offers
        self.asked: list[UUID] = []
        self.pushes: list[PushTelemetryRequest] = []
        self.interval_ms = 1
        self.heard = asyncio.Event()

    def offers(self, api: Api) -> bool:
        return self._offers

    def send(self, message: Message) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.heard.set()
        if isinstance(message, GetTelemetrySubscriptionsRequest):
            self.asked.append(message.client_instance_id)
            future.set_result(
                GetTelemetrySubscriptionsResponse(
                    client_instance_id=ID,
                    subscription_id=len(self.asked),
                    accepted_compression_types=[4, 1],
                    push_interval_ms=self.interval_ms,
                    telemetry_max_bytes=10_000,
                    delta_temporality=True,
                    requested_metrics=self._metrics,
                )
            )
            return future
        self.pushes.append(cast(PushTelemetryRequest, message))
        code = self._codes.pop(0) if self._codes else ErrorCode.NONE
        if isinstance(code, KafkaError):
            future.set_exception(code)
        else:
            future.set_result(PushTelemetryResponse(error_code=code))
        return future

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                self.heard.clear()
                await self.heard.wait()


class FakeLinks:
    def __init__(self, broker: FakeBroker | None) -> None:
        self._broker = broker

    def least_loaded(self) -> FakeBroker | None:
        return self._broker


def pushing(broker: FakeBroker | None, values: dict[MetricName, float]) -> MetricsPush:
    links = cast(BrokerConnections, FakeLinks(broker))
    labels = {"group_id": "g", "group_instance_id": ""}

    async def refused() -> None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)

    push = MetricsPush(links, SystemClock(), SystemEntropy(), lambda: values, connect=refused, labels=labels)
    push.start()
    return push


def read(request: PushTelemetryRequest) -> PushedMetrics:
    content = decompress(Codec(request.compression_type), request.metrics)
    return in_one_go(read_steps(memoryview(content)))


async def test_it_pushes_changes_of_counters_and_a_last_time_at_the_end() -> None:
    broker, values = FakeBroker(), {SENT: 5.0, LAG: 3.0, NEVER: float("nan")}
    push = pushing(broker, values)
    assert await push.instance_id(SECONDS_MAX) == kafka_id(ID)
    await broker.until(lambda: len(broker.pushes) >= 1)
    values[SENT] = 7.0
    push.relabel({"transactional_id": "t"})
    await push.close()

    first, last = broker.pushes[0], broker.pushes[-1]
    assert broker.asked == [UUID(int=0)]
    assert (first.client_instance_id, first.subscription_id, first.terminating) == (ID, 1, False)
    assert last.terminating
    assert read(first).resource == (("group_id", "g"),)
    assert read(last).resource == (("transactional_id", "t"),)
    points = {(point.name, point.attributes): point for point in read(first).points}
    sent = points["org.apache.kafka.producer.record.send.total", ()]
    assert (sent.value, sent.is_delta) == (5.0, True)
    lag = points["org.apache.kafka.consumer.fetch.manager.records.lag", (("topic", "t"),)]
    assert (lag.value, lag.is_delta) == (3.0, False)
    assert len(points) == 2, "what has no value is not pushed"
    counted = sum(
        point.value for request in broker.pushes for point in read(request).points if point.is_delta
    )
    assert counted == 7.0


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE],
)
async def test_it_asks_again_when_its_subscription_is_old_and_loses_no_change(code: ErrorCode) -> None:
    broker = FakeBroker(code)
    push = pushing(broker, {SENT: 5.0})
    await push.instance_id(SECONDS_MAX)
    await broker.until(lambda: len(broker.pushes) >= 2)
    await push.close()
    assert broker.asked == [UUID(int=0), ID]
    assert [request.subscription_id for request in broker.pushes[:2]] == [1, 2]
    assert read(broker.pushes[1]).points[0].value == 5.0


@pytest.mark.parametrize(
    "trouble",
    [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.INVALID_RECORD, KafkaError(ErrorCode.NETWORK_EXCEPTION)],
)
async def test_other_trouble_costs_one_interval(trouble: ErrorCode | KafkaError) -> None:
    broker = FakeBroker(trouble)
    push = pushing(broker, {SENT: 5.0})
    await push.instance_id(SECONDS_MAX)
    await broker.until(lambda: len(broker.pushes) >= 2)
    await push.close()
    assert broker.asked == [UUID(int=0)]


async def test_only_what_is_asked_for_is_pushed_and_nothing_when_nothing_is() -> None:
    some = FakeBroker(metrics=["org.apache.kafka.consumer."])
    push = pushing(some, {SENT: 5.0, LAG: 3.0})
    await push.instance_id(SECONDS_MAX)
    await some.until(lambda: bool(some.pushes))
    await push.close()
    assert {point.name for point in read(some.pushes[0]).points} == {telemetry_name(LAG)}

    none = FakeBroker(metrics=[])
    push = pushing(none, {SENT: 5.0})
    await push.instance_id(SECONDS_MAX)
    await none.until(lambda: len(none.asked) >= 2)
    await push.close()
    assert none.pushes == []


@pytest.mark.parametrize("broker", [None, FakeBroker(offers=False)], ids=["no broker", "an old broker"])
async def test_without_a_broker_that_asks_there_is_no_id_and_no_trouble(broker: Any) -> None:
    push = pushing(broker, {SENT: 5.0})
    with pytest.raises(TimedOutError, match="no broker gave this client an id"):
        await push.instance_id(0.01)
    await push.close()
