"""What the console knows about a cluster at one moment: immutable values that pages render, whatever is read meanwhile.

40,000 partitions fit in a few megabytes: a partition is a row of `PartitionTable`, not an object, and equal lists of
replicas are one tuple.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.client.admin.types import ConfigEntry, LogDirDescription, TopicDescription
from odradek.model.ids import NO_BROKER, TopicPartition
from odradek.storage.directories.disk_condition import SPACE_BYTES

UNKNOWN: Final = -1
"""A figure that was not read yet, or that brokers do not send."""
NEARLY_FULL_SHARE: Final = 0.1
"""A directory with less than this share of free space is nearly full."""


class DiskFigures(NamedTuple):
    """One log directory of a broker; bytes are UNKNOWN where the broker does not send them."""

    path: str
    state: str
    """`ok`, `nearly_full`, `full`, `slow` or `offline`."""
    free_bytes: int
    total_bytes: int
    held_bytes: int


def disk_figures(directory: LogDirDescription) -> DiskFigures:
    """Returns the figures of a log directory, as its broker describes it."""
    free, total = directory.usable_bytes, directory.total_bytes
    if directory.error is not None:
        state = "offline"
    elif 0 <= free < SPACE_BYTES:
        state = "full"
    elif directory.condition:
        state = directory.condition
    else:
        state = "nearly_full" if total > 0 and 0 <= free < total * NEARLY_FULL_SHARE else "ok"
    held = sum(replica.size_bytes for replica in directory.replicas.values())
    return DiskFigures(directory.path, state, free, total, held)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFigures:
    """One broker: its address, its part of the partitions, its directories. A dead one may have no address."""

    broker_id: int
    host: str = ""
    port: int = UNKNOWN
    rack: str = ""
    is_alive: bool = True
    is_controller: bool = False
    leads: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    disks: tuple[DiskFigures, ...] = ()

    @property
    def held_bytes(self) -> int:
        """The bytes of all replicas here; UNKNOWN before the directories were read."""
        return sum(disk.held_bytes for disk in self.disks) if self.disks else UNKNOWN


class PartitionFigures(NamedTuple):
    """One partition, as a page shows it."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """One topic; its partitions are rows `first` to `first + partitions` of the table."""

    name: str
    internal: bool
    first: int
    partitions: int
    replication_factor: int
    offline: int
    under_replicated: int
    not_preferred: int
    """The number of partitions that another broker than the first of their replicas leads."""


class PartitionTable:
    """The partitions of all topics, column by column. It is filled once, by `add`, and does not change afterwards."""

    __slots__ = ("_isr", "_leaders", "_lists", "_replicas", "holds", "lags", "leads")

    def __init__(self) -> None:
        self._leaders = array("i")
        self._replicas: list[tuple[int, ...]] = []
        self._isr: list[tuple[int, ...]] = []
        self._lists: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.leads: Counter[int] = Counter()
        """The number of partitions that each broker leads; `holds`: of its replicas; `lags`: of those out of sync."""
        self.holds: Counter[int] = Counter()
        self.lags: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._leaders)

    def add(self, topic: TopicDescription) -> TopicFigures:
        """Appends the partitions of a topic, and returns the topic's figures."""
        first, offline, under_replicated, not_preferred, factor = len(self._leaders), 0, 0, 0, 0
        once = self._lists.setdefault
        for partition in topic.partitions:
            leader, replicas, isr = partition.leader, partition.replicas, partition.isr
            self._leaders.append(leader)
            self._replicas.append(once(replicas, replicas))
            self._isr.append(once(isr, isr))
            self.leads[leader] += 1
            self.holds.update(replicas)
            factor = max(factor, len(replicas))
            if len(isr) < len(replicas):
                under_replicated += 1
                self.lags.update(replica for replica in replicas if replica not in isr)
            if leader == NO_BROKER:
                offline += 1
            elif replicas and leader != replicas[0]:
                not_preferred += 1
        return TopicFigures(
            topic.name,
            topic.internal,
            first,
            len(topic.partitions),
            factor,
            offline,
            under_replicated,
            not_preferred,
        )

    def of(self, topic: TopicFigures) -> Iterator[PartitionFigures]:
        """Yields the partitions of a topic, in order."""
        for number in range(topic.partitions):
            row = topic.first + number
            yield PartitionFigures(number, self._leaders[row], self._replicas[row], self._isr[row])


