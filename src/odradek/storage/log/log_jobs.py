"""The disk work of a log: flushes, the last one at a clean close, removals of files, repairs after a full disk.

`FlushJob`, `RemovalJob` and `RepairJob` carry what must block to other threads; their outcomes are noted here, on the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.config.topic import LogConfig
from odradek.storage.log.active_segment import LogFiles
from odradek.storage.log.context import LogContext
from odradek.storage.log.durability import ClosingJob, FlushJob
from odradek.storage.log.file_removal import RemovalJob
from odradek.storage.log.health import RepairJob
from odradek.storage.log.lacked_records import LackedRecords
from odradek.storage.log.log_truncation import LogTruncation


class LogJobs:
    """Makes the disk jobs of a log, and notes their outcomes. `Log` documents the methods of the same names. Used on the
    event loop only."""

    __slots__ = (
        "_context",
        "_durability",
        "_health",
        "_index_offset",
        "_lacked",
        "_on_moved",
        "_removals",
        "_segments",
        "_small_files",
        "_tail",
        "_truncation",
    )

    def __init__(
        self,
        context: LogContext,
        *,
        files: LogFiles,
        truncation: LogTruncation,
        lacked: LackedRecords,
        on_moved: Callable[[], None],
        index_offset: int,
    ) -> None:
        """`on_moved` is called when something became durable. `index_offset`: where the log ended when its index files were
        complete; -1 when they are not."""
        self._context = context
        self._segments = context.segments
        self._health = context.health
        self._tail = files.tail
        self._durability = files.durability
        self._small_files = files.small_files
        self._removals = files.removals
        self._truncation = truncation
        self._lacked = lacked
        self._on_moved = on_moved
        self._index_offset = index_offset

    # ---- flushes -----------------------------------------------------------------------------------------------------

    def flush_is_due(self, config: LogConfig) -> bool:
        """Returns whether a flush is due; see `Log.flush_due`."""
        durability = self._durability
        if durability.has_sealed or durability.truncation is not None or self._small_files.start_waits:
            return True
        return durability.is_overdue(config)

    def flush_job(self) -> FlushJob | None:
        active = self._segments.active
        writer = active.writer
        if writer is None or self._health.is_broken:
            return None
        if self._durability.has_sealed:
            self._small_files.write_transaction_sums()
        job = self._durability.job(writer)
        if job is not None:
            # Readers stop at the flushed offset: they will ask for this position.
            active.search.remember(self._segments.end_offset, active.size_bytes)
        return job

    def flushed(self, job: FlushJob) -> None:
        self._context.files.synced(job.writers)
        if job.life.alive and not self._health.is_broken:
            if job.truncation is not None:
                self._truncation.files_followed(job.truncation)
                if job.truncation.refused is not None:
                    self._health.failed(OSError(*job.truncation.refused))
            self._durability.done(job)
            self._lacked.flushed(self._durability.flushed_offset)
            self._on_moved()

    # ---- removals ----------------------------------------------------------------------------------------------------

    def removal_job(self, now_ms: int) -> RemovalJob | None:
        """Returns the disk work for deleted segments; None when there is nothing to do yet."""
        if self._health.is_broken:
            return None
        return self._removals.job(
            now_ms,
            self.flush_job,
            self._durability.truncation_count,
            keeps_renamed=self._small_files.start_waits,
        )

    def removed(self, job: RemovalJob, due_ms: int) -> None:
        """Notes that `job.run()` returned. `due_ms`: when to remove the files that it renamed."""
        if job.flush is not None:
            self.flushed(job.flush)
        if job.truncation_count == self._durability.truncation_count:
            self._removals.done(job, due_ms)

    # ---- repairs -----------------------------------------------------------------------------------------------------

    def repair_job(self) -> RepairJob | None:
        """Returns the job that repairs the log after a full disk once there is space again; None before, or without need."""
        return self._tail.repair_job() if self._health.is_full else None

    def repaired(self, job: RepairJob) -> None:
        """Accepts appends again after `job.run()` has returned."""
        durability = self._durability
        if job.life is not self._context.life or job.truncation_count != durability.truncation_count:
            return
        if job.truncation is not None:
            self._truncation.files_followed(job.truncation)
        if durability.truncation is None:
            self._health.recovered()

    # ---- the end -----------------------------------------------------------------------------------------------------

    def begin_close(self) -> ClosingJob | None:
        """Returns the work that makes a log that is not in use any more one that was closed cleanly. None without any.

        Then its `run` on any thread, then `end_close` in any case. OSError, or KAFKA_STORAGE_ERROR, also while the log
        `awaits_truncation`.
        """
        active, writer = self._segments.active, self._segments.active.writer
        if not self._context.life.alive or self._health.fault is not None or writer is None:
            return None
        self._truncation.check_ready()
        if self._truncation.count or self._segments.end_offset != self._index_offset:
            active.write_index()
        if writer.transaction_file is not None:
            self._durability.names_changed(self._context.directory)
        self._small_files.write_transaction_sums()
        self._small_files.write_last_snapshot()
        flush = self._durability.job(writer)
        return ClosingJob(flush=flush, writer=writer) if flush is not None else None

    def end_close(self, done: ClosingJob | None) -> None:
        """Closes the files, once no other thread works on the log. `done`: its `run` succeeded."""
        if done is not None:
            self._durability.done(done.flush)
            self._on_moved()
        self._health.broken("the log is closed")
        self._durability.close()
        self._context.files.forget_under(self._context.directory)
        self._segments.active.close_writer()
