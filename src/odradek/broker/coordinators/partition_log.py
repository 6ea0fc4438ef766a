"""A partition that this broker leads, as the log under a shard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import split_batches
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition
from odradek.runtime.ports import Buffer, Offload
from odradek.storage.files.at_hand import ReadProgress


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
        """Raises if the log takes no appends. It runs before an operation decides, so a refusal does not change the machine."""
        leader = self._leader()
        leader.check_writable()
        leader.check_in_sync()

    def call_after_flush(self, call: Callable[[], None]) -> bool:
        partition = self._partition
        state = partition.state
        has_followers = state is not None and len(state.replicas) > 1  # they fetch what is appended meanwhile
        return partition.config.flush_before_ack and not has_followers and partition.flush_end.try_wait(call)

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        return self._leader().append(split_batches(memoryview(batch)), now_ms=now_ms).last_offset

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
        return (
            self._leader()
            .append_marker(
                producer_id,
                producer_epoch,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                now_ms=now_ms,
            )
            .last_offset
        )

    def age_ms(self, offset: int) -> int | None:
        age_s = self._partition.age_s(offset)
        return None if age_s is None else int(age_s * 1000)

    def committed(self, last_offset: int) -> asyncio.Future[None] | None:
        return self._leader().acknowledgement(last_offset)

    async def bring(self, offset: int, max_bytes: int) -> None:
        log, beside = self._partition.log, ReadProgress()
        while (missing := log.not_at_hand(offset, max_bytes, beside)) is not None:
            await self._offload.run(beside.do, missing)

    def read(self, offset: int, max_bytes: int) -> tuple[Buffer, int]:
        read = self._partition.log.read(offset, max_bytes, end_offset=self.end_offset, at_least_one=True)
        return read.records, read.next_offset

    def _leader(self) -> LeaderRole:
        """Returns the leader of this log's epoch. Raises NOT_LEADER_OR_FOLLOWER, or the error that ended the partition."""
        leader = self._partition.leader()
        if leader.leader_epoch != self.leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.name} is at leader epoch {leader.leader_epoch}, "
                f"this coordinator is of epoch {self.leader_epoch}",
            )
        return leader
