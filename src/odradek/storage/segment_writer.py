"""The open files of a segment that is written, or that was and is not durable yet."""

from __future__ import annotations

from odradek.runtime.ports import DiskFile


class SegmentWriter:
    """The open files of a segment from its creation until, sealed, all of it is durable.

    `sync` runs on any thread, one at a time under the log's lock; everything else on the loop.
    """

    __slots__ = ("base_offset", "durable", "index_files", "log_file", "sealed", "transaction_file")

    def __init__(self, log_file: DiskFile) -> None:
        self.log_file = log_file
        self.index_files: tuple[DiskFile, ...] = ()
        """`.index` and `.timeindex`, once there was something to write: an idle partition holds one open file."""
        self.transaction_file: DiskFile | None = None
        """`.txnindex`, once there were aborted transactions to write."""
        self.base_offset = 0
        """Of its segment, once that is sealed."""
        self.sealed = False
        """Nothing more will be written, and the index files are complete."""
        self.durable = False
        """Sealed and synced: there is nothing left to do."""

    def sync(self) -> None:
        """Make durable what was written before the call; the indexes only once they are complete."""
        if self.durable:
            return
        sealed = self.sealed
        self.log_file.sync()
        if sealed:
            for file in self.index_files:
                file.sync()
            self.sync_transactions()
            self.durable = True

    def sync_transactions(self) -> None:
        """Unlike the other indexes this one cannot be checked against the log: it must be right after a clean close."""
        if self.transaction_file is not None:
            self.transaction_file.sync()

    def close(self) -> None:
        for file in (self.log_file, *self.index_files):
            file.close()
        if self.transaction_file is not None:
            self.transaction_file.close()
