"""Quotas at work: what a request uses is counted, the response has the client's throttle time, and its
connection is muted for that time (KIP-219: the response goes out first, so that a client knows).

What is counted, and when. Bytes of a Produce request when it arrives, before anything else is known of it: a request that is
refused, or whose sender may not write, costs as much as one that succeeds (KAFKA-18764). Bytes of a Fetch or ShareFetch
response when it is written. The time that the event loop spends on a request, in percent of a second. Partitions created and
deleted, by the handlers that do it. Without a limit nothing here runs.

A fetch that goes over its quota is answered with what was found, and the client waits afterwards. (Kafka answers it with
nothing and lets the client ask again: the rate is the same, but a batch larger than the quota's whole window never arrives.)
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from functools import cache
from typing import Any, Final, TypeVar

from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.config.broker import BrokerConfig
from odradek.model.errors import KafkaError
from odradek.net.connection import Connection
from odradek.net.replies import Chunks
from odradek.protocol import Message, VersionRange
from odradek.security.buckets import Window
from odradek.security.quota_entities import QuotaKind
from odradek.security.quotas import Quotas, QuotaTerms

T = TypeVar("T")

_PRODUCE: Final = 0
_FETCHES: Final = frozenset({1, 78})
"""Fetch and ShareFetch: consumers and members of share groups have one quota."""
_EXEMPT: Final = frozenset({27})
"""Requests between brokers (WriteTxnMarkers)."""
_RATE_MIN: Final = 1e-9


def quota_terms(config: BrokerConfig) -> QuotaTerms:
    return QuotaTerms(
        window=Window(
            sample_count=config.quota.quota_window_num, sample_seconds=config.quota.quota_window_size_seconds
        ),
        mutation_window=Window(
            sample_count=config.quota.controller_quota_window_num,
            sample_seconds=config.quota.controller_quota_window_size_seconds,
        ),
        broker_connections_per_second=max(config.network.max_connection_creation_rate, _RATE_MIN),
    )


def quota_user(context: RequestContext) -> str:
    """Returns the name that quotas know a principal by: without its type."""
    return context.principal.partition(":")[2]


def fetch_bytes_max(broker: BrokerContext, context: RequestContext) -> int:
    """Returns the byte limit of a fetch response: the quota of one whole window, so that no client is muted
    for long."""
    most = broker.quotas.amount_max(QuotaKind.FETCH, quota_user(context), context.client_id)
    return int(min(most, 2**31 - 1))


class Charge:
    """The use of quotas by one request, while it is served."""

    __slots__ = ("_api_key", "_client_id", "_connection", "_delay", "_now", "_quotas", "_user")

    def __init__(
        self,
        quotas: Quotas,
        now: Callable[[], float],
        api_key: int,
        context: RequestContext,
        request_bytes: int,
    ) -> None:
        self._quotas = quotas
        self._now = now
        self._api_key = api_key
        self._connection: Connection = context.connection
        self._user = quota_user(context)
        self._client_id = context.client_id
        self._delay = 0.0
        if api_key == _PRODUCE:
            self._count(QuotaKind.PRODUCE, request_bytes)

    @property
    def delay_s(self) -> float:
        """How long the client must be silent after the answer."""
        return self._delay

    def timed(self, work: Callable[[], T]) -> T:
        """Do a part of the work and count the time it takes."""
        if not self._counts_time:
            return work()
        start = self._now()
        try:
            return work()
        finally:
            self._count(QuotaKind.REQUEST, (self._now() - start) * 100)

    def timed_steps(self, work: Awaitable[T]) -> Awaitable[T]:
        """Measures work that waits in between: only its steps count."""
        return _Steps(work, self) if self._counts_time else work

    @property
    def _counts_time(self) -> bool:
        return self._api_key not in _EXEMPT and self._quotas.limits(QuotaKind.REQUEST)

    def encoded(self, version: int, message: Message, encode: Callable[[Message], Chunks]) -> Chunks:
        """Returns the response's bytes, with the client's throttle time."""
        chunks = self.timed(lambda: encode(message))
        if self._api_key in _FETCHES:
            self._count(QuotaKind.FETCH, sum(map(len, chunks)))
        delay_ms = math.ceil(self._delay * 1000)
        own_ms = getattr(message, "throttle_time_ms", 0)
        if own_ms > delay_ms:
            self._mute(own_ms / 1000)
        elif delay_ms > own_ms and version in _versions_with_delay(type(message)):
            return encode(message.replace(throttle_time_ms=delay_ms))
        return chunks

    def with_throttle_time(self, version: int, message: Message) -> Message:
        """Returns a response with the client's throttle time, as far as it is known before it is written."""
        delay_ms = math.ceil(self._delay * 1000)
        is_more = delay_ms > getattr(message, "throttle_time_ms", 0)
        if is_more and version in _versions_with_delay(type(message)):
            return message.replace(throttle_time_ms=delay_ms)
        return message

    def _count(self, kind: QuotaKind, amount: float) -> None:
        delay = self._quotas.record(kind, self._user, self._client_id, amount, self._now())
        if delay > self._delay:
            self._mute(delay)

    def _mute(self, delay: float) -> None:
        self._delay = delay
        self._connection.mute_for(delay)


