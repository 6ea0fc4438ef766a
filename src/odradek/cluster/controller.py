"""The controller: the one place where topics come, change and go.

It checks a change against the current image, commits it to the registry, and only then publishes the next image. One
change runs at a time. The broker that applies an image (opens and removes logs) does so before the change returns, so a
client that was told "created" can produce at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.placement import check_assignment, place
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, ProducerId, check_topic_name
from odradek.registry import Create, Delete, Node, Operation, Put, Registry
from odradek.runtime.ports import Entropy
from odradek.telemetry import events

_log = events.get("cluster")

PRODUCER_ID_BLOCK: Final = 1000
_TOPICS: Final = "/topics"
_PRODUCER_IDS: Final = "/producer_ids"
_BROKER_CONFIGS: Final = "/configs/brokers"

Apply = Callable[[ClusterImage, ClusterImage], Awaitable[None]]
"""Called with the image before and after a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """What a client asks for; -1 means the broker's default; `assignment` is partition -> brokers."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDefaults:
    """What the broker's settings say where a client does not; `check_configs` raises INVALID_CONFIG."""

    partition_count: int
    replication_factor: int
    check_configs: Callable[[Mapping[str, str]], None]
    partition_count_max: int = 200_000


class Controller:
    """Single-broker form: this broker leads everything. Make it with `load`."""

    def __init__(
        self,
        registry: Registry,
        entropy: Entropy,
        defaults: ClusterDefaults,
        image: ClusterImage,
        apply: Apply,
    ) -> None:
        self._registry = registry
        self._entropy = entropy
        self._defaults = defaults
        self._apply = apply
        self._changing = asyncio.Lock()
        self._image = image

    @classmethod
    async def load(
        cls,
        registry: Registry,
        entropy: Entropy,
        defaults: ClusterDefaults,
        *,
        cluster_id: str,
        broker: BrokerImage,
        apply: Apply,
    ) -> Controller:
        """The state that the registry holds. `apply` is not called for it: the caller opens what `image` names."""
        topics = {}
        for name in await registry.children(_TOPICS):
            node = await registry.get(f"{_TOPICS}/{name}")
            if node is not None:
                topics[name] = _topic_from(name, node)
        configs = await registry.get(_BROKER_CONFIGS)
        image = ClusterImage(
            version=1,
            cluster_id=cluster_id,
            controller_id=broker.broker_id,
            brokers=(broker,),
            topics=topics,
            topics_by_id={topic.topic_id: topic for topic in topics.values()},
            broker_configs=json.loads(configs.data) if configs else {},
        )
        return cls(registry, entropy, defaults, image, apply)

    @property
    def image(self) -> ClusterImage:
        return self._image

    def set_brokers(self, brokers: tuple[BrokerImage, ...]) -> None:
        """The live brokers changed (here: the listener's port became known)."""
        self._image = self._image.with_brokers(brokers)

    async def begin_epoch(self) -> None:
        """Lead every partition under the next epoch: what a crash may have cut from a log becomes detectable (KIP-320)."""
        async with self._changing:
            elected: list[TopicImage] = []
            operations: list[Operation] = []
            for topic in self._image.topics.values():
                led = replace(
                    topic,
                    partitions=tuple(
                        replace(partition, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))
                        for partition in topic.partitions
                    ),
                )
                node = await self._node(topic.name)
                operations.append(
                    Put(path=f"{_TOPICS}/{topic.name}", data=_topic_data(led), version=node.version)
                )
                elected.append(led)
            if operations:
                await self._commit(operations, self._image, self._image.with_topics(elected))

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        """One outcome for each, in order; a topic that cannot be made does not stop the others."""
        async with self._changing:
            before = after = self._image
            outcomes: list[TopicImage | KafkaError] = []
            operations: list[Operation] = []
            for new in wanted:
                try:
                    topic = self._plan_topic(new, after)
                except KafkaError as error:
                    outcomes.append(error)
                    continue
                outcomes.append(topic)
                after = after.with_topic(topic)
                operations.append(Create(path=f"{_TOPICS}/{topic.name}", data=_topic_data(topic)))
            if operations and not validate_only:
                await self._commit(operations, before, after)
                for outcome in outcomes:
                    if isinstance(outcome, TopicImage):
                        _log.info(
                            "topic_created",
                            topic=outcome.name,
                            id=outcome.topic_id,
                            partitions=len(outcome.partitions),
                        )
            return outcomes

    async def delete_topic(self, name: str) -> TopicImage:
        """Forget the topic; its data is removed when the image is applied."""
        async with self._changing:
            topic = self._known(name)
            node = await self._node(name)
            await self._commit(
                [Delete(path=f"{_TOPICS}/{name}", version=node.version)],
                self._image,
                self._image.without_topic(name),
            )
            _log.info("topic_deleted", topic=name, id=topic.topic_id)
            return topic

    async def create_partitions(self, more: MorePartitions, *, validate_only: bool = False) -> TopicImage:
        """Grow a topic. INVALID_PARTITIONS unless the total is above what it has."""
        async with self._changing:
            topic = self._known(more.name)
            grown = self._plan_growth(topic, more)
            if not validate_only:
                await self._put_topic(grown)
                _log.info("partitions_added", topic=topic.name, before=len(topic.partitions), now=more.total)
            return grown

    async def alter_topic_configs(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> TopicImage:
        """Replace a topic's overrides by what `change` makes of them, after they were checked."""
        async with self._changing:
            topic = self._known(name)
            configs = dict(change(topic.configs))
            self._defaults.check_configs(configs)
            altered = replace(topic, configs=configs)
            if not validate_only and configs != topic.configs:
                await self._put_topic(altered)
                _log.info("topic_configs_altered", topic=name, configs=json.dumps(configs, sort_keys=True))
            return altered

    async def alter_broker_configs(
        self, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Replace the dynamic broker settings by what `change` makes of them (it checks them)."""
        async with self._changing:
            configs = dict(change(self._image.broker_configs))
            if not validate_only and configs != self._image.broker_configs:
                data = json.dumps(configs, sort_keys=True).encode()
                node = await self._registry.get(_BROKER_CONFIGS)
                operation: Operation = (
                    Create(path=_BROKER_CONFIGS, data=data)
                    if node is None
                    else Put(path=_BROKER_CONFIGS, data=data, version=node.version)
                )
                await self._commit([operation], self._image, self._image.with_broker_configs(configs))
            return configs

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that no broker was given before, durable before it is handed out."""
        async with self._changing:
            node = await self._registry.get(_PRODUCER_IDS)
            first = int(node.data) if node else 0
            if first > 2**63 - 1 - PRODUCER_ID_BLOCK:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids were handed out")
            data = str(first + PRODUCER_ID_BLOCK).encode()
            await self._registry.commit(
                [
                    Put(path=_PRODUCER_IDS, data=data, version=node.version)
                    if node
                    else Create(path=_PRODUCER_IDS, data=data)
                ]
            )
            return range(ProducerId(first), first + PRODUCER_ID_BLOCK)

    # -- decisions

    def _plan_topic(self, new: NewTopic, image: ClusterImage) -> TopicImage:
        check_topic_name(new.name)
        if new.name in image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.name!r} already exists")
        _check_collision(new.name, image)
        self._defaults.check_configs(new.configs)
        brokers = [broker.broker_id for broker in image.brokers]
        if new.assignment:
            if new.partition_count != -1 or new.replication_factor != -1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "give either a replica assignment or a partition count and replication factor, not both",
                )
            replica_lists = check_assignment(new.assignment, brokers)
        else:
            count = self._defaults.partition_count if new.partition_count == -1 else new.partition_count
            self._check_partition_count(count, image)
            factor = (
                self._defaults.replication_factor if new.replication_factor == -1 else new.replication_factor
            )
            replica_lists = place(count, factor, brokers, first=len(image.topics))
        return TopicImage(
            name=new.name,
            topic_id=self._entropy.uuid(),
            partitions=tuple(_fresh_partition(replicas) for replicas in replica_lists),
            configs=dict(new.configs),
        )

    def _plan_growth(self, topic: TopicImage, more: MorePartitions) -> TopicImage:
        present = len(topic.partitions)
        if more.total <= present:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {present} partition(s); the new total must be higher, not {more.total}",
            )
        self._check_partition_count(more.total, self._image, present)
        brokers = [broker.broker_id for broker in self._image.brokers]
        added = more.total - present
        if more.assignment is not None:
            if len(more.assignment) != added:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{added} partition(s) are added but {len(more.assignment)} assigned",
                )
            numbered = dict(enumerate(more.assignment, start=present))
            replica_lists = check_assignment(numbered, brokers, first_partition=present)
        else:
            factor = len(topic.partitions[0].replicas)
            replica_lists = place(added, factor, brokers, first=present)
        fresh = tuple(_fresh_partition(replicas) for replicas in replica_lists)
        return replace(topic, partitions=topic.partitions + fresh)

    def _check_partition_count(self, count: int, image: ClusterImage, present: int = 0) -> None:
        if count < 1:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"a topic needs at least 1 partition, not {count}")
        total = sum(len(topic.partitions) for topic in image.topics.values()) + count - present
        if total > self._defaults.partition_count_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{total} partitions would be more than the {self._defaults.partition_count_max} this broker may hold",
            )

    def _known(self, name: str) -> TopicImage:
        topic = self._image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    # -- writing

    async def _node(self, name: str) -> Node:
        node = await self._registry.get(f"{_TOPICS}/{name}")
        if node is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return node

    async def _put_topic(self, topic: TopicImage) -> None:
        node = await self._node(topic.name)
        operation = Put(path=f"{_TOPICS}/{topic.name}", data=_topic_data(topic), version=node.version)
        await self._commit([operation], self._image, self._image.with_topic(topic))

    async def _commit(
        self, operations: Sequence[Operation], before: ClusterImage, after: ClusterImage
    ) -> None:
        await self._registry.commit(operations)
        self._image = replace(after, version=before.version + 1)
        await self._apply(before, self._image)


