"""Brokers over logs on disk for the tests of transaction markers, and how one reaches the other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.contract.coordinators.brokers import PeerRequests

from odradek.broker.coordinators.transaction_markers import LocalMarkers
from odradek.broker.handlers.transactions.write_txn_markers import SERVED
from odradek.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest
from odradek.records import BatchBuilder, split_batches
from odradek.replication.in_sync import IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition, ReplicationContext
from odradek.runtime.real import real_runtime
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.turns import Turns
from odradek.storage.log.log import Log
from odradek.storage.producers.verification import Guard
from odradek.transactions.markers import MarkerBatch
from odradek.transactions.state import TransactionVersion

HERE, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
NOW_MS = 1_700_000_000_000
PRODUCER = 7
NONE = ErrorCode.NONE


class Flushes:
    """Makes nothing durable by itself."""

    def request(self, partition: Partition) -> None: ...


class NoProposals:
    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None: ...


class MarkerBroker:
    """What marker writing needs of a broker: partitions that it leads, over logs on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.partitions: dict[TopicPartition, Partition] = {}
        self.image = image_of({})
        self.local = LocalMarkers(None, self, SystemClock(), lambda: self.image)  # type: ignore[arg-type]

    def lead(self, index: int, *, durable: bool = True, followers: tuple[BrokerId, ...] = ()) -> Partition:
        name = TopicPartition("t", index)
        config = LogConfig(flush_before_ack=not durable)
        log = Log.open(
            real_runtime(),
            str(self._directory / f"t-{index}"),
            config,
            topic_partition=name,
            clean=True,
            recovery_point=0,
        )
        member = ReplicationContext(broker_id=OTHER, lag_s_max=30.0, proposals=NoProposals())
        partition = Partition(name, UUID(int=1), log, LeaderEpoch(0), Flushes(), member=member)
        state = PartitionImage(
            leader=OTHER, leader_epoch=LeaderEpoch(0), replicas=(OTHER, *followers), isr=(OTHER,)
        )
        partition.lead(state, {OTHER: 1}, now=0.0)
        self.partitions[name] = partition
        return partition

    def leader(self, topic: str, index: int) -> Partition:
        partition = self.partitions.get(TopicPartition(topic, index))
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    async def serve(self, request: WriteTxnMarkersRequest) -> Any:
        runtime = SimpleNamespace(clock=SystemClock())
        turns = Turns(SystemClock().monotonic)
        broker: Any = SimpleNamespace(
            kinds=SimpleNamespace(groups=None), replicas=self, runtime=runtime, image=self.image, turns=turns
        )
        return await SERVED.handle(broker, None, request)  # type: ignore[arg-type, misc]


def peers(other: MarkerBroker | None = None) -> PeerRequests:
    """Returns how a broker reaches `OTHER`, if it does, and no third one."""
    return PeerRequests({} if other is None else {OTHER: other.serve})


def image_of(leaders: dict[int, BrokerId]) -> ClusterImage:
    partitions = tuple(
        PartitionImage(leader=leaders[index], leader_epoch=LeaderEpoch(0), replicas=(HERE,), isr=(HERE,))
        for index in sorted(leaders)
    )
    empty = ClusterImage(
        version=0, cluster_id="c", controller_id=HERE, brokers=(), topics={}, topics_by_id={}
    )
    topic = TopicImage(name="t", topic_id=UUID(int=1), partitions=partitions)
    return empty.with_topics([topic]) if partitions else empty


def batch(
    *indexes: int,
    topic: str = "t",
    producer_id: int = PRODUCER,
    epoch: int = 1,
    coordinator_epoch: int = 4,
    version: TransactionVersion = TransactionVersion.EPOCH_FOR_EACH,
) -> MarkerBatch:
    return MarkerBatch(
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=True,
        coordinator_epoch=coordinator_epoch,
        version=version,
        partitions=tuple(TopicPartition(topic, index) for index in indexes),
    )


def write_data(partition: Partition, *, epoch: int = 0) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", b"v")
    batches = split_batches(
        builder.build(producer_id=PRODUCER, producer_epoch=epoch, base_sequence=0, transactional=True)
    )
    guard = partition.leader().begin_verification(batches[0][0], bumps_epoch=True, now_ms=NOW_MS)
    assert isinstance(guard, Guard)
    partition.leader().append(batches, now_ms=NOW_MS, guard=guard)
