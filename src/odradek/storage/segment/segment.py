"""One segment: the batches from its base offset to the next one's. Read through its indexes, and written while it is the last.

The active segment has a `writer` and its index in memory; `detach` ends that, `cut` brings it back.
"""

from __future__ import annotations

from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.directories import naming
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.index_checks import build_index, resume_with
from odradek.storage.segment.indexed_segment import OFFSET_MAX, write_index_files
from odradek.storage.segment.readable_segment import Chunk, ReadableSegment
from odradek.storage.segment.sparse_index import OFFSET_ENTRY, TIME_ENTRY, ActiveIndex
from odradek.storage.segment.transaction_index import TransactionIndex
from odradek.storage.segment.writer import SegmentWriter

__all__ = ["OFFSET_MAX", "Chunk", "Segment", "SegmentWriter", "write_index_files"]


class Segment(ReadableSegment):
    """Used on the event loop only."""

    __slots__ = ("aborted", "first_append_ms", "held")

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
        super().__init__(
            disk, files, directory, base_offset, size_bytes, index_interval_bytes=index_interval_bytes
        )
        self.forget_aborted()
        self.first_append_ms = -1
        """When its first batch was written; -1 while it is empty."""
        self.held = False
        """A compaction works on it: it must not be deleted."""

    def share(self, files: OpenFiles) -> None:
        """From now on read through `files`."""
        self._files = files
        self.aborted.share(files)

    def forget_aborted(self) -> None:
        """What its transaction index said is to be found out anew."""
        self.aborted = TransactionIndex(self._disk, self._files, self.path(naming.TRANSACTION_INDEX))

    def begin(self) -> None:
        """Create the log file, empty, and become a log's active segment."""
        self.open_writer(create=True).log_file.truncate(0)
        self.index = ActiveIndex(self.base_offset)

    def open_writer(self, *, create: bool = False) -> SegmentWriter:
        """Open the log file for appending."""
        path = self.path(naming.LOG)
        self._files.forget(path)
        self.writer = SegmentWriter(self._disk.open(path, create=create))
        self._files.awake(self.writer)
        return self.writer

    def begin_aside(self) -> None:
        """The same, under a name of its own: files of other segments are still there, and go first."""
        path = self.path(naming.LOG) + naming.TEMPORARY
        self.writer = SegmentWriter(self._disk.open(path, create=True))
        self._files.awake(self.writer)
        self.writer.log_file.truncate(0)
        self.index = ActiveIndex(self.base_offset)

    def cut(self, position: int, end_offset: int) -> list[DiskFile]:
        """Become a log's active segment, of the first `position` bytes, which end at `end_offset`. The files follow later.

        Returns files that are still open and not needed. An OSError, or KAFKA_STORAGE_ERROR, leaves the segment as it was.
        """
        index = self._index_of_first(position)
        writer = self.writer if self.writer is not None else self.open_writer()
        stale = [*writer.index_files]
        aborted = self.aborted.cut(end_offset)
        if aborted is not None:
            stale.append(aborted)
        writer.index_files, writer.transaction_file = (), None
        self.index = index
        self.size_bytes = position
        self.trust.cut(position)
        self._hints.clear()
        self._max_time = None
        self._offsets_checked = self._times_checked = True
        return stale

    def _index_of_first(self, position: int) -> ActiveIndex:
        index, is_own = self.index, self.index is not None
        if index is None:
            offsets, times = (
                self._disk.read(self.path(kind)) if self._disk.exists(self.path(kind)) else b""
                for kind in (naming.OFFSET_INDEX, naming.TIME_INDEX)
            )
            offsets = offsets[: len(offsets) // OFFSET_ENTRY.size * OFFSET_ENTRY.size]
            index = ActiveIndex.of_files(
                self.base_offset, offsets, times[: len(times) // TIME_ENTRY.size * TIME_ENTRY.size]
            )
        arguments = self.log_file, self.base_offset, position, self.index_interval_bytes
        built = resume_with(*arguments, index.cut(position), is_own=is_own)
        try:
            return built.index if built is not None else build_index(*arguments).index
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    def write_index(self) -> None:
        """Put index entries that are only in memory into the files. An OSError leaves everything as it was."""
        writer, index = self.writing()
        if not writer.index_files:
            if writer.index_is_lost:
                index.forget_written()
                writer.index_is_lost = False
            writer.index_files = self._open_index_files(index)
        index.write(*writer.index_files)
        try:
            self.aborted.write()
        finally:
            writer.transaction_file = self.aborted.file

    def _open_index_files(self, index: ActiveIndex) -> tuple[DiskFile, ...]:
        """The files with exactly the entries that were written before, whatever else was in them."""
        opened: list[DiskFile] = []
        written = (
            (naming.OFFSET_INDEX, index.offset_bytes_written),
            (naming.TIME_INDEX, index.time_bytes_written),
        )
        try:
            for kind, length in written:
                self._files.forget(self.path(kind))
                opened.append(self._disk.open(self.path(kind), create=True))
                opened[-1].truncate(length)
        except OSError:
            for file in opened:
                file.close()
            raise
        return tuple(opened)

    def complete_index(self) -> None:
        """No batch will follow: write the last time entry, too. An OSError leaves the segment fit for more batches."""
        _, index = self.writing()
        index.seal()
        self.write_index()

    def detach(self) -> SegmentWriter:
        """The segment is complete and from now on read through the shared files. The writer is for who makes it durable."""
        writer, _ = self.writing()
        writer.sealed = True
        writer.base_offset = self.base_offset
        self.aborted.detach()
        self._offsets_checked = self._times_checked = True
        self.writer = None
        self.index = None
        return writer

    def writing(self) -> tuple[SegmentWriter, ActiveIndex]:
        """What only the active segment has."""
        if self.writer is None or self.index is None:
            raise AssertionError(f"segment {self.base_offset} is not the active one")
        return self.writer, self.index
