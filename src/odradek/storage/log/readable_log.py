"""What readers ask a log for: batches, times, epochs, and what is committed. And what becomes of damage that they meet."""

from __future__ import annotations

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.log import offset_by_time
from odradek.storage.log.damage import DamagedBatchError, OnDamaged
from odradek.storage.log.health import Health
from odradek.storage.log.leader_epochs import EpochEnd, EpochHistory
from odradek.storage.log.offset_by_time import TimestampedOffset
from odradek.storage.log.reader import check_read, read_batches
from odradek.storage.log.results import LogRead
from odradek.storage.log.segment_list import SegmentList
from odradek.storage.producers.producer_state import Producers
from odradek.storage.segment.at_hand import Missing, NotAtHand, ReadProgress
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.telemetry import events

log = events.caused_by_peers("storage")


class ReadableLog:
    """The half of `Log` that changes nothing on the disk. `Log` gives it its parts."""

    _files: OpenFiles
    _segments: SegmentList
    _epochs: EpochHistory
    _health: Health
    _size_bytes: int
    _on_damaged: OnDamaged | None
    _lost_below: int
    _damage_offset: int | None
    topic_partition: TopicPartition
    producers: Producers
    start_offset: int
    end_offset: int
    damage: str | None
    is_only_doubted: bool

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        at_least_one: bool = False,
        to_send: bool = False,
    ) -> LogRead:
        """Whole batches from the one that holds `offset`, at most `max_bytes`, all of them below `end_offset`.

        Never a partial batch. A first batch that is larger than `max_bytes` is returned whole if `at_least_one`, else
        nothing. Its first record may lie below `offset`. Raises OFFSET_OUT_OF_RANGE outside of
        [start_offset, end_offset of the log], and KAFKA_STORAGE_ERROR. A sequential reader costs one `pread` a call.

        With `to_send` large data may be a range of the file that must go to a socket untouched: only the kernel may read it
        (`runtime/mapped_range.py`).
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} holds offsets {self.start_offset} to {self.end_offset}, not {offset}",
            )
        end = min(end_offset, self.end_offset)
        if offset >= end:
            return LogRead(b"", offset)
        self._health.check_readable()
        try:
            return self._read(offset, max_bytes, end, at_least_one=at_least_one, to_send=to_send)
        except DamagedBatchError as damage:
            self._damaged(damage)
            raise

    def not_at_hand(self, offset: int, max_bytes: int, beside: ReadProgress) -> Missing | None:
        """What `read` from `offset` on would wait for a disk for: first an index, then the batches. None when it is at hand,
        or when a read would fail anyway."""
        if not self.start_offset <= offset < self.end_offset or self._health.is_broken:
            return None
        try:
            segment = self._segments[self._segments.number_of(offset)]
            segment.reader.check_at_hand(offset, max_bytes, beside)
        except NotAtHand as not_at_hand:
            return not_at_hand.missing
        except (OSError, KafkaError):  # whoever reads meets it
            return None
        return None

    def verify(self, read: LogRead) -> LogRead:
        """The same, once the CRC of every batch in it was found right. DamagedBatchError (CORRUPT_MESSAGE) when one is not.

        Not for what was read `to_send`.
        """
        try:
            check_read(read, self.topic_partition)
        except DamagedBatchError as damage:
            self._damaged(damage)
            raise
        return read

    def _damaged(self, damage: DamagedBatchError) -> None:
        if self._damage_offset is not None and self._damage_offset <= damage.offset:
            return
        self._damage_offset = damage.offset
        self.lacks(OFFSET_MAX, damage.message)
        if self._on_damaged is not None:
            self._on_damaged(self.topic_partition, damage)

    def lacks(self, below: int, damage: str) -> None:
        """The log has not all that was durable here once. That is over when everything below `below` is durable again."""
        self._lost_below = below if self.damage is None else max(below, self._lost_below)
        self.damage = damage
        log.error("log_damaged", partition=self.topic_partition, problem=damage)

    def mended(self) -> None:
        """The log has again what it lacked."""
        self.damage, self._damage_offset = None, None
        log.info("log_mended", partition=self.topic_partition, end_offset=self.end_offset)

    @property
    def lacks_records(self) -> bool:
        """It ends before what it had, begins behind that, or is an older copy: it must not lead. What a reader met damaged is
        another matter.
        """
        if self.damage is None or self.is_only_doubted:
            return False
        return self._damage_offset is None or self._damage_offset < self._segments[0].base_offset

    @property
    def damage_offset(self) -> int | None:
        """From where on what a reader met damaged must be fetched again, after `truncate_to`; None without such damage."""
        return self._damage_offset

    def _read(self, offset: int, max_bytes: int, end: int, *, at_least_one: bool, to_send: bool) -> LogRead:
        try:
            return read_batches(
                self._segments,
                offset,
                max_bytes,
                end_offset=end,
                log_end_offset=self.end_offset,
                at_least_one=at_least_one,
                to_send=to_send,
            )
        except OSError as error:
            raise self._health.failed(error) from error

    def offset_for_timestamp(
        self, timestamp: int, *, end_offset: int | None = None, beside: ReadProgress | None = None
    ) -> TimestampedOffset | None:
        """The first record below `end_offset` (the log's end) that is not before `timestamp`; None without any.

        With `beside`: NotAtHand for what would hold the event loop (see `at_hand.read_beside`).
        """
        self._health.check_readable()
        try:
            with self._files.only_at_hand(beside):
                return offset_by_time.first_at_or_after(
                    self._segments,
                    timestamp,
                    start_offset=self.start_offset,
                    end_offset=self._end(end_offset),
                    beside=beside,
                )
        except OSError as error:
            raise self._health.failed(error) from error

    def max_timestamp_offset(
        self, *, end_offset: int | None = None, beside: ReadProgress | None = None
    ) -> TimestampedOffset | None:
        """The first record below `end_offset` (the log's end) with the largest timestamp; None when there is none. `beside` as
        in `offset_for_timestamp`."""
        self._health.check_readable()
        try:
            with self._files.only_at_hand(beside):
                return offset_by_time.latest(
                    self._segments,
                    start_offset=self.start_offset,
                    end_offset=self._end(end_offset),
                    log_end_offset=self.end_offset,
                    beside=beside,
                )
        except OSError as error:
            raise self._health.failed(error) from error

    def _end(self, end_offset: int | None) -> int:
        return self.end_offset if end_offset is None else min(end_offset, self.end_offset)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """The largest leader epoch not above `epoch`, and where it ended in this log (KIP-101, KIP-279)."""
        return self._epochs.end_of(epoch, self.end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote `offset`; -1 when that is not known."""
        return self._epochs.epoch_of(offset)

    @property
    def latest_epoch(self) -> int:
        """-1 before the first."""
        return self._epochs.latest

    @property
    def size_bytes(self) -> int:
        """Of the `.log` files."""
        return self._size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    # ---- producers and their transactions ---------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where readers of committed records stop: everything below is decided, by markers below the high watermark.

        `high_watermark` must not go back from call to call.
        """
        stable = self.producers.transactions.stable_below(high_watermark)
        return stable if stable >= self.start_offset else min(self.start_offset, high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(Producer id, first offset) of the aborted transactions with records from start to end, in the order of their
        markers. Its work grows with what it finds, not with the log.
        """
        self._health.check_readable()
        try:
            found = self._segments.aborted_transactions(start_offset, end_offset)
        except OSError as error:
            raise self._health.failed(error) from error
        except ValueError as error:
            message = f"{self.topic_partition}: a transaction index is damaged: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        return [(entry.producer_id, entry.first_offset) for entry in found]
