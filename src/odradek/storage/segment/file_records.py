"""The `.log` file of one segment: whole batches by their byte position (Kafka: FileRecords).

The last segment of a log has a `writer`: its files, open for writing. The file of any other segment is opened for its readers,
and closed when others need the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from odradek.model.errors import ErrorCode
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files import naming
from odradek.storage.files.at_hand import FileAtHand
from odradek.storage.files.damage import DamagedBatchError
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.segment.batch_walk import BATCH_BYTES_MIN, BrokenChain, Mark, mark_at, walk
from odradek.telemetry import events

log = events.caused_by_peers("storage")


class FileRecords:
    """The log file of one segment. Used on the event loop only."""

    __slots__ = (
        "appended_ms",
        "base_offset",
        "directory",
        "disk",
        "files",
        "pinned",
        "size_bytes",
        "writer",
    )

    def __init__(
        self, disk: Disk, files: OpenFiles, directory: str, base_offset: int, size_bytes: int
    ) -> None:
        self.disk = disk
        self.files = files
        """Files through which the segment is read."""
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        """The bytes of all batches. A failed write may have left more in the file."""
        self.appended_ms = -1
        """The time of the last write, by the wall clock; -1 until it is read or the file is written."""
        self.writer: SegmentWriter | None = None
        self.pinned: DiskFile | None = None
        """A compaction's file on its way to the segment's name."""

    def path(self, kind: str) -> str:
        """Returns the path of one of the segment's files."""
        return naming.join(self.directory, naming.offset_file(self.base_offset, kind))

    @property
    def log_file(self) -> DiskFile:
        """The file to read batches from."""
        writer = self.writer
        if writer is not None and not writer.resting:
            file = writer.log_file
        elif self.pinned is not None:
            file = self.pinned
        else:
            return self.files.get(self.path(naming.LOG))
        return file if self.files.beside is None else self.files.for_reading(file, self.path(naming.LOG))

    @property
    def file_for_threads(self) -> DiskFile:
        """The log file for reads on another thread, cached or not. It may be closed meanwhile."""
        file = self.log_file
        return file.file if isinstance(file, FileAtHand) else file

    def open_writer(self, *, create: bool = False) -> SegmentWriter:
        """Opens the log file for appending."""
        path = self.path(naming.LOG)
        self.files.forget(path)
        self.writer = SegmentWriter(self.disk.open(path, create=create))
        self.files.awake(self.writer)
        return self.writer

    def open_aside(self) -> SegmentWriter:
        """Creates the log file under its own name: files of other segments are still there, and go first."""
        path = self.path(naming.LOG) + naming.TEMPORARY
        self.writer = SegmentWriter(self.disk.open(path, create=True))
        self.files.awake(self.writer)
        return self.writer

    def release_writer(self) -> SegmentWriter | None:
        """Returns the writer, through which nothing more is written here; the caller must close it."""
        writer, self.writer = self.writer, None
        return writer

    def last_append_ms(self) -> int:
        """Returns the time of the last append to the file; retention uses it."""
        if self.appended_ms < 0:
            self.appended_ms = self.disk.modified_ms(self.path(naming.LOG))
        return self.appended_ms

    # ---- batches -----------------------------------------------------------------------------------------------------

    def mark(self, position: int) -> Mark:
        """Returns the header of the batch at `position`."""
        try:
            return mark_at(self.log_file.pread(BATCH_BYTES_MIN, position), 0, position)
        except BrokenChain as damage:
            raise self.damaged(damage) from None

    def batch(self, mark: Mark) -> bytes:
        return self.log_file.pread(mark.size_bytes, mark.position)

    def marks(self, start: int = 0) -> Iterator[Mark]:
        """Yields the headers of all batches from byte `start` on."""
        try:
            yield from walk(self.log_file, start, self.size_bytes)
        except BrokenChain as damage:
            raise self.damaged(damage) from None

    def will_walk(self, start: int) -> None:
        """Announces that the headers of all batches from byte `start` on are read next."""
        self.files.expect(self.log_file, self.size_bytes - start, start)

    # ---- damage ------------------------------------------------------------------------------------------------------

    def damaged(self, damage: BrokenChain) -> DamagedBatchError:
        """Returns the error to raise when the log itself, not an index, is wrong there."""
        path, offset = self.path(naming.LOG), self._offset_at(damage.position)
        log.error("segment_damaged", path=path, position=damage.position, offset=offset, reason=damage.reason)
        message = f"{path} is damaged {damage}, where offset {offset} should be"
        return DamagedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, message, offset)

    def _offset_at(self, position: int) -> int:
        """Returns the offset after the last readable batch before byte `position`."""
        offset = self.base_offset
        with suppress(BrokenChain):
            for mark in walk(self.log_file, 0, position):
                offset = mark.last_offset + 1
        return offset

    def damaged_at(self, offset: int) -> int:
        """Returns the position of the first batch that reaches `offset` or cannot be read, found without an index."""
        position = 0
        with suppress(BrokenChain):
            for mark in walk(self.log_file, 0, self.size_bytes):
                if mark.last_offset >= offset:
                    break
                position = mark.position + mark.size_bytes
        return position
