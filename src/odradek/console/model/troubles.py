"""What is wrong with a cluster, the worst first. Pure: a snapshot in, troubles out; their words are in the catalogues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from urllib.parse import urlencode

from odradek.console.model.snapshot import ModelSnapshot, PartitionFigures, TopicFigures

EXAMPLES_MAX: Final = 3
HANGS_AFTER_MS: Final = 900_000
"""A transaction that is open for longer is a warning, as the alert TransactionHangs is; before, it is a note."""
MINUTE_MS: Final = 60_000
GROUPS_MAX: Final = 20
"""The number of groups without members that are listed one by one."""
KINDS: Final = (
    "cluster_unread",
    "part_unread",
    "offline",
    "under_min_isr",
    "broker_dead",
    "disk_offline",
    "disk_full",
    "under_replicated",
    "under_replicated_by_dead",
    "disk_slow",
    "disk_nearly_full",
    "client_floods",
    "certificate_ended",
    "certificate_ends",
    "token_ends",
    "group_without_members",
    "transaction_open",
    "not_preferred",
)
"""Each kind has `troubles.KIND.what`, `.why` and `.next` in the catalogues."""


class Urgency(IntEnum):
    """The urgency of a trouble: the higher, the worse."""

    NOTE = 0
    WARNING = 1
    BAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that is wrong. `values` fill the texts of its kind; `path` leads to a page about it."""

    kind: str
    level: Urgency
    values: Mapping[str, str | int] = field(default_factory=dict)
    path: str = ""


def troubles_of(snapshot: ModelSnapshot) -> list[Trouble]:
    """Returns all troubles, the worst first."""
    troubles = [
        *_unread(snapshot),
        *_of_partitions(snapshot),
        *_of_brokers(snapshot),
        *_of_groups(snapshot),
        *_of_transactions(snapshot),
    ]
    return sorted(troubles, key=lambda trouble: -trouble.level)


def _unread(snapshot: ModelSnapshot) -> Iterator[Trouble]:
    if problem := snapshot.readings["brokers"].problem:
        yield Trouble(kind="cluster_unread", level=Urgency.BAD, values={"problem": problem})
        return
    for part, reading in snapshot.readings.items():
        if reading.problem:
            values = {"part": part, "problem": reading.problem}
            yield Trouble(kind="part_unread", level=Urgency.WARNING, values=values)


class _Affected:
    """Counts partitions, and remembers the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self._examples: list[str] = []

    def add(self, topic: str, partition: int) -> None:
        self.count += 1
        if len(self._examples) < EXAMPLES_MAX:
            self._examples.append(f"{topic}-{partition}")

    @property
    def values(self) -> dict[str, str | int]:
        more = ", …" if self.count > len(self._examples) else ""
        return {"count": self.count, "examples": ", ".join(self._examples) + more}


def _of_partitions(snapshot: ModelSnapshot) -> Iterator[Trouble]:
    offline, thin, lagging, moved = _Affected(), _Affected(), _Affected(), _Affected()
    alive = {broker.broker_id for broker in snapshot.brokers if broker.is_alive}
    dead: set[int] = set()
    is_explained = True
    for topic in snapshot.topics.values():
        if not (topic.offline or topic.under_replicated or topic.not_preferred):
            continue
        for row in snapshot.partitions.of(topic):
            if row.is_offline:
                offline.add(topic.name, row.partition)
            elif row.is_under_replicated:
                lagging.add(topic.name, row.partition)
                missing = set(row.replicas) - set(row.isr)
                dead |= missing - alive
                is_explained = is_explained and not missing & alive
            if not row.is_offline and _is_under_min_isr(snapshot, topic, row):
                thin.add(topic.name, row.partition)
            if row.leader >= 0 and row.leader != row.replicas[0] and row.replicas[0] in alive:
                moved.add(topic.name, row.partition)
    unhealthy = "/topics?problems=1"
    if offline.count:
        yield Trouble(kind="offline", level=Urgency.BAD, values=offline.values, path=unhealthy)
    if thin.count:
        yield Trouble(kind="under_min_isr", level=Urgency.BAD, values=thin.values, path=unhealthy)
    if lagging.count:
        kind = "under_replicated_by_dead" if is_explained else "under_replicated"
        brokers = ", ".join(map(str, sorted(dead))) or "–"
        yield Trouble(
            kind=kind, level=Urgency.WARNING, values={**lagging.values, "brokers": brokers}, path=unhealthy
        )
    if moved.count:
        yield Trouble(kind="not_preferred", level=Urgency.NOTE, values=moved.values)


def _is_under_min_isr(snapshot: ModelSnapshot, topic: TopicFigures, row: PartitionFigures) -> bool:
    return len(row.isr) < min(snapshot.min_isr.get(topic.name, 1), len(row.replicas))


def _of_brokers(snapshot: ModelSnapshot) -> Iterator[Trouble]:
    for broker in snapshot.brokers:
        if not broker.is_alive:
            values: dict[str, str | int] = {"broker": broker.broker_id, "replicas": broker.replicas}
            yield Trouble(kind="broker_dead", level=Urgency.BAD, values=values)
        for disk in broker.disks:
            if disk.state == "ok":
                continue
            level = Urgency.BAD if disk.state in ("offline", "full") else Urgency.WARNING
            values = {"broker": broker.broker_id, "path": disk.path, "free_bytes": disk.free_bytes}
            yield Trouble(kind=f"disk_{disk.state}", level=level, values=values)


def _of_groups(snapshot: ModelSnapshot) -> Iterator[Trouble]:
    behind = [
        group
        for group in snapshot.groups.values()
        if group.members == 0 and group.lag > 0 and group.state not in ("Dead",)
    ]
    for group in sorted(behind, key=lambda group: -group.lag)[:GROUPS_MAX]:
        yield Trouble(
            kind="group_without_members",
            level=Urgency.WARNING,
            values={"group": group.group_id, "lag": group.lag},
            path=f"/group?{urlencode({'id': group.group_id})}",
        )


def _of_transactions(snapshot: ModelSnapshot) -> Iterator[Trouble]:
    if not snapshot.long_transactions:
        return
    oldest = snapshot.long_transactions[0]
    names = [f"{tp.topic}-{tp.partition}" for tp in oldest.partitions[:EXAMPLES_MAX]]
    more = ", …" if len(oldest.partitions) > EXAMPLES_MAX else ""
    values: dict[str, str | int] = {
        "count": snapshot.long_transaction_count,
        "transaction": oldest.transactional_id,
        "minutes": oldest.open_ms // MINUTE_MS,
        "limit": -(-oldest.timeout_ms // MINUTE_MS),
        "partitions": ", ".join(names) + more or "–",
    }
    level = Urgency.WARNING if oldest.open_ms > HANGS_AFTER_MS else Urgency.NOTE
    yield Trouble(kind="transaction_open", level=level, values=values, path="/transactions")
