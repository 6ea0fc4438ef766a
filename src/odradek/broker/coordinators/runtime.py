"""The coordinators of this broker: which partitions of the internal topics it leads, as shards of groups and transactions.

An internal topic is made when its first coordinator is asked for, with as many partitions as its setting says. From then on the
topic itself says how many there are: a key's shard never moves because a setting changed.

A kind of coordinator is made, and its rooms imported, when it is needed for the first time: a broker that has no groups and no
transactions starts without them. The import takes longer than the loop may be held, so it runs on a thread. What this broker
leads waits for it, and so do the requests of clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from odradek.broker.cluster.peer_requests import SendToPeer, no_peers
from odradek.cluster.image import (
    NO_LEADER,
    ClusterImage,
    TopicImage,
)
from odradek.cluster.planning import TopicSpec
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.lazy import lazy
from odradek.records import split_batches
from odradek.replication.partition import Partition
from odradek.runtime.ports import Buffer, Clock, Offload, Runtime
from odradek.runtime.shielded import outcome_of
from odradek.shards import PATIENCE_SECONDS, ShardLog, Shards, partition_of
from odradek.storage.segment.at_hand import ReadProgress
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker.coordinators import transaction_verifier
    from odradek.broker.coordinators.transaction_verifier import ClusterVerifier
else:
    transaction_verifier = lazy("odradek.broker.coordinators.transaction_verifier")

_log = events.get("broker")

_SEGMENT_BYTES_MIN: Final = 1 << 20


def segment_bytes(setting: int) -> str:
    """An internal topic's `segment.bytes`: what its broker setting says, but at least what a topic may have."""
    return str(max(setting, _SEGMENT_BYTES_MIN))


def batch_bytes_max(topic: str, config: BrokerConfig, image: ClusterImage) -> int:
    """`max.message.bytes` of an internal topic: its own, or the broker's."""
    found = image.topics.get(topic)
    own = None if found is None else found.configs.get("max.message.bytes")
    return config.log.max_message_bytes if own is None else int(own)


class PartitionLog:
    """A `ShardLog` over a partition that this broker leads, for one leadership: the next has a log of its own."""

    __slots__ = ("_offload", "_partition", "leader_epoch")

    def __init__(self, partition: Partition, offload: Offload) -> None:
        self._partition = partition
        self._offload = offload
        self.leader_epoch: Final = partition.leader_epoch

    @property
    def name(self) -> str:
        return str(self._partition.name)

    @property
    def start_offset(self) -> int:
        return self._partition.start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.end_offset

    @property
    def batch_bytes_max(self) -> int:
        return self._partition.config.max_message_bytes

    def check_writable(self) -> None:
        """Before an operation decides: what is refused here leaves the machine as it is."""
        self._check_epoch()
        self._partition.check_writable()
        self._partition.check_in_sync()

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        self._check_epoch()
        return self._partition.append(split_batches(memoryview(batch)), now_ms=now_ms).last_offset

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> int:
        self._check_epoch()
        return self._partition.append_marker(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
            now_ms=now_ms,
        ).last_offset

    def age_ms(self, offset: int) -> int | None:
        age_s = self._partition.age_s(offset)
        return None if age_s is None else int(age_s * 1000)

    def committed(self, last_offset: int) -> asyncio.Future[None] | None:
        self._check_epoch()
        return self._partition.acknowledgement(last_offset)

    async def bring(self, offset: int, max_bytes: int) -> None:
        log, beside = self._partition.log, ReadProgress()
        while (missing := log.not_at_hand(offset, max_bytes, beside)) is not None:
            await self._offload.run(beside.do, missing)

    def read(self, offset: int, max_bytes: int) -> tuple[Buffer, int]:
        read = self._partition.log.read(offset, max_bytes, end_offset=self.end_offset, at_least_one=True)
        return read.records, read.next_offset

    def _check_epoch(self) -> None:
        if self._partition.leader_epoch != self.leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.name} is at leader epoch {self._partition.leader_epoch}, "
                f"this coordinator is of epoch {self.leader_epoch}",
            )


class TopicCreator(Protocol):
    async def create_topics(self, wanted: Sequence[TopicSpec]) -> list[TopicImage | KafkaError]:
        """Through the controller: one outcome for each topic, in order."""


