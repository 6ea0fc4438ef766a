"""Quotas of clients: the limits that were set, the limit that a client comes under, and how far it is over it.

A pure core: no clock, no I/O; `now` is monotonic seconds. `Quotas.update` takes the limits as the cluster stores them; the
broker records what clients use and learns for how many seconds a client must be silent.

**Whose limit.** For each kind of limit the first of these that has one (KIP-13, KIP-55):

    user + client id, user + any other client, user,
    any other user + client id, any other user + any other client, any other user,
    client id, any other client

The sharing follows from it: clients under a limit of a user share it with that user's other clients, and
clients under a limit of a client id share it with all clients of that id; "any other" gives each one a
measure of its own.

**Memory.** A measure that is as good as new is dropped, so only clients that were active within the last window cost
anything. Beyond `measures_max` of one kind, newcomers share one measure for each limit: a client that invents a client id for
every request cannot grow the broker, and slows itself down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.parted import Parted
from odradek.security.buckets import Bucket, Window
from odradek.security.quota_entities import CLIENT_ID, IP, USER, Entity, QuotaKind

Limits = Mapping[Entity, Mapping[str, float]]

MEASURES_MAX: Final = 10_000
_DEFAULT_WINDOW: Final = Window()
_OTHERS: Final = "\0"
"""The share of clients for which there was no room; no possible name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTerms:
    """The settings of all quotas."""

    window: Window = _DEFAULT_WINDOW
    mutation_window: Window = _DEFAULT_WINDOW
    broker_connections_per_second: float = 2**31 - 1
    measures_max: int = MEASURES_MAX


class _Share(NamedTuple):
    """The clients that are measured together, and their limit."""

    user: str | None
    client_id: str | None
    limit: float


