"""One segment: the batches from its base offset to the next one's. Read through its indexes, and written while it is the last.

The active segment has a `writer` and its index in memory; `detach` ends that, `cut` brings it back. What a segment is made of:

    records     its log file: batches by their position               `file_records.py`
    index       the sparse indexes: offsets and times to positions    `segment_index.py`
    search      the batch that holds an offset, or a time             `batch_search.py`
    reader      whole batches for readers, checked on first use       `segment_reader.py`
    aborted     the transaction index                                 `transaction_index.py`
"""

from __future__ import annotations

from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files import naming
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.segment.batch_search import BatchSearch
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.segment.segment_index import SegmentIndex
from odradek.storage.segment.segment_reader import SegmentReader
from odradek.storage.segment.sparse_index import ActiveIndex
from odradek.storage.segment.transaction_index import TransactionIndex


class Segment:
    """One segment of a log, active or sealed. Used on the event loop only."""

    __slots__ = (
        "aborted",
        "base_offset",
        "first_append_ms",
        "held",
        "index",
        "reader",
        "records",
        "search",
    )

    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        size_bytes: int,
        *,
        index_interval_bytes: int,
    ) -> None:
        self.base_offset = base_offset
        self.records = FileRecords(disk, files, directory, base_offset, size_bytes)
        self.index = SegmentIndex(self.records, index_interval_bytes)
        self.search = BatchSearch(self.records, self.index)
        self.reader = SegmentReader(self.records, self.index, self.search)
        self.forget_aborted()
        self.first_append_ms = -1
        """The time when its first batch was written; -1 while it is empty."""
        self.held = False
        """A compaction works on the segment: it must not be deleted."""

    def path(self, kind: str) -> str:
        """Returns the path of one of the segment's files."""
        return self.records.path(kind)

    @property
    def size_bytes(self) -> int:
        """The bytes of its batches."""
        return self.records.size_bytes

    @property
    def writer(self) -> SegmentWriter | None:
        """The segment's open files, while it is the active segment of an open log."""
        return self.records.writer

    def share(self, files: OpenFiles) -> None:
        """Reads the segment through `files` from now on."""
        self.records.files = files
        self.aborted.share(files)

    def forget_aborted(self) -> None:
        """Forgets what is known of the transaction index, so that it is read again."""
        records = self.records
        self.aborted = TransactionIndex(records.disk, records.files, self.path(naming.TRANSACTION_INDEX))

    # ---- the active segment ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Creates the empty log file, and becomes a log's active segment."""
        self.records.open_writer(create=True).log_file.truncate(0)
        self.index.keep_in_memory(ActiveIndex(self.base_offset))

    def begin_aside(self) -> None:
        """Does the same under its own name: files of other segments are still there, and go first."""
        self.records.open_aside().log_file.truncate(0)
        self.index.keep_in_memory(ActiveIndex(self.base_offset))

    def writing(self) -> tuple[SegmentWriter, ActiveIndex]:
        """Returns the parts that only the active segment has."""
        writer, index = self.records.writer, self.index.in_memory
        if writer is None or index is None:
            raise AssertionError(f"segment {self.base_offset} is not the active one")
        return writer, index

    def appended(self, size_bytes: int, now_ms: int) -> None:
        """Batches were written, and noted in the index: the segment has `size_bytes` with them."""
        self.records.size_bytes = size_bytes
        self.records.appended_ms = now_ms
        if self.first_append_ms < 0:
            self.first_append_ms = now_ms

    def cut(self, position: int, end_offset: int) -> list[DiskFile]:
        """Becomes a log's active segment, of the first `position` bytes, which end at `end_offset`. The files follow later.

        Returns files that are still open and not needed. An OSError, or KAFKA_STORAGE_ERROR, leaves the segment as it was.
        """
        index = self.index.of_first(position)
        writer = self.records.writer
        if writer is None:
            writer = self.records.open_writer()
        stale = [*writer.index_files]
        aborted = self.aborted.cut(end_offset)
        if aborted is not None:
            stale.append(aborted)
        writer.index_files, writer.transaction_file = (), None
        self.index.keep_in_memory(index)
        self.records.size_bytes = position
        self.reader.checked.cut(position)
        return stale

    def write_index(self) -> None:
        """Writes index entries that are only in memory to the files. An OSError leaves everything as it was."""
        writer, index = self.writing()
        self.index.write(writer, index)
        try:
            self.aborted.write()
        finally:
            writer.transaction_file = self.aborted.file

    def complete_index(self) -> None:
        """Writes the last time entry, too: no batch will follow. An OSError leaves the segment fit for more batches."""
        _, index = self.writing()
        index.seal()
        self.write_index()

    def detach(self) -> SegmentWriter:
        """Reads the complete segment through the shared files from now on. Returns the writer for the job that flushes it."""
        writer, _ = self.writing()
        writer.sealed = True
        writer.base_offset = self.base_offset
        self.aborted.detach()
        self.index.leave_to_files()
        self.records.release_writer()
        return writer

    def close_writer(self) -> None:
        """Closes the writer without a sync; the segment is written no more."""
        writer = self.records.release_writer()
        if writer is not None:
            writer.close()

    # ---- compaction --------------------------------------------------------------------------------------------------

    def pin(self, file: DiskFile, index: ActiveIndex) -> None:
        """Reads a compaction's files until they have the segment's names."""
        self.records.pinned = file
        self.index.keep_in_memory(index)

    def unpin(self) -> None:
        """Notes that the files that a compaction wrote have the segment's names."""
        self.records.pinned = None
        self.index.leave_to_files()