class CoordinatorBroker(Protocol):
    """What coordinators need of the broker that they run on."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def image(self) -> ClusterImage: ...
    @property
    def cluster(self) -> TopicCreator: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """How an internal topic is made, from the broker's settings as they are then."""

    name: str
    partition_count: Callable[[BrokerConfig], int]
    replication_factor: Callable[[BrokerConfig], int] = field(
        default=lambda config: config.topics.default_replication_factor
    )
    """See `_replicas`: with fewer brokers it may have fewer."""
    replication_factor_key: str = "default.replication.factor"
    min_in_sync: Callable[[BrokerConfig], int] | None = None
    """Its own `min.insync.replicas`; None: the broker's, as for any topic."""
    configs: Callable[[BrokerConfig], Mapping[str, str]] = field(
        default=lambda _: {"cleanup.policy": "compact"}
    )


class CoordinatorRuntime:
    """Used on the event loop only. `app.py` says which kinds to expect before the logs are opened."""

    def __init__(self) -> None:
        self.ask_peer: SendToPeer = no_peers
        """How another broker is asked; looked up for each question."""
        self._closing: list[Callable[[], None]] = []
        self._verifier: ClusterVerifier | None = None
        self._expected: dict[str, Callable[[], Any]] = {}
        self._imports: dict[str, Callable[[], object]] = {}
        self._imported: dict[str, None] = {}
        self._led: dict[TopicPartition, ShardLog] = {}
        """Before their kind was imported."""
        self._beginning: dict[str, asyncio.Task[None]] = {}
        self._services: dict[str, Any] = {}
        self._kinds: dict[str, InternalTopic] = {}
        self._shards: dict[str, Shards[Any]] = {}
        self._broker: CoordinatorBroker | None = None
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def expect(
        self, topic: str, make: Callable[[], Any], imports: Callable[[], object] = lambda: None
    ) -> None:
        """A kind of coordinator: `make` calls `add` and returns the service, once that is needed.

        `imports` imports what `make` needs. It runs before, on a thread.
        """
        self._expected[topic] = make
        self._imports[topic] = imports

    def is_imported(self, topic: str) -> bool:
        """Whether the kind can be made on the loop; otherwise `import_on_thread` comes first."""
        return topic in self._imported or topic in self._services

    async def import_on_thread(self, topic: str) -> None:
        if not self.is_imported(topic):
            await self._started().runtime.offload.run(self._imports[topic])
            self._imported[topic] = None

    def service(self, topic: str) -> Any:
        """The service of a kind."""
        if topic not in self._services:
            self._services[topic] = self._expected[topic]()
            for partition in [led for led in self._led if led.topic == topic]:
                self._shards[topic].elected(partition.partition, self._led.pop(partition))
        return self._services[topic]

    def made(self, topic: str) -> Any | None:
        """The service of a kind if there was any need for it yet."""
        return self._services.get(topic)

    def add(
        self,
        topic: InternalTopic,
        make_machine: Callable[[int], Any],
        clock: Clock,
        *,
        patience_seconds: Callable[[], float] = lambda: PATIENCE_SECONDS,
    ) -> Shards[Any]:
        """A kind of coordinator; `make_machine` is given the index of the partition. See `Shards` for `patience_seconds`."""
        shards: Shards[Any] = Shards(
            topic.name, lambda: self._count(topic), make_machine, clock, patience_seconds
        )
        self._kinds[topic.name] = topic
        self._shards[topic.name] = shards
        return shards

    def begin(self, broker: CoordinatorBroker) -> None:
        self._broker = broker

    def has(self, topic: str) -> bool:
        """Whether this broker coordinates the kind at all."""
        return topic in self._expected

    def shards(self, topic: str) -> Shards[Any]:
        self.service(topic)
        return self._shards[topic]

    def coordinator_of(self, topic: str, key: str) -> tuple[int, BrokerId]:
        """The partition that a key belongs to, and the broker that coordinates it; COORDINATOR_NOT_AVAILABLE while nobody does.

        No service is made for the asking: who merely leads partitions needs none.
        """
        found = self._image_topics().get(topic)
        if found is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no {topic} yet")
        index = partition_of(key, len(found.partitions))
        leader = found.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        return index, leader

    @property
    def verifier(self) -> transaction_verifier.ClusterVerifier:
        """Who asks the coordinators of transactions, here and elsewhere."""
        if self._verifier is None:
            self._verifier = transaction_verifier.ClusterVerifier(self, lambda: self._started().config)
        return self._verifier

    # -- following the partitions that this broker leads

    def led(self, partition: Partition) -> None:
        topic = partition.name.topic
        if topic in self._expected and not self._closed:
            log = PartitionLog(partition, self._started().runtime.offload)
            if self.is_imported(topic):
                self.shards(topic).elected(partition.name.partition, log)
                return
            self._led[partition.name] = log
            if topic not in self._beginning:
                self._beginning[topic] = asyncio.get_running_loop().create_task(
                    self._begin(topic), name=f"import the coordinator of {topic}"
                )

    async def _begin(self, topic: str) -> None:
        try:
            await self.import_on_thread(topic)
            self.service(topic)
        except Exception:  # noqa: BLE001 - the root of a task: the first request that needs the kind tries again
            _log.exception("coordinator_not_imported", topic=topic)
        finally:
            del self._beginning[topic]

    def lost(self, partition: Partition) -> None:
        self._led.pop(partition.name, None)
        shards = self._shards.get(partition.name.topic)
        if shards is not None:
            shards.resigned(partition.name.partition)

    def on_close(self, close: Callable[[], None]) -> None:
        """What is to end with the coordinators."""
        self._closing.append(close)

    def close(self) -> None:
        """Refuse whoever waits: another broker, or this one after its restart, coordinates next."""
        self._closed = True
        for task in self._beginning.values():
            task.cancel()
        for close in self._closing:
            close()
        for shards in self._shards.values():
            shards.close()

    # -- the topics

    async def ensure_topic(self, name: str) -> None:
        """Make the internal topic unless it exists. COORDINATOR_NOT_AVAILABLE when that fails."""
        if name in self._image_topics():
            return
        task = self._creating.get(name)
        if task is None:
            task = self._creating[name] = asyncio.get_running_loop().create_task(self._create(name))
            task.add_done_callback(lambda _: self._creating.pop(name, None))
        await outcome_of(task)

    async def _create(self, name: str) -> None:
        broker = self._started()
        await self.import_on_thread(name)
        self.service(name)
        kind = self._kinds[name]
        replicas = _replicas(kind, broker.config, len(broker.image.brokers))
        new = TopicSpec(
            name=name,
            partition_count=kind.partition_count(broker.config),
            replication_factor=replicas,
            configs=_configs(kind, broker.config, replicas),
        )
        (outcome,) = await broker.cluster.create_topics([new])
        if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be made: {outcome.message}")

    def _count(self, topic: InternalTopic) -> int:
        image = self._image_topics().get(topic.name)
        return len(image.partitions) if image is not None else topic.partition_count(self._started().config)

    def _image_topics(self) -> Mapping[str, Any]:
        return self.image.topics

    @property
    def image(self) -> ClusterImage:
        return self._started().image

    @property
    def here(self) -> BrokerId:
        """This broker."""
        return BrokerId(self._started().config.server.node_id)

    def _started(self) -> CoordinatorBroker:
        assert self._broker is not None, "begin() comes first"
        return self._broker


