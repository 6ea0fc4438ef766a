"""What happened in a cluster while the console watched: events that follow from two successive readings. Pure, and bounded.

Brokers publish their state, and no history of it. So the time line begins with the first reading, and what came and went
between two readings is not in it. Changes of many partitions with one cause are one event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from odradek.console.model.snapshot import UNKNOWN, BrokerFigures, ModelSnapshot, PartitionFigures

EVENTS_MAX: Final = 500
EXAMPLES_MAX: Final = 3
EVENTS_OF_A_READING_MAX: Final = 50
"""The number of events of one reading; what is beyond is counted."""
LEVELS: Final[Mapping[str, str]] = {
    "broker_lost": "bad",
    "broker_back": "ok",
    "controller": "note",
    "leader_lost": "bad",
    "leader_back": "ok",
    "elected": "note",
    "isr_shrunk": "warning",
    "isr_grown": "ok",
    "preferred": "ok",
    "moved": "note",
    "healing": "note",
    "healed": "ok",
    "topics_gone": "note",
    "topics_new": "note",
    "more": "note",
}
"""Each kind of event, and how serious it is."""
MENDED: Final = frozenset(
    {"broker_back", "leader_back", "elected", "isr_grown", "preferred", "healing", "healed"}
)
"""The kinds of what the cluster does about a failure by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """One event. `broker` is its cause or its subject: the broker that was lost, that left an ISR, that leads no longer."""

    at_ms: int
    kind: str
    broker: int = UNKNOWN
    count: int = 0
    """The number of partitions or topics."""
    examples: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        return LEVELS[self.kind]


@dataclass(slots=True)
class _Tally:
    """Partitions with the same change."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(name)


def events_between(before: ModelSnapshot, after: ModelSnapshot, at_ms: int) -> list[ClusterEvent]:
    """Returns what happened between two readings, brokers first; at most `EVENTS_OF_A_READING_MAX` events."""
    events = [*_broker_events(before.brokers, after.brokers, at_ms), *_partition_events(before, after, at_ms)]
    left_out = len(events) - EVENTS_OF_A_READING_MAX
    if left_out > 0:
        events[EVENTS_OF_A_READING_MAX:] = [ClusterEvent(at_ms=at_ms, kind="more", count=left_out)]
    return events


def _broker_events(
    before: Iterable[BrokerFigures], after: Iterable[BrokerFigures], at_ms: int
) -> Iterator[ClusterEvent]:
    known = {broker.broker_id for broker in before if broker.is_alive}
    alive = {broker.broker_id for broker in after if broker.is_alive}
    if not known:
        return
    for broker in sorted(known - alive):
        yield ClusterEvent(at_ms=at_ms, kind="broker_lost", broker=broker)
    for broker in sorted(alive - known):
        yield ClusterEvent(at_ms=at_ms, kind="broker_back", broker=broker)
    controllers = [_controller(brokers) for brokers in (before, after)]
    if controllers[0] != controllers[1] and UNKNOWN not in controllers:
        yield ClusterEvent(at_ms=at_ms, kind="controller", broker=controllers[1])


def _controller(brokers: Iterable[BrokerFigures]) -> int:
    return next((broker.broker_id for broker in brokers if broker.is_controller), UNKNOWN)


def _partition_events(before: ModelSnapshot, after: ModelSnapshot, at_ms: int) -> list[ClusterEvent]:
    if before.partitions is after.partitions:
        return []
    alive = {broker.broker_id for broker in after.brokers if broker.is_alive}
    tallies: dict[tuple[str, int], _Tally] = {}
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None:
            continue
        rows = zip(before.partitions.of(known), after.partitions.of(topic), strict=False)
        for old, new in rows:
            if old != new:
                for kind, broker in _changes(old, new, alive):
                    tallies.setdefault((kind, broker), _Tally()).add(f"{name}-{new.partition}")
    for kind, names in (
        ("topics_new", after.topics.keys() - before.topics.keys()),
        ("topics_gone", before.topics.keys() - after.topics.keys()),
    ):
        if names:
            tallies[kind, UNKNOWN] = _Tally(len(names), sorted(names)[:EXAMPLES_MAX])
    return [
        ClusterEvent(at_ms=at_ms, kind=kind, broker=broker, count=tally.count, examples=tuple(tally.examples))
        for (kind, broker), tally in tallies.items()
    ]


def _changes(old: PartitionFigures, new: PartitionFigures, alive: set[int]) -> Iterator[tuple[str, int]]:
    if old.leader != new.leader:
        if new.is_offline:
            yield "leader_lost", old.leader
        elif old.is_offline:
            yield "leader_back", new.leader
        elif tuple(new.replicas[:1]) == (new.leader,) and old.leader in alive:
            yield "preferred", new.leader
        else:
            yield "elected", old.leader
    for broker in old.isr:
        if broker not in new.isr and broker in new.replicas:
            yield "isr_shrunk", broker
    for broker in new.isr:
        if broker not in old.isr and broker in old.replicas:
            yield "isr_grown", broker
    yield from _moves(set(old.replicas), set(new.replicas), alive)


def _moves(old: set[int], new: set[int], alive: set[int]) -> Iterator[tuple[str, int]]:
    """Yields what a change of replicas is for: a dead broker's replicas are made again, or others were moved."""
    if old == new:
        return
    dead = old - alive if alive else set()
    if replaced := dead - new:
        yield from (("healed", broker) for broker in sorted(replaced))
    elif dead and new > old:  # the new replicas are copied before the dead broker's go
        yield from (("healing", broker) for broker in sorted(dead))
    else:
        yield "moved", UNKNOWN


class ClusterTimeLine:
    """The last events of one cluster, and since when it is watched."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[ClusterEvent] = deque(maxlen=events_max)
        self._last: ModelSnapshot | None = None
        self.since_ms = UNKNOWN
        """The time of the first reading; UNKNOWN before it."""
        self.dropped = 0
        """The number of older events that made room."""

    def note(self, snapshot: ModelSnapshot, at_ms: int) -> None:
        """Compares a snapshot of brokers and topics with the one before it, and adds what happened."""
        if not snapshot.is_read:
            return
        last, self._last = self._last, snapshot
        if last is None:
            self.since_ms = at_ms
            return
        fresh = events_between(last, snapshot, at_ms)
        assert self._events.maxlen is not None
        self.dropped += max(0, len(self._events) + len(fresh) - self._events.maxlen)
        self._events.extend(fresh)

    def events(self) -> list[ClusterEvent]:
        """Returns the events, the newest first."""
        return list(reversed(self._events))

    def mended(self, events_max: int) -> list[ClusterEvent]:
        """Returns the last events by which the cluster mended itself, the newest first."""
        return list(islice((event for event in self.events() if event.kind in MENDED), events_max))
