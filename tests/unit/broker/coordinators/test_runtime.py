"""Where coordinators are found, how their topics are made, and that each of them is of one leadership."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.broker.coordinators.internal_topics import InternalTopic
from odradek.broker.coordinators.partition_log import PartitionLog
from odradek.broker.coordinators.runtime import CoordinatorParts, CoordinatorRuntime
from odradek.broker.coordinators.transactions import TRANSACTION_TOPIC
from odradek.broker.handlers.metadata.find_coordinator import SERVED
from odradek.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.config.loading import load_broker_config
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.records import BatchBuilder
from odradek.replication.in_sync import IsrProposal
from odradek.replication.partition import Partition, ReplicationContext
from odradek.runtime.real import real_runtime
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.turns import Turns
from odradek.shards import ShardLog, Shards
from odradek.storage.log.log import Log

OFFSETS = "__consumer_offsets"
ONE, TWO = BrokerId(1), BrokerId(2)


class FakeContext:
    """What coordinators need of a broker."""

    def __init__(self, brokers: int = 1, **settings: str) -> None:
        self.config, _ = load_broker_config({"node.id": "1", **settings})
        live = tuple(
            BrokerImage(broker_id=BrokerId(number), host=f"host{number}", port=9092)
            for number in range(1, brokers + 1)
        )
        self.image = ClusterImage(
            version=0, cluster_id="c", controller_id=ONE, brokers=live, topics={}, topics_by_id={}
        )
        self.runtime = real_runtime()
        self.turns = Turns(SystemClock().monotonic)
        self.made: list[TopicSpec] = []
        self.refusal = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
        self.cluster = self
        self.coordinators = CoordinatorRuntime()
        broker: Any = self
        self.coordinators.begin(broker)

    async def create_topics(self, wanted: Sequence[TopicSpec]) -> list[TopicImage | KafkaError]:
        self.made += wanted
        return [self.refusal]

    def lead(self, *leaders: BrokerId, topic: str = OFFSETS) -> None:
        partitions = tuple(
            PartitionImage(leader=leader, leader_epoch=LeaderEpoch(0), replicas=(ONE,), isr=(ONE,))
            for leader in leaders
        )
        self.image = self.image.with_topics(
            [TopicImage(name=topic, topic_id=UUID(int=1), partitions=partitions)]
        )

    async def find(self, *keys: str) -> list[tuple[int, int, str]]:
        context: Any = SimpleNamespace(api_version=6, address_of=lambda broker: (broker.host, broker.port))
        broker: Any = self
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=list(keys))
        response: Any = await SERVED.handle(broker, context, request)  # type: ignore[misc]
        return [
            (coordinator.error_code, coordinator.node_id, coordinator.host)
            for coordinator in response.coordinators
        ]


def expect(broker: FakeContext, topic: InternalTopic) -> Shards[Any]:
    make: Any = object
    shards: Shards[Any] = broker.coordinators.new_shards(topic, make, SystemClock())
    return broker.coordinators.expect(topic.name, lambda: CoordinatorParts(topic, shards, None)).shards


def internal(**kind: Any) -> InternalTopic:
    return InternalTopic(name=OFFSETS, partition_count=lambda _: 4, **kind)


async def test_a_coordinator_is_found_where_the_partition_of_its_key_is_led() -> None:
    broker = FakeContext(brokers=2)
    shards = expect(broker, internal())
    broker.lead(ONE, TWO, NO_LEADER, BrokerId(3))
    by_place = {shards.index_for(key): key for key in map(str, range(40))}
    coordinators = await broker.find(*(by_place[place] for place in range(4)))
    no_coordinator = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "")
    assert coordinators == [(0, ONE, "host1"), (0, TWO, "host2"), no_coordinator, no_coordinator]


async def test_a_broker_that_does_not_coordinate_a_key_says_so() -> None:
    broker = FakeContext(brokers=2)
    shards = expect(broker, internal())
    broker.lead(TWO, TWO, TWO, TWO)
    with pytest.raises(KafkaError) as refused:
        shards.for_key("k")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


# -- how the topics are made


SET = {"transaction.state.log.replication.factor": "3"}
MIN = {"transaction.state.log.min.isr": "1"}


@pytest.mark.parametrize(
    ("brokers", "settings", "replicas", "in_sync"),
    [
        (1, {}, 1, "1"),
        (1, SET, 1, "1"),
        (2, {}, 2, "1"),
        (3, {}, 3, "2"),
        (5, SET, 3, "2"),
        (3, MIN, 3, "1"),
        (2, {"transaction.state.log.replication.factor": "2"}, 2, "2"),
        (1, {"transaction.state.log.replication.factor": "1"}, 1, "1"),
    ],
)
async def test_a_coordinators_topic_has_the_replicas_that_its_setting_says(
    brokers: int, settings: dict[str, str], replicas: int, in_sync: str
) -> None:
    broker = FakeContext(brokers, **settings)
    expect(broker, TRANSACTION_TOPIC)
    await broker.coordinators.ensure_topic(TRANSACTION_TOPIC.name)
    (new,) = broker.made
    assert new.replication_factor == replicas
    assert new.configs["min.insync.replicas"] == in_sync
    assert new.configs["cleanup.policy"] == "compact"


async def test_a_cluster_that_lacks_brokers_asks_for_as_many_replicas_as_were_set() -> None:
    """Some may merely be down; where the controller knows of no more, the topic is not made."""
    broker = FakeContext(2, **SET)
    expect(broker, TRANSACTION_TOPIC)
    broker.refusal = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "there are 2 brokers")
    with pytest.raises(KafkaError, match="there are 2 brokers") as refused:
        await broker.coordinators.ensure_topic(TRANSACTION_TOPIC.name)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [new.replication_factor for new in broker.made] == [3]


# -- imported when they are needed


class Kind:
    """A coordinator that is expected; its import waits for `allowed`."""

    def __init__(self, broker: FakeContext) -> None:
        self.broker = broker
        self.allowed = threading.Event()
        self.threads: list[int] = []
        self.logs: list[ShardLog] = []
        self.kind = broker.coordinators.expect(OFFSETS, self._make, self._import)

    def _import(self) -> None:
        self.threads.append(threading.get_ident())
        assert self.allowed.wait(PATIENCE_S)

    def _make(self) -> CoordinatorParts[Any, None]:
        assert self.threads, "the import comes first"
        topic = internal()
        shards = self.broker.coordinators.new_shards(topic, cast(Any, object), SystemClock())
        cast(Any, shards).elected = lambda index, log: self.logs.append(log)
        return CoordinatorParts(topic, shards, None)

    async def imported(self) -> None:
        self.allowed.set()
        async with asyncio.timeout(PATIENCE_S):
            await self.broker.coordinators.import_on_thread(OFFSETS)
            while self.kind.existing_parts is None:
                await asyncio.sleep(0)


@pytest.fixture
def kind() -> Iterator[Kind]:
    kind = Kind(FakeContext())
    yield kind
    kind.allowed.set()


async def test_a_coordinator_is_imported_on_a_thread_and_then_loads_what_this_broker_leads(
    kind: Kind, partition: Partition
) -> None:
    lead(partition, 3)
    kind.broker.coordinators.led(partition)
    assert not kind.logs
    await kind.imported()
    assert threading.get_ident() not in kind.threads
    assert [log.leader_epoch for log in kind.logs] == [3]


async def test_only_the_last_leadership_is_loaded_when_others_came_before_the_import_was_done(
    kind: Kind, partition: Partition
) -> None:
    for epoch in (3, 5):
        lead(partition, epoch)
        kind.broker.coordinators.led(partition)
    await kind.imported()
    assert [log.leader_epoch for log in kind.logs] == [5]


async def test_what_this_broker_leads_no_more_when_the_import_is_done_is_not_loaded(
    kind: Kind, partition: Partition
) -> None:
    lead(partition, 3)
    kind.broker.coordinators.led(partition)
    kind.broker.coordinators.lost(partition)
    await kind.imported()
    assert not kind.logs


async def test_the_topic_is_made_by_a_coordinator_that_was_imported_on_a_thread(kind: Kind) -> None:
    kind.allowed.set()
    await kind.broker.coordinators.ensure_topic(OFFSETS)
    assert threading.get_ident() not in kind.threads
    assert kind.broker.made


# -- the log of a leadership


class Idle:
    def request(self, partition: Partition) -> None: ...

    def propose(self, partition: Partition, proposal: IsrProposal) -> None: ...


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    name = TopicPartition(OFFSETS, 0)
    log = Log.open(
        real_runtime(),
        str(tmp_path / str(name)),
        LogConfig(flush_before_ack=False),
        topic_partition=name,
        clean=True,
        recovery_point=0,
    )
    member = ReplicationContext(broker_id=ONE, lag_s_max=30.0, proposals=Idle())
    return Partition(name, UUID(int=1), log, LeaderEpoch(0), Idle(), member=member)


def lead(partition: Partition, epoch: int, *, isr: tuple[BrokerId, ...] = (ONE, TWO)) -> None:
    state = PartitionImage(
        leader=ONE,
        leader_epoch=LeaderEpoch(epoch),
        replicas=(ONE, TWO),
        isr=isr,
        partition_epoch=epoch + 2 - len(isr),
    )
    partition.lead(state, {ONE: 1, TWO: 2}, now=0.0)


def batch() -> bytearray:
    builder = BatchBuilder()
    builder.append(1, b"k", b"v")
    return builder.build()


async def test_what_a_leadership_wrote_is_confirmed_to_it_alone(partition: Partition) -> None:
    lead(partition, 3)
    former = PartitionLog(partition, real_runtime().offload)
    written = former.append(batch(), now_ms=1)
    confirmed = former.committed(written)
    assert confirmed is not None, "the other replica does not have it yet"
    lead(partition, 5)
    refused = confirmed.exception()
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for attempt in (
        former.check_writable,
        lambda: former.append(batch(), now_ms=1),
        lambda: former.committed(written),
    ):
        with pytest.raises(KafkaError, match="epoch 5") as late:
            attempt()
        assert late.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert PartitionLog(partition, real_runtime().offload).append(batch(), now_ms=1) == written + 1


async def test_too_few_replicas_in_sync_are_noticed_before_an_operation_decides(partition: Partition) -> None:
    partition.reconfigure(LogConfig(flush_before_ack=False, min_insync_replicas=2))
    lead(partition, 3)
    log = PartitionLog(partition, real_runtime().offload)
    log.check_writable()
    lead(partition, 3, isr=(ONE,))
    with pytest.raises(KafkaError) as refused:
        log.check_writable()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
