"""What a replica does as a follower: it takes what its leader has, and cuts its log where the two part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import Offset
from odradek.records import BatchHeader
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.replication.replica import Replica
from odradek.storage.log.log import EpochEnd
from odradek.telemetry import events

_log = events.get("replication")


class FollowingReplica(Replica):
    """The follower's half of a partition."""

    __slots__ = ()

    def append_fetched(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int) -> None:
        """Append what was fetched from the leader, as it is there, its CRCs being checked. Raises as `append_as_follower`."""
        self._check_follows()
        size_bytes = self.log.size_bytes
        self.log.append_as_follower(batches, now_ms=now_ms)
        for header, _ in batches:
            if header.attributes & TRANSACTIONAL_BIT:
                self._note_transaction(header.producer_id, header.base_offset)
        if self._arrivals is not None:
            self._arrivals.note(self.log.end_offset, asyncio.get_running_loop().time())
        self._readers.appended(self.log.end_offset, self.log.size_bytes - size_bytes)
        self._settle()

    def learned(self, high_watermark: int, start_offset: int) -> None:
        """What the leader said with its records. It counts as far as our own log goes, now and as that grows; nothing of it may
        come from an answer by which this log has yet to be cut."""
        self._check_follows()
        self._leader_high_watermark = high_watermark
        self._leader_start_offset = start_offset
        self._settle()
        if self.log.start_is_doubted:
            self.log.begins_at(start_offset)
            self.flush_if_due()

    def truncate(self, diverging: EpochEnd) -> None:
        """Cut the log to where it parts from the leader's: for the last epoch that we fetched in, the leader has `diverging` as
        the newest epoch that is not newer, and where it ended (KIP-101, KIP-279, KIP-595)."""
        self._check_follows()
        ours = self.log.epoch_end_offset(diverging.epoch)
        offset = min(diverging.end_offset, self.log.end_offset)
        if ours.end_offset >= 0:
            offset = min(offset, ours.end_offset)
        _log.info(
            "log_truncated",
            partition=self.name,
            offset=offset,
            end_offset=self.log.end_offset,
            high_watermark=self.high_watermark,
            leader_epoch=self.leader_epoch,
        )
        if offset < self.log.start_offset:
            self._change_end(lambda: self.log.restart_at(max(offset, 0)))
        else:
            self._change_end(lambda: self.log.truncate_to(offset))

    def restart_at(self, offset: int) -> None:
        """Drop everything and begin at `offset`: the leader's log begins beyond our end."""
        self._check_follows()
        _log.info("log_restarted", partition=self.name, offset=offset, end_offset=self.log.end_offset)
        self._change_end(lambda: self.log.restart_at(offset))

    def begin_with(self, header: BatchHeader) -> None:
        """Make room for a batch in whose middle our empty log begins: to be appended when its files have followed."""
        self._check_follows()
        self._change_end(lambda: self.log.begin_with(header))

    def _change_end(self, work: Callable[[], None]) -> None:
        work()
        log = self.log
        self.flush_if_due()  # the files follow, and nothing can be appended before
        self._leader_high_watermark = self._leader_start_offset = 0
        # Never below the start, or it would be out of range when this replica is elected.
        self.high_watermark = Offset(max(min(self.high_watermark, log.end_offset), log.start_offset))
        if self._arrivals is not None:
            self._arrivals.forget()
        self._readers.forget_bytes()
        self._readers.end()
        self._settle()

    def _check_follows(self) -> None:
        if self.retired is not None:
            raise self.retired.error()
        if self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is led by this broker now")

    def _settle_follower(self, durable_offset: int) -> None:
        high_watermark = min(self._leader_high_watermark, durable_offset)
        moved = high_watermark > self.high_watermark
        if moved:
            self.high_watermark = Offset(high_watermark)
        if self._leader_start_offset > self.log.start_offset:
            self.log.delete_records(min(self._leader_start_offset, self.high_watermark))
            self.flush_if_due()
        if moved:
            self._readers.high_watermark_moved()
