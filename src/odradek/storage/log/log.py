"""One partition's log: what its leader appends, what readers read, what becomes durable. Kafka calls it UnifiedLog.

Used on the event loop only; `FlushJob`, `RepairJob` and `RemovalJob` carry what must block to other threads.
State changes only after its write succeeded, so an error at any point leaves the log as it was, or refusing
appends. `Log` is the face of these parts, each with its own fields:

    segment_list.py     the segments, and which offsets they hold
    log_reader.py       batches, times, aborted transactions
    log_appender.py     the leader's batches, a follower's, markers; `active_segment.py` writes and rolls
    durability.py       what survives a power cut, and what waits for a flush; `small_files.py`
    log_jobs.py         the work for other threads: flushes, removals, repairs, the last flush of a clean close
    log_truncation.py   what is taken back from the end; `file_truncation.py` has the files' part
    log_retention.py    what goes at the beginning
    log_cleaning.py     what compaction may do
    lacked_records.py   what was durable here once, and is not here or not right
    health.py           what disk errors do to the log
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader
from odradek.runtime.ports import Runtime
from odradek.runtime.weak_calls import WeakCall
from odradek.storage.files.at_hand import Missing, ReadProgress
from odradek.storage.files.damage import OnDamaged, OnLack
from odradek.storage.files.extents import Extent
from odradek.storage.files.lack_notes import LackNote
from odradek.storage.files.leader_epochs import EpochEnd, EpochStart
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.files.steps import Steps, carry_out
from odradek.storage.log.active_segment import Batches, LogFiles
from odradek.storage.log.context import LogContext
from odradek.storage.log.durability import FlushJob
from odradek.storage.log.file_removal import RemovalJob
from odradek.storage.log.health import LogFault, OnFailed, RepairJob
from odradek.storage.log.lacked_records import LackedRecords
from odradek.storage.log.log_appender import LogAppender
from odradek.storage.log.log_cleaning import LogCleaning
from odradek.storage.log.log_jobs import LogJobs
from odradek.storage.log.log_reader import LogReader
from odradek.storage.log.log_retention import LogRetention
from odradek.storage.log.log_truncation import LogTruncation
from odradek.storage.log.offset_by_time import TimestampedOffset
from odradek.storage.log.results import AppendResult, DeletedSegment, LogRead
from odradek.storage.producers.producer_state import Marker
from odradek.storage.producers.verification import Guard
from odradek.storage.recovery.context import OpenedLog, Opening
from odradek.storage.recovery.log_loader import load_log

if TYPE_CHECKING:
    from odradek.storage.cleaning.access import CleaningAccess
    from odradek.storage.files.writer import SegmentWriter

__all__ = [
    "AppendResult",
    "DeletedSegment",
    "EpochEnd",
    "FlushJob",
    "Log",
    "LogRead",
    "RemovalJob",
    "RepairJob",
]

OnMoved: TypeAlias = Callable[["Log"], None]


class Log:
    """One partition's log. Make one with `Log.open`. Used on the event loop only."""

    def __init__(
        self,
        runtime: Runtime,
        opening: Opening,
        opened: OpenedLog,
        on_failed: OnFailed | None = None,
        on_damaged: OnDamaged | None = None,
        on_moved: OnMoved | None = None,
        on_lack: OnLack | None = None,
    ) -> None:
        self.config = opening.config
        self.topic_partition: Final = opening.topic_partition
        self.directory: Final = opening.directory
        self.topic_id: Final = opened.topic_id
        self.cut_at_recovery: Final = opened.cut_at_recovery
        """Recovery found good batches after a bad one and set them aside: let another replica lead if one
        can."""
        self.producers: Final = opened.producers
        """The log's producers and their open transactions. Only this log changes them."""
        self._segments: Final = opened.segments
        context = self._context = LogContext.of(runtime, opening, opened, on_failed)
        moved = WeakCall(on_moved, self) if on_moved is not None else _ignore
        self.lacked: Final = LackedRecords(
            context,
            opened,
            durable_offset=opening.durable_offset,
            on_damaged=on_damaged,
            on_lack=on_lack,
        )
        """The records that were durable here and are missing or wrong: another replica must restore them."""
        files = LogFiles.of(context, opening, opened, runtime.disk)
        self._durability = files.durability
        self._reader: Final = LogReader(context, self.lacked)
        self._cleaning: Final = LogCleaning(context, files)
        self.truncation: Final = LogTruncation(
            context,
            files=files,
            cleaning=self._cleaning,
            lacked=self.lacked,
            opened=opened,
            on_moved=moved,
        )
        """The truncations of this log, and what checkpoints must know of them."""
        self._retention: Final = LogRetention(context, files=files, start_is_doubted=opened.start_is_doubted)
        self._appender: Final = LogAppender(context, opening.config, files=files, truncation=self.truncation)
        self.jobs: Final = LogJobs(
            context,
            files=files,
            truncation=self.truncation,
            lacked=self.lacked,
            on_moved=moved,
            index_offset=self.end_offset if opened.index_is_written else -1,
        )
        """Work for other threads: removals, repairs, the last flush."""
        files.small_files.write_opened(opened, opening.parents)

    # ---- opening and closing -----------------------------------------------------------------------------------------

    def writes_to(self, writers: Container[SegmentWriter]) -> bool:
        """Returns whether appends go to one of these files."""
        writer = self._segments.active.writer
        return writer is not None and writer in writers

    @classmethod
    def open(cls, runtime: Runtime, directory: str, config: LogConfig, **options: Any) -> Log:
        """Returns the log in `directory`, at once. `options`: other fields of `Opening`, and arguments of `opening`."""
        hearers = {
            name: options.pop(name) for name in ("on_failed", "on_damaged", "on_moved") if name in options
        }
        options.setdefault("files", OpenFiles(runtime.disk))
        opening = Opening(directory=directory, config=config, **options)
        return carry_out(cls.opening(runtime, opening, **hearers))

    @classmethod
    def opening(
        cls,
        runtime: Runtime,
        opening: Opening,
        *,
        on_failed: OnFailed | None = None,
        on_damaged: OnDamaged | None = None,
        on_moved: OnMoved | None = None,
        on_lack: OnLack | None = None,
    ) -> Steps[Log]:
        """Opens a log, or creates an empty one; see `Opening` for the errors. Blocks; it may run on any thread.

        KAFKA_STORAGE_ERROR when the disk fails, too. `on_failed` is called with an error in reading or writing,
        `on_damaged` of the first batch that a reader met damaged, `on_moved` that `extent` may be another one,
        `on_lack` that the log lacks something that was durable.
        """
        try:
            opened = yield from load_log(runtime, opening)
        except OSError as error:
            message = f"{opening.topic_partition}: cannot open its log: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        return cls(runtime, opening, opened, on_failed, on_damaged, on_moved, on_lack)

    def share_descriptors(self) -> None:
        """Lets the files rest when others need descriptors. Called on the event loop once the log is open."""
        writer = self._segments.active.writer
        if writer is not None:
            self._context.files.opened(writer)

    def reconfigure(self, config: LogConfig) -> None:
        """Takes over the topic's changed settings."""
        self.config = config
        self._appender.reconfigure(config)

    def abandon(self) -> None:
        """Ends work under way on other threads, and makes later work do nothing, because the log will be deleted. Blocks
        until then, on any thread; then `close` the log on the loop.
        """
        self._context.life.end()

    def abandon_now(self) -> bool:
        """Does the same on the event loop; returns False, without an effect, where it would have to wait."""
        return self._context.life.end_unless_busy()

    @property
    def closed(self) -> bool:
        return self._segments.active.writer is None

    def close(self) -> None:
        """Makes everything durable, writes the producers' snapshot, and closes the files. Blocks.

        After an OSError or KAFKA_STORAGE_ERROR it is not closed cleanly. A log that failed or was abandoned is closed without
        touching its files.
        """
        done = None
        try:
            if self.awaits_truncation and (cut := self.flush_job()) is not None:
                cut.run()
                self.flushed(cut)
            job = self.jobs.begin_close()
            if job is not None:
                job.run()
            done = job
        finally:
            self._context.life.end()
            self.jobs.end_close(done)

    # ---- what it holds -----------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that may be read."""
        return self._segments.start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._segments.end_offset

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files."""
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """The leader epochs that wrote the log, each with its start offset."""
        return self._context.epochs.entries

    @property
    def latest_epoch(self) -> int:
        """-1 before the first."""
        return self._context.epochs.latest

    def epoch_of(self, offset: int) -> int:
        """Returns the leader epoch that wrote `offset`; -1 when that is not known."""
        return self._context.epochs.epoch_of(offset)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Returns the largest leader epoch not above `epoch`, and where it ended in this log (KIP-101, KIP-279)."""
        return self._context.epochs.end_of(epoch, self._segments.end_offset)

    # ---- appending ---------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raises KAFKA_STORAGE_ERROR while the log takes no appends: its disk failed, or is full."""
        self._context.health.check_writable()

    def append(
        self, batches: Batches, *, leader_epoch: int, now_ms: int, guard: Guard | None = None
    ) -> AppendResult:
        """Appends as the leader: gives the batches offsets and epoch, in place, and writes them with one system call.

        Each batch is a writable view of exactly one batch whose CRC and records were checked. Raises MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, or
        KAFKA_STORAGE_ERROR; nothing is appended then. `guard` must come with a client's transactional batches: see
        `Producers.begin_verification`.
        """
        return self._appender.append(batches, leader_epoch, now_ms, guard)

    def pin(self) -> SegmentWriter | None:
        """Keeps the file that is appended to open until `unpin` of what is returned: an append does not wait for a descriptor
        meanwhile. None where it would have to open the file. Keep it for a moment only: other logs may need the descriptor.
        """
        writer = self._segments.active.writer
        if writer is None or writer.resting or writer.closed:
            return None
        writer.pin_count += 1
        return writer

    @staticmethod
    def unpin(writer: SegmentWriter) -> None:
        writer.pin_count -= 1

    def append_marker(
        self, marker: Marker, *, transaction_version: int, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Appends a control batch that ends the producer's transaction here, if it has one.

        Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or KAFKA_STORAGE_ERROR; nothing is appended then.
        """
        return self._appender.append_marker(marker, transaction_version, leader_epoch, now_ms)

    def append_as_follower(self, batches: Batches, *, now_ms: int) -> None:
        """Appends batches as the leader's log has them: whole, with their offsets, epochs and times; nothing is patched.

        The caller has checked their CRCs. Several make one write, or one for each segment that they fill.
        OFFSET_OUT_OF_RANGE when they begin below the log's end (see `begin_with`), CORRUPT_MESSAGE when they
        cannot be what a log holds, KAFKA_STORAGE_ERROR; nothing is appended then, except whole segments'
        worth that were written before a disk failed: `end_offset` shows what is there.
        """
        self._appender.append_as_follower(batches, now_ms)

    def when_room(self) -> asyncio.Future[None]:
        """Returns a future that is done when an append that raised CrowdedLogsError may be tried again."""
        return self._context.files.when_room()

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begins a leader epoch in which this replica leads: later appends are of `leader_epoch`, which is noted even before
        the first one."""
        self._appender.begin_epoch(leader_epoch)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        at_least_one: bool = False,
        to_send: bool = False,
    ) -> LogRead:
        """Returns whole batches from the one that contains `offset`, at most `max_bytes`, all of them below `end_offset`.

        Never a partial batch. A first batch that is larger than `max_bytes` is returned whole if `at_least_one`, else
        nothing. Its first record may be below `offset`. Raises OFFSET_OUT_OF_RANGE outside of
        [start_offset, end_offset of the log], and KAFKA_STORAGE_ERROR. A sequential reader costs one `pread` a call.

        With `to_send` large data may be a range of the file that must go to a socket untouched: only the kernel may read it
        (`runtime/mapped_range.py`).
        """
        return self._reader.read(
            offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one, to_send=to_send
        )

    def not_at_hand(self, offset: int, max_bytes: int, beside: ReadProgress) -> Missing | None:
        """Returns what a `read` from `offset` on would wait for: first an index, then the batches. None when
        they are cached, or when a read would fail anyway."""
        return self._reader.not_at_hand(offset, max_bytes, beside)

    def verify(self, read: LogRead) -> LogRead:
        """Returns the read after a check of the CRC of every batch in it. Raises DamagedBatchError (CORRUPT_MESSAGE) for a
        wrong one.

        Not for what was read `to_send`.
        """
        return self._reader.verify(read)

    def offset_for_timestamp(
        self, timestamp: int, *, end_offset: int | None = None, beside: ReadProgress | None = None
    ) -> TimestampedOffset | None:
        """Returns the first record below `end_offset` (the log's end) that is not before `timestamp`; None without any.

        With a read progress, raises NotAtHand for reads that would block the event loop (see
        `at_hand.read_off_loop`).
        """
        return self._reader.offset_for_timestamp(timestamp, end_offset, beside)

    def max_timestamp_offset(
        self, *, end_offset: int | None = None, beside: ReadProgress | None = None
    ) -> TimestampedOffset | None:
        """Returns the first record below `end_offset` (the log's end) with the largest timestamp; None when there is none.
        See `offset_for_timestamp` for the read progress."""
        return self._reader.max_timestamp_offset(end_offset, beside)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the end offset of readers of committed records: markers below the high watermark decide everything below it.

        `high_watermark` must not go back from call to call.
        """
        stable = self.producers.transactions.stable_below(high_watermark)
        return stable if stable >= self.start_offset else min(self.start_offset, high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Returns (producer id, first offset) of aborted transactions with records from start to end, in the order of their
        markers. Its work grows with the result, not with the log.
        """
        return self._reader.aborted_transactions(start_offset, end_offset)

    # ---- what is durable ---------------------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Everything below it survives a power cut."""
        return self._durability.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Recovery after a crash reads nothing below this offset, which is at most `flushed_offset`."""
        return self._durability.recovery_point(self._segments.end_offset)

    @property
    def extent(self) -> Extent | None:
        """The durable part of the log; None while the files have not yet followed a truncation."""
        return self._durability.extent(self.lacked.damage_offset)

    @property
    def flush_due(self) -> bool:
        """True if a flush is due, whatever the acks: for a finished segment, a start that moved, `flush.messages`,
        `flush.ms`.
        """
        return self.jobs.flush_is_due(self.config)

    def flush_job(self) -> FlushJob | None:
        """Returns the job that makes all appends so far durable; None when they are."""
        return self.jobs.flush_job()

    def flushed(self, job: FlushJob) -> None:
        """Notes that `job.run()` returned: the flushed offset moves."""
        self.jobs.flushed(job)

    # ---- damage and disk errors --------------------------------------------------------------------------------------

    @property
    def damage(self) -> str | None:
        """Describes records that are missing or wrong though they were durable once: another replica must restore them."""
        return self.lacked.damage

    @property
    def damage_offset(self) -> int | None:
        """The offset from which records must be fetched again after `truncate_to`, because a reader met damage; None without
        it."""
        return self.lacked.damage_offset

    @property
    def lacks_records(self) -> bool:
        """The log lacks records and must not lead; see `LackedRecords`."""
        return self.lacked.lacks_records

    @property
    def is_uncertain(self) -> bool:
        """Whether it is unknown if the log has all its records; see `LackedRecords.doubt`."""
        return self.lacked.is_only_doubted

    @property
    def lack_note(self) -> LackNote | None:
        """The directory's note of records that this log had, and lacks; None without one."""
        return self.lacked.note

    def lacks(self, below: int, damage: str) -> None:
        """Notes that the log lacks records that were durable here, until everything below `below` is durable again."""
        self.lacked.lacks(below, damage)

    def mended(self) -> None:
        """Notes that the log has all that it lacked again."""
        self.lacked.mended()

    @property
    def failed(self) -> LogFault | None:
        """The reason why the log takes no appends; None when it does."""
        return self._context.health.fault

    def disk_failed(self, error: OSError) -> None:
        """Notes that the log's directory failed: until a restart nothing is appended, read or flushed."""
        self._context.health.broken(str(error))

    # ---- losing the end ----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drops everything at and above `offset`, from the start of the batch that contains it: the new `end_offset`.

        Nothing waits for the disk here: the files follow with the next `flush_job`. Until then a crash leaves the log as it
        was, and appends are refused (`awaits_truncation`). An epoch that began at the log's end and wrote nothing goes, too,
        even when nothing else does. At or below `start_offset` this is `restart_at`.
        """
        self.truncation.truncate_to(offset, self.config)

    def restart_at(self, offset: int) -> None:
        """Drops everything: the log is empty and begins at `offset`, which may be any offset. As with `truncate_to` the files
        follow.
        """
        self.truncation.restart_at(offset, self.config)

    def starts_inside_batch(self, header: BatchHeader) -> bool:
        """Returns whether the log is empty and begins in the middle of this batch: its leader's records were deleted up to
        there."""
        return self.truncation.starts_inside_batch(header)

    def begin_with(self, header: BatchHeader) -> None:
        """Makes room for a batch that the log `starts_inside_batch`: the files follow, then the batch may be appended.

        Until then the log ends below `start_offset`, which stays. `restart_at(start_offset)` takes it back.
        """
        self.truncation.begin_with(header, self.config)

    @property
    def awaits_truncation(self) -> bool:
        """The files have not followed a truncation: appends are refused until a `flush_job` ran, and `flushed` was called."""
        return self.truncation.awaits_files

    # ---- losing the beginning ----------------------------------------------------------------------------------------

    @property
    def start_is_doubted(self) -> bool:
        """Records that were deleted by request may be here again: the log's start offset must come from
        another replica."""
        return self._retention.start_is_doubted

    def begins_at(self, start_offset: int) -> None:
        """Notes a replica's knowledge that the log begins here, or earlier: that ends a doubt."""
        self._retention.begins_at(start_offset)

    def delete_records(self, offset: int) -> int:
        """Makes records below `offset` unreadable from now on; returns the new start offset. It never goes back.

        Whole segments below it go with the next `apply_retention`. OFFSET_OUT_OF_RANGE above the log's end. The caller
        keeps `offset` at or below the high watermark.
        """
        return self._retention.delete_records(offset)

    def apply_retention(self, now_ms: int, *, below: int | None = None) -> list[DeletedSegment]:
        """Removes segments that the topic's settings no longer keep; returns them, the oldest first.

        Only segments that end at or below `below` (by default what is durable): the high watermark. Their files follow
        with `removal_job`. When the active segment is due, too, a new one is begun. It works on a full disk as well, where
        it is the cure.
        """
        return self._retention.apply(self.config, now_ms, below)

    # ---- compaction --------------------------------------------------------------------------------------------------

    @property
    def cleaning(self) -> CleaningAccess:
        """The face of the log for compaction."""
        return self._cleaning.access

    def roll_for_compaction(self, now_ms: int) -> bool:
        """Ends the active segment if its oldest record must be compacted by now (max.compaction.lag.ms); returns whether it
        did."""
        return self._cleaning.roll(self.config, now_ms)


def _ignore() -> None:
    """Does nothing, where no one listens."""
