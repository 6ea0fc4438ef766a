"""Whatever a producer may write, a reader gets back: as records, as columns, and once more as a batch."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.records import (
    BatchBuilder,
    Codec,
    Record,
    assign,
    check_crc,
    decode_batch,
    murmur2,
    read_header,
    split_batches,
    validate_records,
)
from odradek.records.arrow import SCHEMA, arrow_to_batches, batches_to_arrow

Written = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

bytes_or_null = st.none() | st.binary(max_size=200)
timestamps = st.integers(-1, 2**61) | st.sampled_from([-1, 0, 63, 64, 2**31, 2**62])
headers = st.lists(st.tuples(st.text(max_size=20), bytes_or_null), max_size=4)
records = st.lists(st.tuples(timestamps, bytes_or_null, bytes_or_null, headers), min_size=1, max_size=30)
codecs = st.sampled_from(list(Codec))
offsets = st.integers(0, 2**62)


def _build(written: list[Written], codec: Codec, base_offset: int = 0) -> bytearray:
    builder = BatchBuilder(codec)
    for record in written:
        assert builder.append(*record)
    batch = builder.build()
    assign(batch, base_offset, 3)
    return batch


def _content(read: list[Record]) -> list[Written]:
    return [(record.timestamp, record.key, record.value, list(record.headers)) for record in read]


@settings(deadline=None, max_examples=150)
@given(written=records, codec=codecs, base_offset=offsets)
def test_records_come_back(written: list[Written], codec: Codec, base_offset: int) -> None:
    batch = _build(written, codec, base_offset)
    check_crc(batch)
    read = decode_batch(batch)
    assert _content(read) == written
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(written)))


@settings(deadline=None, max_examples=100)
@given(written=records, codec=codecs)
def test_validation_agrees_with_a_look_at_the_records(written: list[Written], codec: Codec) -> None:
    batch = _build(written, codec, 10)
    header = read_header(batch)
    summary = validate_records(batch, header)
    latest = max(record[0] for record in written)
    assert summary.record_count == len(written)
    assert summary.max_timestamp == latest == header.max_timestamp
    assert summary.offset_of_max_timestamp == 10 + [record[0] for record in written].index(latest)
    assert summary.min_timestamp == min((record[0] for record in written if record[0] != -1), default=-1)
    assert summary.null_key_count == sum(record[1] is None for record in written)


@settings(deadline=None, max_examples=100)
@given(written=records, codec=codecs, base_offset=offsets, skipped=st.integers(0, 35))
def test_columns_hold_what_records_hold(
    written: list[Written], codec: Codec, base_offset: int, skipped: int
) -> None:
    batch = _build(written, codec, base_offset)
    columns = batches_to_arrow(batch, from_offset=base_offset + skipped)
    columns.validate(full=True)
    assert columns.schema.equals(SCHEMA)
    read = decode_batch(batch, from_offset=base_offset + skipped)
    assert columns.column("offset").to_pylist() == [record.offset for record in read]
    assert _rows(columns) == _content(read)


def _rows(columns: pa.RecordBatch) -> list[Written]:
    return [
        (
            row["timestamp"],
            row["key"],
            row["value"],
            [(entry["key"], entry["value"]) for entry in row["headers"]],
        )
        for row in columns.to_pylist()
    ]


@settings(deadline=None, max_examples=100)
@given(
    parts=st.lists(records, min_size=1, max_size=4),
    codec=codecs,
    max_bytes=st.integers(61, 2000),
    start=st.integers(0, 20),
    length=st.integers(0, 60),
)
def test_a_slice_of_columns_becomes_batches_of_the_same_records(
    parts: list[list[Written]], codec: Codec, max_bytes: int, start: int, length: int
) -> None:
    buffer, next_offset = bytearray(), 0
    for part in parts:
        buffer += _build(part, codec, next_offset)
        next_offset += len(part)
    whole = [record for part in parts for record in part]
    rows = batches_to_arrow(buffer)
    assert _rows(rows) == whole
    batches = arrow_to_batches(rows.slice(start, length), codec=codec, max_bytes=max_bytes, base_sequence=7)
    sequence, again = 7, []
    for batch in batches:
        [(header, view)] = split_batches(batch)
        check_crc(view)
        assert header.base_sequence == sequence
        assert validate_records(view, header).max_timestamp == header.max_timestamp
        if codec is Codec.NONE:
            assert len(batch) <= max_bytes or header.record_count == 1
        sequence += header.record_count
        again += _content(decode_batch(view))
    assert again == whole[start : start + length]


@settings(deadline=None, max_examples=200)
@given(key=st.binary(max_size=100))
def test_hashes_are_32_bits_with_a_sign(key: bytes) -> None:
    assert -(2**31) <= murmur2(key) < 2**31