class _Steps(Awaitable[T]):
    """Drives an awaitable and times each step between two waits."""

    def __init__(self, work: Awaitable[T], charge: Charge) -> None:
        self._work = work
        self._charge = charge

    def __await__(self) -> Generator[object, None, T]:
        steps = self._work.__await__()
        step: Callable[[], object] = steps.__next__
        while True:
            try:
                wanted = self._charge.timed(step)
            except StopIteration as end:
                value: T = end.value
                return value
            try:
                given = yield wanted
            except BaseException as error:  # noqa: BLE001 - it is the work's own to handle: a cancellation, most of all
                step = _throwing(steps, error)
            else:
                step = _sending(steps, given)


def _throwing(steps: Generator[object, None, object], error: BaseException) -> Callable[[], object]:
    return lambda: steps.throw(error)


def _sending(steps: Generator[Any, Any, Any], value: object) -> Callable[[], object]:
    return lambda: steps.send(value)


@cache
def _versions_with_delay(cls: type[Message]) -> VersionRange:
    """Returns the versions of a response that have a place for the delay."""
    for field in cls.FIELDS:
        if field.name == "throttle_time_ms":
            return field.versions
    return VersionRange(1, 0)


class Mutations:
    """The partitions that one request creates or deletes, against `controller_mutation_rate` (KIP-599).

    From `strict_since` on, what is over the quota is refused; older clients do not know the error, and wait afterwards.
    """

    def __init__(self, broker: BrokerContext, context: RequestContext, *, strict_since: int) -> None:
        self._quotas = broker.quotas
        self._now = broker.runtime.clock.monotonic
        self._user = quota_user(context)
        self._client_id = context.client_id
        self._strict = context.api_version >= strict_since

    def record(self, partition_count: int) -> None:
        """Counts a change; call it before the change. Raises THROTTLING_QUOTA_EXCEEDED when it must not be made now."""
        if not self._quotas.active:
            return
        now = self._now()
        if self._strict:
            self._quotas.check_mutations(self._user, self._client_id, now)
        self._quotas.record_mutations(self._user, self._client_id, partition_count, now)

    def refusal(self, partition_count: int) -> KafkaError | None:
        """Does what `record` does, and returns the error as a value."""
        try:
            self.record(partition_count)
        except KafkaError as error:
            return error.as_outcome()
        return None

    @property
    def throttle_time_ms(self) -> int:
        """The throttle time for the response; the connection is muted for as long."""
        if not self._quotas.active:
            return 0
        return math.ceil(self._quotas.mutations_delay(self._user, self._client_id, self._now()) * 1000)
