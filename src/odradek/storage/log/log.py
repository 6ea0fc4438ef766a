"""One partition's log: what its leader appends, what readers read, what becomes durable.

Used on the event loop only; `FlushJob`, `RepairJob` and `RemovalJob` carry what must block to other threads. State changes
only after the write behind it succeeded, so an error at any point leaves the log as it was, or refusing appends.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import BatchHeader, ControlKind, control_batch, read_header
from odradek.runtime.ports import Runtime
from odradek.storage.directories import checkpoints, naming
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.directories.steps import Steps, carry_out
from odradek.storage.log.active_segment import ActiveSegment, Batches
from odradek.storage.log.admission import LOG_APPEND_TIME, check_batches
from odradek.storage.log.appending import note_batches, note_fetched, place
from odradek.storage.log.damage import OnDamaged
from odradek.storage.log.durable_log import OnMoved
from odradek.storage.log.file_removal import PendingRemovals, RemovalJob
from odradek.storage.log.flush_jobs import ClosingJob, Durability, FlushJob, LogLifetime
from odradek.storage.log.follower_append import Portion, check_fetched, portions
from odradek.storage.log.health import Health, OnBroken, RepairJob
from odradek.storage.log.leader_epochs import EpochEnd
from odradek.storage.log.results import AppendResult, DeletedSegment, LogRead
from odradek.storage.log.shrinking_log import ShrinkingLog
from odradek.storage.log.truncatable_log import TruncatableLog
from odradek.storage.producers.producer_state import Marker, WrittenBatch, check_marker
from odradek.storage.producers.snapshot import encode_snapshot
from odradek.storage.producers.verification import Guard
from odradek.storage.recovery.context import OpenedLog, Opening
from odradek.storage.recovery.opening import open_log
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from odradek.storage.cleaning.access import CleaningAccess

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


class Log(TruncatableLog, ShrinkingLog):
    """See the module. Make one with `Log.open`."""

    def __init__(
        self,
        runtime: Runtime,
        opening: Opening,
        opened: OpenedLog,
        on_broken: OnBroken | None = None,
        on_damaged: OnDamaged | None = None,
        on_moved: OnMoved | None = None,
    ) -> None:
        self._runtime = runtime
        self._files = opening.files
        self._life = LogLifetime()
        self._segments = opened.segments
        self._epochs = opened.epochs
        self._durability = Durability(runtime.disk, self._life, opened.flushed_offset)
        self._removals = PendingRemovals(runtime.disk, opening.directory, self._life)
        self._health = Health(opening.topic_partition, on_broken)
        self._tail = ActiveSegment(
            runtime,
            opening.directory,
            opening.config,
            files=opening.files,
            segments=opened.segments,
            durability=self._durability,
            health=self._health,
            snapshot=lambda: encode_snapshot(self.producers),
        )
        self._unflushed_since: float | None = None
        self._size_bytes = opened.segments.size_bytes
        self._cleaning: CleaningAccess | None = None
        self._truncation_noted = opened.truncation_noted
        self._snapshot_offset = opened.snapshot_offset
        self._index_written_to = opened.end_offset if opened.index_is_written else -1
        """Where the log ended when the active segment's index files were complete; a truncation voids it."""
        self._transaction_sums = opened.transaction_sums
        self._start_path = naming.join(opening.directory, naming.START_OFFSET)
        self._on_damaged = on_damaged
        self._on_moved = partial(on_moved, self) if on_moved is not None else _ignore
        self.config = opening.config
        self.topic_partition = opening.topic_partition
        self.directory = opening.directory
        self.topic_id: Final = opened.topic_id
        self.producers = opened.producers
        """Who wrote, and which of their transactions are open. Only this log puts anything in."""
        self.start_offset = opened.start_offset
        """The first offset that may be read."""
        self.end_offset = opened.end_offset
        """The offset of the next record."""
        self.truncated_to = OFFSET_MAX
        """The lowest end of a truncation since the last compaction ended: what was compacted above it is gone."""
        self.high_watermark_max = opened.high_watermark_max
        """A high watermark above it that was written down is of the time before a truncation."""
        self._damage_offset = opened.damage_offset
        self._lost_below = opening.durable_offset if self._damage_offset is None else OFFSET_MAX
        self.damage: str | None = opened.damage
        """What is not here, or not right, though it was durable once: another replica must give it back."""
        self.is_only_doubted = False
        """It was made, and nothing tells whether it was here before."""
        self.lack_note = opened.lack_note
        """What a note in the directory says about records that this log had, and lacks."""
        if self.lack_note is not None and self.lack_note.is_counted_on:
            self.lacks(OFFSET_MAX, self.lack_note.reason)
        self.start_is_doubted = opened.start_is_doubted
        """Records that were deleted by request may be here again: another replica must say where the log begins."""
        self.cut_at_recovery: Final = opened.cut_at_recovery
        """Recovery found good batches behind a bad one and set them aside: let another replica lead if one can."""
        if opened.names_changed:
            self._durability.names_changed(opening.directory, *opening.parents)
        if opened.epochs_changed:
            self._write_epochs()
        if opened.snapshot_due:
            self._write_snapshot()
        if opened.topic_id_changed and opened.topic_id is not None:
            path = naming.join(self.directory, naming.PARTITION_METADATA)
            self._durability.file_changed(path, checkpoints.format_partition_metadata(opened.topic_id))

    def share_descriptors(self) -> None:
        """On the loop, once it is open: its files may rest when others need descriptors."""
        writer = self._segments.active.writer
        if writer is not None:
            self._files.awake(writer)

    @classmethod
    def open(cls, *arguments: Any, **options: Any) -> Log:
        """What `opening` says, at once."""
        return carry_out(cls.opening(*arguments, **options))

    @classmethod
    def opening(
        cls,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        *,
        topic_partition: TopicPartition,
        clean: bool,
        recovery_point: int,
        checkpointed_offset: int | None = None,
        durable_offset: int = 0,
        first_offset: int | None = None,
        start_offset: int = 0,
        cleaned_offset: int = 0,
        topic_id: UUID | None = None,
        files: OpenFiles | None = None,
        is_named: bool = False,
        repairable: bool = False,
        must_exist: bool = False,
        start_is_checkpointed: bool = True,
        on_broken: OnBroken | None = None,
        on_damaged: OnDamaged | None = None,
        on_moved: OnMoved | None = None,
    ) -> Steps[Log]:
        """Open the log in `directory`, or create an empty one. Blocks; it may run on any thread.

        `clean`: it was closed cleanly, so it is opened without reading it. Otherwise everything from `recovery_point` on
        is scanned, cut at the last good batch, and synced. Raises KAFKA_STORAGE_ERROR when what lies below `durable_offset` (or
        the recovery point), which was once durable, is damaged or missing: no log is better than one that silently lost
        records. So does a log whose first segment begins behind `first_offset`, unless its start moved since, and after a crash
        one that lacks a segment between `checkpointed_offset` and the recovery point.
        Between segments below `cleaned_offset` a compaction may have left gaps. `is_named`: the directory's name is durable.
        INCONSISTENT_TOPIC_ID, and nothing is touched, when the directory is of another topic than `topic_id`.
        `repairable`: another replica can give back what is damaged or missing, so it is opened with what is left, cut at the
        first bad batch, and `damage` says so. `must_exist`: AbsentLogError where there is no segment.
        `start_is_checkpointed`: `start_offset` is of a checkpoint that is there and sound; else it may be doubted
        (`start_is_doubted`). `on_broken` hears of an error in reading or writing that is final, `on_damaged` of the first
        batch that a reader met damaged, `on_moved` that `extent` may be another one.
        """
        opening = Opening(
            directory=directory,
            parents=() if is_named else (directory.rpartition("/")[0],),
            config=config,
            topic_partition=topic_partition,
            clean=clean,
            recovery_point=recovery_point,
            checkpointed_offset=recovery_point if checkpointed_offset is None else checkpointed_offset,
            durable_offset=max(durable_offset, recovery_point),
            first_offset=first_offset,
            start_offset=start_offset,
            cleaned_offset=cleaned_offset,
            topic_id=topic_id,
            files=files if files is not None else OpenFiles(runtime.disk),
            repairable=repairable,
            must_exist=must_exist,
            start_is_checkpointed=start_is_checkpointed,
        )
        try:
            opened = yield from open_log(runtime, opening)
        except OSError as error:
            message = f"{topic_partition}: cannot open its log: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        return cls(runtime, opening, opened, on_broken, on_damaged, on_moved)

    def abandon_now(self) -> bool:
        """The same on the loop; False, and nothing was done, where it would have to wait."""
        return self._life.end_unless_busy()

    def abandon(self) -> None:
        """The log is to be deleted: work on other threads that is under way ends, and later work does nothing. Blocks
        until then, on any thread; then `close` the log on the loop.
        """
        self._life.end()

    @property
    def closed(self) -> bool:
        return self._segments.active.writer is None

    def close(self) -> None:
        """Make everything durable, write the producers' snapshot, and close the files. Blocks.

        After an OSError or KAFKA_STORAGE_ERROR it is not closed cleanly. A log that failed or was abandoned is closed without
        touching its files.
        """
        done = None
        try:
            if self.awaits_truncation and (cut := self.flush_job()) is not None:
                cut.run()
                self.flushed(cut)
            job = self.begin_close()
            if job is not None:
                job.run()
            done = job
        finally:
            self._life.end()
            self.end_close(done)

    def begin_close(self) -> ClosingJob | None:
        """On the loop: the work that makes a log that nobody uses any more one that was closed cleanly. None without any.

        Then its `run` on any thread, then `end_close` in any case. OSError, or KAFKA_STORAGE_ERROR, also while it
        `awaits_truncation`.
        """
        active = self._segments.active
        if not self._life.alive or self._health.fault is not None or active.writer is None:
            return None
        self._check_ready()
        if self.end_offset != self._index_written_to:
            active.write_index()
        if active.writer.transaction_file is not None:
            self._durability.names_changed(self.directory)
        self._note_transaction_sums()
        if active.size_bytes and self.end_offset != self._snapshot_offset:
            self._write_snapshot()
        flush = self._durability.job(self.end_offset, active.writer)
        return ClosingJob(flush=flush, writer=active.writer) if flush is not None else None

    def end_close(self, done: ClosingJob | None) -> None:
        """On the loop, when no other thread works on the log any more: close the files. `done`: its `run` succeeded."""
        if done is not None:
            self._durability.done(done.flush)
            self._on_moved()
        active = self._segments.active
        self._health.broken("the log is closed")
        self._durability.close()
        self._files.forget_under(self.directory)
        active.close_writer()

    def reconfigure(self, config: LogConfig) -> None:
        """Take over the topic's changed settings."""
        self.config = config
        self._tail.reconfigure(config)

    # ---- appending -------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """KAFKA_STORAGE_ERROR while the log takes no appends: its disk failed, or is full."""
        self._health.check_writable()

    def append(
        self, batches: Batches, *, leader_epoch: int, now_ms: int, guard: Guard | None = None
    ) -> AppendResult:
        """Append as the leader: give the batches offsets and epoch, in place, and write them with one system call.

        Each batch is a writable view of exactly one batch whose CRC and records were checked. Raises MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, or
        KAFKA_STORAGE_ERROR; nothing is appended then. `guard` must come with a client's transactional batches: see
        `Producers.begin_verification`.
        """
        self._check_ready()
        append_bytes = check_batches(batches, self.config, now_ms)
        headers: Iterable[BatchHeader] = (header for header, _ in batches)
        if self.config.message_timestamp_type == LOG_APPEND_TIME:
            headers = (header._replace(max_timestamp=now_ms) for header in headers)
        producers, repeated = self.producers.check(headers, self.end_offset, now_ms, guard)
        if repeated:
            return self._known(repeated)
        _, result = self._write(batches, append_bytes, leader_epoch, now_ms)
        for state in producers:
            self.producers.put(state)
        return result

    def append_marker(
        self, marker: Marker, *, transaction_version: int, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append a control batch that ends the producer's transaction here, if it has one.

        Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or KAFKA_STORAGE_ERROR; nothing is appended then.
        """
        self._check_ready()
        check_marker(self.producers.get(marker.producer_id), marker, transaction_version)
        batch = memoryview(
            control_batch(
                ControlKind.COMMIT if marker.is_commit else ControlKind.ABORT,
                marker.producer_id,
                marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=marker.timestamp,
            )
        )
        segment, result = self._write([(read_header(batch), batch)], len(batch), leader_epoch, now_ms)
        self._mark(segment, marker, result.first_offset, now_ms)
        return result

    def _write(
        self, batches: Batches, append_bytes: int, leader_epoch: int, now_ms: int
    ) -> tuple[Segment, AppendResult]:
        first_offset = self.end_offset
        log_append_time = now_ms if self.config.message_timestamp_type == LOG_APPEND_TIME else None
        next_offset = place(batches, first_offset, leader_epoch, log_append_time)
        segment = self._tail.write(batches, append_bytes, first_offset, next_offset - 1, now_ms)

        # The batches are in the file. From here on nothing can fail.
        size_bytes = note_batches(segment, batches, first_offset, log_append_time)
        self._appended(segment, size_bytes, next_offset, now_ms)
        if self._epochs.assign(leader_epoch, first_offset):
            self._write_epochs()
        time = -1 if log_append_time is None else log_append_time
        return segment, AppendResult(first_offset, next_offset - 1, time, False)

    def append_as_follower(self, batches: Batches, *, now_ms: int) -> None:
        """Append batches as the leader's log has them: whole, with their offsets, epochs and times; nothing is patched.

        The caller has checked their CRCs. Several make one write, or one for each segment that they fill. OFFSET_OUT_OF_RANGE
        when they begin below the log's end (see `begin_with`), CORRUPT_MESSAGE when they cannot be what a log holds,
        KAFKA_STORAGE_ERROR; nothing is appended then, but for whole segments' worth that were written before a disk failed:
        `end_offset` says what is there.
        """
        self._check_ready()
        markers = check_fetched(batches, end_offset=self.end_offset, latest_epoch=self._epochs.latest)
        for portion in portions(
            batches, markers, end_offset=self.end_offset, segment_bytes=self.config.segment_bytes
        ):
            self._write_fetched(portion, now_ms)

    def _write_fetched(self, portion: Portion, now_ms: int) -> None:
        batches, first_offset, last_offset = portion.batches, self.end_offset, portion.last_offset
        segment = self._tail.write(batches, portion.size_bytes, first_offset, last_offset, now_ms)

        # The batches are in the file. From here on nothing can fail.
        self._appended(segment, note_fetched(segment, batches), last_offset + 1, now_ms)
        epochs_changed = False
        for header, _ in batches:
            # Where offsets are missing the later epoch has them: whoever has others there must fetch again.
            epochs_changed |= self._epochs.assign(header.partition_leader_epoch, first_offset)
            first_offset = header.next_offset
            if (marker := portion.markers.get(header.base_offset)) is None:
                self.producers.replay(header, now_ms)
            else:
                self._mark(segment, marker, header.base_offset, now_ms)
        if epochs_changed:
            self._write_epochs()

    def _mark(self, segment: Segment, marker: Marker, offset: int, now_ms: int) -> None:
        """A marker is in the segment, its newest batch that ends a transaction."""
        ended = self.producers.mark(marker, offset, now_ms)
        if ended is not None and not ended.is_commit:
            self._segments.note_aborted(segment, AbortedTransaction.of(ended))

    def _known(self, repeated: tuple[WrittenBatch, ...]) -> AppendResult:
        time = repeated[0].timestamp if self.config.message_timestamp_type == LOG_APPEND_TIME else -1
        return AppendResult(repeated[0].first_offset, repeated[-1].last_offset, time, True)

    def _appended(self, segment: Segment, size_bytes: int, next_offset: int, now_ms: int) -> None:
        self._size_bytes += size_bytes - segment.size_bytes
        segment.appended(size_bytes, now_ms)
        self.end_offset = next_offset
        if self._unflushed_since is None:
            self._unflushed_since = self._runtime.clock.monotonic()

    def begin_epoch(self, leader_epoch: int) -> None:
        """This replica leads from now on: what is appended next is of `leader_epoch`, even before anything is."""
        if self._epochs.assign(leader_epoch, self.end_offset):
            self._write_epochs()


def _ignore() -> None:
    """Nobody wants to know."""
