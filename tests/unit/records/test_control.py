"""Markers, and what a reader at read_committed sees."""

from __future__ import annotations

import struct

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    ControlKind,
    assign,
    check_crc,
    control_batch,
    data_batches,
    decode_batch,
    read_control,
    read_header,
    split_batches,
)


@pytest.mark.parametrize("kind", list(ControlKind))
def test_a_marker_comes_back(kind: ControlKind) -> None:
    batch = control_batch(kind, 77, 3, coordinator_epoch=12, timestamp=5_000)
    check_crc(batch)
    assign(batch, 400, 1)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, -1)
    marker = read_control(batch)
    assert (marker.kind, marker.offset, marker.timestamp, marker.coordinator_epoch) == (kind, 400, 5_000, 12)


def test_a_marker_has_kafka_s_key_and_value() -> None:
    batch = control_batch(ControlKind.COMMIT, 1, 0, coordinator_epoch=258, timestamp=0)
    [record] = decode_batch(batch)
    assert (record.key, record.value) == (b"\0\0\0\x01", b"\0\0\0\0\x01\x02")


def _control(key: bytes | None, value: bytes | None, count: int = 1) -> bytearray:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, key, value)
    return builder.build(control=True)


def test_other_kinds_of_control_records_are_not_about_transactions() -> None:
    assert read_control(_control(struct.pack(">hh", 0, 2), b"whatever")).kind is None


def test_newer_versions_may_have_more_fields() -> None:
    marker = read_control(_control(b"\0\x01\0\0more", b"\0\x01\0\0\0\x09more"))
    assert (marker.kind, marker.coordinator_epoch) == (ControlKind.ABORT, 9)


@pytest.mark.parametrize(
    ("key", "value", "count"),
    [
        (None, None, 1),
        (b"\0\0\0", b"", 1),
        (b"\xff\xff\0\0", b"\0\0\0\0\0\0", 1),
        (b"\0\0\0\1", None, 1),
        (b"\0\0\0\1", b"\0\0\0\0\0", 1),
        (b"\0\0\0\1", b"\0\0\0\0\0\0", 2),
    ],
)
def test_a_malformed_marker_is_refused(key: bytes | None, value: bytes | None, count: int) -> None:
    with pytest.raises(KafkaError) as caught:
        read_control(_control(key, value, count))
    assert caught.value.code is ErrorCode.INVALID_RECORD


class _Partition:
    """A log as a fetch would return it, and the values a reader takes from it."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.next_offset = 0

    def add(self, batch: bytearray) -> int:
        assign(batch, self.next_offset, 0)
        offset, self.next_offset = self.next_offset, read_header(batch).next_offset
        self.content += batch
        return offset

    def write(self, value: bytes, producer_id: int = -1) -> int:
        builder = BatchBuilder()
        builder.append(0, None, value)
        return self.add(builder.build(producer_id=producer_id, transactional=producer_id >= 0))

    def end(self, kind: ControlKind, producer_id: int) -> None:
        self.add(control_batch(kind, producer_id, 0, coordinator_epoch=0, timestamp=0))

    def seen(self, aborted: list[tuple[int, int]]) -> list[bytes | None]:
        batches: list[tuple[BatchHeader, memoryview]] = split_batches(self.content)
        return [
            record.value
            for header, batch in data_batches(batches, aborted=aborted)
            for record in decode_batch(batch, header)
        ]


def test_markers_are_never_seen() -> None:
    log = _Partition()
    log.write(b"a", producer_id=1)
    log.end(ControlKind.COMMIT, 1)
    log.write(b"b")
    assert log.seen([]) == [b"a", b"b"]


def test_an_aborted_transaction_is_not_seen_and_the_next_one_is() -> None:
    log = _Partition()
    first = log.write(b"aborted", producer_id=1)
    log.write(b"other", producer_id=2)
    log.write(b"plain")
    log.end(ControlKind.ABORT, 1)
    log.write(b"committed", producer_id=1)
    log.end(ControlKind.COMMIT, 1)
    log.end(ControlKind.COMMIT, 2)
    assert log.seen([(1, first)]) == [b"other", b"plain", b"committed"]


def test_two_aborts_of_one_producer_are_distinguished() -> None:
    log = _Partition()
    first = log.write(b"aborted", producer_id=1)
    log.end(ControlKind.ABORT, 1)
    log.write(b"committed", producer_id=1)
    log.end(ControlKind.COMMIT, 1)
    third = log.write(b"aborted again", producer_id=1)
    log.end(ControlKind.ABORT, 1)
    assert log.seen([(1, third), (1, first)]) == [b"committed"]


def test_an_abort_that_began_before_the_fetched_range_counts() -> None:
    log = _Partition()
    log.next_offset = 50
    log.write(b"aborted", producer_id=1)
    log.end(ControlKind.ABORT, 1)
    log.write(b"plain")
    assert log.seen([(1, 10)]) == [b"plain"]


def test_without_a_list_of_aborts_everything_is_seen() -> None:
    log = _Partition()
    log.write(b"uncommitted", producer_id=1)
    log.end(ControlKind.ABORT, 1)
    assert log.seen([]) == [b"uncommitted"]
