"""The first half of a compaction: which key was written last where, in the dirty part of a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from odradek.records import BatchHeader, read_control
from odradek.records.cleaning import SLOT_BYTES, KeyMap, new_key_map, note_keys
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.cleaning.batches import checked_batches
from odradek.storage.cleaning.pieces import Abandoned
from odradek.storage.cleaning.transactions import CleanedTransactions
from odradek.storage.files.lifetime import LogLifetime

_SLOTS_MIN: Final = 16


class SourceSegment:
    """A sealed segment to be read: its bounds, and where its file is."""

    __slots__ = ("base_offset", "end_offset", "path", "size_bytes")

    def __init__(self, base_offset: int, end_offset: int, size_bytes: int, path: str) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.size_bytes = size_bytes
        self.path = path

    def open(self, disk: Disk, life: LogLifetime) -> DiskFile:
        """Opens the file by its name, and only while the directory still belongs to this log.

        Raises Abandoned when it does not, or when retention has removed the file already.
        """
        opened: list[DiskFile] = []
        try:
            if not life.attempt(lambda: opened.append(disk.open(self.path, write=False))):
                raise Abandoned
        except FileNotFoundError:
            raise Abandoned from None
        return opened[0]


def key_map_for(record_count_max: int, *, bytes_max: int, load_factor: float, seed: bytes) -> KeyMap:
    """Returns an empty key map for `record_count_max` records, of at most `bytes_max` bytes; the load factor keeps some of it
    free so that searches are short."""
    slot_count = max(min(bytes_max // SLOT_BYTES, 2 * record_count_max), _SLOTS_MIN)
    return new_key_map(slot_count, max(int(slot_count * load_factor), 1), seed)


class KeyReading:
    """Fills the key map. Ends early when the map is full: the next compaction does the rest."""

    def __init__(
        self,
        disk: Disk,
        life: LogLifetime,
        segments: Sequence[SourceSegment],
        keys: KeyMap,
        *,
        first_offset: int,
        aborted: Iterable[tuple[int, int]],
        window_bytes: int,
    ) -> None:
        """`aborted`: of the transactions with records or a marker from `first_offset` on."""
        self._disk = disk
        self._life = life
        self._segments = segments
        self._first_offset = first_offset
        self._transactions = CleanedTransactions(aborted)
        self._window_bytes = window_bytes
        self._file: DiskFile | None = None
        self.keys = keys
        self.end_offset = first_offset
        """The map knows of every record below it."""
        self.batch_count = 0
        self.moved_bytes = 0

    def steps(self) -> Iterator[None]:
        for segment in self._segments:
            self._file = segment.open(self._disk, self._life)
            for header, batch in checked_batches(self._file, segment.size_bytes, self._window_bytes):
                self.moved_bytes += header.size_bytes
                self.batch_count += 1
                if header.last_offset >= self._first_offset and not self._add_batch(header, batch):
                    return
                yield
            self.close()
            self.end_offset = segment.end_offset

    def _add_batch(self, header: BatchHeader, batch: memoryview) -> bool:
        """Returns False when the map is full."""
        if header.is_control:
            if header.record_count:
                self._transactions.is_done(header, read_control(batch).kind)
        elif not self._transactions.is_aborted(header):
            refused = note_keys(self.keys, batch, header, self._first_offset)
            if refused >= 0:
                self.end_offset = refused
                return False
        self.end_offset = header.next_offset
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
