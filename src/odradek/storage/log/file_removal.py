"""Removes the files of deleted segments, in an order that no crash can turn into a hole.

Readers do not see a segment that retention dropped any more; its files are removed later, on another thread.
The oldest goes first, and each rename to `.deleted` is durable before the next: what a crash leaves is always
a run of segments without a gap. Before the first of them, everything else is made durable: the log must never
be left with no segment at all, nor without the snapshot of its producers' state in the removed segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from odradek.runtime.ports import Disk
from odradek.storage.files import naming
from odradek.storage.files.lifetime import DISK_FULL, LogLifetime
from odradek.storage.log.durability import FlushJob
from odradek.storage.segment.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalJob:
    """The disk work that removes deleted segments. `run` it on any thread, then call `Log.removed(job)` on the loop. An
    OSError means that the directory failed."""

    directory: str
    doomed: tuple[int, ...]
    """Base offsets of segments to be renamed, ascending."""
    expired: tuple[int, ...]
    """Base offsets of renamed segments whose time is up."""
    flush: FlushJob | None
    """The flush that must be durable before."""
    disk: Disk
    life: LogLifetime
    truncation_count: int
    """The log's truncation count when the job was made; see `FlushJob`."""

    def run(self) -> None:
        self.life.run(self._work)

    def _work(self) -> None:
        if self.truncation_count < self.life.truncation_count:
            return
        flush = self.flush
        if flush is not None:
            self._flush(flush)
        for base_offset in self.doomed:
            self._bury(base_offset, now=flush is not None and bool(flush.deferred))
            if flush is not None:
                flush.try_deferred()
        for base_offset in self.expired:
            self._remove(base_offset, naming.LOG + naming.DELETED)

    def _flush(self, flush: FlushJob) -> None:
        flush.sync_all()
        if flush.deferred:  # a full disk: indexes that can be made again make some space, and may go first
            for base_offset in self.doomed:
                for kind in (naming.OFFSET_INDEX, naming.TIME_INDEX):
                    self._remove(base_offset, kind)
            flush.try_deferred()

    def _bury(self, base_offset: int, *, now: bool) -> None:
        """Takes a segment out of the directory, durably. `now`: its space is needed, so only its name is kept for a while,
        which shows that it was deleted, and is not missing.
        """
        path = naming.join(self.directory, naming.offset_file(base_offset, naming.LOG))
        try:
            self.disk.rename(path, path + naming.DELETED)
        except FileNotFoundError:
            now = False
        except OSError as error:
            if error.errno not in DISK_FULL:  # even a name needs space, and deleting is what makes some
                raise
            self.disk.remove(path)
            now = False
        self.disk.sync_directory(self.directory)
        if now:
            self._empty(path + naming.DELETED)
        for kind in (*naming.INDEX_SUFFIXES, naming.SNAPSHOT):
            self._remove(base_offset, kind)

    def _empty(self, path: str) -> None:
        file = self.disk.open(path)
        try:
            file.truncate(0)
            file.sync()
        finally:
            file.close()

    def _remove(self, base_offset: int, kind: str) -> None:
        try:
            self.disk.remove(naming.join(self.directory, naming.offset_file(base_offset, kind)))
        except FileNotFoundError:
            pass


class PendingRemovals:
    """The segments on their way out of one log."""

    __slots__ = ("_directory", "_disk", "_doomed", "_life", "_renamed")

    def __init__(self, disk: Disk, directory: str, life: LogLifetime) -> None:
        self._disk = disk
        self._directory = directory
        self._life = life
        self._doomed: dict[int, None] = {}
        self._renamed: dict[int, int] = {}

    def add(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._doomed[segment.base_offset] = None

    def all_gone(self) -> None:
        """Notes that a truncation removed all files, including deleted segments'."""
        self._doomed.clear()

    def renamed(self, base_offsets: Iterable[int], due_ms: int) -> None:
        """Logs that a truncation took out of the directory, to be removed at `due_ms`."""
        for base_offset in base_offsets:
            self._renamed[base_offset] = due_ms

    def job(
        self,
        now_ms: int,
        flush_job: Callable[[], FlushJob | None],
        truncation_count: int,
        *,
        keeps_renamed: bool,
    ) -> RemovalJob | None:
        """Returns None when there is nothing to do yet. `flush_job` is called when segments must be renamed.

        `keeps_renamed`: where the log begins is not durable yet, so the renamed files alone prove that
        nothing is missing.
        """
        expired = (
            () if keeps_renamed else tuple(base for base, due_ms in self._renamed.items() if due_ms <= now_ms)
        )
        if not self._doomed and not expired:
            return None
        return RemovalJob(
            directory=self._directory,
            doomed=tuple(self._doomed),
            expired=expired,
            flush=flush_job() if self._doomed else None,
            disk=self._disk,
            life=self._life,
            truncation_count=truncation_count,
        )

    def done(self, job: RemovalJob, due_ms: int) -> None:
        for base_offset in job.doomed:
            if self._doomed.pop(base_offset, self) is None:
                self._renamed[base_offset] = due_ms
        for base_offset in job.expired:
            self._renamed.pop(base_offset, None)
