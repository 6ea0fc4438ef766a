"""Plans a topic that a client asks for, or explains why it is not allowed. A pure core: image and wish in, plan out.

A planner serves one change. It remembers what it planned, so that the topics of one request are checked against each other
as they are against those that exist, and its work grows with the number of topics, not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from odradek.cluster.availability import DEFAULT_RULES, TopicRules
from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.placement import check_assignment, place
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, check_topic_name
from odradek.model.lazy import lazy
from odradek.runtime.descriptors import UNLIMITED, DescriptorBudget

if TYPE_CHECKING:
    from odradek.cluster import reassignment
else:
    reassignment = lazy("odradek.cluster.reassignment")

T = TypeVar("T")
PARTITIONS_PER_CHANGE_MAX: Final = 10_000
"""The most partitions in one change, as in Kafka: one request must not keep the controller busy for minutes."""
_TOPICS_TOGETHER_MAX: Final = 64
_PARTITIONS_TOGETHER_MAX: Final = 1_000

PARTITIONS_MAX: Final = 200_000
"""The most partitions of a cluster: every broker has the whole image in memory, about half a kilobyte for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A requested topic; -1 means the broker's default; `assignment` is partition -> brokers."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    """The new total, and optionally who holds each added partition."""

    name: str
    total: int
    assignment: Sequence[Sequence[int]] | None = None


