"""Logs of which it is unknown whether they have everything, because the machine lost its memory (decision 0039)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.model.ids import TopicPartition
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.log.log import Log
from odradek.storage.segment.sparse_index import OFFSET_MAX

_FORGOTTEN: Final = "its machine was restarted before the broker had stopped, and flush.before.ack is false"


class UncertainLogs:
    """A log is certain again when it is mended: it was fetched again, or it leads because no other one has more."""

    def __init__(self, boot_id: str, placement: LogDirPlacement, logs: Mapping[TopicPartition, Log]) -> None:
        """`boot_id` is of the machine's start. `logs` are those that are open."""
        self._boot_id = boot_id
        self._placement = placement
        self._logs = logs
        self._unsettled: dict[TopicPartition, LogDirectory] = {}

    def may_have_forgotten(self, name: TopicPartition) -> bool:
        """Returns whether the machine lost its memory since the log was written, and the broker had not stopped before."""
        home = self._placement.first(name)
        return home is not None and home.may_have_forgotten(self._boot_id)

    def expect(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Notes that an uncertain log is about to be opened."""
        self._unsettled[name] = directory

    def opened(self, log: Log) -> None:
        """Doubts an uncertain log that was opened: it may lack records."""
        log.lacked.doubt(OFFSET_MAX, f"{log.topic_partition} may lack records: {_FORGOTTEN}")

    def forget(self, name: TopicPartition) -> None:
        """Forgets a deleted log."""
        self._unsettled.pop(name, None)

    def boot_id_to_note(self, directory: LogDirectory) -> str:
        """Returns the boot id to note for a directory: the machine's current one, or the previous one while logs that were
        forgotten since are not settled. If this process is killed meanwhile, the next one must know of them.
        """
        for name in list(self._unsettled):
            if name in self._logs and self._logs[name].damage is None:
                del self._unsettled[name]
        is_settled = directory not in self._unsettled.values()
        return self._boot_id if is_settled else directory.boot_id_before
