"""One segment as a file of batches that two indexes point into: finding batches, and never believing an index too much.

The last segment of a log has a `writer` (its files, open for writing) and its index in memory. The others have neither:
their files are opened when a reader comes, checked before their indexes are believed, and closed again when others need the
place. An entry is checked against the batch that it names; any doubt makes both indexes again from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from odradek.model.errors import ErrorCode
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.directories import naming
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.log.damage import DamagedBatchError
from odradek.storage.segment.at_hand import FileAtHand, NotAtHand
from odradek.storage.segment.batch_walk import BATCH_BYTES_MIN, BrokenChain, Mark, mark_at, walk
from odradek.storage.segment.index_checks import build_index, offsets_are_sound, times_are_sound
from odradek.storage.segment.sparse_index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    ActiveIndex,
    OffsetEntry,
    OffsetIndexFile,
    TimeEntry,
    TimeIndexFile,
)
from odradek.storage.segment.writer import SegmentWriter
from odradek.telemetry import events

log = events.caused_by_peers("storage")

_HINTS_MAX: Final = 64
OFFSET_MAX: Final = 2**63 - 1


class IndexedSegment:
    """Used on the event loop only."""

    __slots__ = (
        "_directory",
        "_disk",
        "_files",
        "_hints",
        "_max_time",
        "_offsets_checked",
        "_times_checked",
        "appended_ms",
        "base_offset",
        "index",
        "index_interval_bytes",
        "pinned",
        "size_bytes",
        "writer",
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
        self._disk = disk
        self._files = files
        self._directory = directory
        self._hints: dict[int, int] = {}
        self._offsets_checked = False
        self._times_checked = False
        self._max_time: TimeEntry | None = None
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.index_interval_bytes = index_interval_bytes
        self.appended_ms = -1
        """When it was last written, by the wall clock; -1 until asked for or written."""
        self.index: ActiveIndex | None = None
        self.writer: SegmentWriter | None = None
        self.pinned: DiskFile | None = None
        """A compaction's file on its way to the segment's name; its index is in memory until then."""

    def path(self, kind: str) -> str:
        return naming.join(self._directory, naming.offset_file(self.base_offset, kind))

    @property
    def log_file(self) -> DiskFile:
        """For reading."""
        writer = self.writer
        if writer is not None and not writer.resting:
            file = writer.log_file
        elif self.pinned is not None:
            file = self.pinned
        else:
            return self._files.get(self.path(naming.LOG))
        return file if self._files.beside is None else self._files.for_reading(file, self.path(naming.LOG))

    @property
    def file_for_threads(self) -> DiskFile:
        """The log file, to be read by another thread whatever is at hand. It may be closed meanwhile."""
        file = self.log_file
        return file.file if isinstance(file, FileAtHand) else file

    def unpin(self) -> None:
        """The files that a compaction wrote have the segment's names."""
        self.pinned = self.index = None
        self._offsets_checked = self._times_checked = True

    # ---- batches -----------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """The byte position of the first batch that ends at or behind `offset`; the segment's size when none does."""
        if offset <= self.base_offset:
            return 0
        hint = self._hints.get(offset)
        return hint if hint is not None else self._search(offset)

    def _search(self, offset: int) -> int:
        entry = self._floor(offset)
        if entry is not None:
            try:
                return self._walk_to(offset, entry)
            except BrokenChain as doubt:
                self._rebuild(doubt.reason)
        try:
            return self._walk_to(offset, self._floor(offset))
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    def _walk_to(self, offset: int, entry: OffsetEntry | None) -> int:
        position = entry.position if entry is not None else 0
        if entry is not None and not 0 <= position < self.size_bytes:
            raise BrokenChain(position, "an offset index entry points outside of the log")
        for mark in walk(self.log_file, position, self.size_bytes):
            if entry is not None and mark.position == position and mark.last_offset != entry.offset:
                raise BrokenChain(position, "an offset index entry names another batch")
            if mark.last_offset >= offset:
                return mark.position
        return self.size_bytes

    def last_batch(self) -> Mark | None:
        """The last batch, read from the file; None in an empty segment."""
        self._search(OFFSET_MAX)  # finds out whether the last index entry is true
        entry = self._floor(OFFSET_MAX)
        last = None
        for mark in self.marks(entry.position if entry is not None else 0):
            last = mark
        return last

    def mark_before(self, position: int) -> Mark:
        """The batch that ends at byte `position`, which is not the first."""
        entry = self._floor_by_position(position - 1)
        if entry is not None and self.mark(entry.position).last_offset != entry.offset:
            self._rebuild("an offset index entry names another batch")
            entry = self._floor_by_position(position - 1)
        for mark in self.marks(entry.position if entry is not None else 0):
            if mark.position + mark.size_bytes >= position:
                return mark
        raise self._damaged(BrokenChain(position, "no batch ends here"))

    def remember(self, offset: int, position: int) -> None:
        """The batch that begins with `offset` is (or will be) at `position`."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = position

    def mark(self, position: int) -> Mark:
        """The header of the batch at `position`."""
        try:
            return mark_at(self.log_file.pread(BATCH_BYTES_MIN, position), 0, position)
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    def batch(self, mark: Mark) -> bytes:
        return self.log_file.pread(mark.size_bytes, mark.position)

    def will_walk(self, start: int) -> None:
        """The headers of all batches from byte `start` on are read next."""
        self._files.expect(self.log_file, self.size_bytes - start, start)

    def marks(self, start: int = 0) -> Iterator[Mark]:
        """The headers of all batches from byte `start` on."""
        try:
            yield from walk(self.log_file, start, self.size_bytes)
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    # ---- time ------------------------------------------------------------------------------------------------------

    def last_append_ms(self) -> int:
        """When the file was last appended to: what retention goes by."""
        if self.appended_ms < 0:
            self.appended_ms = self._disk.modified_ms(self.path(naming.LOG))
        return self.appended_ms

    def max_timestamp(self) -> TimeEntry | None:
        """The largest timestamp in the segment and the last offset of the first batch that has it."""
        if self.index is not None:
            found = TimeEntry(self.index.max_timestamp, self.index.max_timestamp_offset)
            return found if found.timestamp >= 0 else None
        if self._max_time is None:
            self._check_times()
            self._max_time = self._time_file().last if self.index is None else self.index.last_time
        return self._max_time

    def floor_time(self, timestamp: int) -> TimeEntry | None:
        """The last time entry at or before `timestamp`, checked against the batch that it names."""
        if self.index is None:
            self._check_times()
        entry = self._floor_time(timestamp)
        if entry is None or self.index is not None or self._is_true(entry):
            return entry
        self._rebuild("a time index entry is not true of its batch")
        return self._floor_time(timestamp)

    def _floor_time(self, timestamp: int) -> TimeEntry | None:
        index = self.index
        return index.floor_time(timestamp) if index is not None else self._time_file().floor(timestamp)

    def _is_true(self, entry: TimeEntry) -> bool:
        position = self.locate(entry.offset)
        if position >= self.size_bytes:
            return False
        mark = self.mark(position)
        return (mark.last_offset, mark.max_timestamp) == (entry.offset, entry.timestamp)

    # ---- indexes of segments that are no longer written ------------------------------------------------------------

    def _floor(self, offset: int) -> OffsetEntry | None:
        if self.index is None:
            self._check_offsets()
        return self.index.floor(offset) if self.index is not None else self._offset_file().floor(offset)

    def _floor_by_position(self, position: int) -> OffsetEntry | None:
        if self.index is None:
            self._check_offsets()
        index = self.index if self.index is not None else self._offset_file()
        return index.floor_by_position(position)

    def _offset_file(self) -> OffsetIndexFile:
        file = self._files.get(self.path(naming.OFFSET_INDEX))
        return OffsetIndexFile(file, self.base_offset, file.length())

    def _time_file(self) -> TimeIndexFile:
        file = self._files.get(self.path(naming.TIME_INDEX))
        return TimeIndexFile(file, self.base_offset, file.length())

    def _check_offsets(self) -> None:
        """Once, before the offset index file is used for the first time."""
        if self._offsets_checked:
            return
        self._offsets_checked = True
        try:
            if not self._offsets_are_sound():
                self._rebuild("the offset index is missing, short or wrong")
        except NotAtHand:
            self._offsets_checked = False
            raise

    def _offsets_are_sound(self) -> bool:
        try:
            index = self._offset_file()
            whole = self._files.get(self.path(naming.OFFSET_INDEX)).length() % OFFSET_ENTRY.size == 0
            return whole and offsets_are_sound(
                self.log_file, self.size_bytes, self.index_interval_bytes, index.last
            )
        except FileNotFoundError:
            return False

    def _check_times(self) -> None:
        """Once, before the time index file is used for the first time."""
        if self._times_checked:
            return
        self._times_checked = True
        try:
            if not self._times_are_sound() and self.index is None:
                self._rebuild("the time index is missing, short or wrong")
        except NotAtHand:
            self._times_checked = False
            raise

    def _times_are_sound(self) -> bool:
        try:
            index = self._time_file()
            whole = self._files.get(self.path(naming.TIME_INDEX)).length() % TIME_ENTRY.size == 0
            return whole and times_are_sound(
                self.log_file, self.size_bytes, self.size_bytes, self._floor, index.last
            )
        except FileNotFoundError:
            return False

    def _rebuild(self, reason: str) -> None:
        """Make both indexes again from the log. Where they cannot be written they live in memory."""
        self.will_walk(0)
        log.warning("index_rebuilt", directory=self._directory, base_offset=self.base_offset, reason=reason)
        try:
            index = build_index(
                self.log_file, self.base_offset, self.size_bytes, self.index_interval_bytes
            ).index
        except BrokenChain as damage:
            raise self._damaged(damage) from None
        self._offsets_checked = self._times_checked = True
        self._hints.clear()
        if self.writer is not None:
            self.index = index
            return
        index.seal()
        try:
            write_index_files(self._disk, self._files, self, index)
        except OSError as error:
            log.warning(
                "index_not_written", directory=self._directory, base_offset=self.base_offset, error=error
            )
            self.index = index

    def _damaged(self, damage: BrokenChain) -> DamagedBatchError:
        path, offset = self.path(naming.LOG), self._offset_at(damage.position)
        log.error("segment_damaged", path=path, position=damage.position, offset=offset, reason=damage.reason)
        message = f"{path} is damaged {damage}, where offset {offset} should be"
        return DamagedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, message, offset)

    def _offset_at(self, position: int) -> int:
        """Where the batches in front of byte `position`, or as many as can be read, end."""
        offset = self.base_offset
        with suppress(BrokenChain):
            for mark in walk(self.log_file, 0, position):
                offset = mark.last_offset + 1
        return offset

    def damaged_at(self, offset: int) -> int:
        """Like `locate` in a segment where that fails: the first batch that reaches to `offset` or cannot be read."""
        position = 0
        with suppress(BrokenChain):
            for mark in walk(self.log_file, 0, self.size_bytes):
                if mark.last_offset >= offset:
                    break
                position = mark.position + mark.size_bytes
        return position


def write_index_files(disk: Disk, files: OpenFiles, segment: IndexedSegment, index: ActiveIndex) -> None:
    """Replace a segment's index files by what `index` holds. Not synced: a later check finds what a crash leaves."""
    for kind, data in ((naming.OFFSET_INDEX, index.offset_bytes()), (naming.TIME_INDEX, index.time_bytes())):
        path = segment.path(kind)
        files.forget(path)
        file = disk.open(path, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
        finally:
            file.close()
