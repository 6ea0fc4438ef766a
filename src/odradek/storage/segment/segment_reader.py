"""Reads whole batches of one segment: copied, or as a range of the file that the kernel sends.

Positions that a reader is likely to ask for next are remembered, so that sequential reads need no index at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.model.errors import KafkaError
from odradek.runtime.ports import Buffer
from odradek.storage.files.at_hand import ReadProgress
from odradek.storage.segment.batch_search import BatchSearch
from odradek.storage.segment.batch_walk import BATCH_BYTES_MIN, BrokenChain, last_boundary, mark_at
from odradek.storage.segment.checked_ranges import CheckedRanges
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.segment.segment_index import SegmentIndex
from odradek.storage.segment.sparse_index import OffsetEntry

_MAP_BYTES_MIN: Final = 256 * 1024
"""The least read for which mapping the file costs less than copying."""
RECENT_BYTES: Final = 64 * 1024
"""The size of the active segment's end that counts as just written: a reader that keeps up is not checked. It is small, because
in a log that rests for hours even the end leaves the memory."""
RECENT_BYTES_UNTOLD: Final = 8 * 1024 * 1024
"""The same where the system cannot tell what is in memory: a reader near the end would need another thread each time."""


class Chunk(NamedTuple):
    """Whole batches of one segment, and the offset after the last of them."""

    data: Buffer
    next_offset: int


class SegmentReader:
    """Reads batches of one segment. Used on the event loop only."""

    __slots__ = ("_index", "_records", "_search", "checked")

    def __init__(self, records: FileRecords, index: SegmentIndex, search: BatchSearch) -> None:
        self._records = records
        self._index = index
        self._search = search
        self.checked = CheckedRanges(records.size_bytes)
        """Checked ranges of bytes that were in the file before this process; what it writes itself is trusted."""

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        segment_end: int,
        at_least_one: bool,
        to_send: bool = False,
    ) -> Chunk | None:
        """Returns whole batches from the one that contains `offset` (or the next), none of which reaches `end_offset`.

        `segment_end` is where the next segment begins. A first batch larger than `max_bytes` is returned if
        `at_least_one`; otherwise the chunk is empty. None: this segment has nothing from `offset` on. With
        `to_send` the data may be a range of the file that only the kernel may read.
        """
        records = self._records
        start = self._search.locate(offset)
        to_end = end_offset >= segment_end
        limit = records.size_bytes if to_end else self._search.locate(end_offset)
        if start >= limit:
            if to_end:
                self.checked.check_end(offset, segment_end, records.directory)
            return None
        wanted = min(max_bytes, limit - start)
        if to_send and wanted >= _MAP_BYTES_MIN and not self.checked.is_doubtful(start, start + wanted):
            end = min(end_offset, segment_end) if start + wanted == limit else None
            chunk = self._mapped(start, start + wanted, end)
            if chunk is not None:
                return chunk
            if at_least_one and start + wanted < limit and records.mark(start).size_bytes > wanted:
                return self._first_batch(start, limit, offset, to_send=True)
        data = records.log_file.pread(wanted, start) if wanted > 0 else b""
        if start + len(data) == limit:
            chunk = Chunk(data, min(end_offset, segment_end))
            return self._sound(chunk, start, offset, segment_end if to_end else -1)
        whole, next_offset = self._whole_batches(data, start)
        if whole:
            chunk = Chunk(data if whole == len(data) else memoryview(data)[:whole], next_offset)
            return self._sound(chunk, start, offset)
        return (
            self._first_batch(start, limit, offset, to_send=to_send) if at_least_one else Chunk(b"", offset)
        )

    def check_at_hand(self, offset: int, max_bytes: int, beside: ReadProgress) -> None:
        """Raises NotAtHand when a read from `offset` on would have to wait for a disk.

        The end of the segment that is written now counts as cached, so a reader that keeps up is not checked.
        """
        records = self._records
        start = self._search.remembered(offset)
        if start < 0:
            with records.files.only_at_hand(beside):
                start = self._search.locate(offset)
        length = min(max(max_bytes, BATCH_BYTES_MIN), records.size_bytes - start)
        if length <= 0 or (records.writer is not None and self._is_recent(records.size_bytes - start)):
            return
        with records.files.only_at_hand(beside):
            records.files.expect(records.log_file, length, start)
        first_bytes = self._first_batch_bytes(start) if start + length < records.size_bytes else 0
        if first_bytes > length:  # it is read whole, whatever the limit
            with records.files.only_at_hand(beside):
                records.files.expect(records.log_file, first_bytes, start)

    def _is_recent(self, behind_bytes: int) -> bool:
        if behind_bytes <= RECENT_BYTES:
            return True
        return behind_bytes <= RECENT_BYTES_UNTOLD and not self._records.log_file.can_probe

    def _first_batch_bytes(self, start: int) -> int:
        """Returns the size of the batch at the position by its header; 0 where there is none, which the reader meets."""
        records = self._records
        try:
            size_bytes = mark_at(records.log_file.pread(BATCH_BYTES_MIN, start), 0, start).size_bytes
        except BrokenChain:
            return 0
        return min(size_bytes, records.size_bytes - start)

    def _sound(self, chunk: Chunk, start: int, offset: int, segment_end: int = -1) -> Chunk:
        """Returns the chunk after a check that it is as it was written; announces the bytes that the next reader will need."""
        self.checked.check(chunk.data, start, offset, self._records.directory, segment_end)
        self._search.remember(chunk.next_offset, start + len(chunk.data))
        return chunk

    def _mapped(self, start: int, limit: int, next_offset: int | None) -> Chunk | None:
        """Returns the batches between the positions, uncopied; `next_offset` is known where `limit` is a boundary of batches.

        None: the file cannot be mapped, or the index does not help to find the boundary. Then reading is as good.
        """
        if next_offset is None:
            entry = self._index.floor_by_position(limit - 1)
            if entry is None or entry.position <= start:
                return None
            try:
                mark = self._records.mark(entry.position)
                if mark.last_offset != entry.offset:
                    return None
                boundary = last_boundary(self._records.log_file, entry.position, limit)
            except (BrokenChain, KafkaError):
                return None
            limit, next_offset = boundary or (entry.position, mark.base_offset)
        data = self._records.log_file.map(limit - start, start) if limit - start >= _MAP_BYTES_MIN else None
        if data is None:
            return None
        self._search.remember(next_offset, limit)
        return Chunk(data, next_offset)

    def _first_batch(self, start: int, limit: int, offset: int, *, to_send: bool) -> Chunk:
        mark = self._records.mark(start)
        if start + mark.size_bytes > limit:
            raise self._records.damaged(BrokenChain(start, f"a batch of {mark.size_bytes} bytes cut short"))
        end, next_offset = start + mark.size_bytes, mark.last_offset + 1
        if to_send and mark.size_bytes >= _MAP_BYTES_MIN and not self.checked.is_doubtful(start, end):
            mapped = self._mapped(start, end, next_offset)
            if mapped is not None:
                return mapped
        chunk = Chunk(self._records.log_file.pread(mark.size_bytes, start), next_offset)
        return self._sound(chunk, start, offset)

    def _whole_batches(self, data: bytes, start: int) -> tuple[int, int]:
        """Returns how many bytes of `data` are whole batches, and the offset after them. It hops from the last index entry."""
        below = start + len(data) - 1
        while (entry := self._index.floor_by_position(below)) is not None and entry.position > start:
            hop = _hop(data, entry.position - start, entry)
            if hop is None:
                self._index.rebuild("an offset index entry points nowhere")
                break
            if hop[0]:
                return hop
            below = entry.position - 1
        return _hop(data, 0, None) or (0, -1)


def _hop(data: bytes, index: int, entry: OffsetEntry | None) -> tuple[int, int] | None:
    """Returns (bytes of `data` from `index` to the end of the last whole batch, next offset); (0, -1) without any.

    None when the batch contradicts `entry`, which led here.
    """
    whole, next_offset = 0, -1
    while index + BATCH_BYTES_MIN <= len(data):
        try:
            mark = mark_at(data, index, index)
        except BrokenChain:
            return None if entry is not None and not whole else (whole, next_offset)
        if entry is not None and not whole and mark.last_offset != entry.offset:
            return None
        index += mark.size_bytes
        if index > len(data):
            break
        whole, next_offset = index, mark.last_offset + 1
    return whole, next_offset
