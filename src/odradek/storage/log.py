"""One partition's log: what its leader appends, what readers read, what becomes durable.

Used on the event loop only; `FlushJob`, `RepairJob` and `RemovalJob` carry what must block to other threads. State changes
only after the write behind it succeeded, so an error at any point leaves the log as it was, or refusing appends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import BatchHeader, ControlKind, control_batch, read_header
from odradek.runtime.ports import DiskFile, Runtime
from odradek.storage import checkpoints, naming
from odradek.storage.admission import LOG_APPEND_TIME, check_batches
from odradek.storage.appending import note_batches, note_fetched, place
from odradek.storage.cleaning.choice import roll_due
from odradek.storage.cutting import find_cut
from odradek.storage.damage import OnDamaged
from odradek.storage.deletion import candidates, take_out
from odradek.storage.durability import ClosingJob, Durability, FlushJob, Life
from odradek.storage.epochs import EpochEnd
from odradek.storage.faults import Fault, Health, OnBroken, RepairJob
from odradek.storage.following import Portion, check_fetched, portions
from odradek.storage.open_files import OpenFiles
from odradek.storage.opening import OpenedLog, Opening, open_log
from odradek.storage.producer_snapshot import encode_snapshot
from odradek.storage.producers import Marker, Producers, WrittenBatch, check_marker
from odradek.storage.readable import ReadableLog
from odradek.storage.removal import RemovalJob, Removals
from odradek.storage.results import AppendResult, DeletedSegment, LogRead
from odradek.storage.retention import RetentionTerms, deletable
from odradek.storage.rolling import RollReason
from odradek.storage.segment import OFFSET_MAX, Segment, SegmentWriter
from odradek.storage.tail import Batches, Tail
from odradek.storage.transaction_index import AbortedTransaction
from odradek.storage.truncation import NoteRemoval, Truncation, TruncationPlan
from odradek.storage.verification import Guard
from odradek.telemetry import events

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

log = events.get("storage")


class Log(ReadableLog):
    """See the module. Make one with `Log.open`."""

    def __init__(
        self,
        runtime: Runtime,
        opening: Opening,
        opened: OpenedLog,
        on_broken: OnBroken | None = None,
        on_damaged: OnDamaged | None = None,
    ) -> None:
        self._runtime = runtime
        self._files = opening.files
        self._life = Life()
        self._segments = opened.segments
        self._epochs = opened.epochs
        self._durability = Durability(runtime.disk, self._life, opened.flushed_offset)
        self._removals = Removals(runtime.disk, opening.directory, self._life)
        self._health = Health(opening.topic_partition, on_broken)
        self._tail = Tail(
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
        self._on_damaged = on_damaged
        self.config = opening.config
        self.topic_partition = opening.topic_partition
        self.directory: Final = opening.directory
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
        self._lost_below = opening.recovery_point
        self._damage_offset: int | None = None
        self.damage: str | None = opened.damage
        """What is not here, or not right, though it was durable once: another replica must give it back."""
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

    @classmethod
    def open(
        cls,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        *,
        topic_partition: TopicPartition,
        clean: bool,
        recovery_point: int,
        start_offset: int = 0,
        cleaned_offset: int = 0,
        topic_id: UUID | None = None,
        files: OpenFiles | None = None,
        repairable: bool = False,
        on_broken: OnBroken | None = None,
        on_damaged: OnDamaged | None = None,
    ) -> Log:
        """Open the log in `directory`, or create an empty one. Blocks; it may run on any thread.

        `clean`: it was closed cleanly, so it is opened without reading it. Otherwise everything from `recovery_point` on
        is scanned, cut at the last good batch, and synced. Raises KAFKA_STORAGE_ERROR when what lies below the recovery
        point, which was once durable, is damaged or missing: no log is better than one that silently lost records.
        Between segments below `cleaned_offset` a compaction may have left gaps.
        INCONSISTENT_TOPIC_ID, and nothing is touched, when the directory is of another topic than `topic_id`.
        `repairable`: another replica can give back what is damaged or missing, so it is opened with what is left, cut at the
        first bad batch, and `damage` says so. `on_broken` hears of an error in reading or writing that is final, `on_damaged`
        of the first batch that a reader met damaged.
        """
        opening = Opening(
            directory=directory,
            parents=(directory.rpartition("/")[0],),
            config=config,
            topic_partition=topic_partition,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            cleaned_offset=cleaned_offset,
            topic_id=topic_id,
            files=files if files is not None else OpenFiles(runtime.disk),
            repairable=repairable,
        )
        try:
            opened = open_log(runtime, opening)
        except OSError as error:
            message = f"{topic_partition}: cannot open its log: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        return cls(runtime, opening, opened, on_broken, on_damaged)

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
            job = self.begin_close()
            if job is not None:
                job.run()
            done = job
        finally:
            self._life.end()
            self.end_close(done)

    def begin_close(self) -> ClosingJob | None:
        """On the loop: the work that makes a log that nobody uses any more one that was closed cleanly. None without any.

        Then its `run` on any thread, then `end_close` in any case. OSError, or KAFKA_STORAGE_ERROR.
        """
        active = self._segments.active
        if not self._life.alive or self._health.fault is not None or active.writer is None:
            return None
        if self._durability.truncation is not None:
            self._finish_truncation()
        if self.end_offset != self._index_written_to:
            active.write_index()
        if active.writer.transaction_file is not None:
            self._durability.names_changed(self.directory)
        if active.size_bytes and self.end_offset != self._snapshot_offset:
            self._write_snapshot()
        flush = self._durability.job(self.end_offset, active.writer)
        return ClosingJob(flush=flush, writer=active.writer) if flush is not None else None

    def end_close(self, done: ClosingJob | None) -> None:
        """On the loop, when no other thread works on the log any more: close the files. `done`: its `run` succeeded."""
        if done is not None:
            self._durability.done(done.flush)
        active = self._segments.active
        self._health.broken("the log is closed")
        self._durability.close()
        self._files.forget_under(self.directory)
        if active.writer is not None:
            active.writer.close()
            active.writer = None

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
        when they begin below the log's end, CORRUPT_MESSAGE when they cannot be what a log holds, KAFKA_STORAGE_ERROR; nothing
        is appended then, but for whole segments' worth that were written before a disk failed: `end_offset` says what is there.
        """
        self._health.check_writable()
        is_inside = bool(batches) and self._begins_inside(batches[0][0])
        end_offset = batches[0][0].base_offset if is_inside else self.end_offset
        markers = check_fetched(batches, end_offset=end_offset, latest_epoch=self._epochs.latest)
        if is_inside:
            self._begin_anew(end_offset, self.start_offset)
        self._check_ready()
        for portion in portions(
            batches, markers, end_offset=self.end_offset, segment_bytes=self.config.segment_bytes
        ):
            self._write_fetched(portion, now_ms)

    def _begins_inside(self, header: BatchHeader) -> bool:
        """An empty log's first batch may begin before it: the leader's log was told to begin in the batch's middle."""
        return not self._size_bytes and header.base_offset < self.end_offset <= header.last_offset

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
        segment.size_bytes = size_bytes
        segment.appended_ms = now_ms
        if segment.first_append_ms < 0:
            segment.first_append_ms = now_ms
        self.end_offset = next_offset
        if self._unflushed_since is None:
            self._unflushed_since = self._runtime.clock.monotonic()

    def begin_epoch(self, leader_epoch: int) -> None:
        """This replica leads from now on: what is appended next is of `leader_epoch`, even before anything is."""
        if self._epochs.assign(leader_epoch, self.end_offset):
            self._write_epochs()

    def _write_epochs(self) -> None:
        path = naming.join(self.directory, naming.LEADER_EPOCHS)
        self._durability.file_changed(path, checkpoints.format_epochs(self._epochs.entries))

    def _write_snapshot(self) -> None:
        path = naming.join(self.directory, naming.offset_file(self.end_offset, naming.SNAPSHOT))
        self._durability.file_changed(path, encode_snapshot(self.producers))

    # ---- durability and disk errors --------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Everything below it survives a power cut."""
        return self._durability.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Below it nothing has to be looked at after a crash; at most `flushed_offset`.

        Not the end of an active segment with aborted transactions: when it is sealed there, the index that names them is still
        to be written, and may be lost.
        """
        return self._recovery_point(self.end_offset)

    def _recovery_point(self, end_offset: int) -> int:
        point, active = min(self._durability.recovery_point, end_offset), self._segments.active
        return point - 1 if point == end_offset > active.base_offset and len(active.aborted) else point

    @property
    def flush_due(self) -> bool:
        """Whether a flush is called for, whatever the acks: by a finished segment, `flush.messages` or `flush.ms`."""
        if self._durability.has_sealed or self._durability.truncation is not None:
            return True
        unflushed = self.end_offset - self._durability.flushed_offset
        if unflushed <= 0 or self._unflushed_since is None:
            return False
        if unflushed >= self.config.flush_messages:
            return True
        return (self._runtime.clock.monotonic() - self._unflushed_since) * 1000 >= self.config.flush_ms

    def flush_job(self) -> FlushJob | None:
        """What must be synced so that all that was appended so far is durable; None when it is."""
        active = self._segments.active
        if active.writer is None or self._health.is_broken:
            return None
        job = self._durability.job(self.end_offset, active.writer)
        if job is not None:
            # Readers stop at the flushed offset: they will ask for this position.
            active.remember(self.end_offset, active.size_bytes)
            self._unflushed_since = None
        return job

    def flushed(self, job: FlushJob) -> None:
        """`job.run()` returned."""
        if job.life.alive and not self._health.is_broken:
            if job.truncation is not None:
                self._files_followed(job.truncation)
            self._durability.done(job)
            if self.damage is not None and self.flushed_offset >= self._lost_below:
                self.mended()

    @property
    def failed(self) -> Fault | None:
        """Why the log takes no appends; None when it does."""
        return self._health.fault

    def disk_failed(self, error: OSError) -> None:
        """The log's directory failed: until a restart nothing is appended, read or flushed."""
        self._health.broken(str(error))

    def repair_job(self) -> RepairJob | None:
        """After a full disk, once there is space again: what brings the log back. None when it is not (yet) possible."""
        return self._tail.repair_job(self._life) if self._health.is_full else None

    def repaired(self, job: RepairJob) -> None:
        """`job.run()` returned: appends are welcome again."""
        if job.life is not self._life or job.truncation_count != self._durability.truncation_count:
            return
        if job.truncation is not None:
            self._files_followed(job.truncation)
        if self._durability.truncation is None:
            self._health.recovered()

    # ---- truncating ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and above `offset`, from the start of the batch that holds it on: `end_offset` says from where.

        Nothing waits for the disk here: the files follow with the next `flush_job`, and until then a crash leaves the log as it
        was. An append that comes first makes the files follow at once, on the loop: flush before. An epoch that began at the
        log's end and wrote nothing goes, too, even when nothing else does. At or below `start_offset` this is `restart_at`.
        """
        self._health.check_readable()
        if offset >= self.end_offset:
            if self._epochs.truncate_from_end(self.end_offset):
                self._write_epochs()
            return
        if offset <= self.start_offset:
            self.restart_at(offset)
            return
        self._finish_truncation()
        try:
            cut = find_cut(self._segments, offset)
            sweeps = False
            if cut is None or cut.number + 1 < len(self._segments):
                sweeps = self._cleaning is not None and self._cleaning.abort()
                cut = find_cut(self._segments, offset)
            if cut is None or cut.end_offset <= self.start_offset:
                self._begin_anew(self.start_offset, self.start_offset, sweeps=sweeps)
                return
            stale = self._segments[cut.number].cut(cut.position, cut.end_offset)
        except OSError as error:
            raise self._health.failed(error) from error
        dropped = self._segments.keep_first(cut.number + 1)
        self._epochs.truncate_from_end(cut.end_offset)
        self._truncated(cut.position, cut.end_offset, self.start_offset, dropped, stale, sweeps=sweeps)

    def restart_at(self, offset: int) -> None:
        """Drop everything: the log is empty and begins at `offset`, which may lie anywhere. As with `truncate_to` the files
        follow.
        """
        self._health.check_readable()
        if offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} cannot begin at {offset}"
            )
        self._begin_anew(offset, offset)

    def _begin_anew(self, base_offset: int, start_offset: int, *, sweeps: bool = False) -> None:
        self._finish_truncation()
        new = Segment(
            self._runtime.disk,
            self._files,
            self.directory,
            base_offset,
            0,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        try:
            sweeps |= self._cleaning is not None and self._cleaning.abort()
            new.begin_aside()
        except OSError as error:
            raise self._health.failed(error) from error
        dropped = self._segments.keep_first(0)
        self._segments.add(new)
        self._epochs.truncate_from_end(0)
        self._removals.all_gone()
        self.producers = Producers()
        self._truncated(0, base_offset, start_offset, dropped, [], sweeps=sweeps)
        self._write_snapshot()

    def _truncated(
        self,
        position: int,
        end_offset: int,
        start_offset: int,
        dropped: list[Segment],
        stale: list[DiskFile],
        *,
        sweeps: bool,
    ) -> None:
        """The segments in memory are what is left. `stale`: open files of the last one that nobody needs any more."""
        last, now_ms = self._segments.active, self._runtime.clock.wall_ms()
        plan = TruncationPlan(
            base_offset=last.base_offset,
            position=position,
            end_offset=end_offset,
            start_offset=start_offset,
            recovery_point=self._recovery_point(end_offset),
            high_watermark_max=min(self.high_watermark_max, end_offset),
            is_anew=not position,
            sweeps=sweeps,
        )
        truncation = Truncation(
            self._runtime.disk,
            self.directory,
            plan,
            life=self._life,
            number=self._durability.truncation_count + 1,
            segments=[(segment.base_offset, segment.size_bytes) for segment in self._segments],
            now_ms=now_ms,
        )
        if self._damage_offset is not None and end_offset <= self._damage_offset:
            self._damage_offset, self._lost_below = None, self.end_offset
        self._durability.truncated(truncation, [*stale, *self._let_go(dropped)])
        due_ms = now_ms + self.config.file_delete_delay_ms
        self._removals.renamed((segment.base_offset for segment in dropped), due_ms)
        log.warning("log_truncated", partition=self.topic_partition, before=self.end_offset, now=end_offset)
        self._size_bytes = self._segments.size_bytes
        self.start_offset, self.end_offset = start_offset, end_offset
        self.truncated_to = min(self.truncated_to, end_offset)
        self.high_watermark_max = plan.high_watermark_max
        self._unflushed_since = None
        self._snapshot_offset = self._index_written_to = -1
        if last.size_bytes and last.first_append_ms < 0:
            last.first_append_ms = last.last_append_ms()
        if self._durability.awaits(naming.join(self.directory, naming.LEADER_EPOCHS)):
            self._write_epochs()  # else the truncation itself cuts the file

    @property
    def truncation_count(self) -> int:
        """How often it was truncated since it was opened."""
        return self._durability.truncation_count

    def truncation_note(self) -> NoteRemoval | None:
        """What may be done once the checkpoints of the log's directory, as of now, are durable; None when there is nothing."""
        if not self._truncation_noted or self._durability.truncation is not None:
            return None
        return NoteRemoval(
            disk=self._runtime.disk,
            directory=self.directory,
            life=self._life,
            truncation_count=self._durability.truncation_count,
        )

    def truncation_forgotten(self, note: NoteRemoval) -> None:
        """`note.run()` succeeded."""
        if note.truncation_count == self._durability.truncation_count:
            self._truncation_noted = False
            self.high_watermark_max = OFFSET_MAX

    def _let_go(self, dropped: list[Segment]) -> list[SegmentWriter]:
        """The writers of segments that go; their other files are closed here."""
        writers = []
        for segment in dropped:
            for kind in (naming.LOG, *naming.INDEX_SUFFIXES):
                self._files.forget(segment.path(kind))
            if segment.writer is not None:
                writers.append(segment.writer)
                segment.writer = None
        return writers

    def _check_ready(self) -> None:
        """For an append: the disk works, and the files are those that the log believes it has."""
        self._health.check_writable()
        if self._durability.truncation is not None:
            self._finish_truncation()

    def _finish_truncation(self) -> None:
        """Let the files follow now, on the loop. KAFKA_STORAGE_ERROR when they do not."""
        truncation = self._durability.truncation
        if truncation is None:
            return
        try:
            self._life.run(truncation.run)
            if truncation.refused is not None:
                raise truncation.refused
        except OSError as error:
            raise self._health.failed(error) from error
        self._files_followed(truncation)

    def _files_followed(self, truncation: Truncation) -> None:
        """Unless they did not, or it is known already."""
        if truncation.finished and self._durability.truncation is truncation:
            self._durability.truncation_finished()
            self.producers = truncation.producers
            self._truncation_noted = True

    # ---- deleting --------------------------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Nothing below `offset` may be read from now on; return the new start offset. It never goes back.

        Whole segments below it go with the next `apply_retention`. OFFSET_OUT_OF_RANGE above the log's end. The caller
        keeps `offset` at or below the high watermark.
        """
        self._health.check_readable()
        if not 0 <= offset <= self.end_offset:
            message = f"{self.topic_partition} ends at {self.end_offset}: cannot delete up to {offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self._move_start(offset)
        return self.start_offset

    def _move_start(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, offset)
        if self._epochs.truncate_from_start(self.start_offset):
            self._write_epochs()

    def apply_retention(self, now_ms: int, *, below: int | None = None) -> list[DeletedSegment]:
        """Take out of the log what its topic's settings no longer keep, and return it, the oldest first.

        Only segments that end at or below `below` (by default what is durable): the high watermark. Their files follow
        with `removal_job`. When the active segment is due, too, a new one is begun. It works on a full disk as well, where
        it is the cure.
        """
        self._health.check_readable()
        if self._durability.truncation is not None:
            return []
        deletable_below = self.flushed_offset if below is None else min(below, self.flushed_offset)
        terms = RetentionTerms.of(
            self.config, start_offset=self.start_offset, deletable_below=deletable_below, now_ms=now_ms
        )
        try:
            reasons = deletable(candidates(self._segments, self.end_offset), self._size_bytes, terms)
        except OSError as error:
            raise self._health.failed(error) from error
        if len(reasons) == len(self._segments):
            if self._health.is_full:
                reasons.pop()
            else:
                self._tail.roll(RollReason.AGE, self.end_offset)
        deleted = take_out(self._segments, reasons, self.end_offset)
        for segment, one in deleted:
            self._size_bytes -= one.size_bytes
            self._files.forget(segment.path(naming.LOG))
            self._durability.forget_file(segment.path(naming.SNAPSHOT))
            log.info(
                "segment_deleted",
                partition=self.topic_partition,
                base_offset=one.base_offset,
                reason=one.reason.value,
            )
        if deleted:
            self._removals.add([segment for segment, _ in deleted])
            self._move_start(self._segments[0].base_offset)
        return [one for _, one in deleted]

    @property
    def cleaning(self) -> CleaningAccess:
        """What compaction may do here. Most logs are never compacted, so it is made, and imported, when it is asked for."""
        if self._cleaning is None:
            from odradek.storage.cleaning.access import CleaningAccess

            self._cleaning = CleaningAccess(
                disk=self._runtime.disk,
                directory=self.directory,
                segments=self._segments,
                files=self._files,
                life=self._life,
                resized=self._resized,
            )
        return self._cleaning

    def _resized(self, change_bytes: int) -> None:
        self._size_bytes += change_bytes

    def roll_for_compaction(self, now_ms: int) -> bool:
        """End the active segment if its oldest record must be compacted by now (max.compaction.lag.ms); whether it did."""
        active = self._segments.active
        if self._health.fault is not None or not active.size_bytes or self._durability.truncation is not None:
            return False
        if not roll_due(active.first_append_ms, self.config, now_ms):
            return False
        self._tail.roll(RollReason.AGE, self.end_offset)
        return True

    def removal_job(self, now_ms: int) -> RemovalJob | None:
        """What must be done on disk about deleted segments; None when there is nothing to do yet."""
        if self._health.is_broken:
            return None
        return self._removals.job(now_ms, self.flush_job, self._durability.truncation_count)

    def removed(self, job: RemovalJob, now_ms: int) -> None:
        """`job.run()` returned."""
        if job.flush is not None:
            self.flushed(job.flush)
        if job.truncation_count != self._durability.truncation_count:
            return
        self._removals.done(job, now_ms + self.config.file_delete_delay_ms)
