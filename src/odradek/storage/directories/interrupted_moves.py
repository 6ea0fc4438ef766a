"""The traces that a crash leaves of a move between data directories, and how the next start ends it (`log_dir_move.py`)."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk
from odradek.storage.directories.log_dir_move import (
    FUTURE,
    MovingDirectory,
    parse_moving_directory,
    put_in_place,
)
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.files import naming
from odradek.telemetry import events

log = events.get("storage")


@dataclass(slots=True)
class InterruptedMoves:
    """The moves that a crash interrupted. `note` collects them from every directory; then `settle` finishes what was decided
    and gives up the rest."""

    _futures: dict[tuple[TopicPartition, str], tuple[LogDirectory, str]] = field(default_factory=dict)
    _replaced: list[tuple[LogDirectory, str, MovingDirectory]] = field(default_factory=list)

    def note(self, directory: LogDirectory, name: str) -> bool:
        """Returns whether a move created the directory of this name."""
        moving = parse_moving_directory(name)
        if moving is None:
            return False
        path = naming.join(directory.path, name)
        if moving.suffix == FUTURE:
            self._futures[moving.partition, moving.move_id] = (directory, path)
        else:
            self._replaced.append((directory, path, moving))
        return True

    def settle(
        self,
        disk: Disk,
        placement: Container[TopicPartition],
        on_finished: Callable[[TopicPartition, LogDirectory], None],
        doom: Callable[[str], None],
    ) -> None:
        """Finishes the moves that were decided, and gives up the others. `on_finished` is called for a partition whose move
        was finished, `doom` for a directory to remove.

        An OSError takes the directory that it came from offline."""
        for _, path, moving in self._replaced:
            future = self._futures.pop((moving.partition, moving.move_id), None)
            if future is not None and moving.partition not in placement:
                directory, future_path = future
                try:
                    put_in_place(disk, future_path, naming.join(directory.path, str(moving.partition)))
                except OSError as error:
                    directory.failed(error)
                    continue
                log.info("move_finished", partition=moving.partition, path=directory.path)
                on_finished(moving.partition, directory)
            if moving.partition in placement:
                doom(path)
            else:  # the other directory is offline, or was emptied: here is a complete copy for a person to use
                log.warning("replaced_log_kept", partition=moving.partition, path=path)
        for _, path in self._futures.values():
            log.info("move_given_up", path=path)
            doom(path)