class _Measures:
    """The buckets of one kind, the longest unused first."""

    def __init__(self) -> None:
        self._held: dict[tuple[str | None, str | None], tuple[Bucket, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def of(self, share: _Share, now: float, most: int) -> Bucket:
        key = (share.user, share.client_id)
        held = self._held.pop(key, None)
        if held is None:
            self._drop_full(now)
            if len(self._held) >= most:
                key = (_OTHERS, str(share.limit))
                held = self._held.pop(key, None)
        bucket = Bucket() if held is None else held[0]
        self._held[key] = (bucket, share.limit)
        return bucket

    def _drop_full(self, now: float) -> None:
        """Drops up to two full measures for each new one: full measures do not stay long, and no call takes
        long."""
        for key in [key for key, _ in zip(self._held, range(2), strict=False)]:
            bucket, limit = self._held[key]
            if not bucket.is_full(limit, now):
                break
            del self._held[key]

    def clear(self) -> None:
        self._held.clear()


class Quotas:
    """The quotas of a cluster, and the use of each client against them. Used on the event loop only."""

    def __init__(self, terms: QuotaTerms | None = None) -> None:
        self._terms = terms or QuotaTerms()
        self._limits: dict[QuotaKind, dict[Entity, float]] = {}
        self._parts: tuple[Limits, ...] = ()
        self._measures = {kind: _Measures() for kind in QuotaKind}
        self._all_connections = Bucket()
        self.active = False
        """Whether any client comes under any limit: the hot path asks this, and nothing else when it is False."""
        self.limits_connections = False

    @property
    def measure_count(self) -> int:
        """The number of measured clients, over all kinds."""
        return sum(map(len, self._measures.values()))

    def update(self, limits: Limits, terms: QuotaTerms | None = None) -> None:
        """Take over all limits; what was measured so far still counts."""
        self._terms = terms or self._terms
        for _ in self.updates(limits):
            pass

    def updates(self, limits: Limits) -> Iterator[None]:
        """Takes over all limits in steps, one for each part that differs. Limits of later parts stay as
        before until the last step."""
        parts = limits.parts if isinstance(limits, Parted) else (dict(limits),)
        if len(parts) != len(self._parts):
            self._limits.clear()
            self._parts = ({},) * len(parts)
        for number, (before, after) in enumerate(zip(self._parts, parts, strict=True)):
            if after is not before:
                self._replace(before, after)
                self._parts = (*self._parts[:number], after, *self._parts[number + 1 :])
                yield
        self._limits = {kind: entities for kind, entities in self._limits.items() if entities}
        for kind, measures in self._measures.items():
            if kind not in self._limits:
                measures.clear()
        self.active = any(kind is not QuotaKind.CONNECTIONS for kind in self._limits)
        self.limits_connections = (
            QuotaKind.CONNECTIONS in self._limits
            or self._terms.broker_connections_per_second < QuotaTerms().broker_connections_per_second
        )

    def _replace(self, before: Limits, after: Limits) -> None:
        """Takes over the limits that differ between two states of one part."""
        for entity, values in before.items():
            if after.get(entity) != values:
                for key in values:
                    self._limits.get(QuotaKind(key), {}).pop(entity, None)
        for entity, values in after.items():
            if before.get(entity) != values:
                for key, limit in values.items():
                    self._limits.setdefault(QuotaKind(key), {})[entity] = limit

    def limits(self, kind: QuotaKind) -> bool:
        """Tells whether any client comes under a limit of this kind."""
        return kind in self._limits

    # -- what clients use

    def record(self, kind: QuotaKind, user: str, client_id: str, amount: float, now: float) -> float:
        """Count what a client used; return for how many seconds it must be silent.

        Bytes for PRODUCE and FETCH, percent of a second for REQUEST, where the silence lasts one sample at most (KIP-124).
        """
        share = self._share(kind, user, client_id)
        if share is None:
            return 0.0
        window = self._terms.window
        bucket = self._measures[kind].of(share, now, self._terms.measures_max)
        bucket.record(amount, share.limit, window.settled_seconds, now)
        delay = bucket.delay(share.limit, window.settled_seconds, now)
        return min(delay, window.sample_seconds) if kind is QuotaKind.REQUEST else delay

    def amount_max(self, kind: QuotaKind, user: str, client_id: str) -> float:
        """Returns the amount that a client that was silent may use at once without a delay; infinite without a limit."""
        share = self._share(kind, user, client_id)
        return float("inf") if share is None else share.limit * self._terms.window.settled_seconds

    def check_mutations(self, user: str, client_id: str, now: float) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED for a client that changed more partitions than it may (KIP-599, strict)."""
        delay = self.mutations_delay(user, client_id, now)
        if delay > 0:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the quota {QuotaKind.MUTATIONS.value} is used up: try again in {delay:.1f} s",
            )

    def record_mutations(self, user: str, client_id: str, count: int, now: float) -> None:
        """Count partitions that a client created or deleted, or asked to."""
        share = self._share(QuotaKind.MUTATIONS, user, client_id)
        if share is not None:
            burst_seconds = self._terms.mutation_window.seconds
            self._mutations_of(share, now).record(count, share.limit, burst_seconds, now)

    def mutations_delay(self, user: str, client_id: str, now: float) -> float:
        share = self._share(QuotaKind.MUTATIONS, user, client_id)
        if share is None:
            return 0.0
        return self._mutations_of(share, now).delay(share.limit, self._terms.mutation_window.seconds, now)

    def _mutations_of(self, share: _Share, now: float) -> Bucket:
        return self._measures[QuotaKind.MUTATIONS].of(share, now, self._terms.measures_max)

    def connection_from(self, host: str, now: float) -> tuple[float, bool]:
        """Count a new connection: (seconds of delay, whether its address is over its own limit).

        A connection of an address that is over its limit is not counted, since it is refused (KIP-612).
        """
        terms, burst_seconds = self._terms, self._terms.window.settled_seconds
        limits = self._limits.get(QuotaKind.CONNECTIONS, {})
        limit = limits.get(((IP, host),), limits.get(((IP, None),)))
        if limit is not None:
            share = _Share(host, None, limit)
            bucket = self._measures[QuotaKind.CONNECTIONS].of(share, now, terms.measures_max)
            bucket.record(1, limit, burst_seconds, now)
            delay = bucket.delay(limit, burst_seconds, now)
            if delay > 0:
                bucket.record(-1, limit, burst_seconds, now)
                return delay, True
        everyone = terms.broker_connections_per_second
        self._all_connections.record(1, everyone, burst_seconds, now)
        return self._all_connections.delay(everyone, burst_seconds, now), False

    # -- whose limit

    def _share(self, kind: QuotaKind, user: str, client_id: str) -> _Share | None:
        limits = self._limits.get(kind)
        if limits is None:
            return None
        for of_user in (user, None):
            for of_client in (client_id, None):
                limit = limits.get(((CLIENT_ID, of_client), (USER, of_user)))
                if limit is not None:
                    return _Share(user, client_id, limit)
            limit = limits.get(((USER, of_user),))
            if limit is not None:
                return _Share(user, None, limit)
        for of_client in (client_id, None):
            limit = limits.get(((CLIENT_ID, of_client),))
            if limit is not None:
                return _Share(None, client_id, limit)
        return None
