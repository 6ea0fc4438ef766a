"""One partition's part of one answer to ShareFetch: the records that were acquired, read batch by batch. No I/O.

The response holds whole batches, and lists the offsets that were acquired. Offsets that are ours and hold no
record (markers of transactions, records that compaction removed) are gaps: the broker hears of them, and the
user does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.client.share.share_record import SharePartitionId, ShareSource
from odradek.model.errors import KafkaError
from odradek.records import BatchHeader, Record, check_crc, data_batches, decode_batch, split_batches
from odradek.runtime.ports import Buffer


class OffsetSpan(NamedTuple):
    """Neighbouring offsets, both ends included."""

    first_offset: int
    last_offset: int


class DeliveredRange(NamedTuple):
    """Neighbouring offsets that were acquired together, both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquiredChunk:
    """Begin with `next_records`; `gaps` and `unreadable` grow meanwhile and are the caller's to acknowledge."""

    __slots__ = (
        "_batches",
        "_check_crcs",
        "_ranges",
        "_ready",
        "deadline",
        "gaps",
        "partition",
        "size_bytes",
        "source",
        "unreadable",
    )

    def __init__(
        self,
        partition: SharePartitionId,
        source: ShareSource,
        records: Buffer,
        acquired: Iterable[DeliveredRange],
        *,
        deadline: float,
        check_crcs: bool,
    ) -> None:
        """Raises CORRUPT_MESSAGE when the headers of the batches make no sense. `deadline`: when the locks end, in seconds of
        the monotonic clock."""
        self.partition: Final = partition
        self.source: Final = source
        self.deadline: Final = deadline
        self.size_bytes: Final = len(records)
        self.gaps: list[OffsetSpan] = []
        self.unreadable: list[OffsetSpan] = []
        """Offsets of batches that could not be read."""
        self._check_crcs = check_crcs
        self._ranges = deque(_disjoint(acquired))
        self._batches = deque(data_batches(split_batches(records, allow_partial=True)))
        self._ready: deque[tuple[Record, int]] = deque()

    @property
    def is_empty(self) -> bool:
        """Nothing is left: neither records nor gaps that were not found yet."""
        return not self._ready and not self._ranges

    def next_records(self, record_count_max: int) -> list[tuple[Record, int]]:
        """Returns records with their delivery counts, in order; [] only when nothing is left.

        Raises CORRUPT_MESSAGE or INVALID_RECORD for a batch that cannot be read, once: its acquired offsets
        are in `unreadable`, and the next call continues after it.
        """
        while not self._ready and self._ranges:
            if not self._batches:
                self._void_below(self._ranges[-1].last_offset + 1)
                break
            self._read(*self._batches.popleft())
        count = min(record_count_max, len(self._ready))
        return [self._ready.popleft() for _ in range(count)]

    def put_back(self, records: Iterable[tuple[Record, int]]) -> None:
        """Undoes the end of the last `next_records`: these records come again."""
        self._ready.extendleft(reversed(list(records)))

    def _read(self, header: BatchHeader, content: memoryview) -> None:
        """Decodes a batch, if any of it was acquired."""
        self._void_below(header.base_offset)
        if not self._ranges or self._ranges[0].first_offset > header.last_offset:
            return
        try:
            if self._check_crcs:
                check_crc(content)
            records = decode_batch(content, header, from_offset=self._ranges[0].first_offset)
        except KafkaError as error:
            self.unreadable += self._cut(header.last_offset + 1)
            raise KafkaError(
                error.code,
                f"{self.partition}: the batch at offset {header.base_offset} cannot be read ({error.message}); its records were"
                " released, and are delivered again up to the group's limit of deliveries",
            ) from error
        for record in records:
            self._void_below(record.offset)
            if self._ranges and self._ranges[0].first_offset == record.offset:
                self._ready.append((record, self._ranges[0].delivery_count))
                self._cut(record.offset + 1)
        self._void_below(header.next_offset)

    def _void_below(self, offset: int) -> None:
        self.gaps += self._cut(offset)

    def _cut(self, offset: int) -> list[OffsetSpan]:
        """Removes and returns what is acquired below the offset."""
        below: list[OffsetSpan] = []
        while self._ranges and self._ranges[0].first_offset < offset:
            acquired = self._ranges.popleft()
            last_offset = min(acquired.last_offset, offset - 1)
            below.append(OffsetSpan(acquired.first_offset, last_offset))
            if last_offset < acquired.last_offset:
                self._ranges.appendleft(acquired._replace(first_offset=last_offset + 1))
        return below


def _disjoint(acquired: Iterable[DeliveredRange]) -> Iterable[DeliveredRange]:
    """Yields the ranges in order, each offset in one: a record is not to be returned twice, whatever a broker sends."""
    free_from = 0
    for delivered in sorted(acquired):
        first_offset = max(delivered.first_offset, free_from)
        if first_offset <= delivered.last_offset:
            yield delivered._replace(first_offset=first_offset)
            free_from = delivered.last_offset + 1
