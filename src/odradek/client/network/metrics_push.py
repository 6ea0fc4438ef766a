"""Pushes a client's own metrics to a broker that asks for them (KIP-714). Lives on the client's event loop.

Theory. The client asks whichever broker is connected for its subscription, gets an id for its lifetime with the answer, and
pushes what was asked for at the interval that was asked for, counters as changes since the last push. Brokers decide all of it:
one that does not know the requests, and one that asks for nothing, costs a question now and then. Nothing that fails here is
shown to the user: metrics must not disturb a client's work. A last push tells the broker that the client has ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from odradek.client.network.errors import IllegalStateError, TimedOutError
from odradek.client.network.metrics import MetricName
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import ZERO_UUID, kafka_id
from odradek.model.lazy import lazy
from odradek.protocol import api_by_name
from odradek.runtime.ports import Clock, Entropy

if TYPE_CHECKING:
    from odradek.client.network.connection import BrokerConnection
    from odradek.client.network.connections import BrokerConnections
    from odradek.protocol.messages.configs import get_telemetry_subscriptions, push_telemetry
    from odradek.records import codec
    from odradek.telemetry import otlp
else:
    otlp = lazy("odradek.telemetry.otlp")
    codec = lazy("odradek.records.codec")
    get_telemetry_subscriptions = lazy("odradek.protocol.messages.configs.get_telemetry_subscriptions")
    push_telemetry = lazy("odradek.protocol.messages.configs.push_telemetry")

_FIRST_S: Final = 1.0
"""A client that ends sooner asks for nothing."""
_NO_BROKER_S: Final = 1.0
_DEFAULT_INTERVAL_S: Final = 300.0
"""Kafka's interval for clients without a subscription, and after an error."""
_WANTED_S: Final = 0.25
_LAST_PUSH_S: Final = 1.0
_GZIP: Final = 1
"""The only codec that needs no library."""
_ASK_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_HOPELESS: Final = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION})
_PREFIX: Final = "org.apache.kafka."
_NS_PER_MS: Final = 1_000_000


