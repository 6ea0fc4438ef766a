"""The data directories of partitions, and which partitions' files are not as a clean close leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.storage.directories.log_directory import LogDirectory


class LogDirPlacement:
    """A partition has one home. It has several where a person copied files: then it is not opened until one is left."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self.directories: Final = directories
        self._of: dict[TopicPartition, list[LogDirectory]] = {}
        self._not_closed: dict[TopicPartition, bool] = {}
        """True for those that this start touched."""

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.offline is None]

    @property
    def all_online(self) -> bool:
        return all(directory.offline is None for directory in self.directories)

    def of(self, name: TopicPartition) -> Sequence[LogDirectory]:
        """Returns all directories that hold a partition; none when it is not here."""
        return self._of.get(name, ())

    def first(self, name: TopicPartition) -> LogDirectory | None:
        placement = self._of.get(name)
        return placement[0] if placement else None

    def usable(self, name: TopicPartition) -> LogDirectory | None:
        """Returns the home of a partition; None when it has none. KAFKA_STORAGE_ERROR when it has several, or is offline."""
        placement = self._of.get(name)
        if not placement:
            return None
        if len(placement) > 1:
            paths = ", ".join(directory.path for directory in placement)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is in several log directories: {paths}; keep one"
            )
        if placement[0].offline is not None:
            message = f"{name}: log directory {placement[0].path} is offline: {placement[0].offline}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        return placement[0]

    def emptiest(self) -> LogDirectory:
        """Returns a working directory with the fewest partitions. A full one comes last, and a slow one before it."""
        online = self.online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        if len(online) == 1:
            return online[0]
        counts = {directory.path: 0 for directory in online}
        for placement in self._of.values():
            for directory in placement:
                if directory.path in counts:
                    counts[directory.path] += 1
        return min(
            online,
            key=lambda home: (home.condition.is_full, home.condition.is_slow, counts[home.path]),
        )

    def strays(self, known: Iterable[TopicPartition]) -> list[tuple[TopicPartition, LogDirectory]]:
        """Returns partitions that are not `known` and that have directories here, each with its directory."""
        wanted = set(known)
        return [
            (name, directory)
            for name, directories in sorted(self._of.items(), key=lambda entry: entry[0])
            for directory in directories
            if name not in wanted
        ]

    # -- partitions come and go

    def found(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Notes a directory of the partition that was there at the start."""
        self._of.setdefault(name, []).append(directory)
        self._not_closed[name] = False

    def moved_in(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Notes that a move, which a crash had interrupted, is finished."""
        self._of[name] = [directory]
        self._not_closed[name] = False

    def opening(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Notes that a partition's log is being opened: from now on its files may change."""
        self._of.setdefault(name, [directory])
        self._not_closed[name] = True

    def closed_cleanly(self, name: TopicPartition) -> None:
        self._not_closed.pop(name, None)

    def is_closed(self, name: TopicPartition) -> bool:
        """Returns whether the partition's files are as a clean close leaves them."""
        return name not in self._not_closed

    def forget(self, name: TopicPartition) -> None:
        self._of.pop(name, None)
        self._not_closed.pop(name, None)

    def is_clean(self, directory: LogDirectory) -> bool:
        """Returns whether the directory may be marked as closed cleanly.

        One that was clean stays so where a log was never opened; one that was not may hide damage there.
        """
        left = [name for name in self._not_closed if directory in self.of(name)]
        touched = [name for name in left if self._not_closed[name]]
        return not left or (directory.was_clean and not touched)
