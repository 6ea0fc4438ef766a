"""Finding out how much of a segment can be trusted after a crash, and cutting the rest.

A scan reads every batch, once, and checks its CRC, its place in the file and its offsets. The first batch that fails ends the
segment. What follows it is usually a torn tail: part of the last write. If good batches follow, the file system wrote
later blocks and not earlier ones, or something was damaged afterwards: what is cut is then kept in a side file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from odradek.model.errors import KafkaError
from odradek.records import HEADER_BYTES, BatchHeader, check_crc, engine, read_header
from odradek.records.frame import ScanState, SoundRun
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files import naming
from odradek.storage.recovery.replay import deciding
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.sparse_index import OFFSET_MAX, RELATIVE_OFFSET_MAX, ActiveIndex
from odradek.telemetry import events

log = events.get("storage")

_WINDOW_BYTES: Final = 1 << 20
_SEARCH_BYTES_MAX: Final = 64 << 20
_MAGIC_POSITION: Final = 16
_FRAME: Final = struct.Struct(">qi")
_LAST_OFFSET_MAX: Final = 2**62
"""Up to here an engine may add offsets as 64-bit numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedSegment:
    """The result of a scan. `problem` is None when the whole file is good."""

    good_bytes: int
    next_offset: int
    index: ActiveIndex
    last_epoch: int
    """The leader epoch of the last good batch; -1 without any."""
    problem: str | None


OnBatch = Callable[[BatchHeader, memoryview, int], None]
"""Called for good batches, with the byte at which each begins: for every control batch, and for the
producers' batches that decide their state (`replay.deciding`). The bytes are good until the next one
comes."""

_Produced = list[tuple[BatchHeader, int, int]]


class _Scan:
    """Checks batches one after another; the state between them."""

    def __init__(self, base_offset: int, interval: int) -> None:
        self._last_offset_max = base_offset + RELATIVE_OFFSET_MAX
        self._interval = interval
        self.next_offset = base_offset
        self.index = ActiveIndex(base_offset)
        self.last_epoch = -1
        self.has_short_way = engine.active is not engine.PLAIN and self._last_offset_max <= _LAST_OFFSET_MAX

    def add(self, header: BatchHeader, batch: memoryview, position: int) -> None:
        """Raises KafkaError for a bad batch."""
        check_crc(batch)
        self.index.note(self._interval, position, header.size_bytes, header.last_offset, header.max_timestamp)
        self.next_offset = header.next_offset
        self.last_epoch = header.partition_leader_epoch

    def sound_run(
        self, data: memoryview, recovery_point: int, header_type: type[BatchHeader] | None
    ) -> SoundRun:
        """Returns the batches at the front of `data` that need no second look. `add_run` adds them."""
        index = self.index
        state = ScanState(
            self.next_offset,
            self.last_epoch,
            index.bytes_since_entry,
            index.max_timestamp,
            index.max_timestamp_offset,
        )
        return engine.active.sound_run(
            data, state, self._last_offset_max, self._interval, recovery_point, header_type
        )

    def add_run(self, position: int, run: SoundRun) -> None:
        self.index.note_run(position, run)
        self.next_offset = run.state.next_offset
        self.last_epoch = run.state.last_epoch

    def doubt(self, header: BatchHeader) -> str | None:
        """Returns the reason why the batch cannot follow the ones before it; None without one."""
        if header.base_offset < self.next_offset:
            return f"offset {header.base_offset} follows {self.next_offset - 1}"
        if header.last_offset_delta < 0 or header.last_offset > self._last_offset_max:
            return f"offset {header.last_offset} is out of the segment's range"
        return None


