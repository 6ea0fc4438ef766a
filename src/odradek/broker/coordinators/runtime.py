"""The coordinators of this broker: which partitions of the internal topics it leads, as shards of groups and transactions.

A kind of coordinator is made, and its rooms imported, when it is needed for the first time: a broker that has no groups and no
transactions starts without them. The import takes longer than the loop may be held, so it runs on a thread. What this broker
leads waits for it, and so do the requests of clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from odradek.broker.cluster.peer_requests import SendToPeer, no_peers
from odradek.broker.coordinators.internal_topics import InternalTopic, TopicCreator, create_internal_topic
from odradek.broker.coordinators.partition_log import PartitionLog
from odradek.cluster.image import NO_LEADER, ClusterImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.replication.partition import Partition
from odradek.runtime.ports import Clock, Offload, Runtime
from odradek.runtime.shielded import outcome_of
from odradek.shards import PATIENCE_SECONDS, ShardLog, ShardMachine, Shards, partition_of
from odradek.telemetry import events

_log = events.get("broker")

M = TypeVar("M", bound=ShardMachine)
S = TypeVar("S")


class CoordinatorBroker(Protocol):
    """The parts of a broker that its coordinators need."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def image(self) -> ClusterImage: ...
    @property
    def cluster(self) -> TopicCreator: ...


@dataclass(frozen=True, slots=True)
class CoordinatorParts(Generic[M, S]):
    """The parts of one kind of coordinator. The handlers of its requests call `service`."""

    topic: InternalTopic
    shards: Shards[M]
    service: S


