"""Checks a segment's indexes, and rebuilds them from the log when they are wrong.

An entry that is there is checked against the batch it names. An entry that is not there shows in the log: more than
`index.interval.bytes` between two entries, or a batch later than the last time entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from odradek.runtime.ports import DiskFile
from odradek.storage.segment.batch_walk import BrokenChain, walk
from odradek.storage.segment.sparse_index import OFFSET_ENTRY, TIME_ENTRY, ActiveIndex, OffsetEntry, TimeEntry

FloorByOffset: TypeAlias = Callable[[int], OffsetEntry | None]


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """Indexes of a segment, ready for more, and the offset that the segment's next record gets."""

    index: ActiveIndex
    next_offset: int
    leader_epoch: int
    """The leader epoch of the last batch; -1 without any."""


def build_index(file: DiskFile, base_offset: int, size_bytes: int, interval: int) -> BuiltIndex:
    """Builds the indexes from the headers of all batches. Raises BrokenChain where the log itself is damaged."""
    index = ActiveIndex(base_offset)
    next_offset, leader_epoch = base_offset, -1
    for mark in walk(file, 0, size_bytes):
        index.note(interval, mark.position, mark.size_bytes, mark.last_offset, mark.max_timestamp)
        next_offset, leader_epoch = mark.last_offset + 1, mark.leader_epoch
    return BuiltIndex(index, next_offset, leader_epoch)


def resume_index(
    file: DiskFile, base_offset: int, size_bytes: int, interval: int, offsets: bytes, times: bytes
) -> BuiltIndex | None:
    """Returns the indexes of the last segment as a clean close left them, or None when anything about them is doubtful."""
    if len(offsets) % OFFSET_ENTRY.size or len(times) % TIME_ENTRY.size:
        return None
    return resume_with(
        file, base_offset, size_bytes, interval, ActiveIndex.of_files(base_offset, offsets, times)
    )


def resume_with(
    file: DiskFile,
    base_offset: int,
    size_bytes: int,
    interval: int,
    index: ActiveIndex,
    *,
    is_own: bool = False,
) -> BuiltIndex | None:
    """Returns the same for an index that has only the entries of the first `size_bytes`.

    `is_own`: it was in memory, where this process made or checked it. Then only the bytes after its last
    entry are read; to check the times of a file may take the whole segment.
    """
    last = index.last
    tail_position = last.position if last is not None else 0
    if not is_own:
        if not index.ascends or not offsets_are_sound(file, size_bytes, interval, last):
            return None
        if not times_are_sound(
            file, size_bytes, tail_position if last is not None else -1, index.floor, index.last_time
        ):
            return None
    next_offset, leader_epoch = base_offset, -1
    try:
        for mark in walk(file, tail_position, size_bytes):
            index.note(size_bytes, mark.position, mark.size_bytes, mark.last_offset, mark.max_timestamp)
            next_offset, leader_epoch = mark.last_offset + 1, mark.leader_epoch
    except BrokenChain:
        return None
    return BuiltIndex(index, next_offset, leader_epoch)


def offsets_are_sound(file: DiskFile, size_bytes: int, interval: int, last: OffsetEntry | None) -> bool:
    """Returns whether the last entry is of a batch, and the bytes after it need no further entry."""
    position = last.position if last is not None else 0
    if not 0 <= position <= size_bytes or (last is not None and position == size_bytes):
        return False
    bytes_since_entry = 0
    try:
        for mark in walk(file, position, size_bytes):
            if last is not None and mark.position == position:
                if mark.last_offset != last.offset:
                    return False
            elif bytes_since_entry > interval:
                return False
            bytes_since_entry += mark.size_bytes
    except BrokenChain:
        return False
    return True


def times_are_sound(
    file: DiskFile, size_bytes: int, until: int, floor: FloorByOffset, last: TimeEntry | None
) -> bool:
    """Returns whether the last time entry matches its batch, and no batch after it that begins by `until` is later."""
    entry = floor(last.offset) if last is not None else None
    is_there = last is None
    latest = last.timestamp if last is not None else -1
    try:
        for mark in walk(file, entry.position if entry is not None else 0, size_bytes):
            if mark.position > until:
                break
            if last is not None and mark.last_offset == last.offset:
                is_there = mark.max_timestamp == latest
            if mark.max_timestamp > latest:
                return False
    except BrokenChain:
        return False
    return is_there
