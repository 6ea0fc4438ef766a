"""Disk errors of data directories: work on other threads that may meet one, and how the directory's logs go offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Runtime
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.directories.rename_batch import Rename, RenameBatch
from odradek.storage.files.lifetime import DISK_FULL, NO_DESCRIPTORS
from odradek.storage.log.log import Log
from odradek.telemetry import events

_log = events.caused_by_peers("storage")
"""A lack of descriptors, which strangers can cause."""


class DirectoryFailures:
    """A directory that fails takes its own logs offline and no one else's."""

    def __init__(
        self, runtime: Runtime, placement: LogDirPlacement, logs: Mapping[TopicPartition, Log]
    ) -> None:
        self._runtime = runtime
        self._placement = placement
        self._logs = logs
        self._renames = RenameBatch(runtime.disk, runtime.offload)
        self.on_failure: Callable[[str, OSError], None] | None = None
        """Called with the path of a directory that went offline because a log met a disk error."""
        self.on_full: Callable[[LogDirectory], None] | None = None
        """Called with a directory that had no space for a log's records."""

    def home(self, name: TopicPartition) -> LogDirectory:
        """Returns the directory of an open log."""
        home = self._placement.first(name)
        assert home is not None, f"{name} is open and has no directory"
        return home

    # ---- work that may fail ------------------------------------------------------------------------------------------

    async def blocking(
        self, directory: LogDirectory, work: Callable[..., object], *arguments: object
    ) -> None:
        """Runs `work` on another thread. Its disk errors, except passing ones, put the directory offline; raises
        KAFKA_STORAGE_ERROR."""
        try:
            await self._runtime.offload.run(work, *arguments)
        except OSError as error:
            is_called_off = isinstance(error, InterruptedError)
            if not is_called_off and error.errno not in DISK_FULL | NO_DESCRIPTORS:
                self.fail_directory(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error}") from error

    async def rename(self, directory: LogDirectory, path: str, target: str) -> None:
        """Renames a path in a directory durably, together with others; does nothing when it is not there. Raises
        KAFKA_STORAGE_ERROR."""
        try:
            await self._renames.rename(Rename(directory.path, path, target))
        except OSError as error:
            if error.errno not in DISK_FULL:
                self.fail_directory(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot rename {path}: {error}") from error

    # ---- failures ----------------------------------------------------------------------------------------------------

    def fail(self, opened: Log, error: OSError) -> str:
        """Takes the log's whole directory offline after a disk error that is final; returns its path."""
        directory = self.home(opened.topic_partition)
        self.fail_directory(directory, error)
        return directory.path

    def log_failed(self, name: TopicPartition, error: OSError) -> None:
        """Handles an error of a log in reading or writing."""
        home = self._placement.first(name)
        if home is None:
            return
        if error.errno in DISK_FULL:
            if self.on_full is not None:
                self.on_full(home)
        else:
            self.fail_directory(home, error)

    def own_file_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Puts the directory offline, unless the disk is full, after a failed write to a file that belongs to no log."""
        if error.errno not in DISK_FULL and not isinstance(error, InterruptedError):
            self.fail_directory(directory, error)

    def fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        """Puts the directory offline until a restart, unless the error is only that the process has no descriptors left."""
        if error.errno in NO_DESCRIPTORS:  # the process has none left
            _log.error("too_many_open_files", path=directory.path, error=error)
            return
        was_online = directory.offline is None
        directory.failed(error)
        for name, opened in self._logs.items():
            if self._placement.first(name) is directory:
                opened.disk_failed(error)
        if was_online and self.on_failure is not None:
            self.on_failure(directory.path, error)
