"""The checker of histories: what producers sent, what was acknowledged, what readers saw, and what is there
now.

One ledger for each partition. Every record carries a value of its own, so each can be found again: "what was
acknowledged is there, at its offset, once; nothing else is; each producer's order holds; what a reader saw
below the high watermark never changes, and the high watermark never shrinks below it".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.model.errors import KafkaError
from odradek.records import BatchHeader, check_crc, decode_batch, split_batches
from odradek.runtime.ports import Buffer
from odradek.testing.sim.failures import ViolationError


class SentRecord(NamedTuple):
    """Who sent a value, and as which of its records to this partition, counted from 0."""

    producer: str
    number: int
    is_idempotent: bool


class ReadRecord(NamedTuple):
    """A record that a reader got."""

    offset: int
    value: bytes
    timestamp: int = -1
    is_marker: bool = False
    """No producer's record but the end of a transaction."""


@dataclass(slots=True)
class Ledger:
    """What is known of one partition, outside of every host."""

    partition: str
    sent: dict[bytes, SentRecord] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Values and the offsets that producers got."""
    committed: dict[int, bytes] = field(default_factory=dict)
    """What readers saw below the high watermark, by offset."""
    removable_below: int = 0
    """Records below this offset may have been deleted."""
    high_watermark: int = 0
    """The highest that anyone saw."""
    keeps_late_requests: bool = False
    """A request that nothing waits for any more may be carried out behind later ones: only idempotence keeps the order then."""
    is_committed: Callable[[int], bool] = lambda offset: True
    """Whether an offset lies below a high watermark that some broker had, as far as anyone can know."""

    def send(self, value: bytes, sent: SentRecord) -> None:
        """A producer is about to send `value`, maybe not for the first time."""
        known = self.sent.setdefault(value, sent)
        if known != sent:
            raise AssertionError(f"two records have the value {value!r}")

    def acknowledge(self, value: bytes, offset: int) -> None:
        """A producer learns that `value` is at `offset`."""
        if not self.is_committed(offset):
            self._fail(f"{value[:40]!r} is acknowledged at {offset}, which is above every high watermark")
        known = self.acknowledged.setdefault(value, offset)
        if known != offset:
            self._fail(f"{value[:40]!r} was acknowledged at {known} and again at {offset}")
        other = self.committed.setdefault(offset, value)
        if other != value:
            self._fail(f"{value[:40]!r} is acknowledged at {offset}, where {other[:40]!r} was read")
        self.high_watermark = max(self.high_watermark, offset + 1)

    def may_remove_below(self, offset: int) -> None:
        """Someone deletes, or is about to delete, records below `offset`."""
        self.removable_below = max(self.removable_below, offset)

    def observe(self, records: Sequence[ReadRecord], high_watermark: int) -> None:
        """A reader got `records`, all below the high watermark."""
        for record in records:
            if record.offset >= high_watermark:
                self._fail(f"offset {record.offset} was read above the high watermark {high_watermark}")
            self._check_known(record)
            known = self.committed.setdefault(record.offset, record.value)
            if known != record.value:
                self._fail(f"offset {record.offset} held {known[:40]!r} and now holds {record.value[:40]!r}")
        self.high_watermark = max(self.high_watermark, records[-1].offset + 1 if records else 0)

    def check(self, records: Sequence[ReadRecord], *, start_offset: int, end_offset: int) -> None:
        """`records` is all that the partition holds now, in order of offset, from start to end."""
        self._check_range(records, start_offset, end_offset)
        for record in records:
            self._check_known(record)
        sent = [record for record in records if not record.is_marker]
        self._check_once(sent)
        self._check_order(sent)
        present = {record.offset: record.value for record in records}
        for offset, value in self.committed.items():
            if offset >= start_offset and present.get(offset) != value:
                present_value = present.get(offset)
                what = "is gone" if present_value is None else f"became {present_value[:40]!r}"
                self._fail(f"the committed record {value[:40]!r} at {offset} {what}")

    def _check_range(self, records: Sequence[ReadRecord], start_offset: int, end_offset: int) -> None:
        if start_offset > self.removable_below:
            self._fail(
                f"it begins at {start_offset}, though nothing above {self.removable_below} was deleted"
            )
        if end_offset < self.high_watermark:
            self._fail(f"it ends at {end_offset}, below the high watermark {self.high_watermark} seen before")
        offsets = [record.offset for record in records]
        if offsets != list(range(start_offset, end_offset)):
            self._fail(f"offsets {_runs(offsets)} are there, not {start_offset} to {end_offset - 1}")

    def _check_known(self, record: ReadRecord) -> None:
        if not record.is_marker and record.value not in self.sent:
            self._fail(f"offset {record.offset} holds {record.value[:40]!r}, which no producer sent")

    def _check_once(self, records: Sequence[ReadRecord]) -> None:
        seen: dict[bytes, int] = {}
        for record in records:
            first = seen.setdefault(record.value, record.offset)
            if first != record.offset:
                self._fail(f"{record.value[:40]!r} is there twice, at {first} and at {record.offset}")

    def _check_order(self, records: Sequence[ReadRecord]) -> None:
        """Each producer's records in the order of sending; an idempotent producer's without a gap
        between them.
        """
        last: dict[str, int] = {}
        for record in records:
            sent = self.sent[record.value]
            before = last.get(sent.producer)
            if before is not None:
                if sent.number < before and (sent.is_idempotent or not self.keeps_late_requests):
                    self._fail(f"record {sent.number} of {sent.producer} stands behind record {before}")
                if sent.is_idempotent and sent.number != before + 1:
                    self._fail(f"record {sent.number} of {sent.producer} follows record {before}")
            last[sent.producer] = sent.number

    def _fail(self, problem: str) -> None:
        raise ViolationError(f"{self.partition}: {problem}")


def found_in(records: Buffer, offset: int, *, allow_partial: bool = False) -> list[ReadRecord]:
    """The records from `offset` on in batches that a reader got. Each batch must have the CRC that it
    says.
    """
    try:
        batches = split_batches(records, allow_partial=allow_partial)
    except KafkaError as error:
        raise ViolationError(f"a reader at offset {offset} got what is no batch: {error}") from error
    return decoded(batches, offset)


def decoded(batches: Iterable[tuple[BatchHeader, memoryview]], offset: int) -> list[ReadRecord]:
    """The records from `offset` on, CRCs checked. A tombstone has its value in a header."""
    results: list[ReadRecord] = []
    try:
        for header, batch in batches:
            check_crc(batch)
            for record in decode_batch(batch, header, from_offset=offset):
                value = record.value or (record.headers[0][1] if record.headers else None) or b""
                if header.is_control:
                    value = b"marker of %d: " % header.producer_id + (record.key or b"") + value
                results.append(ReadRecord(record.offset, value, record.timestamp, header.is_control))
    except KafkaError as error:
        raise ViolationError(f"a reader at offset {offset} got what is no batch: {error}") from error
    return results


def _runs(offsets: Sequence[int]) -> str:
    """`0-4, 7`."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in runs) or "none"