def _replicas(kind: InternalTopic, config: BrokerConfig, broker_count: int) -> int:
    """As many as the setting says. A broker alone makes do with one, since everything waits for the topic; a cluster with fewer
    brokers, too, unless somebody asked for so many: one of them may just be down, and the topic would never get its copies
    (COORDINATOR_NOT_AVAILABLE, as in Kafka)."""
    wanted = kind.replication_factor(config)
    is_set = kind.replication_factor_key in config.originals
    setting = f"{kind.replication_factor_key}={wanted}"
    if wanted > broker_count and is_set:
        if broker_count > 1:
            return wanted  # of those that are registered, some may be down; the controller knows
        _log.warning(
            "internal_topic_has_fewer_replicas",
            topic=kind.name,
            setting=setting,
            replicas=broker_count,
            reason="there are no more brokers",
        )
    return min(wanted, broker_count)


def _configs(kind: InternalTopic, config: BrokerConfig, replicas: int) -> Mapping[str, str]:
    """With fewer replicas than there should be, one must still be able to fail where there are two."""
    configs = kind.configs(config)
    if kind.min_in_sync is None:
        return configs
    wanted = min(kind.min_in_sync(config), replicas)
    if replicas < kind.replication_factor(config):
        wanted = min(wanted, max(replicas - 1, 1))
    return {**configs, "min.insync.replicas": str(wanted)}
