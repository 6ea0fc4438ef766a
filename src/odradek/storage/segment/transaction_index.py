"""The `.txnindex` of a segment, in Kafka's format: the aborted transactions whose markers are in it.

34 bytes each: version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64. The last offset,
the marker's, grows from entry to entry, and so does the last stable offset, so a search looks at few of them. The file exists
only where a segment has entries.

Entries are noted in memory and written before the segment is sealed or closed; what a crash loses is made again from the
batches (`recovery/replay.py`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Final, NamedTuple
from zlib import crc32

from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.producers.open_transactions import EndedTransaction

ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_BLOCK: Final = 64


class AbortedTransaction(NamedTuple):
    """A transaction whose records must not be read: its producer, its first offset, and the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset when the marker was written; it ends the search for entries that concern an offset."""

    @classmethod
    def of(cls, ended: EndedTransaction) -> AbortedTransaction:
        return cls(ended.producer_id, ended.first_offset, ended.marker_offset, ended.last_stable_offset)


def encode_aborted(entry: AbortedTransaction) -> bytes:
    return ENTRY.pack(_VERSION, *entry)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """Returns all entries; ValueError when the bytes are not whole entries of a known version."""
    if len(data) % ENTRY.size:
        raise ValueError(f"{len(data)} bytes are not a multiple of {ENTRY.size}")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise ValueError(f"version {version} is unknown")
        entries.append(AbortedTransaction(*fields))
    return entries


def is_sound(data: bytes, base_offset: int, end_offset: int) -> bool:
    """Returns whether the bytes can be the index of a segment with these bounds."""
    try:
        entries = decode_aborted(data)
    except ValueError:
        return False
    before = base_offset - 1
    for entry in entries:
        if not before < entry.last_offset < end_offset or not 0 <= entry.first_offset < entry.last_offset:
            return False
        before = entry.last_offset
    return True


class TransactionIndex:
    """The index of one segment. Used on the event loop only."""

    __slots__ = ("_disk", "_files", "_path", "_pending", "_written_count", "file", "sum")

    def __init__(self, disk: Disk, files: OpenFiles, path: str) -> None:
        self._disk = disk
        self._files = files
        self._path = path
        self._pending = bytearray()
        self._written_count = 0
        self.sum = 0
        """CRC-32 of all entries: what tells them from others later (`naming.TRANSACTION_SUMS`)."""
        self.file: DiskFile | None = None
        """Open for writing, while its segment is; the code that makes the segment durable syncs it."""

    def __len__(self) -> int:
        return self._written_count + self.unwritten_count

    @property
    def unwritten_count(self) -> int:
        return len(self._pending) // ENTRY.size

    def share(self, files: OpenFiles) -> None:
        self._files = files

    def found(self, length: int, sum_: int) -> None:
        """Notes that the file is there, with its size and CRC."""
        self._written_count = length // ENTRY.size
        self.sum = sum_

    def note(self, entry: AbortedTransaction) -> None:
        """Adds an entry after all others."""
        encoded = encode_aborted(entry)
        self._pending += encoded
        self.sum = crc32(encoded, self.sum)

    def write(self) -> None:
        """Writes entries that are only in memory to the file. An OSError leaves everything as it was."""
        if not self._pending:
            return
        if self.file is None:
            self._files.forget(self._path)
            self.file = self._disk.open(self._path, create=True)
            self.file.truncate(self._written_count * ENTRY.size)
        self.file.pwrite(self._pending, self._written_count * ENTRY.size)
        self._written_count = len(self)
        self._pending.clear()

    def detach(self) -> None:
        """Forgets the open file, which belongs to its syncer from now on: nothing more will be written."""
        self.file = None

    def cut(self, end_offset: int) -> DiskFile | None:
        """Removes the entries of markers from `end_offset` on. Returns the open file, if any: the next `write` opens it
        again."""
        retained_count = bisect_left(range(len(self)), end_offset, key=self._last_offset)
        self.sum = crc32(self._read(0, retained_count))
        del self._pending[max(retained_count - self._written_count, 0) * ENTRY.size :]
        self._written_count = min(retained_count, self._written_count)
        file, self.file = self.file, None
        return file

    def all(self) -> list[AbortedTransaction]:
        return decode_aborted(self._read(0, len(self)))

    def find(self, start_offset: int, end_offset: int, aborted: list[AbortedTransaction]) -> bool:
        """Adds the entries that concern offsets from start to end. Returns True when no later segment can have any."""
        count = len(self)
        at = bisect_left(range(count), start_offset, key=self._last_offset)
        while at < count:
            for entry in decode_aborted(self._read(at, min(_BLOCK, count - at))):
                if entry.first_offset < end_offset:
                    aborted.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return True
            at += _BLOCK
        return False

    def _last_offset(self, number: int) -> int:
        return decode_aborted(self._read(number, 1))[0].last_offset

    def _read(self, number: int, count: int) -> bytes:
        size, written = ENTRY.size, self._written_count
        data = b""
        if number < written:
            file = self.file if self.file is not None else self._files.get(self._path)
            data = file.pread(min(count, written - number) * size, number * size)
        if number + count > written:
            first = max(number - written, 0)
            data += self._pending[first * size : (number + count - written) * size]
        return data
