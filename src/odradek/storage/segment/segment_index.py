"""The offset index and the time index of one segment: in memory while it is written, in their files afterwards.

Files are checked before they are believed for the first time. Any doubt makes both indexes again from the log.
"""

from __future__ import annotations

from typing import Final

from odradek.runtime.ports import DiskFile
from odradek.storage.files import naming
from odradek.storage.files.at_hand import NotAtHand
from odradek.storage.files.writer import SegmentWriter
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.segment.index_checks import build_index, offsets_are_sound, resume_with, times_are_sound
from odradek.storage.segment.sparse_index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    ActiveIndex,
    OffsetEntry,
    OffsetIndexFile,
    TimeEntry,
    TimeIndexFile,
)
from odradek.telemetry import events

log = events.caused_by_peers("storage")


class SegmentIndex:
    """The offset index and the time index of one segment. Used on the event loop only."""

    __slots__ = (
        "_max_time",
        "_offsets_checked",
        "_records",
        "_times_checked",
        "hints",
        "in_memory",
        "interval_bytes",
    )

    def __init__(self, records: FileRecords, interval_bytes: int) -> None:
        self._records = records
        self._offsets_checked = False
        self._times_checked = False
        self._max_time: TimeEntry | None = None
        self.interval_bytes = interval_bytes
        self.in_memory: ActiveIndex | None = None
        """The index while the segment is written, while its files lack their names, or when they could not be written."""
        self.hints: Final[dict[int, int]] = {}
        """Positions of batches that were found, by offset; void as soon as the indexes are."""

    def keep_in_memory(self, index: ActiveIndex) -> None:
        """Uses `index`, which is right; earlier knowledge is void, and the files are not read."""
        self.in_memory = index
        self.hints.clear()
        self._max_time = None
        self._offsets_checked = self._times_checked = True

    def leave_to_files(self) -> None:
        """Reads the index files from now on; they are complete, and this process wrote them."""
        self.in_memory = None
        self._offsets_checked = self._times_checked = True

    # ---- entries -----------------------------------------------------------------------------------------------------

    def floor(self, offset: int) -> OffsetEntry | None:
        """Returns the last entry at or below `offset`; the user of it looks whether it is true of its batch."""
        if self.in_memory is None:
            self._check_offsets()
        index = self.in_memory if self.in_memory is not None else self._offset_file()
        return index.floor(offset)

    def floor_by_position(self, position: int) -> OffsetEntry | None:
        """Returns the last entry that points at or before `position`."""
        if self.in_memory is None:
            self._check_offsets()
        index = self.in_memory if self.in_memory is not None else self._offset_file()
        return index.floor_by_position(position)

    def floor_time(self, timestamp: int) -> TimeEntry | None:
        """Returns the last time entry at or before `timestamp`."""
        if self.in_memory is None:
            self._check_times()
        index = self.in_memory
        return index.floor_time(timestamp) if index is not None else self._time_file().floor(timestamp)

    def max_timestamp(self) -> TimeEntry | None:
        """Returns the largest timestamp in the segment and the last offset of the first batch that has it."""
        index = self.in_memory
        if index is not None:
            entry = TimeEntry(index.max_timestamp, index.max_timestamp_offset)
            return entry if entry.timestamp >= 0 else None
        if self._max_time is None:
            self._check_times()
            self._max_time = self._time_file().last if self.in_memory is None else self.in_memory.last_time
        return self._max_time

    def _offset_file(self) -> OffsetIndexFile:
        file = self._records.files.get(self._records.path(naming.OFFSET_INDEX))
        return OffsetIndexFile(file, self._records.base_offset, file.length())

    def _time_file(self) -> TimeIndexFile:
        file = self._records.files.get(self._records.path(naming.TIME_INDEX))
        return TimeIndexFile(file, self._records.base_offset, file.length())

    # ---- doubts ------------------------------------------------------------------------------------------------------

    def _check_offsets(self) -> None:
        """Checks the offset index once, before its file is used for the first time."""
        if self._offsets_checked:
            return
        self._offsets_checked = True
        try:
            if not self._offsets_are_sound():
                self.rebuild("the offset index is missing, short or wrong")
        except NotAtHand:
            self._offsets_checked = False
            raise

    def _offsets_are_sound(self) -> bool:
        records = self._records
        try:
            index = self._offset_file()
            whole = records.files.get(records.path(naming.OFFSET_INDEX)).length() % OFFSET_ENTRY.size == 0
            return whole and offsets_are_sound(
                records.log_file, records.size_bytes, self.interval_bytes, index.last
            )
        except FileNotFoundError:
            return False

    def _check_times(self) -> None:
        """Checks the time index once, before its file is used for the first time."""
        if self._times_checked:
            return
        self._times_checked = True
        try:
            if not self._times_are_sound() and self.in_memory is None:
                self.rebuild("the time index is missing, short or wrong")
        except NotAtHand:
            self._times_checked = False
            raise

    def _times_are_sound(self) -> bool:
        records = self._records
        try:
            index = self._time_file()
            whole = records.files.get(records.path(naming.TIME_INDEX)).length() % TIME_ENTRY.size == 0
            return whole and times_are_sound(
                records.log_file, records.size_bytes, records.size_bytes, self.floor, index.last
            )
        except FileNotFoundError:
            return False

    def rebuild(self, reason: str) -> None:
        """Rebuilds both indexes from the log. Where they cannot be written they stay in memory."""
        records = self._records
        records.will_walk(0)
        directory, base_offset = records.directory, records.base_offset
        log.warning("index_rebuilt", directory=directory, base_offset=base_offset, reason=reason)
        try:
            index = build_index(records.log_file, base_offset, records.size_bytes, self.interval_bytes).index
        except BrokenChain as damage:
            raise records.damaged(damage) from None
        self._offsets_checked = self._times_checked = True
        self.hints.clear()
        if records.writer is not None:
            self.in_memory = index
            return
        index.seal()
        try:
            self.replace_files(index)
        except OSError as error:
            log.warning("index_not_written", directory=directory, base_offset=base_offset, error=error)
            self.in_memory = index

    # ---- files -------------------------------------------------------------------------------------------------------

    def replace_files(self, index: ActiveIndex) -> None:
        """Writes `index` to the files. Not synced: a later check finds what a crash leaves."""
        records = self._records
        for kind, data in (
            (naming.OFFSET_INDEX, index.offset_bytes()),
            (naming.TIME_INDEX, index.time_bytes()),
        ):
            path = records.path(kind)
            records.files.forget(path)
            file = records.disk.open(path, create=True)
            try:
                file.truncate(0)
                file.pwrite(data, 0)
            finally:
                file.close()

    def write(self, writer: SegmentWriter, index: ActiveIndex) -> None:
        """Writes entries of the active segment that are only in memory to the files. An OSError leaves everything as it was."""
        if not writer.index_files:
            if writer.index_is_lost:
                index.forget_written()
                writer.index_is_lost = False
            writer.index_files = self._open_files(index)
        index.write(*writer.index_files)

    def _open_files(self, index: ActiveIndex) -> tuple[DiskFile, ...]:
        """Returns the files with exactly the entries that were written before, whatever else was in them."""
        records = self._records
        opened: list[DiskFile] = []
        written = (
            (naming.OFFSET_INDEX, index.offset_bytes_written),
            (naming.TIME_INDEX, index.time_bytes_written),
        )
        try:
            for kind, length in written:
                path = records.path(kind)
                records.files.forget(path)
                opened.append(records.disk.open(path, create=True))
                opened[-1].truncate(length)
        except OSError:
            for file in opened:
                file.close()
            raise
        return tuple(opened)

    def of_first(self, position: int) -> ActiveIndex:
        """Returns an index in memory of the first `position` bytes of the log. OSError, or KAFKA_STORAGE_ERROR."""
        records, index, is_own = self._records, self.in_memory, self.in_memory is not None
        if index is None:
            offsets, times = (
                records.disk.read(path) if records.disk.exists(path) else b""
                for path in map(records.path, (naming.OFFSET_INDEX, naming.TIME_INDEX))
            )
            offsets = offsets[: len(offsets) // OFFSET_ENTRY.size * OFFSET_ENTRY.size]
            index = ActiveIndex.of_files(
                records.base_offset, offsets, times[: len(times) // TIME_ENTRY.size * TIME_ENTRY.size]
            )
        arguments = records.log_file, records.base_offset, position, self.interval_bytes
        built = resume_with(*arguments, index.cut(position), is_own=is_own)
        try:
            return built.index if built is not None else build_index(*arguments).index
        except BrokenChain as damage:
            raise records.damaged(damage) from None
