"""What is written but not yet durable, and the job that makes it so.

Contract: everything below `flushed_offset` survives a power cut. An append writes and returns; names, the leader epochs, the
topic id and producer snapshots change in memory. `job` collects all of it, `FlushJob.run` syncs on any thread, `done` moves
the offset. Whatever came after `job` belongs to the next one.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.runtime.ports import Disk
from odradek.storage.directories import naming
from odradek.storage.segment.writer import SegmentWriter

if TYPE_CHECKING:
    from odradek.storage.log.truncation import Truncation

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that pass when there is space again."""
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of the process or the machine, not of a disk: nothing was touched, and the same call may succeed later."""


class Closing(Protocol):
    """Something open."""

    def close(self) -> None: ...


class LogLifetime:
    """Whether a log is still open and sound, for work on other threads.

    Work that touches files by name runs under the lock. Closing takes it, too, so it waits for such work, and work that
    comes later does nothing: the directory may be another topic's by then. After an OSError all later work fails with it:
    an fsync that is tried again succeeds without having written anything.
    """

    __slots__ = ("_failure", "_lock", "alive", "replaced", "truncation_count")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failure: str | None = None
        self.alive = True
        self.truncation_count = 0
        """How often the files were cut: a job that was made for what was there before must not touch them."""
        self.replaced: dict[str, int] = {}
        """Of small files: the number of the change that was the last to be put there. An older job must not undo it."""

    def end(self) -> None:
        with self._lock:
            self.alive = False

    def end_unless_busy(self) -> bool:
        """Like `end`, but False, and nothing changed, while there is work under way."""
        if not self._lock.acquire(blocking=False):
            return False
        self.alive = False
        self._lock.release()
        return True

    def attempt(self, work: Callable[[], object]) -> bool:
        """For work that the log can do without: its errors are its own. False, and nothing was done, when the log is
        closed or failed.
        """
        with self._lock:
            if not self.alive or self._failure is not None:
                return False
            work()
            return True

    def run(self, work: Callable[[], None]) -> None:
        with self._lock:
            if not self.alive:
                return
            if self._failure is not None:
                raise OSError(errno.EIO, f"an earlier error was final: {self._failure}")
            try:
                work()
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:  # nothing was tried, so nothing is lost
                    self._failure = str(error)
                raise


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """One group commit. `run` blocks and may be called on any thread; then give the job to `Log.flushed` on the loop.

    An OSError from `run` is final: the kernel may have dropped the pages, so a second call would lie. Give the error to
    `LogDirectories.fail` instead.
    """

    end_offset: int
    """Where the log ended when the job was made: what `flushed_offset` becomes."""
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
    """To be carried out before all else."""
    deferred: list[str] = field(default_factory=list)
    """Paths that must wait for a later job: no space for a small file, which recovery can do without, or no descriptor."""

    def run(self) -> None:
        self.life.run(self.sync_all)

    def sync_all(self) -> None:
        """The work itself, for those who hold the lock or closed the log."""
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
        """Try the small files again that there was no space for."""
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
    """The last flush of a log. `run` on any thread; nothing is done for the log on another one afterwards."""

    flush: FlushJob
    writer: SegmentWriter

    def run(self) -> None:
        self.flush.life.end()
        self.writer.sync_transactions()
        self.flush.sync_all()


class Durability:
    """Used on the loop only."""

    __slots__ = (
        "_changes",
        "_closing",
        "_directories",
        "_disk",
        "_files",
        "_life",
        "_sealed",
        "flushed_offset",
        "truncation",
        "truncation_count",
    )

    def __init__(self, disk: Disk, life: LogLifetime, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        self._disk = disk
        self._life = life
        self._changes = 0
        self._sealed: list[SegmentWriter] = []
        self._directories: dict[str, int] = {}
        self._files: dict[str, tuple[int, bytes]] = {}
        self._closing: list[Closing] = []
        self.truncation: Truncation | None = None
        """The files have still to follow."""
        self.truncation_count = 0

    def names_changed(self, *directories: str) -> None:
        self._changes += 1
        for path in directories:
            self._directories[path] = self._changes

    def file_changed(self, path: str, data: bytes) -> None:
        """The small file at `path` has a new content, to be put there by the next job."""
        self._changes += 1
        self._files[path] = (self._changes, data)

    def awaits(self, path: str) -> bool:
        """Whether the small file at `path` is to be replaced, so that what is there now is not what was last said."""
        return path in self._files

    def forget_file(self, path: str) -> None:
        self._files.pop(path, None)

    def sealed(self, writer: SegmentWriter) -> None:
        """A segment was completed; its writer is closed here once it is durable."""
        self._sealed.append(writer)

    @property
    def recovery_point(self) -> int:
        """From where recovery must look after a crash: not behind a segment whose transaction index may be lost, which is
        written when it is sealed, though all its batches be durable.
        """
        return min([self.flushed_offset, *(one.base_offset for one in self._sealed if not one.durable)])

    @property
    def has_sealed(self) -> bool:
        """Finished segments wait for a job; until then each holds its files open."""
        return bool(self._sealed)

    @property
    def pending(self) -> bool:
        """Whether something besides appended batches waits for a job."""
        return bool(self._sealed or self._directories or self._files or self.truncation is not None)

    def job(self, end_offset: int, active: SegmentWriter) -> FlushJob | None:
        """None when everything is durable."""
        appended = end_offset > self.flushed_offset
        if not appended and not self.pending:
            return None
        return FlushJob(
            end_offset=end_offset,
            writers=(*self._sealed, active) if appended else tuple(self._sealed),
            directories=tuple(self._directories.items()) if self._directories else (),
            files=tuple((path, change, data) for path, (change, data) in self._files.items())
            if self._files
            else (),
            disk=self._disk,
            life=self._life,
            truncation_count=self.truncation_count,
            truncation=self.truncation,
        )

    def truncated(self, truncation: Truncation, closing: Sequence[Closing]) -> None:
        """The log was truncated in memory. `closing`: open files that jobs on other threads may still use."""
        plan = truncation.plan
        self.truncation = truncation
        self.truncation_count = truncation.number
        self.flushed_offset = plan.end_offset if plan.is_anew else min(self.flushed_offset, plan.end_offset)
        gone = [one for one in self._sealed if plan.is_anew or one.base_offset >= plan.base_offset]
        self._sealed = [one for one in self._sealed if one not in gone]
        self._closing += [*gone, *closing]
        for path in list(self._files):
            file = naming.parse_offset_file(path.rpartition("/")[2])
            if file is not None and (plan.is_anew or file.offset > plan.end_offset):
                del self._files[path]

    def truncation_finished(self) -> None:
        """The files followed; no job touches the old ones any more."""
        self.truncation = None
        for one in self._closing:
            one.close()
        self._closing.clear()

    def done(self, job: FlushJob) -> None:
        """`job.run()` returned. Jobs may end in any order; the offset never goes back."""
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

    def close(self) -> None:
        for one in (*self._sealed, *self._closing):
            one.close()
        self._sealed.clear()
        self._closing.clear()
