"""The role of a follower: it takes its leader's records, and cuts its log where the two diverge.

A role lasts for one leader epoch. It may be kept: when it has ended, everything that it did is refused, with what ended it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NoReturn

from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.model.errors import ErrorContent
from odradek.model.ids import BrokerId, LeaderEpoch, Offset
from odradek.records import BatchHeader
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.replication.replica import Replica
from odradek.runtime.prompt import PromptFuture
from odradek.storage.log.log import EpochEnd
from odradek.telemetry import events

_log = events.get("replication")


class FollowerRole:
    """One leader epoch of a partition that others lead, or no one. Without a `state` it serves no one yet."""

    __slots__ = (
        "_end",
        "_leader_high_watermark",
        "_leader_start_offset",
        "_replica",
        "leader_epoch",
        "state",
    )

    is_leader: ClassVar[bool] = False
    awaits_earlier_records: ClassVar[bool] = False

    def __init__(
        self, replica: Replica, leader_epoch: LeaderEpoch, state: PartitionImage | None = None
    ) -> None:
        self._replica = replica
        self._end: ErrorContent | None = None
        """The error that ended the role."""
        self._leader_high_watermark = 0
        """The high watermark in the leader's last answer."""
        self._leader_start_offset = 0
        self.leader_epoch: Final = leader_epoch
        self.state = state
        """The partition's state in the controller's last message."""

    @property
    def lag(self) -> int:
        """Records that this log lacks below the leader's last known high watermark."""
        return max(self._leader_high_watermark - self._replica.log.end_offset, 0)

    # -- which role it is

    def leader(self) -> NoReturn:
        if self._end is not None:
            raise self._end.error()
        raise self._replica.not_leader(NO_LEADER if self.state is None else self.state.leader)

    def follower(self) -> FollowerRole:
        if self._end is not None:
            raise self._end.error()
        return self

    def check_serves(self) -> None:
        if self._end is not None or self.state is None:
            self.leader()

    def goes_on_leading(self, state: PartitionImage, brokers: Mapping[BrokerId, int], now: float) -> bool:
        return False

    def goes_on_following(self, state: PartitionImage) -> bool:
        """Takes over the state if it is of this role; returns whether it is."""
        if self.state is None or state.leader_epoch != self.leader_epoch:
            return False
        self.state = state
        return True

    def seal(self, reason: ErrorContent) -> None:
        """Refuses everything from now on."""
        self._end = reason

    def log_closed(self) -> None:
        """Does nothing when the log is closed with everything durable: a follower acknowledges nothing by itself."""

    def end(self, reason: ErrorContent) -> None:
        self._end = reason

    def when_own_records_are_readable(self) -> None:
        """Returns None: the partition's leader moves the high watermark."""

    def check_in_sync_replicas(self, now: float) -> None:
        """Does nothing: the partition's leader checks its ISR."""

    # -- taking what the leader has

    def append_fetched(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int) -> None:
        """Appends fetched batches as the leader has them; their CRCs were checked. Raises as `append_as_follower`."""
        self.follower()
        replica, log = self._replica, self._replica.log
        size_bytes = log.size_bytes
        log.append_as_follower(batches, now_ms=now_ms)
        for header, _ in batches:
            if header.attributes & TRANSACTIONAL_BIT:
                replica.note_transaction(header.producer_id, header.base_offset)
        if replica.arrivals is not None:
            replica.arrivals.note(log.end_offset, asyncio.get_running_loop().time())
        replica.readers.appended(log.end_offset, log.size_bytes - size_bytes)
        self.advance_high_watermark()

    def when_durable(self) -> PromptFuture[None] | None:
        """Returns None when everything in the log is durable, else a future for the moment when all that is in it now is. It
        calls back at once, before the high watermark moves."""
        self.follower()
        return self._replica.when_durable_promptly()

    def learned(self, high_watermark: int, start_offset: int) -> None:
        """Notes the marks that the leader sent with its records. They count as far as our own log goes, now and as that
        grows. An answer that tells this log to truncate has no marks for it: the caller truncates first."""
        self.follower()
        self._leader_high_watermark = high_watermark
        self._leader_start_offset = start_offset
        self.advance_high_watermark()
        if self._replica.log.start_is_doubted:
            self._replica.log.begins_at(start_offset)
            self._replica.flush_if_due()

    # -- truncation

    def truncate(self, diverging: EpochEnd) -> None:
        """Truncates the log to where it diverges from the leader's. `diverging` is the leader's answer to the last epoch that
        we fetched in: the newest of its own epochs that is not after ours, and its end offset (KIP-101, KIP-279, KIP-595)."""
        self.follower()
        replica, log = self._replica, self._replica.log
        ours = log.epoch_end_offset(diverging.epoch)
        offset = min(diverging.end_offset, log.end_offset)
        if ours.end_offset >= 0:
            offset = min(offset, ours.end_offset)
        _log.info(
            "log_truncated",
            partition=replica.name,
            offset=offset,
            end_offset=log.end_offset,
            high_watermark=replica.high_watermark,
            leader_epoch=self.leader_epoch,
        )
        if offset < log.start_offset:
            self._change_end(lambda: log.restart_at(max(offset, 0)))
        else:
            self._change_end(lambda: log.truncate_to(offset))

    def restart_at(self, offset: int) -> None:
        """Drops everything and begins at `offset`: the leader's log begins beyond our end."""
        self.follower()
        log = self._replica.log
        _log.info("log_restarted", partition=self._replica.name, offset=offset, end_offset=log.end_offset)
        self._change_end(lambda: log.restart_at(offset))

    def begin_with(self, header: BatchHeader) -> None:
        """Makes room for a batch in whose middle our empty log begins; it can be appended when the files have followed."""
        self.follower()
        self._change_end(lambda: self._replica.log.begin_with(header))

    def _change_end(self, work: Callable[[], None]) -> None:
        work()
        replica, log = self._replica, self._replica.log
        replica.flush_if_due()  # the files follow, and nothing can be appended before
        self._leader_high_watermark = self._leader_start_offset = 0
        # Never below the start, or it would be out of range when this replica is elected.
        replica.high_watermark = Offset(max(min(replica.high_watermark, log.end_offset), log.start_offset))
        if replica.arrivals is not None:
            replica.arrivals.forget()
        replica.readers.forget_bytes()
        replica.readers.end()
        self.advance_high_watermark()

    def advance_high_watermark(self) -> None:
        """Advances the high watermark as far as it may go now, and requests a flush where one is due."""
        replica = self._replica
        durable_offset = replica.make_durable()
        high_watermark = min(self._leader_high_watermark, durable_offset)
        moved = high_watermark > replica.high_watermark
        if moved:
            replica.high_watermark = Offset(high_watermark)
        if self._leader_start_offset > replica.log.start_offset:
            replica.log.delete_records(min(self._leader_start_offset, replica.high_watermark))
            replica.flush_if_due()
        if moved:
            replica.readers.high_watermark_moved()
