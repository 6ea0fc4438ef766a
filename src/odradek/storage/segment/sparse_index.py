"""The two sparse indexes of a segment, in Kafka's formats.

`.index`: (last offset of a batch - base offset: int32, position of that batch: int32), one entry at the first batch after
each `index.interval.bytes` of log. `.timeindex`: (timestamp: int64, offset - base offset: int32): no record of the segment
up to and including that offset is later than the timestamp. Both ascend in both columns.

An index is a cache of the log and is treated as one. The active segment keeps its entries in memory and writes them out in
blocks; after a crash they are computed again by the same code that made them, so a rebuilt file equals the lost one. The
indexes of older segments are searched in the file, a few bytes at a time, and the user of an entry checks it against the
batch it points to: a wrong entry is found out, never believed.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import le, lt
from typing import Final, NamedTuple, overload

from odradek.records.frame import SoundRun
from odradek.runtime.ports import DiskFile

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1
_LITTLE_ENDIAN: Final = sys.byteorder == "little"


class OffsetEntry(NamedTuple):
    """The batch that ends with `offset` begins at byte `position`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """An entry of the time index: no record of the segment up to `offset` is later than `timestamp`, and the batch that ends
    there has it."""

    timestamp: int
    offset: int


class ActiveIndex:
    """The entries of the segment that is being written, and the rule by which they are made."""

    __slots__ = (
        "_base_offset",
        "_bytes_since_entry",
        "_last_time",
        "_offsets",
        "_offsets_written",
        "_positions",
        "_time_offsets",
        "_times",
        "_times_written",
        "max_timestamp",
        "max_timestamp_offset",
    )

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")
        self._times = array("q")
        self._time_offsets = array("i")
        self._offsets_written = 0
        self._times_written = 0
        self._bytes_since_entry = 0
        self._last_time = -1
        self.max_timestamp = -1
        """The largest timestamp of any record in the segment; -1 when there is none."""
        self.max_timestamp_offset = base_offset
        """Last offset of the first batch that holds `max_timestamp`."""

    @classmethod
    def of_files(cls, base_offset: int, offsets: bytes, times: bytes) -> ActiveIndex:
        """Returns an index as it was written out. The caller checks it and walks the log after its last entry."""
        index = cls(base_offset)
        pairs = _native("i", offsets)
        index._offsets, index._positions = pairs[0::2], pairs[1::2]
        for timestamp, relative in TIME_ENTRY.iter_unpack(times):
            index._times.append(timestamp)
            index._time_offsets.append(relative)
        index._offsets_written = len(index._offsets)
        index._times_written = len(index._times)
        if index._times:
            index._last_time = index.max_timestamp = index._times[-1]
            index.max_timestamp_offset = base_offset + index._time_offsets[-1]
        return index

    @property
    def offset_entry_count(self) -> int:
        return len(self._offsets)

    @property
    def time_entry_count(self) -> int:
        return len(self._times)

    @property
    def offset_bytes_written(self) -> int:
        return self._offsets_written * OFFSET_ENTRY.size

    @property
    def time_bytes_written(self) -> int:
        return self._times_written * TIME_ENTRY.size

    def forget_written(self) -> None:
        """Makes the next write contain all entries once more."""
        self._offsets_written = self._times_written = 0

    @property
    def unwritten_count(self) -> int:
        return len(self._offsets) - self._offsets_written + len(self._times) - self._times_written

    def note(
        self, interval: int, position: int, size_bytes: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Notes a written batch. Called for every batch in order; adds an entry when `interval` bytes went by."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_entry > interval:
            self._offsets.append(last_offset - self._base_offset)
            self._positions.append(position)
            self._note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def note_run(self, position: int, run: SoundRun) -> None:
        """Notes the batches of a run, which begins at byte `position`, as `note` does for each."""
        for start, last_offset, self.max_timestamp, self.max_timestamp_offset in run.entries:
            self._offsets.append(last_offset - self._base_offset)
            self._positions.append(position + start)
            self._note_time()
        self.max_timestamp = run.state.max_timestamp
        self.max_timestamp_offset = run.state.max_timestamp_offset
        self._bytes_since_entry = run.state.bytes_since_entry

    @property
    def bytes_since_entry(self) -> int:
        """Bytes of the log from the last entry's batch on."""
        return self._bytes_since_entry

    def cut(self, position: int) -> ActiveIndex:
        """Returns the entries of batches that begin before byte `position`; it does not cover the bytes after
        the last of them."""
        count = bisect_left(self._positions, position)
        reach = self._offsets[count - 1] if count else -1
        time_count = bisect_right(self._time_offsets, reach)
        offset_bytes, time_bytes = self.offset_bytes()[: 8 * count], self.time_bytes()[: 12 * time_count]
        truncated = ActiveIndex.of_files(self._base_offset, offset_bytes, time_bytes)
        truncated._offsets_written = min(count, self._offsets_written)
        truncated._times_written = min(time_count, self._times_written)
        return truncated

    def resume(self, bytes_since_entry: int) -> None:
        """Continues where the files end: `bytes_since_entry` bytes of log follow the last entry's position."""
        self._bytes_since_entry = bytes_since_entry

    def _note_time(self) -> None:
        if self.max_timestamp > self._last_time:
            self._times.append(self.max_timestamp)
            self._time_offsets.append(self.max_timestamp_offset - self._base_offset)
            self._last_time = self.max_timestamp

    def seal(self) -> None:
        """Makes the largest timestamp of a full segment its last time entry."""
        self._note_time()

    @property
    def last(self) -> OffsetEntry | None:
        return self._entry(len(self._offsets) - 1)

    @property
    def last_time(self) -> TimeEntry | None:
        return self._time_entry(len(self._times) - 1)

    @property
    def ascends(self) -> bool:
        """True if every column rises from entry to entry, as it must."""
        rising = (self._offsets, self._positions, self._times)
        flat = self._time_offsets
        return all(all(map(lt, column, column[1:])) for column in rising) and all(map(le, flat, flat[1:]))

    def floor(self, offset: int) -> OffsetEntry | None:
        """Returns the last entry at or below `offset`."""
        return self._entry(bisect_right(self._offsets, offset - self._base_offset) - 1)

    def floor_by_position(self, position: int) -> OffsetEntry | None:
        """Returns the last entry that points at or before `position`."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def _entry(self, number: int) -> OffsetEntry | None:
        if number < 0:
            return None
        return OffsetEntry(self._offsets[number] + self._base_offset, self._positions[number])

    def floor_time(self, timestamp: int) -> TimeEntry | None:
        """Returns the last entry at or before `timestamp`."""
        return self._time_entry(bisect_right(self._times, timestamp) - 1)

    def _time_entry(self, number: int) -> TimeEntry | None:
        if number < 0:
            return None
        return TimeEntry(self._times[number], self._time_offsets[number] + self._base_offset)

    def offset_bytes(self, first: int = 0) -> bytes:
        """Returns the entries from number `first` on, as the file holds them."""
        pairs = array("i", bytes(8 * (len(self._offsets) - first)))
        pairs[0::2], pairs[1::2] = self._offsets[first:], self._positions[first:]
        if _LITTLE_ENDIAN:
            pairs.byteswap()
        return pairs.tobytes()

    def time_bytes(self, first: int = 0) -> bytes:
        pack = TIME_ENTRY.pack
        return b"".join(map(pack, self._times[first:], self._time_offsets[first:]))

    def write(self, offset_file: DiskFile, time_file: DiskFile) -> None:
        """Writes new entries to the files. An OSError leaves the index as it was: the next call tries again."""
        if self._offsets_written < len(self._offsets):
            data = self.offset_bytes(self._offsets_written)
            offset_file.pwrite(data, self.offset_bytes_written)
            self._offsets_written = len(self._offsets)
        if self._times_written < len(self._times):
            data = self.time_bytes(self._times_written)
            time_file.pwrite(data, self.time_bytes_written)
            self._times_written = len(self._times)


def _native(typecode: str, data: bytes) -> array[int]:
    numbers = array(typecode, data)
    if _LITTLE_ENDIAN:
        numbers.byteswap()
    return numbers


class Column(Sequence[int]):
    """One column of an index file, read a number at a time: what `bisect` needs, whatever the file's size."""

    __slots__ = ("_count", "_file", "_offset", "_row", "_struct")

    def __init__(self, file: DiskFile, count: int, *, row_bytes: int, offset: int, code: str) -> None:
        self._file = file
        self._count = count
        self._row = row_bytes
        self._offset = offset
        self._struct = struct.Struct(code)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> int: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[int]: ...
    def __getitem__(self, number: int | slice) -> int | Sequence[int]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(self._count))]
        data = self._file.pread(self._struct.size, number * self._row + self._offset)
        if len(data) < self._struct.size:
            raise IndexError(number)
        value: int = self._struct.unpack(data)[0]
        return value


