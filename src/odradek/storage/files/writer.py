"""The open files of a segment that is written, or that was and is not durable yet."""

from __future__ import annotations

from odradek.runtime.ports import DiskFile


class SegmentWriter:
    """The open files of a segment from its creation until, sealed, all of it is durable.

    `sync` runs on any thread, one at a time under the log's lock; everything else on the loop.
    """

    __slots__ = (
        "_synced_write_count",
        "base_offset",
        "closed",
        "durable",
        "index_files",
        "index_is_lost",
        "log_file",
        "pin_count",
        "resting",
        "sealed",
        "transaction_file",
        "write_count",
    )

    def __init__(self, log_file: DiskFile) -> None:
        self.log_file = log_file
        self.index_files: tuple[DiskFile, ...] = ()
        """`.index` and `.timeindex`, once there is something to write: an idle partition holds one open file."""
        self.transaction_file: DiskFile | None = None
        """`.txnindex`, once there were aborted transactions to write."""
        self.base_offset = 0
        """The base offset of its segment, once that is sealed."""
        self.sealed = False
        """Nothing more will be written, and the index files are complete."""
        self.durable = False
        """Sealed and synced: there is nothing left to do."""
        self.closed = False
        self.index_is_lost = False
        """The contents of the index files are not reliable."""
        self.resting = False
        """Its descriptors are released until the files are used again."""
        self.pin_count = 0
        """How many need its descriptors to stay open: it does not rest meanwhile."""
        self.write_count = 0
        """How often the log file was written; the writer counts."""
        self._synced_write_count = 0

    def sync(self) -> None:
        """Makes durable what was written before the call; the indexes only once they are complete."""
        if self.durable:
            return
        sealed, write_count = self.sealed, self.write_count
        self.log_file.sync()
        self._synced_write_count = write_count
        if sealed:
            for file in self.index_files:
                file.sync()
            self.sync_transactions()
            self.durable = True

    def content_synced(self, write_count: int) -> None:
        """Notes, on the loop, that `FileSyncs` made the log file durable as it was after that many writes."""
        self._synced_write_count = max(self._synced_write_count, write_count)

    def sync_transactions(self) -> None:
        """Syncs the transaction index. Unlike the others it cannot be checked against the log: it must be right after a
        clean close."""
        if self.transaction_file is not None:
            self.transaction_file.sync()

    @property
    def open_file_count(self) -> int:
        if self.closed:
            return 0
        return (not self.resting) + len(self.index_files) + (self.transaction_file is not None)

    def rest(self) -> bool:
        """Closes the descriptors until the files are used again; returns False where that is impossible.

        What was written must be synced before: the kernel reports an error of the disk only to those that have the file open.
        """
        if self.pin_count or self.resting or self.closed or self.sealed:
            return False
        if self.write_count != self._synced_write_count:
            return False
        if not self.log_file.rest():
            return False
        self.resting = True
        if self.index_files:
            # No one synced them, and no one will notice an error: what is in them is written once more from memory.
            for file in self.index_files:
                file.close()
            self.index_files = ()
            self.index_is_lost = True
        return True

    def close(self) -> None:
        self.closed = True
        for file in (self.log_file, *self.index_files):
            file.close()
        if self.transaction_file is not None:
            self.transaction_file.close()
