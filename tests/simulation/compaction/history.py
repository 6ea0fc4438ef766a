"""The checker of compacted logs: what was sent under which key, with which outcome, and what must therefore still be there.

Kept outside of every host. Each record carries its identity in a header, as a tombstone has no value to carry it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from odradek.records import (
    BatchHeader,
    ControlKind,
    Record,
    check_crc,
    decode_batch,
    read_control,
    split_batches,
)
from odradek.storage.log.log import Log
from odradek.testing.sim.failures import ViolationError

IDENTITY: Final = "id"


class Fate(Enum):
    """What is known of a record."""

    IN_DOUBT = "in doubt"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class ProducedRecord:
    """A record that a producer sent."""

    key: bytes
    is_tombstone: bool
    sent_ms: int
    transaction: str
    """Its transaction's name; empty outside of any."""
    fate: Fate = Fate.IN_DOUBT
    offset: int = -1
    """Once it was acknowledged."""


class Marker(NamedTuple):
    """A marker that was acknowledged."""

    transaction: str
    sent_ms: int


@dataclass(slots=True)
class CompactionHistory:
    """What is known of one partition."""

    name: str
    delete_retention_ms: int
    sent: dict[bytes, ProducedRecord] = field(default_factory=dict)
    """By identity."""
    places: dict[int, bytes] = field(default_factory=dict)
    """What was ever acknowledged or read at an offset."""
    markers: dict[int, Marker] = field(default_factory=dict)
    removable_below: int = 0
    """Retention or a user may have deleted what is below."""
    offered_below: int = 0
    """What is not below was never offered to compaction."""

    # ---- what producers and readers know ------------------------------------------------------------------------

    def acknowledge(self, identity: bytes, offset: int) -> None:
        """The record is durable; outside of transactions that is all it needs."""
        sent = self.sent[identity]
        if sent.offset not in (-1, offset):
            self._fail(f"{identity!r} was acknowledged at {sent.offset} and at {offset}")
        sent.offset = offset
        self._place(identity, offset)
        if not sent.transaction:
            sent.fate = Fate.COMMITTED

    def ended(self, transaction: str, offset: int, now_ms: int, *, is_commit: bool) -> None:
        """The transaction's marker is durable."""
        self.markers[offset] = Marker(transaction, now_ms)
        self.resolved(transaction, is_commit=is_commit)

    def resolved(self, transaction: str, *, is_commit: bool) -> None:
        """It is over; where its marker is, no one said."""
        for sent in self.sent.values():
            if sent.transaction == transaction:
                sent.fate = Fate.COMMITTED if is_commit else Fate.ABORTED

    def _place(self, identity: bytes, offset: int) -> None:
        known = self.places.setdefault(offset, identity)
        if known != identity:
            self._fail(f"offset {offset} held {known!r} and now holds {identity!r}")

    def observe(self, records: Iterable[Record], below: int) -> None:
        """A reader got these; those `below` are durable."""
        for record in records:
            identity = identity_of(record)
            sent = self.sent.get(identity)
            if sent is None or sent.key != record.key or sent.is_tombstone != (record.value is None):
                self._fail(f"offset {record.offset} holds {identity!r}, which no one sent so")
            if record.offset < below:
                self._place(identity, record.offset)

    # ---- judging a log -----------------------------------------------------------------------------------------------

    def check(self, log: Log, stable_offset: int, now_ms: int) -> None:
        """Raise unless the log, as readers get it now, is one that this history allows."""
        batches = read_batches(log)
        self._check_batches(log, batches)
        records = [
            record
            for header, batch in batches
            if not header.is_control
            for record in decode_batch(batch, header, from_offset=log.start_offset)
        ]
        self.observe(records, stable_offset)
        self._check_latest(log, records, now_ms)
        self._check_tail(log, records)
        self._check_markers(log, batches, records, now_ms)
        self._check_committed(log, batches, records, stable_offset)

    def _check_batches(self, log: Log, batches: list[tuple[BatchHeader, memoryview]]) -> None:
        if log.start_offset > self.removable_below:
            self._fail(f"it begins at {log.start_offset}, nothing above {self.removable_below} was deleted")
        previous = -1
        for header, _ in batches:
            if header.base_offset <= previous:
                self._fail(f"a batch at {header.base_offset} follows {previous}")
            previous = header.last_offset
        if batches and previous != log.end_offset - 1:
            self._fail(f"the last batch ends at {previous}, the log at {log.end_offset}")

    def _check_latest(self, log: Log, records: list[Record], now_ms: int) -> None:
        """For each key the newest record that is known to be committed, unless a newer one may be."""
        present = {record.offset for record in records}
        newest: dict[bytes, int] = {}
        for record in records:
            if record.key is not None and self.sent[identity_of(record)].fate is not Fate.ABORTED:
                newest[record.key] = record.offset
        for key, sent in self._latest().items():
            if sent.offset in present or sent.offset < log.start_offset:
                continue
            newest_offset = newest.get(key, -1)
            if newest_offset > sent.offset:
                continue  # one in doubt has replaced it
            if not sent.is_tombstone:
                self._fail(f"{key!r} has lost its newest value, at {sent.offset}")
            if now_ms < sent.sent_ms + self.delete_retention_ms:
                self._fail(f"the tombstone of {key!r} at {sent.offset} went too early")
            if newest_offset >= 0:
                self._fail(f"{key!r} was deleted at {sent.offset}, and is back at {newest_offset}")

    def _latest(self) -> dict[bytes, ProducedRecord]:
        expected: dict[bytes, ProducedRecord] = {}
        for sent in self.sent.values():
            if sent.fate is Fate.COMMITTED and sent.offset > (
                expected[sent.key].offset if sent.key in expected else -1
            ):
                expected[sent.key] = sent
        return expected

    def _check_tail(self, log: Log, records: list[Record]) -> None:
        present = {record.offset for record in records}
        for offset in self.places:
            if offset >= max(self.offered_below, log.start_offset) and offset not in present:
                self._fail(f"offset {offset} is gone, compaction was offered {self.offered_below}")

    def _check_markers(
        self, log: Log, batches: list[tuple[BatchHeader, memoryview]], records: list[Record], now_ms: int
    ) -> None:
        kept = {header.base_offset for header, _ in batches if header.is_control and header.record_count}
        left = {self.sent[identity_of(record)].transaction for record in records}
        for offset, marker in self.markers.items():
            if offset in kept or offset < log.start_offset:
                continue
            if marker.transaction in left:
                self._fail(f"the marker at {offset} is gone, of {marker.transaction} records are left")
            if now_ms < marker.sent_ms + self.delete_retention_ms:
                self._fail(f"the marker at {offset} of {marker.transaction} went too early")

    def _check_committed(
        self,
        log: Log,
        batches: list[tuple[BatchHeader, memoryview]],
        records: list[Record],
        stable_offset: int,
    ) -> None:
        """A consumer of committed records gets those, and none that is known to be aborted."""
        delivered = {record.offset for record in committed_records(log, batches, stable_offset)}
        for record in records:
            fate = self.sent[identity_of(record)].fate
            if record.offset >= stable_offset:
                continue
            if fate is Fate.COMMITTED and record.offset not in delivered:
                self._fail(f"the committed record at {record.offset} is not delivered")
            if fate is Fate.ABORTED and record.offset in delivered:
                self._fail(f"the aborted record at {record.offset} is delivered")

    def check_clean(self, log: Log, cleaned_offset: int) -> None:
        """All was compacted, twice: below this offset each key is there once, and nothing aborted at all."""
        seen: dict[bytes | None, int] = {}
        for header, batch in read_batches(log):
            if header.is_control or header.base_offset >= cleaned_offset:
                continue
            for record in decode_batch(batch, header, from_offset=log.start_offset):
                if self.sent[identity_of(record)].fate is Fate.ABORTED:
                    self._fail(f"the aborted record at {record.offset} was not compacted away")
                if seen.setdefault(record.key, record.offset) != record.offset:
                    self._fail(f"{record.key!r} is there twice: at {seen[record.key]} and {record.offset}")

    def _fail(self, problem: str) -> None:
        raise ViolationError(f"{self.name}: {problem}")


