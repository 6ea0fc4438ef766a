"""Reads the files of a log, and finds contradictions between them: for `odradek log dump`.

Nothing here changes a file or needs a broker. Batches come one by one, so that a segment of any size can be shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from odradek.model.errors import KafkaError, OdradekError
from odradek.records import (
    BatchHeader,
    ControlKind,
    ControlMarker,
    Record,
    check_crc,
    decode_batch,
    read_control,
    read_header,
)
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files import naming
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.snapshot import BadSnapshotError, decode_snapshot
from odradek.storage.segment.batch_walk import BATCH_BYTES_MIN
from odradek.storage.segment.sparse_index import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, TimeEntry
from odradek.storage.segment.transaction_index import ENTRY as TRANSACTION_ENTRY
from odradek.storage.segment.transaction_index import AbortedTransaction, decode_aborted

_NEVER_MS = 2**63 - 1


class UnreadableFileError(OdradekError):
    """A file whose content does not fit its name; the message has its name and the reason."""

    def __init__(self, path: str, reason: Exception) -> None:
        super().__init__(f"{path} cannot be read: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    """A batch in a `.log` file. After one with a `problem` that breaks the chain (`header` is None) nothing follows."""

    position: int
    header: BatchHeader | None
    records: tuple[Record, ...] | None = None
    """None unless asked for, or unreadable."""
    marker: ControlMarker | None = None
    """The marker of a control batch that is readable."""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSummary:
    """A segment as a whole. `problems` contains sentences, in the order in which the problems were met."""

    base_offset: int
    size_bytes: int
    good_bytes: int
    """The bytes before the first damaged batch."""
    batch_count: int
    record_count: int
    first_offset: int
    last_offset: int
    """-1, like the others, in an empty segment."""
    min_timestamp: int
    max_timestamp: int
    offset_entry_count: int
    time_entry_count: int
    problems: tuple[str, ...]


def read_batches(disk: Disk, log_path: str, *, with_records: bool = False) -> Iterator[DumpedBatch]:
    """Yields the batches of a `.log` file in order, CRCs checked."""
    file = disk.open(log_path, write=False)
    try:
        size_bytes = file.length()
        position = 0
        while position < size_bytes:
            dumped = _batch_at(file, position, size_bytes, with_records=with_records)
            yield dumped
            if dumped.header is None:
                return
            position += dumped.header.size_bytes
    finally:
        file.close()


def _batch_at(file: DiskFile, position: int, size_bytes: int, *, with_records: bool) -> DumpedBatch:
    try:
        header = read_header(file.pread(BATCH_BYTES_MIN, position))
    except KafkaError as error:
        return DumpedBatch(position=position, header=None, problem=error.message)
    if position + header.size_bytes > size_bytes:
        problem = f"a batch of {header.size_bytes} bytes of which {size_bytes - position} are there"
        return DumpedBatch(position=position, header=None, problem=problem)
    batch = file.pread(header.size_bytes, position)
    try:
        check_crc(batch)
        records = tuple(decode_batch(batch)) if with_records else None
        marker = read_control(batch) if header.is_control and header.record_count else None
    except KafkaError as error:
        return DumpedBatch(position=position, header=header, problem=error.message)
    return DumpedBatch(position=position, header=header, records=records, marker=marker)


def read_offset_index(disk: Disk, path: str) -> list[OffsetEntry]:
    """Returns all whole entries of an `.index` file."""
    base_offset, data = _base_offset(path), disk.read(path)
    whole = data[: len(data) - len(data) % OFFSET_ENTRY.size]
    return [
        OffsetEntry(base_offset + relative, position)
        for relative, position in OFFSET_ENTRY.iter_unpack(whole)
    ]


def read_time_index(disk: Disk, path: str) -> list[TimeEntry]:
    """Returns all whole entries of a `.timeindex` file."""
    base_offset, data = _base_offset(path), disk.read(path)
    whole = data[: len(data) - len(data) % TIME_ENTRY.size]
    return [
        TimeEntry(timestamp, base_offset + relative) for timestamp, relative in TIME_ENTRY.iter_unpack(whole)
    ]


def read_transaction_index(disk: Disk, path: str) -> list[AbortedTransaction]:
    """Returns all whole entries of a `.txnindex` file; UnreadableFileError for a version that is not known."""
    data = disk.read(path)
    try:
        return decode_aborted(data[: len(data) - len(data) % TRANSACTION_ENTRY.size])
    except ValueError as error:
        raise UnreadableFileError(path, error) from None


def read_snapshot(disk: Disk, path: str) -> list[ProducerState]:
    """Returns the producers in a `.snapshot` file; UnreadableFileError when it is damaged."""
    try:
        return decode_snapshot(disk.read(path), _NEVER_MS)
    except BadSnapshotError as error:
        raise UnreadableFileError(path, error) from None


def _base_offset(path: str) -> int:
    file = naming.parse_offset_file(path.rpartition("/")[2])
    if file is None:
        raise ValueError(f"{path} is not named after an offset")
    return file.offset


def check_segment(disk: Disk, log_path: str, *, is_newest: bool = False) -> SegmentSummary:
    """Reads a segment and its indexes whole and compares them. A running broker may not have made the newest ones yet."""
    check = _Check(disk, log_path, is_newest)
    for dumped in read_batches(disk, log_path):
        check.add(dumped)
    return check.summary(disk.length(log_path))


@dataclass(slots=True)
class _Check:
    """The state of a segment's check so far."""

    disk: Disk
    log_path: str
    is_newest: bool
    base_offset: int = field(init=False)
    offset_entries: list[OffsetEntry] = field(init=False)
    time_entries: list[TimeEntry] = field(init=False)
    aborted: dict[int, AbortedTransaction] = field(init=False)
    """The transaction index's entries whose markers were not met yet, by the offset of the marker."""
    problems: list[str] = field(default_factory=list)
    next_offset_entry: int = 0
    next_time_entry: int = 0
    batch_count: int = 0
    record_count: int = 0
    first_offset: int = -1
    last_offset: int = -1
    min_timestamp: int = -1
    max_timestamp: int = -1
    good_bytes: int = 0
    is_good: bool = True

    def __post_init__(self) -> None:
        self.base_offset = _base_offset(self.log_path)
        stem = self.log_path.removesuffix(naming.LOG)
        offset_path, time_path = stem + naming.OFFSET_INDEX, stem + naming.TIME_INDEX
        self._check_length(offset_path, OFFSET_ENTRY.size)
        self._check_length(time_path, TIME_ENTRY.size)
        self.offset_entries = (
            read_offset_index(self.disk, offset_path) if self.disk.exists(offset_path) else []
        )
        self.time_entries = read_time_index(self.disk, time_path) if self.disk.exists(time_path) else []
        self.aborted = {entry.last_offset: entry for entry in self._transaction_index(stem)}

    def _transaction_index(self, stem: str) -> list[AbortedTransaction]:
        """Reads the transaction index; a segment without aborted transactions has none."""
        path = stem + naming.TRANSACTION_INDEX
        if not self.disk.exists(path):
            return []
        self._check_length(path, TRANSACTION_ENTRY.size)
        try:
            return read_transaction_index(self.disk, path)
        except UnreadableFileError as error:
            self.problems.append(str(error))
            return []

    def _check_length(self, path: str, entry_bytes: int) -> None:
        if not self.disk.exists(path):
            if not self.is_newest:
                self.problems.append(f"{path} is missing")
        elif self.disk.length(path) % entry_bytes:
            self.problems.append(f"{path} does not end with a whole entry of {entry_bytes} bytes")

    def add(self, dumped: DumpedBatch) -> None:
        header = dumped.header
        if dumped.problem is not None:
            self.problems.append(f"byte {dumped.position}: {dumped.problem}")
            self.is_good = False
        if header is None:
            return
        floor = self.last_offset + 1 if self.batch_count else self.base_offset
        if header.base_offset < floor:
            self.problems.append(
                f"byte {dumped.position}: offset {header.base_offset} where at least {floor} is due"
            )
        self._count(header)
        if self.is_good:
            self.good_bytes = dumped.position + header.size_bytes
        self._compare_offsets(dumped.position, header)
        self._compare_times(header)
        self._compare_aborted(header, dumped.marker)

    def _count(self, header: BatchHeader) -> None:
        if not self.batch_count:
            self.first_offset = header.base_offset
            self.min_timestamp = header.base_timestamp
        self.batch_count += 1
        self.record_count += header.record_count
        self.last_offset = header.last_offset
        self.min_timestamp = min(self.min_timestamp, header.base_timestamp)
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def _compare_offsets(self, position: int, header: BatchHeader) -> None:
        entries = self.offset_entries
        while self.next_offset_entry < len(entries) and entries[self.next_offset_entry].position <= position:
            entry = entries[self.next_offset_entry]
            self.next_offset_entry += 1
            if entry != (header.last_offset, position):
                self.problems.append(
                    f"offset index: offset {entry.offset} at byte {entry.position}, "
                    f"but the batch that ends with {header.last_offset} is at byte {position}"
                )

    def _compare_times(self, header: BatchHeader) -> None:
        """Compares the time entries: each covers everything up to its offset, whose largest timestamp must be exactly the
        entry's."""
        entries = self.time_entries
        while (
            self.next_time_entry < len(entries) and entries[self.next_time_entry].offset <= header.last_offset
        ):
            entry = entries[self.next_time_entry]
            self.next_time_entry += 1
            if entry.offset != header.last_offset or entry.timestamp != self.max_timestamp:
                self.problems.append(
                    f"time index: nothing up to offset {entry.offset} is later than {entry.timestamp}, "
                    f"but the batch that ends with {header.last_offset} has seen {self.max_timestamp}"
                )

    def _compare_aborted(self, header: BatchHeader, marker: ControlMarker | None) -> None:
        entry = self.aborted.pop(header.base_offset, None)
        if entry is None:
            return
        is_abort = marker is not None and marker.kind is ControlKind.ABORT
        if not is_abort or header.producer_id != entry.producer_id:
            self.problems.append(
                f"transaction index: producer {entry.producer_id} aborted at {entry.last_offset}, "
                "but the batch there is no such marker"
            )

    def summary(self, size_bytes: int) -> SegmentSummary:
        for offset in self.aborted:
            self.problems.append(f"transaction index: no batch begins at {offset}, where it knows a marker")
        for name, left in (
            ("offset index", len(self.offset_entries) - self.next_offset_entry),
            ("time index", len(self.time_entries) - self.next_time_entry),
        ):
            if left:
                self.problems.append(f"{name}: {left} entries point after the last batch")
        return SegmentSummary(
            base_offset=self.base_offset,
            size_bytes=size_bytes,
            good_bytes=self.good_bytes,
            batch_count=self.batch_count,
            record_count=self.record_count,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            min_timestamp=self.min_timestamp,
            max_timestamp=self.max_timestamp,
            offset_entry_count=len(self.offset_entries),
            time_entry_count=len(self.time_entries),
            problems=tuple(self.problems),
        )