class GroupFigures(NamedTuple):
    """One group. `lag` is UNKNOWN until its offsets were read."""

    group_id: str
    type: str
    state: str
    members: int
    lag: int
    coordinator: int
    waits_ms: int = UNKNOWN
    """The age of the first record that was not read; filled in by pages that list groups, from `GroupAges`."""


class LongTransaction(NamedTuple):
    """A transaction that was open for long when it was read."""

    transactional_id: str
    open_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    """The first partitions that it has written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The last attempt to read one part of the model."""

    read_ms: int = UNKNOWN
    """The wall clock at the last success; UNKNOWN before the first."""
    problem: str = ""
    """The reason why the last attempt failed; empty if it succeeded."""

    @property
    def is_awaited(self) -> bool:
        """Whether the first attempt has not ended yet."""
        return self.read_ms == UNKNOWN and not self.problem


PARTS: Final = ("brokers", "topics", "disks", "groups", "transactions")
"""The parts of the model that are read in the background, each with an age of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """A cluster at one moment. A refresh makes another snapshot."""

    cluster_id: str = ""
    brokers: tuple[BrokerFigures, ...] = ()
    topics: Mapping[str, TopicFigures] = field(default_factory=dict)
    partitions: PartitionTable = field(default_factory=PartitionTable)
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each topic, of all its replicas together."""
    largest: Mapping[str, array[int]] = field(default_factory=dict)
    """Bytes of the largest replica of each partition, by topic; UNKNOWN where no directory has one."""
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """The min.insync.replicas of topics with replicas out of sync."""
    groups: Mapping[str, GroupFigures] = field(default_factory=dict)
    long_transactions: tuple[LongTransaction, ...] = ()
    """Transactions that are open for long, the oldest first."""
    long_transaction_count: int = 0
    """The number of all of them; not all are described."""
    readings: Mapping[str, Reading] = field(default_factory=lambda: {part: Reading() for part in PARTS})
    version: int = 0

    @property
    def is_read(self) -> bool:
        """Whether brokers and topics were read at least once."""
        return all(self.readings[part].read_ms >= 0 for part in ("brokers", "topics"))

    def partition_bytes(self, topic: str, partition: int) -> int:
        """Returns the bytes of the largest replica; UNKNOWN before directories were read."""
        sizes = self.largest.get(topic)
        return UNKNOWN if sizes is None or partition >= len(sizes) else sizes[partition]

    def broker(self, broker_id: int) -> BrokerFigures | None:
        return next((broker for broker in self.brokers if broker.broker_id == broker_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    """What only the page of one topic needs: offsets and settings."""

    name: str
    read_ms: int
    starts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    settings: Mapping[str, ConfigEntry] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """The reasons why some of it could not be read."""

    def records(self) -> int:
        """Returns the number of offsets between start and end of all partitions; UNKNOWN without them."""
        known = [self.ends[number] - start for number, start in self.starts.items() if number in self.ends]
        return sum(known) if known else UNKNOWN


def add_sizes(
    directories: Iterable[LogDirDescription], totals: dict[str, int], largest: dict[str, array[int]]
) -> None:
    """Adds the replicas of these directories: to each topic's total, and to the largest replica of each partition."""
    for directory in directories:
        for tp, replica in directory.replicas.items():
            totals[tp.topic] = totals.get(tp.topic, 0) + replica.size_bytes
            sizes = largest.get(tp.topic)
            if sizes is None:
                sizes = largest[tp.topic] = array("q")
            if len(sizes) <= tp.partition:
                sizes.extend([UNKNOWN] * (tp.partition + 1 - len(sizes)))
            sizes[tp.partition] = max(sizes[tp.partition], replica.size_bytes)


def partition_names(topic: TopicFigures) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for number in range(topic.partitions)]