class MetricsPush:
    """The push of one client. `read` returns its metrics now; it is called on the loop."""

    def __init__(
        self,
        links: BrokerConnections,
        clock: Clock,
        entropy: Entropy,
        read: Callable[[], Mapping[MetricName, float]],
        *,
        connect: Callable[[], Awaitable[object]],
        labels: Mapping[str, str],
    ) -> None:
        """`connect` makes a connection, for a user who wants the id of a client that has none yet. `labels`: the client's own,
        such as `group_id`; empty ones are left out.
        """
        self._links = links
        self._clock = clock
        self._entropy = entropy
        self._read = read
        self._connect = connect
        self._labels = _present(labels)
        self._task: asyncio.Task[None] | None = None
        self._instance_id = ZERO_UUID
        self._subscription: get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse | None = None
        self._pushed: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        """The counters as they were at the last push."""
        self._pushed_ns = 0
        self._is_wanted = asyncio.Event()
        self._news = asyncio.Event()
        """Set when the client has its id."""

    def start(self) -> None:
        """Starts the task that pushes metrics. Idempotent."""
        if self._task is None:
            self._pushed_ns = self._clock.wall_ms() * _NS_PER_MS
            self._task = asyncio.get_running_loop().create_task(self._run(), name="odradek-metrics-push")

    async def close(self) -> None:
        """Ends it, with a last push if a broker asked for metrics. It takes a second at most."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        connection = self._links.least_loaded()
        if connection is None or self._subscription is None or not self._subscription.requested_metrics:
            return
        try:
            async with asyncio.timeout(_LAST_PUSH_S):
                await self._push(connection, self._subscription, terminating=True)
        except (OdradekError, TimeoutError):
            pass  # the broker forgets this client after a while, as it does those that crash

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Changes the client's own labels, for what is pushed from now on."""
        self._labels = _present(labels)

    async def instance_id(self, timeout_s: float) -> str:
        """Returns the id that brokers show with this client's metrics. TimedOutError when no broker gave one in time."""
        if self._task is None:
            raise IllegalStateError("the client is closed")
        if self._instance_id == ZERO_UUID:
            self._is_wanted.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            reason = f"no broker gave this client an id for its metrics within {timeout_s:g} s"
            raise TimedOutError(f"{reason}: it needs one with KIP-714") from None
        finally:
            self._is_wanted.clear()
        return kafka_id(self._instance_id)

    async def _run(self) -> None:
        delay_s = _FIRST_S
        while True:
            await self._pause(delay_s)
            try:
                if self._is_wanted.is_set() and self._links.least_loaded() is None:
                    await self._connect()
                connection = self._links.least_loaded()
                delay_s = _NO_BROKER_S if connection is None else await self._step(connection)
            except KafkaError as error:
                if error.code in _HOPELESS and self._subscription is not None:
                    return
                delay_s = self._interval_s
            except OdradekError:
                delay_s = self._interval_s

    async def _pause(self, delay_s: float) -> None:
        """Waits. A user who wants to know the id shortens the wait."""
        if self._is_wanted.is_set():
            await asyncio.sleep(min(delay_s, _WANTED_S))
            return
        try:
            async with asyncio.timeout(delay_s):
                await self._is_wanted.wait()
        except TimeoutError:
            pass

    @property
    def _interval_s(self) -> float:
        subscription = self._subscription
        return _DEFAULT_INTERVAL_S if subscription is None else subscription.push_interval_ms / 1_000

    async def _step(self, connection: BrokerConnection) -> float:
        """Asks, or pushes. Returns the seconds until the next step."""
        if not connection.offers(api_by_name("PushTelemetry")):
            return _DEFAULT_INTERVAL_S
        subscription = self._subscription
        if subscription is None or not subscription.requested_metrics:
            return await self._request_subscription(connection)
        try:
            await self._push(connection, subscription, terminating=False)
        except KafkaError as error:
            if error.code not in _ASK_AGAIN:
                raise
            return await self._request_subscription(connection)
        return self._interval_s

    async def _request_subscription(self, connection: BrokerConnection) -> float:
        request = get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest(
            client_instance_id=self._instance_id
        )
        response = await connection.send(request)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        self._subscription = response
        self._instance_id = response.client_instance_id
        self._news.set()
        if not response.requested_metrics:
            return self._interval_s
        return self._interval_s * (0.5 + self._entropy.uniform())  # clients that began together spread

    async def _push(
        self,
        connection: BrokerConnection,
        subscription: get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse,
        *,
        terminating: bool,
    ) -> None:
        points, counters = self._points(subscription)
        now_ns = self._clock.wall_ms() * _NS_PER_MS
        payload = otlp.written_metrics(points, resource=self._labels, start_ns=self._pushed_ns, now_ns=now_ns)
        compression = _GZIP if _GZIP in subscription.accepted_compression_types else 0
        if compression:
            payload = codec.compress(codec.Codec.GZIP, payload)
        request = push_telemetry.PushTelemetryRequest(
            client_instance_id=self._instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=compression,
            metrics=payload if len(payload) <= subscription.telemetry_max_bytes else b"",
        )
        response = await connection.send(request)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        self._pushed, self._pushed_ns = counters, now_ns

    def _points(
        self, subscription: get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse
    ) -> tuple[list[otlp.OtlpPoint], dict[tuple[str, tuple[tuple[str, str], ...]], float]]:
        """Returns what is asked for, and the counters as they are now."""
        prefixes = tuple(subscription.requested_metrics)
        is_all = prefixes == ("*",)
        points, counters = [], {}
        for metric, value in self._read().items():
            name = telemetry_name(metric)
            if math.isnan(value) or not (is_all or name.startswith(prefixes)):
                continue
            labels = tuple(
                sorted((key.replace("-", "_"), text) for key, text in metric.tags if key != "client-id")
            )
            kind, is_delta = otlp.PointKind.GAUGE, False
            if name.endswith(".total"):
                counters[name, labels] = value
                kind, is_delta = otlp.PointKind.COUNTER, subscription.delta_temporality
                value -= self._pushed.get((name, labels), 0.0) if is_delta else 0.0
            points.append(
                otlp.OtlpPoint(name=name, kind=kind, value=value, is_delta=is_delta, attributes=labels)
            )
        return points, counters


def telemetry_name(metric: MetricName) -> str:
    """Returns KIP-714's name: `org.apache.kafka.producer.record.send.total` for record-send-total of producer-metrics."""
    group = metric.group.removesuffix("-metrics")
    return f"{_PREFIX}{group}.{metric.name}".replace("-", ".")


def _present(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in labels.items() if value))
