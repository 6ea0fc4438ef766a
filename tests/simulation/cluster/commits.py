"""What a cluster has committed, and that every possible leader has it: looked at after every turn of the loop.

Committed is what lies below the highest high watermark that any replica ever had: some reader, or some producer that waits for
acks=all, may know it. From the moment at which that is so, every member of the ISR that is written in the registry, and
everyone who is eligible besides, has it durably and in the same leader epochs: the next leader comes from among them. This is
true at every instant, while leaders are deposed and do not know it, and while proposals are under way; so a bug shows when it
happens, and needs no reader who comes by.

Of the registry itself: the leader is in sync, each broker in sync has a replica, and epochs only grow, by one with each
election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final
from uuid import UUID

from tests.simulation.cluster.keeper import ClusterKeeper
from tests.simulation.cluster.view import held_by

from odradek.broker.app import Broker
from odradek.cluster.image import NO_LEADER, PartitionImage, TopicImage
from odradek.cluster.topic_documents import topic_from
from odradek.model.ids import TopicPartition
from odradek.registry.port import Node
from odradek.registry.tree import Tree
from odradek.replication.partition import Partition
from odradek.testing.sim.failures import ViolationError

_TOPICS: Final = "/topics/"
_DOUBTED_TURNS: Final = 10
_MARK: Final = attrgetter("_replica.high_watermark")
"""Reads `Partition.high_watermark` without a call of Python: it is read of all replicas after every turn."""
Place = tuple[UUID, int]
Lineage = list[tuple[int, int]]
"""Offsets and the leader epochs that begin there."""


@dataclass(slots=True)
class Committed:
    """What is known to be committed in one partition."""

    offset: int = 0
    since: int = 0
    """Nothing is known of the epochs below."""
    lineage: Sequence[tuple[int, int]] = ()
    by: str = ""
    """Whose high watermark it was."""


@dataclass(slots=True)
class _Watched:
    """The replicas of one broker, and the high watermarks that were looked at: what is compared after every turn."""

    keeper: ClusterKeeper
    broker: Broker | None = None
    held: Mapping[TopicPartition, Partition] = field(default_factory=dict)
    count: int = 0
    partitions: list[Partition] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)

    def look_again(self) -> None:
        """The broker is another one, or its replicas are; of those that are new everything is news."""
        self.broker = self.keeper.broker
        self.held = {} if self.broker is None else held_by(self.broker)
        known = dict(zip(self.partitions, self.marks, strict=True))
        self.count = len(self.held)
        self.partitions = list(self.held.values())
        self.marks = [known.get(partition, -1) for partition in self.partitions]


class CommitWatch:
    """`look` after every turn. `is_excused` says of whom nothing can be asked: its disk has rotted."""

    def __init__(
        self,
        keepers: Sequence[ClusterKeeper],
        tree: Tree,
        is_excused: Callable[[ClusterKeeper, TopicImage], bool],
    ) -> None:
        self._watched = [_Watched(keeper) for keeper in keepers]
        self._by_id = {keeper.broker_id: keeper for keeper in keepers}
        self._tree = tree
        self._is_excused = is_excused
        self._is_in_doubt = False
        self._turns = 0
        self._seen_commits = -1
        self._nodes: dict[str, Node] = {}
        self._topics: dict[str, TopicImage] = {}
        self._names: dict[UUID, str] = {}
        self._committed: dict[Place, Committed] = {}

    def look(self) -> None:
        """ViolationError when a promise is broken now."""
        if self._tree.commits != self._seen_commits:
            self._read_registry()
        for watched in self._watched:
            if watched.keeper.broker is not watched.broker or len(watched.held) != watched.count:
                watched.look_again()
            if list(map(_MARK, watched.partitions)) != watched.marks:
                self._moved(watched)
        if self._is_in_doubt:
            self._turns += 1
            if self._turns % _DOUBTED_TURNS == 0:
                for place in self._committed:
                    self._check_place(*place)

    def doubt(self) -> None:
        """A replica may lack something from now on although nothing is said of it."""
        self._is_in_doubt = True

    def is_committed(self, name: TopicPartition, offset: int) -> bool:
        """Whether the record at the offset lies below a high watermark that someone had."""
        topic = self._topics.get(name.topic)
        known = None if topic is None else self._committed.get((topic.topic_id, name.partition))
        return known is not None and offset < known.offset

    # -- brokers

    def _moved(self, watched: _Watched) -> None:
        before = dict(zip(watched.partitions, watched.marks, strict=True))
        watched.marks = [partition.high_watermark for partition in watched.partitions]
        if not watched.keeper.is_up:
            return
        for partition, mark in before.items():
            if partition.high_watermark != mark:
                place = (partition.topic_id, partition.name.partition)
                known = self._committed.setdefault(place, Committed())
                if partition.high_watermark > known.offset and partition.retired is None:
                    self._extend(known, partition, watched.keeper)
                self._check_place(*place)

    def _extend(self, known: Committed, partition: Partition, keeper: ClusterKeeper) -> None:
        where = keeper.host.name
        topic = self._topics.get(partition.name.topic)
        if topic is not None and not self._is_excused(keeper, topic):
            self._check_lineage(known, partition, where)
        known.offset = partition.high_watermark
        known.since = partition.log.start_offset
        known.lineage = _lineage(partition)
        known.by = (
            f"{where}, {'leading' if partition.is_leader else 'following'} in epoch {partition.leader_epoch}"
        )

    def _check_place(self, topic_id: UUID, index: int) -> None:
        """Every possible leader has what is committed."""
        name = self._names.get(topic_id)
        known = self._committed.get((topic_id, index))
        if name is None or known is None:
            return
        topic = self._topics[name]
        state = topic.partitions[index]
        for keeper, held in self._may_lead(topic, index, state):
            where = keeper.host.name
            if held.durable_offset < known.offset:
                raise ViolationError(
                    f"{name}-{index}: up to {known.offset} is committed (by {known.by}), but {where}, of {state.isr} in sync "
                    f"and {state.eligible} eligible, has {held.durable_offset} durably, {held.log.end_offset} in all"
                )
            self._check_lineage(known, held, where)

    def _may_lead(
        self, topic: TopicImage, index: int, state: PartitionImage
    ) -> Iterator[tuple[ClusterKeeper, Partition]]:
        for broker_id in (*state.isr, *state.eligible):
            keeper = self._by_id[broker_id]
            if not keeper.is_up or keeper.broker is None or self._is_excused(keeper, topic):
                continue
            held = held_by(keeper.broker).get(TopicPartition(topic.name, index))
            if held is not None and held.topic_id == topic.topic_id and held.retired is None:
                yield keeper, held

    def _check_lineage(self, known: Committed, held: Partition, where: str) -> None:
        """A compacted log may lack the record with which an epoch began."""
        if "compact" in held.log.config.cleanup_policy:
            return
        since = max(known.since, held.log.start_offset)
        theirs = _clipped(known.lineage, since, known.offset)
        ours = _clipped(_lineage(held), since, known.offset)
        if ours != theirs:
            raise ViolationError(
                f"{held.name}: up to {known.offset} is committed (by {known.by}), written in {theirs}; "
                f"{where} has {ours} instead"
            )

    # -- the registry

    def _read_registry(self) -> None:
        tree = self._tree
        self._seen_commits = tree.commits
        changed = False
        for path, node in tree.nodes.items():
            if path.startswith(_TOPICS) and self._nodes.get(path) is not node:
                self._nodes[path] = node
                self._take(topic_from(path.removeprefix(_TOPICS), node.data))
                changed = True
        for path in [node for node in self._nodes if node not in tree.nodes]:
            del self._nodes[path]
            self._names.pop(self._topics.pop(path.removeprefix(_TOPICS)).topic_id)
        if changed:
            for watched in self._watched:
                watched.look_again()
            for place in self._committed:
                self._check_place(*place)

    def _take(self, topic: TopicImage) -> None:
        before = self._topics.get(topic.name)
        if before is not None and before.topic_id != topic.topic_id:
            self._names.pop(before.topic_id, None)
            before = None
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        for index, state in enumerate(topic.partitions):
            name = f"{topic.name}-{index}"
            if not state.isr or not set(state.isr) <= set(state.replicas):
                raise ViolationError(f"the registry says of {name}: {state}")
            if state.leader not in (*state.isr, NO_LEADER):
                raise ViolationError(
                    f"the registry says of {name} that one leads who is not in sync: {state}"
                )
            if before is not None and index < len(before.partitions):
                _check_step(name, before.partitions[index], state)


def _check_step(name: str, before: PartitionImage, after: PartitionImage) -> None:
    """Between two states of the registry."""
    elected = after.leader != before.leader
    if (
        (elected and after.leader_epoch <= before.leader_epoch)
        or after.leader_epoch < before.leader_epoch
        or (after != before and after.partition_epoch <= before.partition_epoch)
    ):
        raise ViolationError(f"{name}: in the registry {after} follows upon {before}")


def _lineage(partition: Partition) -> Lineage:
    return [(epoch.start_offset, epoch.epoch) for epoch in partition.log.epochs]


def _clipped(lineage: Sequence[tuple[int, int]], since: int, below: int) -> Lineage:
    """Returns the epochs that wrote offsets from `since` on, and below `below`."""
    clipped: Lineage = []
    for start, epoch in lineage:
        if start >= below:
            break
        start = max(start, since)
        if clipped and clipped[-1][0] == start:
            clipped.pop()
        clipped.append((start, epoch))
    return clipped
