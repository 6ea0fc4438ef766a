"""The controller: the one place where topics come, change and go.

It checks a change against the current image, commits it to the registry, lets the broker apply the next image (open and
remove logs), and only then publishes it: what an image shows can be used, and a client that was told "created" can produce
at once. One change runs at a time, and once begun it runs to its end, whether or not its asker is still there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from odradek.cluster.documents import BROKER_CONFIGS, DOCUMENTS, Document
from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.planning import ClusterDefaults, MorePartitions, NewTopic, Planner
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, ProducerId
from odradek.registry import Create, Delete, Node, Operation, Put, Registry, RegistryError
from odradek.runtime.ports import Entropy
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

_log = events.get("cluster")

PRODUCER_ID_BLOCK: Final = 1000
_TOPICS: Final = "/topics"
_PRODUCER_IDS: Final = "/producer_ids"

T = TypeVar("T")
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
Apply = Callable[[ClusterImage, ClusterImage], Awaitable[None]]
"""Called with the image before and after a change. What it cannot do for one partition must not stop the others."""


class Controller:
    """Single-broker form: this broker leads everything. Make it with `load`.

    Every change raises KafkaError where it is refused, KAFKA_STORAGE_ERROR when the registry cannot write it.
    """

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
        self._under_way: dict[asyncio.Task[Any], None] = {}
        self._closed = False
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
        image = ClusterImage(
            version=1,
            cluster_id=cluster_id,
            controller_id=broker.broker_id,
            brokers=(broker,),
            topics=topics,
            topics_by_id={topic.topic_id: topic for topic in topics.values()},
        )
        for document in DOCUMENTS:
            node = await registry.get(document.path)
            if node is not None:
                image = document.load(image, node)
        return cls(registry, entropy, defaults, image, apply)

    @property
    def image(self) -> ClusterImage:
        return self._image

    def set_brokers(self, brokers: tuple[BrokerImage, ...]) -> None:
        """The live brokers changed (here: the listener's port became known)."""
        self._image = self._image.with_brokers(brokers)

    async def close(self) -> None:
        """Let the changes under way come to their end; refuse all later ones."""
        self._closed = True
        async with self._changing:
            pass

    # -- changes

    async def begin_epoch(self) -> None:
        """Lead every partition under the next epoch: what a crash may have cut from a log becomes detectable (KIP-320)."""
        await self._alone(lambda: self._begin_epoch())

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        """One outcome for each, in order; a topic that cannot be made does not stop the others."""
        return await self._alone(lambda: self._create_topics(wanted, validate_only=validate_only))

    async def delete_topic(self, name: str, *, topic_id: UUID | None = None) -> TopicImage:
        """Forget the topic; its data is removed when the image is applied. UNKNOWN_TOPIC_ID when the id is another's."""
        return await self._alone(lambda: self._delete_topic(name, topic_id))

    async def create_partitions(self, more: MorePartitions, *, validate_only: bool = False) -> TopicImage:
        """Grow a topic. INVALID_PARTITIONS unless the total is above what it has."""
        return await self._alone(lambda: self._create_partitions(more, validate_only=validate_only))

    async def alter_topic_configs(
        self, name: str, change: ConfigChange, *, validate_only: bool = False
    ) -> TopicImage:
        """Replace a topic's overrides by what `change` makes of them, after they were checked."""
        return await self._alone(lambda: self._alter_topic_configs(name, change, validate_only=validate_only))

    async def alter_broker_configs(
        self, change: ConfigChange, *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Replace the dynamic broker settings by what `change` makes of them (it checks them)."""
        return await self.alter(BROKER_CONFIGS, change, validate_only=validate_only)

    async def alter(
        self, document: Document[T], change: Callable[[T], T], *, validate_only: bool = False
    ) -> T:
        """Replace a document by what `change` makes of it; `change` checks it, and raises to refuse."""
        return await self._alone(lambda: self._alter(document, change, validate_only=validate_only))

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that no broker was given before, durable before it is handed out."""
        return await self._alone(lambda: self._allocate_producer_ids())

    # -- one change

    async def _alone(self, change: Callable[[], Awaitable[T]]) -> T:
        """Run a change in a task of its own: half a change (committed, not applied) would be worse than none."""
        task = asyncio.get_running_loop().create_task(self._in_turn(change))
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))
        return await outcome_of(task)

    async def _in_turn(self, change: Callable[[], Awaitable[T]]) -> T:
        async with self._changing:
            if self._closed:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")
            return await change()

    async def _begin_epoch(self) -> None:
        elected: list[TopicImage] = []
        operations: list[Operation] = []
        for topic in self._image.topics.values():
            partitions = tuple(
                replace(partition, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))
                for partition in topic.partitions
            )
            led = replace(topic, partitions=partitions)
            elected.append(led)
            operations.append(await self._put(led))
        if operations:
            await self._commit(operations, self._image.with_topics(elected))

    async def _create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        planner = Planner(self._image, self._defaults)
        outcomes: list[TopicImage | KafkaError] = []
        for new in wanted:
            try:
                outcomes.append(planner.topic(new, self._entropy.uuid()))
            except KafkaError as error:
                outcomes.append(error)
        planned = planner.planned.values()
        if validate_only or not planned:
            return outcomes
        operations = [Create(path=f"{_TOPICS}/{topic.name}", data=_topic_data(topic)) for topic in planned]
        try:
            await self._commit(operations, self._image.with_topics(planned))
        except KafkaError as error:
            return [error if isinstance(one, TopicImage) else one for one in outcomes]
        for topic in planned:
            _log.info("topic_created", topic=topic.name, id=topic.topic_id, partitions=len(topic.partitions))
        return outcomes

    async def _delete_topic(self, name: str, topic_id: UUID | None) -> TopicImage:
        topic = self._known(name)
        if topic_id is not None and topic.topic_id != topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        node = await self._node(name)
        operation = Delete(path=f"{_TOPICS}/{name}", version=node.version)
        await self._commit([operation], self._image.without_topic(name))
        _log.info("topic_deleted", topic=name, id=topic.topic_id)
        return topic

    async def _create_partitions(self, more: MorePartitions, *, validate_only: bool) -> TopicImage:
        topic = self._known(more.name)
        grown = Planner(self._image, self._defaults).growth(topic, more)
        if not validate_only:
            await self._commit([await self._put(grown)], self._image.with_topic(grown))
            _log.info("partitions_added", topic=topic.name, before=len(topic.partitions), now=more.total)
        return grown

    async def _alter_topic_configs(
        self, name: str, change: ConfigChange, *, validate_only: bool
    ) -> TopicImage:
        topic = self._known(name)
        configs = dict(change(topic.configs))
        self._defaults.check_configs(configs)
        altered = replace(topic, configs=configs)
        if not validate_only and configs != topic.configs:
            await self._commit([await self._put(altered)], self._image.with_topic(altered))
            _log.info("topic_configs_altered", topic=name, configs=json.dumps(configs, sort_keys=True))
        return altered

    async def _alter(self, document: Document[T], change: Callable[[T], T], *, validate_only: bool) -> T:
        before = document.of(self._image)
        after = change(before)
        if not validate_only and after != before:
            data = document.data(after)
            node = await self._registry.get(document.path)
            operation: Operation = (
                Create(path=document.path, data=data)
                if node is None
                else Put(path=document.path, data=data, version=node.version)
            )
            await self._commit([operation], document.into(self._image, after))
        return after

    async def _allocate_producer_ids(self) -> range:
        node = await self._registry.get(_PRODUCER_IDS)
        first = int(node.data) if node else 0
        if first > 2**63 - 1 - PRODUCER_ID_BLOCK:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids were handed out")
        data = str(first + PRODUCER_ID_BLOCK).encode()
        operation: Operation = (
            Put(path=_PRODUCER_IDS, data=data, version=node.version)
            if node
            else Create(path=_PRODUCER_IDS, data=data)
        )
        await self._write([operation])
        return range(ProducerId(first), first + PRODUCER_ID_BLOCK)

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

    async def _put(self, topic: TopicImage) -> Put:
        node = await self._node(topic.name)
        return Put(path=f"{_TOPICS}/{topic.name}", data=_topic_data(topic), version=node.version)

    async def _commit(self, operations: Sequence[Operation], after: ClusterImage) -> None:
        before = self._image
        await self._write(operations)
        image = replace(after, version=before.version + 1)
        try:
            await self._apply(before, image)
        finally:
            self._image = image

    async def _write(self, operations: Sequence[Operation]) -> None:
        try:
            await self._registry.commit(operations)
        except RegistryError as error:
            _log.error("change_not_written", reason=error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


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
