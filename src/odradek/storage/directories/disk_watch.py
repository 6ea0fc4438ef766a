"""Looks after the disks of the log directories: which is full or slow, and since when it is not any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk, Runtime
from odradek.storage.directories.directory_failures import DirectoryFailures
from odradek.storage.directories.disk_condition import SPACE_BYTES, SlowDiskLimits
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.files import naming
from odradek.telemetry import events

_log = events.get("storage")
_PROBE_NAME = "disk-probe.tmp"
_SMALL_PROBE_BYTES = 4096


class DiskWatch:
    """Watches the disks of the log directories. Call `check` every few seconds. Used on the event loop only."""

    def __init__(self, runtime: Runtime, placement: LogDirPlacement, failures: DirectoryFailures) -> None:
        self._runtime = runtime
        self._placement = placement
        self._failures = failures
        self.on_changed: Callable[[], None] = _ignore
        """Called when a disk is full or slow now, or not any more."""
        self.limits = SlowDiskLimits()
        failures.on_full = self._ran_full

    def is_full(self, name: TopicPartition) -> bool:
        """Returns whether the partition's disk has no space."""
        home = self._placement.first(name)
        return home is not None and home.condition.is_full

    def is_slow(self, name: TopicPartition) -> bool:
        home = self._placement.first(name)
        return home is not None and home.condition.is_slow

    @property
    def any_full(self) -> bool:
        return any(directory.condition.is_full for directory in self._placement.online())

    @property
    def any_with_space(self) -> bool:
        """Returns whether a directory that works takes new partitions."""
        return any(not directory.condition.is_full for directory in self._placement.online())

    @property
    def any_slow(self) -> bool:
        return any(directory.condition.is_slow for directory in self._placement.online())

    def _ran_full(self, directory: LogDirectory) -> None:
        if directory.condition.ran_full(self._now()):
            total_bytes, free_bytes = directory.space()
            _log.error(
                "disk_full",
                path=directory.path,
                free_bytes=free_bytes,
                total_bytes=total_bytes,
                meaning="others lead its partitions until there is space; free some",
            )
            self.on_changed()

    def flushed(self, name: TopicPartition, seconds: float) -> None:
        """Notes the seconds that a flush of the partition's log took."""
        home = self._placement.first(name)
        if home is not None:
            home.sync_seconds.add(seconds)
            self._note_time(home, home.condition.synced(seconds, self._now(), self.limits))

    def synced(self, name: TopicPartition, seconds: float) -> None:
        """Notes the seconds that a sync of the partition's log took."""
        home = self._placement.first(name)
        if home is not None:
            self._note_time(home, home.condition.synced(seconds, self._now(), self.limits))

    async def check(self, under_way: Mapping[TopicPartition, float]) -> None:
        """Finds out whether full disks have space again, and slow ones are well. `under_way` are syncs, by when they began."""
        for name, began in under_way.items():
            if (seconds := self._now() - began) > self.limits.sync_s:
                self.synced(name, seconds)
        for directory in self._placement.online():
            condition = directory.condition
            if condition.is_full:
                await self._probe_space(directory)
            elif condition.is_slow:
                await self._probe(directory, _SMALL_PROBE_BYTES)
            self._note_time(directory, condition.looked(self._now(), self.limits))

    async def _probe_space(self, directory: LogDirectory) -> None:
        """Probes the space with a write: a quota does not show in the file system's free bytes."""
        _, free_bytes = directory.space()
        has_space = not 0 <= free_bytes < SPACE_BYTES and await self._probe(directory, SPACE_BYTES)
        if directory.condition.saw_space(self._now(), has_space=has_space):
            _log.info("disk_has_space", path=directory.path, free_bytes=free_bytes)
            self.on_changed()

    async def _probe(self, directory: LogDirectory, length: int) -> bool:
        """Returns whether the probe's bytes can be written; notes how long that takes."""
        path = naming.join(directory.path, _PROBE_NAME)
        began = self._now()
        try:
            await self._runtime.offload.run(_write_and_remove, self._runtime.disk, path, length)
        except OSError as error:
            self._failures.own_file_failed(directory, error)
            return False
        seconds = self._now() - began
        self._note_time(directory, directory.condition.synced(seconds, self._now(), self.limits))
        return True

    def _note_time(self, directory: LogDirectory, changed: bool) -> None:
        if not changed:
            return
        if directory.condition.is_slow:
            _log.warning("disk_slow", path=directory.path, sync_seconds_max=self.limits.sync_s)
        else:
            _log.info("disk_fast_again", path=directory.path)
        self.on_changed()

    def _now(self) -> float:
        return self._runtime.clock.monotonic()


def _write_and_remove(disk: Disk, path: str, length: int) -> None:
    """Runs on another thread."""
    file = disk.open(path, create=True)
    try:
        file.pwrite(bytes(length), 0)
        file.sync()
    finally:
        file.close()
        disk.remove(path)


def _ignore() -> None:
    """Does nothing, where no one listens."""
