"""What of a log survives a power cut, and how the rest gets there: flushes, small files, truncations that the files follow.

`FlushJob` and `RepairJob` carry what must block to other threads; what became of them is noted on the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Runtime
from odradek.storage.directories import checkpoints, naming
from odradek.storage.directories.extents import Extent
from odradek.storage.log.active_segment import ActiveSegment
from odradek.storage.log.flush_jobs import Durability, FlushJob, LogLifetime
from odradek.storage.log.health import LogFault, RepairJob
from odradek.storage.log.readable_log import ReadableLog
from odradek.storage.log.truncation import NoteRemoval, Truncation
from odradek.storage.producers.snapshot import encode_snapshot
from odradek.storage.segment.sparse_index import OFFSET_MAX

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

OnMoved: TypeAlias = Callable[["Log"], None]


class DurableLog(ReadableLog):
    """The part of `Log` that knows what is on the disk for good. `Log` gives it its parts."""

    _runtime: Runtime
    _life: LogLifetime
    _durability: Durability
    _tail: ActiveSegment
    _unflushed_since: float | None
    _truncation_noted: bool
    _start_path: str
    _on_moved: Callable[[], None]
    """Something became durable, or was taken back: `extent` may be another one."""
    _transaction_sums: dict[int, int] | None
    """As they were last written down, or are about to be."""
    config: LogConfig
    directory: str
    high_watermark_max: int

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
    def extent(self) -> Extent | None:
        """What is durable of it; None while the files have still to follow a truncation."""
        if self._durability.truncation is not None:
            return None
        first_offset = self._segments[0].base_offset
        if self._damage_offset is not None:  # what is missing there stays known until it is here again
            first_offset = min(first_offset, self._damage_offset)
        end_offset = min(self._durability.flushed_offset, self.end_offset)
        return Extent(first_offset, min(self.recovery_point, end_offset), end_offset)

    @property
    def flush_due(self) -> bool:
        """Whether a flush is called for, whatever the acks: by a finished segment, a start that moved, `flush.messages`,
        `flush.ms`.
        """
        durability = self._durability
        if durability.has_sealed or durability.truncation is not None or durability.awaits(self._start_path):
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
        if self._durability.has_sealed:
            self._note_transaction_sums()
        job = self._durability.job(self.end_offset, active.writer)
        if job is not None:
            # Readers stop at the flushed offset: they will ask for this position.
            active.search.remember(self.end_offset, active.size_bytes)
            self._unflushed_since = None
        return job

    def flushed(self, job: FlushJob) -> None:
        """`job.run()` returned."""
        if job.life.alive and not self._health.is_broken:
            if job.truncation is not None:
                self._files_followed(job.truncation)
                if job.truncation.refused is not None:
                    self._health.failed(OSError(*job.truncation.refused))
            self._durability.done(job)
            if self.damage is not None and self.flushed_offset >= self._lost_below:
                self.mended()
            self._on_moved()

    @property
    def failed(self) -> LogFault | None:
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

    # ---- small files -------------------------------------------------------------------------------------------------

    def _write_epochs(self) -> None:
        path = naming.join(self.directory, naming.LEADER_EPOCHS)
        self._durability.file_changed(path, checkpoints.format_epochs(self._epochs.entries))

    def _note_transaction_sums(self) -> None:
        """The transaction indexes of sealed segments changed, or the active one's is written out."""
        sums = self._segments.transaction_sums()
        if sums != self._transaction_sums:
            self._transaction_sums = sums
            path = naming.join(self.directory, naming.TRANSACTION_SUMS)
            self._durability.file_changed(path, checkpoints.format_transaction_sums(sums))

    def _write_start(self) -> None:
        self._durability.file_changed(self._start_path, checkpoints.format_start_offset(self.start_offset))

    def _write_snapshot(self) -> None:
        path = naming.join(self.directory, naming.offset_file(self.end_offset, naming.SNAPSHOT))
        self._durability.file_changed(path, encode_snapshot(self.producers))

    # ---- truncations -------------------------------------------------------------------------------------------------

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

    @property
    def awaits_truncation(self) -> bool:
        """The files have not followed a truncation: appends are refused until a `flush_job` ran, and `flushed` was told."""
        return self._durability.truncation is not None

    def _check_ready(self) -> None:
        """For an append: the disk works, and the files are those that the log believes it has."""
        self._health.check_writable()
        if self._durability.truncation is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.topic_partition}: it was truncated, and its files have not followed yet: try again",
            )

    def _files_followed(self, truncation: Truncation) -> None:
        """Unless they did not, or it is known already."""
        if truncation.finished and self._durability.truncation is truncation:
            self._durability.truncation_finished()
            self.producers = truncation.producers
            self._truncation_noted = True
            self._on_moved()
