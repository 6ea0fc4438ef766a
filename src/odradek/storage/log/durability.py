"""The part of a log that survives a power cut, and the changes that have still to be made durable.

Contract: everything below `flushed_offset` survives a power cut. An append writes and returns; names, the leader epochs, the
topic id and producer snapshots change in memory. `job` collects all of it, `FlushJob.run` syncs on any thread, `done` moves
the offset. Whatever came after `job` belongs to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from odradek.config.topic import LogConfig
from odradek.runtime.ports import Disk
from odradek.storage.files import naming
from odradek.storage.files.extents import Extent
from odradek.storage.files.lifetime import DISK_FULL, NO_DESCRIPTORS, LogLifetime
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.log.context import LogContext
from odradek.storage.recovery.file_truncation import Truncation


@dataclass(slots=True, kw_only=True)  # not frozen: each flush makes one, and that takes three times as long
class FlushJob:
    """One group commit. `run` blocks and may be called on any thread; then give the job to `Log.flushed` on the loop. No one
    changes it once it is made.

    An OSError from `run` is final: the kernel may have dropped the pages, so a second call would wrongly succeed. Give the
    error to `LogDirectories.fail` instead.
    """

    end_offset: int
    """The log's end when the job was made; `flushed_offset` becomes this."""
    writers: tuple[SegmentWriter, ...]
    directories: tuple[tuple[str, int], ...]
    """Paths whose names changed, each with the number of the change."""
    files: tuple[tuple[str, int, bytes], ...]
    """Small files to replace: path, number of the change, content."""
    disk: Disk
    life: LogLifetime
    truncation_count: int = 0
    """How often the log had been truncated when the job was made; after the next time there is nothing left to do."""
    truncation: Truncation | None = None
    """The truncation to carry out before anything else."""
    deferred: list[str] = field(default_factory=list)
    """Paths that must wait for a later job: no space for a small file, which recovery can do without, or no descriptor."""

    @property
    def only_writer(self) -> SegmentWriter | None:
        """The writer of the active segment, if the content of its log file is all that the job makes durable, else None."""
        if self.truncation is not None or self.directories or self.files or len(self.writers) != 1:
            return None
        writer = self.writers[0]
        if writer.sealed or self.truncation_count < self.life.truncation_count:
            return None
        return writer

    def run(self) -> None:
        self.life.run(self.sync_all)

    def sync_all(self) -> None:
        """Does the work, for callers that hold the lock or closed the log."""
        if self.truncation_count < self.life.truncation_count:
            return
        if self.truncation is not None:
            self.truncation.run()
        # The log before all else: a snapshot or an epoch that is durable speaks of batches that are.
        for writer in self.writers:
            writer.sync()
        for path, _ in self.directories:
            self._unless(NO_DESCRIPTORS, path, partial(self.disk.sync_directory, path))
        for path, change, data in self.files:
            self._unless(DISK_FULL | NO_DESCRIPTORS, path, partial(self._replace, path, change, data))

    def _replace(self, path: str, change: int, data: bytes) -> None:
        if path.endswith(naming.SNAPSHOT):  # each has a name of its own
            self.disk.replace(path, data)
        elif self.life.replaced.get(path, 0) < change:
            self.disk.replace(path, data)
            self.life.replaced[path] = change

    def try_deferred(self) -> None:
        """Writes small files for which there was no space before."""
        waiting = [file for file in self.files if file[0] in self.deferred]
        for path, change, data in waiting:
            self.deferred.remove(path)
            self._unless(DISK_FULL | NO_DESCRIPTORS, path, partial(self._replace, path, change, data))

    def _unless(self, passing: frozenset[int], path: str, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if error.errno not in passing:
                raise
            self.deferred.append(path)


class ClosingJob(NamedTuple):
    """The last flush of a log. `run` on any thread; nothing is done for the log on another one afterwards.

    OSError, with nothing synced, if an earlier sync failed: a second one would wrongly succeed."""

    flush: FlushJob
    writer: SegmentWriter

    def run(self) -> None:
        self.flush.life.end()
        self.flush.life.check_sound()  # a flush that was under way may have failed, and the loop not have heard of it
        self.writer.sync_transactions()
        self.flush.sync_all()


class Closing(Protocol):
    """An open file, as `Durability` closes it."""

    def close(self) -> None: ...


class Durability:
    """Tracks which part of a log is durable, and what the next flush writes. Used on the event loop only."""

    __slots__ = (
        "_changes",
        "_closing",
        "_context",
        "_directories",
        "_files",
        "_sealed",
        "_segments",
        "_unflushed_since",
        "flushed_offset",
        "truncation",
        "truncation_count",
    )

    def __init__(self, context: LogContext) -> None:
        self._context = context
        self._segments = context.segments
        self._changes = 0
        self._sealed: list[SegmentWriter] = []
        self._directories: dict[str, int] = {}
        self._files: dict[str, tuple[int, bytes]] = {}
        self._closing: list[Closing] = []
        self._unflushed_since: float | None = None
        """The time of the oldest append that no job covers yet, in seconds of the monotonic clock; None without one."""
        self.flushed_offset = context.segments.end_offset
        """Everything below it is durable; what an opening leaves is, too."""
        self.truncation: Truncation | None = None
        """The truncation that the files have not followed yet."""
        self.truncation_count = 0

    # ---- changes that wait for a job ---------------------------------------------------------------------------------

    def appended(self) -> None:
        """Notes that batches are in the active segment's file."""
        if self._unflushed_since is None:
            self._unflushed_since = self._context.runtime.clock.monotonic()

    def names_changed(self, *directories: str) -> None:
        self._changes += 1
        for path in directories:
            self._directories[path] = self._changes

    def file_changed(self, path: str, data: bytes) -> None:
        """Notes that the small file at `path` has new content, which the next job writes."""
        self._changes += 1
        self._files[path] = (self._changes, data)

    def awaits(self, path: str) -> bool:
        """Returns whether the small file at `path` waits to be replaced, so that its present content is out of date."""
        return path in self._files

    def forget_file(self, path: str) -> None:
        self._files.pop(path, None)

    def sealed(self, writer: SegmentWriter) -> None:
        """Notes that a segment was completed; its writer is closed here once it is durable."""
        self._sealed.append(writer)

    # ---- what is durable ---------------------------------------------------------------------------------------------

    @property
    def synced_offset(self) -> int:
        """Everything below it is durable, transaction indexes included: those are written when their segment is sealed, so one
        may be lost though all its batches are durable.
        """
        return min(
            [self.flushed_offset, *(writer.base_offset for writer in self._sealed if not writer.durable)]
        )

    def recovery_point(self, end_offset: int) -> int:
        """Returns the offset from which recovery reads after a crash, if the log ends at `end_offset`.

        It is below the end of an active segment with aborted transactions: when it is sealed there, the index of these
        may be lost, as it has yet to be written.
        """
        point, active = min(self.synced_offset, end_offset), self._segments.active
        return point - 1 if point == end_offset > active.base_offset and len(active.aborted) else point

    def extent(self, damage_offset: int | None) -> Extent | None:
        """Returns the durable part of the log; None while the files have not yet followed a truncation.

        A `damage_offset` stays known until the records from there on are here again.
        """
        if self.truncation is not None:
            return None
        first_offset = self._segments.base_offset
        if damage_offset is not None:
            first_offset = min(first_offset, damage_offset)
        log_end_offset = self._segments.end_offset
        end_offset = min(self.flushed_offset, log_end_offset)
        return Extent(first_offset, min(self.recovery_point(log_end_offset), end_offset), end_offset)

    @property
    def has_sealed(self) -> bool:
        """Finished segments wait for a job; until then each holds its files open."""
        return bool(self._sealed)

    @property
    def pending(self) -> bool:
        """True if something other than appended batches waits for a job."""
        return bool(self._sealed or self._directories or self._files or self.truncation is not None)

    def is_overdue(self, config: LogConfig) -> bool:
        """Returns whether `flush.messages` or `flush.ms` asks for a flush."""
        unflushed = self._segments.end_offset - self.flushed_offset
        if unflushed <= 0 or self._unflushed_since is None:
            return False
        if unflushed >= config.flush_messages:
            return True
        return (self._context.runtime.clock.monotonic() - self._unflushed_since) * 1000 >= config.flush_ms

    # ---- jobs --------------------------------------------------------------------------------------------------------

    def job(self, active: SegmentWriter) -> FlushJob | None:
        """Returns a job for all appends and changes so far; None when everything is durable."""
        end_offset = self._segments.end_offset
        appended = end_offset > self.flushed_offset
        if not appended and not self.pending:
            return None
        self._unflushed_since = None
        return FlushJob(
            end_offset=end_offset,
            writers=(*self._sealed, active) if appended else tuple(self._sealed),
            directories=tuple(self._directories.items()) if self._directories else (),
            files=tuple((path, change, data) for path, (change, data) in self._files.items())
            if self._files
            else (),
            disk=self._context.runtime.disk,
            life=self._context.life,
            truncation_count=self.truncation_count,
            truncation=self.truncation,
        )

    def done(self, job: FlushJob) -> None:
        """Notes that `job.run()` returned. Jobs may end in any order; the offset never goes back."""
        if job.truncation_count != self.truncation_count:
            return  # what it did, or did not do any more, was for other files
        deferred = frozenset(job.deferred)
        if not any(path in deferred for path, _ in job.directories):
            self.flushed_offset = max(self.flushed_offset, job.end_offset)
        for path, change in job.directories:
            if path not in deferred and self._directories.get(path) == change:
                del self._directories[path]
        for path, change, _ in job.files:
            if (
                path not in job.deferred
                and (waiting := self._files.get(path)) is not None
                and waiting[0] == change
            ):
                del self._files[path]
        if self._sealed:
            self._close_durable()

    def _close_durable(self) -> None:
        for writer in self._sealed:
            if writer.durable:
                writer.close()
        self._sealed = [writer for writer in self._sealed if not writer.durable]

    # ---- truncations, and the end ------------------------------------------------------------------------------------

    def truncated(self, truncation: Truncation, closing: Sequence[Closing]) -> None:
        """Notes that the log was truncated in memory. `closing`: open files that jobs on other threads may still use."""
        plan = truncation.plan
        self.truncation = truncation
        self.truncation_count = truncation.number
        self.flushed_offset = (
            plan.end_offset if plan.starts_empty else min(self.flushed_offset, plan.end_offset)
        )
        gone = [
            writer for writer in self._sealed if plan.starts_empty or writer.base_offset >= plan.base_offset
        ]
        self._sealed = [writer for writer in self._sealed if writer not in gone]
        self._closing += [*gone, *closing]
        self._unflushed_since = None
        for path in list(self._files):
            file = naming.parse_offset_file(path.rpartition("/")[2])
            if file is not None and (plan.starts_empty or file.offset > plan.end_offset):
                del self._files[path]

    def truncation_finished(self) -> None:
        """Notes that the files followed; no job touches the old ones any more."""
        self.truncation = None
        for file in self._closing:
            file.close()
        self._closing.clear()

    def close(self) -> None:
        for file in (*self._sealed, *self._closing):
            file.close()
        self._sealed.clear()
        self._closing.clear()
