"""The files of a segment that a compaction writes, and how they replace the original ones.

Everything is written under names that end in `.cleaned`. `commit` renames the indexes and, once that is
durable, the log to `.swap`: the log's new name, once durable, records that the compaction of these segments
happened. Whatever a crash leaves, before that moment the originals are the log, from it on the `.swap` file
is (`recovery/leftovers.py`). `replace_originals` removes the originals, durably, before the log gets its own
name: two logs never hold the same offsets. An original's transaction index goes only when its log is durably
gone; the new one is in place before its log is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from odradek.records import BatchHeader
from odradek.records.cleaning import placeholder
from odradek.runtime.ports import Buffer, Disk, DiskFile
from odradek.storage.cleaning.pieces import Abandoned
from odradek.storage.files import naming
from odradek.storage.files.lifetime import DISK_FULL, LogLifetime
from odradek.storage.segment.sparse_index import ActiveIndex
from odradek.storage.segment.transaction_index import AbortedTransaction, encode_aborted

_LOG_BYTES_MAX: Final = 2**31 - 1
_KINDS: Final = (naming.TRANSACTION_INDEX, naming.OFFSET_INDEX, naming.TIME_INDEX)


class TooLargeError(Exception):
    """Raised when the records that stay, compressed again, do not fit in one segment."""


class NoSpaceError(Exception):
    """The error of a compaction for which the disk had no space, not even for the name of a file: nothing happened."""


class CleanedSegment:
    """The segment that a compaction is writing. All methods block; they run on any thread, one at a time."""

    def __init__(
        self,
        disk: Disk,
        life: LogLifetime,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        buffer_bytes: int,
    ) -> None:
        self._disk = disk
        self._life = life
        self._directory = directory
        self._interval = index_interval_bytes
        self._buffer_bytes = buffer_bytes
        self._buffer: list[Buffer] = []
        self._buffered_bytes = 0
        self._file: DiskFile | None = None
        self._leader_epoch = -1
        self._kinds: list[str] = []
        self._decided = False
        """Committed or given up: only one of them happens, whatever order threads run in."""
        self._forbidden = False
        self._committed = False
        self._placed = False
        self.base_offset: Final = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.index = ActiveIndex(base_offset)
        self.aborted: list[AbortedTransaction] = []
        """Transactions whose markers are in the segment and of which records may be left."""

    @property
    def file(self) -> DiskFile:
        if self._file is None:
            raise AssertionError(f"segment {self.base_offset} has no file yet")
        return self._file

    def _path(self, kind: str, state: str) -> str:
        return naming.join(self._directory, naming.offset_file(self.base_offset, kind) + state)

    def begin(self) -> None:
        """Creates the file. Raises Abandoned when the directory is not the log's any more."""
        path = self._path(naming.LOG, naming.CLEANED)
        self._by_name(lambda: self._adopt(self._disk.open(path, create=True)))

    def _adopt(self, file: DiskFile) -> None:
        self._file = file
        file.truncate(0)

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """Adds the next batch, and its header."""
        size_bytes = len(batch)
        if self.size_bytes + self._buffered_bytes + size_bytes > _LOG_BYTES_MAX:
            raise TooLargeError(f"segment {self.base_offset} would be larger than {_LOG_BYTES_MAX} bytes")
        position = self.size_bytes + self._buffered_bytes
        self.index.note(self._interval, position, size_bytes, header.last_offset, header.max_timestamp)
        self._buffer.append(batch)
        self._buffered_bytes += size_bytes
        self.next_offset = header.next_offset
        self._leader_epoch = header.partition_leader_epoch
        if self._buffered_bytes >= self._buffer_bytes:
            self._write()

    def _write(self) -> None:
        if self._buffer:
            self.file.pwritev(self._buffer, self.size_bytes)
            self.size_bytes += self._buffered_bytes
            self._buffer.clear()
            self._buffered_bytes = 0

    def finish(self, end_offset: int, modified_ms: int, *, has_transaction_index: bool) -> None:
        """Completes the segment after its last batch: writes where it ends, and makes the files durable.

        `has_transaction_index`: an original has one, so this must have one, too, to differ from one that is missing.
        """
        self._say_end(end_offset)
        self._write()
        self.index.seal()
        if self.aborted or has_transaction_index:
            data = b"".join(map(encode_aborted, self.aborted))
            self._put(naming.TRANSACTION_INDEX, data)
        self._put(naming.OFFSET_INDEX, self.index.offset_bytes())
        self._put(naming.TIME_INDEX, self.index.time_bytes())
        self._by_name(lambda: self._disk.set_modified(self._path(naming.LOG, naming.CLEANED), modified_ms))
        self.file.sync()

    def _say_end(self, end_offset: int) -> None:
        """Writes a placeholder up to `end_offset` if the last records before it were removed."""
        if self.next_offset < end_offset:
            batch = placeholder(end_offset - 1, self._leader_epoch)
            self.index.note(
                self._interval, self.size_bytes + self._buffered_bytes, len(batch), end_offset - 1, -1
            )
            self._buffer.append(batch)
            self._buffered_bytes += len(batch)
            self.next_offset = end_offset

    def _put(self, kind: str, data: bytes) -> None:
        self._kinds.append(kind)
        opened: list[DiskFile] = []
        path = self._path(kind, naming.CLEANED)
        self._by_name(lambda: opened.append(self._disk.open(path, create=True)))
        file = opened[0]
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()

    def _by_name(self, work: Callable[[], object]) -> None:
        if not self._life.attempt(work):
            raise Abandoned

    # ---- taking the place of the originals -------------------------------------------------------------------------

    def commit(self) -> None:
        """Makes the segment part of the log: from its return on, that is final. An OSError is final, a NoSpaceError is not."""
        done: list[bool] = []
        self._life.run(lambda: done.append(self._commit()))
        if not done:
            raise Abandoned

    def _commit(self) -> bool:
        if self._decided or self._forbidden:
            raise Abandoned
        try:
            for kind in self._kinds:
                self._disk.rename(self._path(kind, naming.CLEANED), self._path(kind, naming.SWAP))
            # Also for what earlier compactions removed: a `.cleaned` that came back would mean that this one
            # did not end.
            self._disk.sync_directory(self._directory)
            log = self._path(naming.LOG, naming.CLEANED)
            self._disk.rename(log, self._path(naming.LOG, naming.SWAP))
        except OSError as error:
            if error.errno in DISK_FULL:
                raise NoSpaceError(str(error)) from error
            raise
        self._decided = self._committed = True
        self._disk.sync_directory(self._directory)
        return True

    def forbid(self) -> bool:
        """Prevents any later `commit`. Returns False when there was one already."""
        self._life.run(self._forbid)
        return not self._committed

    def _forbid(self) -> None:
        self._forbidden = True

    def replace_originals(self, originals: Sequence[int]) -> None:
        """Removes the other originals (base offsets), and gives the files their own names. An OSError is final."""
        self._life.run(
            lambda: self._replace_originals([base for base in originals if base != self.base_offset])
        )

    def _replace_originals(self, others: Sequence[int]) -> None:
        if self._placed:
            return
        for base_offset in others:
            self._remove(base_offset, naming.LOG)
        if others:
            self._disk.sync_directory(self._directory)
        for kind in self._kinds:
            self._disk.rename(self._path(kind, naming.SWAP), self._path(kind, ""))
        if naming.TRANSACTION_INDEX in self._kinds:
            self._disk.sync_directory(self._directory)
        self._disk.rename(self._path(naming.LOG, naming.SWAP), self._path(naming.LOG, ""))
        self._disk.sync_directory(self._directory)
        newest = self._newest_snapshot() if others else 0
        for base_offset in others:
            for kind in naming.INDEX_SUFFIXES:
                self._remove(base_offset, kind)
            if base_offset < newest:
                self._remove(base_offset, naming.SNAPSHOT)
        if naming.TRANSACTION_INDEX in self._kinds and not self.aborted:
            self._remove(self.base_offset, naming.TRANSACTION_INDEX)
        self._placed = True

    def _newest_snapshot(self) -> int:
        files = map(naming.parse_offset_file, self._disk.list_directory(self._directory))
        return max(
            (file.offset for file in files if file and file.kind == naming.SNAPSHOT and not file.state),
            default=0,
        )

    def _remove(self, base_offset: int, kind: str) -> None:
        try:
            self._disk.remove(naming.join(self._directory, naming.offset_file(base_offset, kind)))
        except FileNotFoundError:
            pass

    def give_up(self) -> None:
        """Removes the files that were written, before `commit`."""
        self.close()
        self._life.attempt(self._remove_cleaned)

    def _remove_cleaned(self) -> None:
        if self._decided:
            return
        self._decided = True
        for kind in (naming.LOG, *self._kinds):
            self._remove(self.base_offset, kind + naming.CLEANED)
            if kind != naming.LOG:
                self._remove(self.base_offset, kind + naming.SWAP)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