class OffsetIndexFile:
    """The `.index` of a segment that is no longer written, searched in place."""

    __slots__ = ("_base_offset", "_file", "count")

    def __init__(self, file: DiskFile, base_offset: int, length: int) -> None:
        self._file = file
        self._base_offset = base_offset
        self.count = length // OFFSET_ENTRY.size

    def entry(self, number: int) -> OffsetEntry | None:
        if not 0 <= number < self.count:
            return None
        data = self._file.pread(OFFSET_ENTRY.size, number * OFFSET_ENTRY.size)
        if len(data) < OFFSET_ENTRY.size:
            return None
        relative, position = OFFSET_ENTRY.unpack(data)
        return OffsetEntry(relative + self._base_offset, position)

    @property
    def last(self) -> OffsetEntry | None:
        return self.entry(self.count - 1)

    def floor(self, offset: int) -> OffsetEntry | None:
        column = Column(self._file, self.count, row_bytes=8, offset=0, code=">i")
        return self.entry(bisect_right(column, offset - self._base_offset) - 1)

    def floor_by_position(self, position: int) -> OffsetEntry | None:
        column = Column(self._file, self.count, row_bytes=8, offset=4, code=">i")
        return self.entry(bisect_right(column, position) - 1)


class TimeIndexFile:
    """The `.timeindex` of a segment that is no longer written, searched in place."""

    __slots__ = ("_base_offset", "_file", "count")

    def __init__(self, file: DiskFile, base_offset: int, length: int) -> None:
        self._file = file
        self._base_offset = base_offset
        self.count = length // TIME_ENTRY.size

    def entry(self, number: int) -> TimeEntry | None:
        if not 0 <= number < self.count:
            return None
        data = self._file.pread(TIME_ENTRY.size, number * TIME_ENTRY.size)
        if len(data) < TIME_ENTRY.size:
            return None
        timestamp, relative = TIME_ENTRY.unpack(data)
        return TimeEntry(timestamp, relative + self._base_offset)

    @property
    def last(self) -> TimeEntry | None:
        return self.entry(self.count - 1)

    def floor(self, timestamp: int) -> TimeEntry | None:
        column = Column(self._file, self.count, row_bytes=TIME_ENTRY.size, offset=0, code=">q")
        return self.entry(bisect_right(column, timestamp) - 1)
