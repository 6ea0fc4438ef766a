"""The second half of a compaction: a group of segments is read from its start, and what stays becomes one segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from odradek.records import BatchHeader, read_header
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.cleaning.batches import checked_batches
from odradek.storage.cleaning.fates import Fates
from odradek.storage.cleaning.keys import SourceSegment
from odradek.storage.cleaning.target import CleanedSegment
from odradek.storage.files.lifetime import LogLifetime
from odradek.storage.segment.transaction_index import AbortedTransaction


class GroupWriting:
    """Writes the target, complete and durable, but not yet in anyone's place."""

    def __init__(
        self,
        disk: Disk,
        life: LogLifetime,
        segments: Sequence[SourceSegment],
        target: CleanedSegment,
        fates: Fates,
        *,
        aborted: Iterable[AbortedTransaction],
        modified_ms: int,
        window_bytes: int,
    ) -> None:
        """`aborted`: the aborted transactions in the segments' indexes."""
        self._disk = disk
        self._life = life
        self._segments = segments
        self._fates = fates
        self._aborted = {entry.last_offset: entry for entry in aborted}
        self._modified_ms = modified_ms
        self._window_bytes = window_bytes
        self._file: DiskFile | None = None
        self.target = target
        self.read_bytes = 0
        self.batch_count = 0
        self.moved_bytes = 0

    def steps(self) -> Iterator[None]:
        target = self.target
        target.begin()
        for segment in self._segments:
            self._file = segment.open(self._disk, self._life)
            for header, batch in checked_batches(self._file, segment.size_bytes, self._window_bytes):
                self.read_bytes += header.size_bytes
                self.moved_bytes += header.size_bytes
                self.batch_count += 1
                self._move(header, batch)
                yield
            self._close_source()
        target.finish(
            self._segments[-1].end_offset, self._modified_ms, has_transaction_index=bool(self._aborted)
        )

    def _move(self, header: BatchHeader, batch: memoryview) -> None:
        retained = self._fates.of(header, batch)
        if retained is None:
            return
        self.moved_bytes += len(retained)
        self.target.add(header if retained is batch else read_header(retained), retained)
        entry = self._aborted.get(header.base_offset)
        if entry is not None and self._fates.keeps_entry:
            self.target.aborted.append(entry)

    def _close_source(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self._close_source()