class _Window:
    """A file from its start, in large reads, each byte once; what must be is written once more from memory.

    If the process before this one died of a failed fsync, the kernel shows data that is not on the disk and believes that it
    is: an fsync now would do nothing. Pages that are written once more, the same bytes at the same place, are dirty again.
    """

    def __init__(self, file: DiskFile, size_bytes: int, window_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._window_bytes = window_bytes
        self._data = memoryview(b"")
        self._start = 0
        self._rewritten = range(0)
        """Bytes of the window that must be written once more."""

    def get(self, position: int, length: int) -> memoryview:
        """Returns `length` bytes from `position` on, or fewer at the end of the file. No later call asks for earlier bytes."""
        if position + length > self._start + len(self._data):
            self.rewrite()
            rest = self._data[position - self._start :]
            wanted = max(self._window_bytes, length) - len(rest)
            more = self._file.pread(
                min(wanted, self._size_bytes - position - len(rest)), position + len(rest)
            )
            self._data, self._start = memoryview(b"".join((rest, more)) if rest else more), position
        return self._data[position - self._start : position - self._start + length]

    def at_hand(self, position: int) -> memoryview:
        """Returns the bytes from `position` on that need no read, after one if there are none. No later call asks for earlier
        bytes."""
        if position == self._start + len(self._data):
            self.get(position, 1)
        return self._data[position - self._start :]

    def must_be_rewritten(self, position: int, length: int) -> None:
        first = self._rewritten.start if self._rewritten else position
        self._rewritten = range(first, position + length)

    def rewrite(self) -> None:
        """Writes the noted bytes once more. The caller syncs."""
        if self._rewritten:
            first, end = self._rewritten.start - self._start, self._rewritten.stop - self._start
            self._file.pwrite(self._data[first:end], self._rewritten.start)
            self._rewritten = range(0)


def scan_file(
    file: DiskFile,
    base_offset: int,
    size_bytes: int,
    *,
    index_interval_bytes: int,
    recovery_point: int = OFFSET_MAX,
    on_batch: OnBatch | None = None,
    window_bytes: int = _WINDOW_BYTES,
) -> ScannedSegment:
    """Reads a segment's log from its start, once, about `window_bytes` at a time; see the module. Bytes from the recovery point
    on are written once more."""
    scan = _Scan(base_offset, index_interval_bytes)
    window = _Window(file, size_bytes, window_bytes)
    position = 0
    problem = None
    try:
        while position + HEADER_BYTES <= size_bytes:
            length = _add_run(scan, window, position, recovery_point, on_batch) if scan.has_short_way else 0
            if length:
                position += length
                continue
            header = read_header(window.get(position, HEADER_BYTES))
            if position + header.size_bytes > size_bytes:
                break
            batch = window.get(position, header.size_bytes)
            if len(batch) < header.size_bytes:  # the file became shorter
                break
            problem = scan.doubt(header)
            if problem is not None:
                break
            scan.add(header, batch, position)
            if header.next_offset > recovery_point:
                window.must_be_rewritten(position, header.size_bytes)
            if on_batch is not None:
                on_batch(header, batch, position)
            position += header.size_bytes
    except KafkaError as error:
        problem = error.message
    window.rewrite()
    if problem is None and position < size_bytes:
        problem = f"{size_bytes - position} bytes of an unfinished batch"
    return ScannedSegment(
        good_bytes=position,
        next_offset=scan.next_offset,
        index=scan.index,
        last_epoch=scan.last_epoch,
        problem=problem,
    )


def _add_run(
    scan: _Scan, window: _Window, position: int, recovery_point: int, on_batch: OnBatch | None
) -> int:
    """Adds the batches in the window that need no second check; returns their length in bytes."""
    data = window.at_hand(position)
    run = scan.sound_run(data, recovery_point, BatchHeader if on_batch is not None else None)
    if not run.length:
        return 0
    scan.add_run(position, run)
    if run.above >= 0:
        window.must_be_rewritten(position + run.above, run.length - run.above)
    if on_batch is not None:
        for header, start, end in deciding(cast(_Produced, run.produced)):
            on_batch(header, data[start:end], position + start)
    return run.length


def good_batch_follows(file: DiskFile, position: int, size_bytes: int, min_offset: int) -> bool:
    """Returns whether a batch with a good CRC and an offset of at least `min_offset` follows anywhere after `position`.

    It looks at every byte of the next 64 MiB, so it finds batches even where lengths are damaged.
    """
    end = min(size_bytes, position + _SEARCH_BYTES_MAX)
    data = file.pread(end - position, position)
    at = data.find(b"\x02", _MAGIC_POSITION)
    while at >= 0:
        start = at - _MAGIC_POSITION
        if start + HEADER_BYTES <= len(data) and _is_good_batch(data, start, min_offset):
            return True
        at = data.find(b"\x02", at + 1)
    return False


def _is_good_batch(data: bytes, start: int, min_offset: int) -> bool:
    offset, length = _FRAME.unpack_from(data, start)
    end = start + _FRAME.size + length
    if (
        length < HEADER_BYTES - _FRAME.size
        or end > len(data)
        or not min_offset <= offset <= min_offset + RELATIVE_OFFSET_MAX
    ):
        return False
    try:
        check_crc(memoryview(data)[start:end])
    except KafkaError:
        return False
    return True


def cut(disk: Disk, segment: Segment, scanned: ScannedSegment) -> bool:
    """Cuts a segment's file to its good part, durably. Returns True when good batches after it were put in a side file."""
    path = segment.path(naming.LOG)
    file = disk.open(path)
    try:
        keep = good_batch_follows(file, scanned.good_bytes + 1, segment.size_bytes, scanned.next_offset)
        if keep:
            _copy(
                disk, file, scanned.good_bytes, segment.size_bytes, f"{path}.{scanned.good_bytes}{naming.CUT}"
            )
        log.warning(
            "segment_cut",
            path=path,
            position=scanned.good_bytes,
            cut_bytes=segment.size_bytes - scanned.good_bytes,
            next_offset=scanned.next_offset,
            reason=scanned.problem,
            kept_aside=keep,
        )
        file.truncate(scanned.good_bytes)
        file.sync()
    finally:
        file.close()
    segment.records.size_bytes = scanned.good_bytes
    return keep


def _copy(disk: Disk, source: DiskFile, start: int, end: int, path: str) -> None:
    target = disk.open(path, create=True)
    try:
        target.truncate(0)
        for position in range(start, end, _WINDOW_BYTES):
            target.pwrite(source.pread(min(_WINDOW_BYTES, end - position), position), position - start)
        target.sync()
    finally:
        target.close()


def set_aside(disk: Disk, segment: Segment) -> bool:
    """Removes a whole segment after a cut from the log. Returns True when there was anything in it."""
    path = segment.path(naming.LOG)
    if segment.size_bytes:
        log.warning("segment_set_aside", path=path, size_bytes=segment.size_bytes)
        disk.rename(path, path + naming.CUT)
    else:
        disk.remove(path)
    for kind in naming.INDEX_SUFFIXES:
        if disk.exists(segment.path(kind)):
            disk.remove(segment.path(kind))
    return segment.size_bytes > 0
