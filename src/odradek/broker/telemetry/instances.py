"""Client instances, and which of their telemetry requests are accepted: the rules of Kafka's ClientMetricsManager. Pure.

A client that asks for its subscription becomes an instance. It is forgotten when it has not asked for three intervals. The
number of instances is bounded: the one that has been quiet for the longest makes room.
"""

from __future__ import annotations

import math
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.broker.telemetry.series import ClientSeries, SeriesRoom
from odradek.broker.telemetry.subscriptions import Subscribed, Subscriptions, TelemetryClient
from odradek.model.errors import ErrorCode, KafkaError

COMPRESSION_TYPES: Final = (4, 3, 1, 2)
"""What clients may compress with, the preferred one first: zstd, lz4, gzip, snappy. None is accepted, too."""
_RESERVED: Final = frozenset({UUID(int=0), UUID(int=1)})
_EXPIRY_S_MIN: Final = 60.0
_TERMINATED_S: Final = 60.0
"""The last values of a client that ended are shown for this long."""
_INTERVALS: Final = 3
_ASKS_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""After these errors a client may ask for its subscription at once, as KIP-714 has it."""


class ClientInstance:
    """One client and its subscription. Times are in seconds of the monotonic clock."""

    __slots__ = (
        "_got_at",
        "_pushed_at",
        "client",
        "instance_id",
        "is_terminating",
        "last_error",
        "push_count",
        "seen_at",
        "series",
        "subscribed",
        "subscription_id",
        "subscriptions",
    )

    def __init__(
        self, instance_id: UUID, client: TelemetryClient, subscriptions: Subscriptions, series: ClientSeries
    ) -> None:
        self.instance_id: Final = instance_id
        self.client: Final = client
        self.series: Final = series
        self.push_count = 0
        self.seen_at = 0.0
        self.subscribe(subscriptions)

    def subscribe(self, subscriptions: Subscriptions) -> None:
        """Asks the client by new subscriptions. It may come at once."""
        self.subscriptions = subscriptions
        self.subscribed: Subscribed = subscriptions.of(self.client)
        self.subscription_id = _subscription_id(self.subscribed, self.instance_id)
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self._got_at = self._pushed_at = -math.inf

    @property
    def interval_s(self) -> float:
        return self.subscribed.interval_ms / 1_000

    def is_over(self, now: float) -> bool:
        """Tells whether the client has not been heard of for too long."""
        if self.is_terminating:
            return now - self.seen_at > _TERMINATED_S
        return now - self.seen_at > max(_EXPIRY_S_MIN, _INTERVALS * self.interval_s)

    def get(self, now: float) -> None:
        """Accepts a question for the subscription, or raises THROTTLING_QUOTA_EXCEEDED."""
        is_early = now - max(self._got_at, self._pushed_at) < self.interval_s
        if is_early and self.last_error not in _ASKS_AGAIN:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval has not passed yet")
        self._got_at = now
        self.last_error = ErrorCode.NONE

    def push(
        self, now: float, *, subscription_id: int, compression: int, size_bytes: int, size_bytes_max: int,
        terminating: bool,
    ) -> None:  # fmt: skip
        """Accepts a push, or raises a KafkaError with the reason."""
        try:
            self._check_push(now, subscription_id, compression, terminating=terminating)
            if size_bytes > size_bytes_max:
                reason = f"{size_bytes} bytes of metrics are more than telemetry.max.bytes ({size_bytes_max})"
                raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, reason)
        except KafkaError as error:
            self.last_error = error.code
            raise
        finally:
            self.is_terminating = self.is_terminating or terminating
        self.last_error = ErrorCode.NONE

    def _check_push(self, now: float, subscription_id: int, compression: int, *, terminating: bool) -> None:
        if self.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has sent its last metrics already")
        # The first push after a question may be early: clients spread it over half to one and a half intervals.
        if self._got_at > self._pushed_at or now - self._pushed_at >= self.interval_s:
            self._pushed_at = now
        elif not terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval has not passed yet")
        if subscription_id != self.subscription_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "the subscription has changed: ask for it again"
            )
        if compression not in COMPRESSION_TYPES and compression != 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {compression}"
            )


class ClientInstances:
    """The instances of all clients that this broker has heard of."""

    def __init__(self, *, instances_max: int, series_max: int) -> None:
        self._instances_max: Final = instances_max
        self.room: Final = SeriesRoom(series_max)
        self._known: Final[OrderedDict[UUID, ClientInstance]] = OrderedDict()
        """The one that was heard of last comes last."""
        self._subscriptions = Subscriptions()

    def __len__(self) -> int:
        return len(self._known)

    def subscribe(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Sets the subscriptions. Each client learns of a change with its next request."""
        if configs != self._subscriptions.configs:
            self._subscriptions = Subscriptions(configs)

    def present(self, now: float) -> list[ClientInstance]:
        """Returns all instances, without those that are over."""
        for instance in [known for known in self._known.values() if known.is_over(now)]:
            self._forget(instance)
        return list(self._known.values())

    def of(self, instance_id: UUID, client: TelemetryClient, now: float) -> ClientInstance:
        """Returns the instance, made if need be, and notes that it was heard of."""
        instance = self._known.get(instance_id)
        if instance is not None and instance.is_over(now):
            self._forget(instance)
            instance = None
        if instance is None:
            while len(self._known) >= self._instances_max:
                self._forget(next(iter(self._known.values())))
            series = ClientSeries(client.client_id, client.client_instance_id, self.room)
            instance = ClientInstance(instance_id, client, self._subscriptions, series)
            self._known[instance_id] = instance
        elif instance.subscriptions is not self._subscriptions:
            instance.subscribe(self._subscriptions)
        instance.seen_at = now
        self._known.move_to_end(instance_id)
        return instance

    def _forget(self, instance: ClientInstance) -> None:
        del self._known[instance.instance_id]
        instance.series.clear()


def check_instance_id(instance_id: UUID) -> None:
    """Raises INVALID_REQUEST for ids that no client can have."""
    if instance_id in _RESERVED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{instance_id} is no id of a client")


def _subscription_id(subscribed: Subscribed, instance_id: UUID) -> int:
    """Returns the same number on every broker, another one when anything changed."""
    checksum = zlib.crc32(f"{subscribed.metrics}{subscribed.interval_ms}".encode())
    high, low = instance_id.int >> 64, instance_id.int & (1 << 64) - 1
    mixed = high ^ low
    number = checksum ^ mixed >> 32 ^ mixed & 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number