def _fresh_partition(replicas: Sequence[BrokerId]) -> PartitionImage:
    return PartitionImage(
        leader=replicas[0], leader_epoch=LeaderEpoch(0), replicas=tuple(replicas), isr=tuple(replicas)
    )


def _check_collision(name: str, image: ClusterImage) -> None:
    """'.' and '_' look the same in metric names, so Kafka lets only one of two such names exist."""
    if "." not in name and "_" not in name:
        return
    flat = name.replace(".", "_")
    for other in image.topics:
        if other != name and other.replace(".", "_") == flat:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic name {name!r} collides with {other!r} ('.' and '_' count as one)",
            )


def _topic_data(topic: TopicImage) -> bytes:
    return json.dumps(
        {
            "id": str(topic.topic_id),
            "partitions": [
                {"leader": p.leader, "epoch": p.leader_epoch, "replicas": p.replicas, "isr": p.isr}
                for p in topic.partitions
            ],
            "configs": dict(topic.configs),
        },
        sort_keys=True,
    ).encode()


def _topic_from(name: str, node: Node) -> TopicImage:
    data = json.loads(node.data)
    return TopicImage(
        name=name,
        topic_id=UUID(data["id"]),
        partitions=tuple(
            PartitionImage(
                leader=BrokerId(p["leader"]),
                leader_epoch=LeaderEpoch(p["epoch"]),
                replicas=tuple(map(BrokerId, p["replicas"])),
                isr=tuple(map(BrokerId, p["isr"])),
            )
            for p in data["partitions"]
        ),
        configs=data["configs"],
    )