def together(wanted: Sequence[T], partitions_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yields the topics of a request in portions for one change each. They share its commit and the syncs of their logs, and
    are few enough that planning and opening them does not hold the event loop for long."""
    portion: list[T] = []
    partition_count = 0
    for topic in wanted:
        count = max(partitions_of(topic), 1)  # a client may write any number
        is_full = len(portion) >= _TOPICS_TOGETHER_MAX or partition_count + count > _PARTITIONS_TOGETHER_MAX
        if portion and is_full:
            yield portion
            portion, partition_count = [], 0
        portion.append(topic)
        partition_count += count
    if portion:
        yield portion


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDefaults:
    """The broker's defaults for what a client does not set; `check_configs` raises INVALID_CONFIG."""

    partition_count: int
    replication_factor: int
    check_configs: Callable[[Mapping[str, str]], None]
    partition_count_max: int = PARTITIONS_MAX
    descriptors: DescriptorBudget = UNLIMITED
    """The descriptors of this broker; the others are assumed to have as many."""
    rules: TopicRules = DEFAULT_RULES
    """Rules for topics without their own."""


class TopicPlanner:
    """Plans the topics of one change. `planned` holds the topics planned so far, by name.

    `chance` is a float in [0, 1) that selects the broker at which assignment begins, so that topics do not all begin at the
    same one. `absent` are brokers of the cluster that are down: they get replicas where there are too few others, and join
    when they come back. Brokers in `full` have no disk with space: they get replicas last."""

    def __init__(
        self,
        image: ClusterImage,
        defaults: ClusterDefaults,
        *,
        chance: float = 0.0,
        absent: Sequence[BrokerImage] = (),
        full: frozenset[BrokerId] = frozenset(),
    ) -> None:
        self._image = image
        self._absent = absent
        self._full = full
        self._defaults = defaults
        self._brokers = [broker.broker_id for broker in image.brokers]
        self._start = int(chance * len(self._brokers))
        self._partition_count = sum(len(topic.partitions) for topic in image.topics.values())
        self._replica_count = sum(_replica_count(topic) for topic in image.topics.values())
        self._added_count = 0
        self._flat_names: dict[str, str] | None = None
        self.planned: dict[str, TopicImage] = {}

    def topic(self, new: TopicSpec, topic_id: UUID) -> TopicImage:
        """Returns a topic to be created. KafkaError where it cannot be: nothing is planned then."""
        check_topic_name(new.name)
        if new.name in self._image.topics or new.name in self.planned:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.name!r} already exists")
        self._check_collision(new.name)
        self._defaults.check_configs(new.configs)
        replica_lists = self._assigned(new) if new.assignment else self._placed(new)
        self._check_descriptors(replica_lists)
        topic = TopicImage(
            name=new.name,
            topic_id=topic_id,
            partitions=tuple(self._fresh_partition(replicas) for replicas in replica_lists),
            configs=dict(new.configs),
        )
        self._added_count += len(replica_lists)
        self._replica_count += sum(map(len, replica_lists))
        self.planned[new.name] = topic
        if self._flat_names is not None:
            self._flat_names[_flat(new.name)] = new.name
        return topic

    def growth(self, topic: TopicImage, more: MorePartitions) -> TopicImage:
        """Plans a topic with more partitions, and returns it. INVALID_PARTITIONS unless the total is above what it has."""
        present = len(topic.partitions)
        added = more.total - present
        if added <= 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {present} partition(s); the new total must be higher, not {more.total}",
            )
        self._check_room(added)
        if more.assignment is not None:
            if len(more.assignment) != added:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{added} partition(s) are added but {len(more.assignment)} assigned",
                )
            numbered = dict(enumerate(more.assignment, start=present))
            replica_lists = self._checked(numbered, first_partition=present)
        else:
            factor = len(reassignment.original_of(topic.partitions[0]))
            replica_lists = place(
                added,
                factor,
                self._image.brokers,
                first=self._start + present + len(self.planned),
                absent=self._absent,
                full=self._full,
            )
        self._check_descriptors(replica_lists)
        fresh = tuple(self._fresh_partition(replicas) for replicas in replica_lists)
        grown = self.planned[topic.name] = replace(topic, partitions=topic.partitions + fresh)
        self._added_count += added
        self._replica_count += sum(map(len, replica_lists))
        return grown

    def _assigned(self, new: TopicSpec) -> list[list[BrokerId]]:
        if new.partition_count != -1 or new.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "give either a replica assignment or a partition count and replication factor, not both",
            )
        self._check_room(len(new.assignment))
        return self._checked(new.assignment)

    def _checked(
        self, assignment: Mapping[int, Sequence[int]], *, first_partition: int = 0
    ) -> list[list[BrokerId]]:
        absent = [broker.broker_id for broker in self._absent]
        return check_assignment(assignment, self._brokers, first_partition=first_partition, absent=absent)

    def _placed(self, new: TopicSpec) -> list[list[BrokerId]]:
        defaults = self._defaults
        count = defaults.partition_count if new.partition_count == -1 else new.partition_count
        if count < 1:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic needs at least 1 partition, not {count}")
        self._check_room(count)
        factor = defaults.replication_factor if new.replication_factor == -1 else new.replication_factor
        first = self._start + len(self.planned)
        return place(count, factor, self._image.brokers, first=first, absent=self._absent, full=self._full)

    def _fresh_partition(self, replicas: Sequence[BrokerId]) -> PartitionImage:
        """Returns a new partition: the brokers that are there lead, and are in sync."""
        isr = tuple(broker for broker in replicas if broker in self._brokers)
        return PartitionImage(leader=isr[0], leader_epoch=LeaderEpoch(0), replicas=tuple(replicas), isr=isr)

    def _check_room(self, added: int) -> None:
        change = self._added_count + added
        if change > PARTITIONS_PER_CHANGE_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"one request may add {PARTITIONS_PER_CHANGE_MAX} partitions, not {change}: use several",
            )
        total = self._partition_count + change
        if total > self._defaults.partition_count_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{total} partitions would be more than the {self._defaults.partition_count_max} that a cluster may have: "
                "delete topics, or use another cluster",
            )

    def _check_descriptors(self, added: Sequence[Sequence[BrokerId]]) -> None:
        """Raises POLICY_VIOLATION where the brokers could not open all replicas, taken to be spread evenly."""
        budget = self._defaults.descriptors
        replica_count = self._replica_count + sum(map(len, added))
        replica_count_max = budget.partitions_max * max(len(self._brokers), 1)
        if replica_count > replica_count_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{replica_count} replicas are more than the {replica_count_max} that the brokers' limit of open files "
                f"({budget.limit} each) has room for: raise it ('ulimit -n'), add brokers, or delete topics",
            )

    def _check_collision(self, name: str) -> None:
        """Refuses a collision: '.' and '_' look the same in metric names, so Kafka lets only one of two such names exist."""
        if "." not in name and "_" not in name:
            return
        if self._flat_names is None:
            self._flat_names = {_flat(other): other for other in (*self._image.topics, *self.planned)}
        other = self._flat_names.get(_flat(name))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic name {name!r} collides with {other!r} ('.' and '_' count as one)",
            )


def _replica_count(topic: TopicImage) -> int:
    """Returns the replicas of a topic, with as many for each partition as for the first: partitions being moved have more for
    a while."""
    return len(topic.partitions) * len(topic.partitions[0].replicas) if topic.partitions else 0


def _flat(name: str) -> str:
    return name.replace(".", "_")
