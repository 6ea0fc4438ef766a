"""Making durable what was written: work for any thread, prepared by `durability.py` on the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from odradek.runtime.ports import Disk
from odradek.storage.directories import naming
from odradek.storage.log.lifetime import DISK_FULL, NO_DESCRIPTORS, LogLifetime
from odradek.storage.log.truncation import Truncation
from odradek.storage.segment.writer import SegmentWriter


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
