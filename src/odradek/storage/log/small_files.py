"""The small files next to a log's segments: leader epochs, start offset, producers, topic id, sums of
transaction indexes.

Each changes in memory, and is put in its place by the next flush job (`durability.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek.storage.files import checkpoints, naming
from odradek.storage.log.context import LogContext
from odradek.storage.log.durability import Durability
from odradek.storage.producers.snapshot import encode_snapshot
from odradek.storage.recovery.context import OpenedLog


class SmallFiles:
    """Writes the small files next to a log's segments. Used on the event loop only."""

    __slots__ = (
        "_context",
        "_durability",
        "_snapshot_offset",
        "_start_path",
        "_transaction_sums",
    )

    def __init__(self, context: LogContext, durability: Durability, opened: OpenedLog) -> None:
        self._context = context
        self._durability = durability
        self._snapshot_offset = opened.snapshot_offset
        """The offset of the newest producer snapshot that was there when the log was opened."""
        self._start_path: Final = naming.join(context.directory, naming.START_OFFSET)
        self._transaction_sums = opened.transaction_sums
        """The sums that were last written, or are about to be; None when the file could not be read."""

    def write_opened(self, opened: OpenedLog, parents: Sequence[str]) -> None:
        """Writes what an opening found missing or wrong. `parents` are directories in which it changed names."""
        if opened.names_changed:
            # The names in the log's own directory are durable since it was opened.
            self._durability.names_changed(*parents)
        if opened.epochs_changed:
            self.write_epochs()
        if opened.snapshot_due:
            self.write_snapshot()
        if opened.topic_id_changed and opened.topic_id is not None:
            path = naming.join(self._context.directory, naming.PARTITION_METADATA)
            self._durability.file_changed(path, checkpoints.format_partition_metadata(opened.topic_id))

    def write_epochs(self) -> None:
        path = naming.join(self._context.directory, naming.LEADER_EPOCHS)
        self._durability.file_changed(path, checkpoints.format_epochs(self._context.epochs.entries))

    def write_epochs_again(self) -> None:
        """Writes the leader epochs once more if they wait to be written: they have changed."""
        if self._durability.awaits(naming.join(self._context.directory, naming.LEADER_EPOCHS)):
            self.write_epochs()

    def write_start(self) -> None:
        """Writes the offset at which the log begins."""
        self._durability.file_changed(
            self._start_path, checkpoints.format_start_offset(self._context.segments.start_offset)
        )

    @property
    def start_waits(self) -> bool:
        """The offset at which the log begins is not durable yet."""
        return self._durability.awaits(self._start_path)

    def forget_start(self) -> None:
        """Discards a start offset that waits to be written, because it is no longer valid."""
        self._durability.forget_file(self._start_path)

    def write_transaction_sums(self) -> None:
        """Writes the sums if transaction indexes of sealed segments changed, or if the active one's is written out."""
        sums = self._context.segments.transaction_sums()
        if sums != self._transaction_sums:
            self._transaction_sums = sums
            path = naming.join(self._context.directory, naming.TRANSACTION_SUMS)
            self._durability.file_changed(path, checkpoints.format_transaction_sums(sums))

    # ---- producer snapshots ------------------------------------------------------------------------------------------

    def write_snapshot(self) -> None:
        """Writes a snapshot of the producers at the log's end."""
        name = naming.offset_file(self._context.segments.end_offset, naming.SNAPSHOT)
        self._durability.file_changed(
            naming.join(self._context.directory, name), encode_snapshot(self._context.producers)
        )

    def write_last_snapshot(self) -> None:
        """Writes a snapshot of the end of a log that is being closed, unless it was opened with that one."""
        is_there = (
            self._context.segments.end_offset == self._snapshot_offset
            and not self._durability.truncation_count
        )
        if self._context.segments.active.size_bytes and not is_there:
            self.write_snapshot()