class CoordinatorKind(Generic[M, S]):
    """Groups, transactions or share state: `make` makes its parts when they are needed for the first time.

    `imports` imports what `make` needs.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], CoordinatorParts[M, S]],
        imports: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self._make = make
        self._imports = imports
        self._has_imports = False
        self._led: dict[int, ShardLog] = {}
        """Logs that this broker leads, by partition, until the parts are made."""
        self.existing_parts: CoordinatorParts[M, S] | None = None
        """The parts; None until the kind is needed."""

    @property
    def parts(self) -> CoordinatorParts[M, S]:
        if self.existing_parts is None:
            self.existing_parts = self._make()
            for index, log in self._led.items():
                self.existing_parts.shards.elected(index, log)
            self._led.clear()
        return self.existing_parts

    @property
    def is_imported(self) -> bool:
        """Whether the parts can be made on the loop; otherwise `import_on_thread` comes first."""
        return self._has_imports or self.existing_parts is not None

    async def import_on_thread(self, offload: Offload) -> None:
        if not self.is_imported:
            await offload.run(self._imports)
            self._has_imports = True

    def led(self, index: int, log: ShardLog) -> None:
        """Begins to coordinate the partition `index`, which this broker leads. Before the code is imported, that waits until
        the parts are made."""
        if self.is_imported:
            self.shards.elected(index, log)
        else:
            self._led[index] = log

    def lost(self, index: int) -> None:
        self._led.pop(index, None)
        if self.existing_parts is not None:
            self.existing_parts.shards.resigned(index)

    @property
    def service(self) -> S:
        return self.parts.service

    @property
    def shards(self) -> Shards[M]:
        return self.parts.shards


class _Count:
    """Counts the partitions of an internal topic, or those that it will have: every request about a group asks."""

    __slots__ = ("_known_count", "_known_in", "_runtime", "_topic")

    def __init__(self, runtime: CoordinatorRuntime, topic: InternalTopic) -> None:
        self._runtime = runtime
        self._topic = topic
        self._known_in: ClusterImage | None = None
        """The image that `_known_count` is of."""
        self._known_count = 0

    def count(self) -> int:
        broker = self._runtime.broker
        image = broker.image
        if image is self._known_in:
            return self._known_count
        topic = image.topics.get(self._topic.name)
        if topic is None:
            return self._topic.partition_count(broker.config)
        self._known_in, self._known_count = image, len(topic.partitions)
        return self._known_count


class CoordinatorRuntime:
    """The coordinators of this broker, by kind: groups, transactions, share state. Used on the event loop
    only. `app.py` registers the kinds before the logs are opened."""

    def __init__(self) -> None:
        self.send_to_peer: SendToPeer = no_peers
        """Sends a request to another broker; looked up for each request."""
        self._closing: list[Callable[[], None]] = []
        self._kinds: dict[str, CoordinatorKind[Any, Any]] = {}
        """The kinds of coordinators, by the name of their internal topic."""
        self._broker: CoordinatorBroker | None = None
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._beginning: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def expect(
        self,
        topic: str,
        make: Callable[[], CoordinatorParts[M, S]],
        imports: Callable[[], object] = lambda: None,
    ) -> CoordinatorKind[M, S]:
        """Adds a kind of coordinator, which this broker has from now on. `imports` runs before `make`, on a thread."""
        kind = self._kinds[topic] = CoordinatorKind(topic, make, imports)
        return kind

    def is_imported(self, topic: str) -> bool:
        """Tells whether the kind can be made on the loop; otherwise `import_on_thread` comes first."""
        return self._kinds[topic].is_imported

    async def import_on_thread(self, topic: str) -> None:
        await self._kinds[topic].import_on_thread(self._started().runtime.offload)

    def new_shards(
        self,
        topic: InternalTopic,
        make_machine: Callable[[int], M],
        clock: Clock,
        *,
        patience_seconds: Callable[[], float] = lambda: PATIENCE_SECONDS,
    ) -> Shards[M]:
        """Returns shards for a kind. `make_machine` receives the partition's index; see `Shards` for `patience_seconds`."""
        return Shards(topic.name, _Count(self, topic).count, make_machine, clock, patience_seconds)

    def begin(self, broker: CoordinatorBroker) -> None:
        self._broker = broker

    def has(self, topic: str) -> bool:
        """Tells whether this broker coordinates the kind at all."""
        return topic in self._kinds

    def coordinator_of(self, topic: str, key: str) -> tuple[int, BrokerId]:
        """Returns the partition that a key belongs to, and the broker that coordinates it; COORDINATOR_NOT_AVAILABLE while no
        one does.

        No service is made for the asking: a broker that only leads partitions needs none.
        """
        topic_image = self._topics().get(topic)
        if topic_image is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no {topic} yet")
        index = partition_of(key, len(topic_image.partitions))
        leader = topic_image.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        return index, leader

    # -- following the partitions that this broker leads

    def led(self, partition: Partition) -> None:
        kind = self._kinds.get(partition.name.topic)
        if kind is None or self._closed:
            return
        kind.led(partition.name.partition, PartitionLog(partition, self._started().runtime.offload))
        if kind.existing_parts is None and kind.name not in self._beginning:
            self._beginning[kind.name] = asyncio.get_running_loop().create_task(
                self._begin(kind), name=f"import the coordinator of {kind.name}"
            )

    async def _begin(self, kind: CoordinatorKind[Any, Any]) -> None:
        try:
            await kind.import_on_thread(self._started().runtime.offload)
            kind.parts  # noqa: B018 - they are made
        except Exception:  # noqa: BLE001 - the root of a task: the first request that needs the kind tries again
            _log.exception("coordinator_not_imported", topic=kind.name)
        finally:
            del self._beginning[kind.name]

    def lost(self, partition: Partition) -> None:
        kind = self._kinds.get(partition.name.topic)
        if kind is not None:
            kind.lost(partition.name.partition)

    def on_close(self, close: Callable[[], None]) -> None:
        """Registers a callback for the end of the coordinators."""
        self._closing.append(close)

    def close(self) -> None:
        """Refuse the waiters: another broker, or this one after its restart, coordinates next."""
        self._closed = True
        for task in self._beginning.values():
            task.cancel()
        for close in self._closing:
            close()
        for kind in self._kinds.values():
            if kind.existing_parts is not None:
                kind.existing_parts.shards.close()

    # -- the topics

    async def ensure_topic(self, name: str) -> None:
        """Make the internal topic unless it exists. COORDINATOR_NOT_AVAILABLE when that fails."""
        if name in self._topics():
            return
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.get_running_loop().create_task(self._create(name))
            task.add_done_callback(lambda _: self._creating.pop(name, None))
        await outcome_of(task)

    async def _create(self, name: str) -> None:
        broker = self._started()
        await self.import_on_thread(name)
        topic = self._kinds[name].parts.topic
        await create_internal_topic(topic, broker.config, len(broker.image.brokers), broker.cluster)

    def _topics(self) -> Mapping[str, TopicImage]:
        return self._started().image.topics

    @property
    def here(self) -> BrokerId:
        """The id of this broker."""
        return BrokerId(self._started().config.server.node_id)

    @property
    def broker(self) -> CoordinatorBroker:
        """The broker whose coordinators these are."""
        return self._started()

    def _started(self) -> CoordinatorBroker:
        assert self._broker is not None, "begin() comes first"
        return self._broker