def identity_of(record: Record) -> bytes:
    return next((value for name, value in record.headers if name == IDENTITY and value), b"")


def read_batches(log: Log) -> list[tuple[BatchHeader, memoryview]]:
    """All of the log as a reader gets it; each with the CRC that it says."""
    results: list[tuple[BatchHeader, memoryview]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        read = log.read(offset, 4000, end_offset=log.end_offset, at_least_one=True)
        if read.next_offset <= offset:
            raise ViolationError(f"{log.topic_partition}: a reader is stuck at {offset}")
        for header, batch in split_batches(read.records):
            check_crc(batch)
            results.append((header, batch))
        offset = read.next_offset
    return results


def committed_records(
    log: Log, batches: Iterable[tuple[BatchHeader, memoryview]], stable_offset: int
) -> list[Record]:
    """What a consumer of committed records delivers of these batches: it goes by the aborted transactions that the log
    tells it, and by the markers that it meets.
    """
    coming = sorted(
        (first, producer) for producer, first in log.aborted_transactions(log.start_offset, log.end_offset)
    )
    aborting: set[int] = set()
    records: list[Record] = []
    for header, batch in batches:
        if header.base_offset >= stable_offset:
            break
        while coming and coming[0][0] <= header.last_offset:
            aborting.add(coming.pop(0)[1])
        if header.is_control:
            if header.record_count and read_control(batch).kind is ControlKind.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            readable = decode_batch(batch, header, from_offset=log.start_offset)
            records += [record for record in readable if record.offset < stable_offset]
    return records
