"""One replica with a log of its own, in the role that a test gives it; the test plays everyone else."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from odradek.cluster.image import PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.records import BatchBuilder, BatchHeader, split_batches
from odradek.replication.in_sync import IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition, ReplicationContext
from odradek.runtime.real import real_runtime
from odradek.storage.log.log import FlushJob, Log
from odradek.testing.guarded_disk import off_loop

NAME = TopicPartition("t", 0)
ME, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LIVE = {ME: 10, TWO: 20, THREE: 30}
NOW_MS = 1_700_000_000_000


def image(
    *isr: BrokerId, leader: BrokerId = ME, leader_epoch: int = 1, partition_epoch: int = 1, **other: Any
) -> PartitionImage:
    fields: dict[str, Any] = {"replicas": (ME, TWO, THREE), **other}
    return PartitionImage(
        leader=leader,
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=isr,
        partition_epoch=partition_epoch,
        **fields,
    )


def batches(
    count: int = 1, *, offset: int = 0, epoch: int = 0, **producer: Any
) -> list[tuple[BatchHeader, memoryview]]:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(NOW_MS + number, b"k", b"v")
    built = builder.build(**producer)
    built[0:8] = offset.to_bytes(8, "big")
    built[12:16] = epoch.to_bytes(4, "big")
    return split_batches(built)


class RecordingWatcher:
    def __init__(self) -> None:
        self.marks: list[int] = []
        self.appended_bytes = self.added_bytes = 0
        self.ends = 0

    def appended(self, partition: Partition, added_bytes: int) -> None:
        self.appended_bytes += added_bytes

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self.marks.append(partition.high_watermark)
        self.added_bytes += added_bytes

    def ended(self, partition: Partition) -> None:
        self.ends += 1


class World:
    """Broker 1's replica on a real log. It is flushed when a test says so, and proposals are kept."""

    def __init__(
        self,
        directory: Path,
        *,
        high_watermark: int | None = None,
        name: TopicPartition = NAME,
        **config: Any,
    ) -> None:
        self.proposed: list[IsrProposal] = []
        self.requested = 0
        self.log = Log.open(
            real_runtime(),
            str(directory / str(name)),
            replace(LogConfig(), **config),
            topic_partition=name,
            clean=True,
            recovery_point=0,
        )
        self.partition = Partition(
            name,
            UUID(int=1),
            self.log,
            LeaderEpoch(0),
            self,
            member=ReplicationContext(broker_id=ME, lag_s_max=10.0, proposals=self),
            high_watermark=high_watermark,
        )

    def request(self, partition: Partition) -> None:
        """`Flushing`."""
        self.requested += 1

    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None:
        """`IsrProposals`."""
        self.proposer = leader
        self.proposed.append(proposal)

    def begin_flush(self) -> FlushJob:
        job = self.log.flush_job()
        assert job is not None
        with off_loop():
            job.run()
        return job

    def finish_flush(self, job: FlushJob) -> None:
        self.log.flushed(job)
        self.partition.flushed()

    def flush(self) -> None:
        self.finish_flush(self.begin_flush())

    def lead(self, *isr: BrokerId, **other: Any) -> None:
        self.partition.lead(image(*isr, **other), LIVE, 0.0)

    def follow(self, leader: BrokerId = TWO, **other: Any) -> None:
        self.partition.follow(image(leader, leader=leader, **other))

    def append(self, count: int = 1) -> int:
        return self.partition.leader().append(batches(count), now_ms=NOW_MS).last_offset

    def fetched(self, follower: BrokerId, offset: int, *, now: float = 0.0, start_offset: int = 0) -> None:
        self.partition.leader().follower_fetched(
            follower, LIVE[follower], offset, now, start_offset=start_offset
        )

    def take(self, count: int, *, offset: int = 0, epoch: int = 1, **producer: Any) -> None:
        self.partition.follower().append_fetched(
            batches(count, offset=offset, epoch=epoch, **producer), now_ms=NOW_MS
        )


def code_of(future: asyncio.Future[None]) -> ErrorCode:
    error = future.exception()
    assert isinstance(error, KafkaError)
    return error.code
