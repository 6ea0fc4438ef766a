"""Fetched batches to Arrow, Arrow to batches to send."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import (
    BatchBuilder,
    Codec,
    ControlKind,
    TimestampType,
    assign,
    control_batch,
    decode_batch,
    read_header,
)
from odradek.records.arrow import HEADER_TYPE, SCHEMA, arrow_to_batches, batches_to_arrow
from odradek.records.columns import COLUMN_BYTES_MAX


def _batch(
    values: list[bytes | None], base_offset: int, codec: Codec = Codec.NONE, **named: int
) -> bytearray:
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        builder.append(
            base_offset + number, b"key" if value else None, value, [("h", value)] if value else []
        )
    batch = builder.build(**named)
    assign(batch, base_offset, 0)
    return batch


def test_nothing_is_an_empty_batch_of_the_schema() -> None:
    rows = batches_to_arrow(b"")
    rows.validate(full=True)
    assert (rows.num_rows, rows.schema) == (0, SCHEMA)


def test_batches_of_all_codecs_become_one() -> None:
    buffer, expected = bytearray(), []
    for number, codec in enumerate(Codec):
        values = [b"v%d" % number, None, b"w" * number]
        buffer += _batch(values, 10 * number, codec)
        expected += [(10 * number + index, value) for index, value in enumerate(values)]
    rows = batches_to_arrow(buffer)
    rows.validate(full=True)
    assert list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)) == expected


def test_rows_below_the_wanted_offset_are_left_out() -> None:
    buffer = _batch([b"a", b"b"], 0) + _batch([b"c", b"d"], 2) + _batch([b"e"], 4)
    assert batches_to_arrow(buffer, from_offset=3)["value"].to_pylist() == [b"d", b"e"]
    assert batches_to_arrow(buffer, from_offset=5).num_rows == 0


def test_a_batch_below_the_wanted_offset_is_not_even_opened() -> None:
    damaged = _batch([b"a"], 0)
    damaged[-1] ^= 1
    assert batches_to_arrow(damaged + _batch([b"b"], 1), from_offset=1)["value"].to_pylist() == [b"b"]


def test_markers_and_aborted_transactions_are_left_out() -> None:
    marker = control_batch(ControlKind.ABORT, 5, 0, coordinator_epoch=0, timestamp=0)
    assign(marker, 2, 0)
    transactional = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    buffer = _batch([b"a", b"b"], 0, **transactional) + marker + _batch([b"c"], 3, **transactional)
    assert batches_to_arrow(buffer)["value"].to_pylist() == [b"a", b"b", b"c"]
    assert batches_to_arrow(buffer, aborted=[(5, 0)])["value"].to_pylist() == [b"c"]


def test_a_cut_tail_is_left_out_unless_asked_otherwise() -> None:
    buffer = _batch([b"a"], 0) + _batch([b"b"], 1)[:-1]
    assert batches_to_arrow(buffer)["value"].to_pylist() == [b"a"]
    with pytest.raises(KafkaError) as caught:
        batches_to_arrow(buffer, allow_partial=False)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_batch_is_corrupt_whatever_else_is_there() -> None:
    buffer = _batch([b"a"], 0) + _batch([b"b"], 1)
    buffer[-3] ^= 1
    with pytest.raises(KafkaError) as caught:
        batches_to_arrow(buffer)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_log_append_time_is_given_row_by_row() -> None:
    batch = _batch([b"a"], 0)
    assign(batch, 0, 0, log_append_time=9_000)
    rows = batches_to_arrow(batch + _batch([b"b"], 1))
    assert rows["timestamp"].to_pylist() == [9_000, 1]
    assert rows["timestamp_type"].to_pylist() == [TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME]


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    builder = BatchBuilder()
    builder.append(0, None, None, [("ab", b"1")])
    builder.append(0, None, None, [("cd", None)])
    batch = builder.build()
    batch[batch.index(b"ab")] = 0xFF
    rows = batches_to_arrow(batch, verify_crc=False)
    rows.validate(full=True)
    assert rows["headers"].to_pylist() == [
        [{"key": "\ufffdb", "value": b"1"}],
        [{"key": "cd", "value": None}],
    ]


def test_many_nulls_and_rows_that_do_not_fill_a_byte() -> None:
    values = [None if number % 3 else b"%d" % number for number in range(1003)]
    rows = batches_to_arrow(_batch(values[:500], 0) + _batch(values[500:], 500))
    rows.validate(full=True)
    assert rows["value"].to_pylist() == values
    assert rows["key"].null_count == sum(not value for value in values)


def _records(batches: list[bytearray]) -> list[tuple[int, bytes | None, bytes | None, tuple[object, ...]]]:
    return [
        (record.timestamp, record.key, record.value, record.headers)
        for batch in batches
        for record in decode_batch(batch)
    ]


def test_no_rows_make_no_batches() -> None:
    assert arrow_to_batches(pa.record_batch({"value": pa.array([], pa.binary())})) == []


def test_a_value_column_is_enough() -> None:
    batches = arrow_to_batches(pa.record_batch({"value": [b"a", None]}), default_timestamp=7)
    assert _records(batches) == [(7, None, b"a", ()), (7, None, None, ())]


def test_text_and_wide_columns_are_taken() -> None:
    rows = pa.record_batch(
        {
            "key": pa.array(["ключ", None], pa.string()),
            "value": pa.array([b"a", b"b"], pa.large_binary()),
            "timestamp": pa.array([5, None], pa.int64()),
            "other": pa.array([1.0, 2.0]),
        }
    )
    assert _records(arrow_to_batches(rows)) == [(5, "ключ".encode(), b"a", ()), (-1, None, b"b", ())]


def test_arrow_timestamps_become_milliseconds() -> None:
    moment = datetime.datetime(2013, 1, 1, 5, 15, 0, 123_999, tzinfo=datetime.UTC)
    for unit in ("us", "ns"):
        column = pa.array([moment, None], pa.timestamp(unit, tz="UTC"))
        rows = pa.record_batch({"value": [b"a", b"b"], "timestamp": column})
        assert [record[0] for record in _records(arrow_to_batches(rows))] == [1_357_017_300_123, -1]


def test_headers_may_be_null_empty_or_several() -> None:
    column = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, [], [{"key": "c", "value": b""}]],
        pa.list_(HEADER_TYPE),
    )
    rows = pa.record_batch({"value": [b"", b"", b"", b""], "headers": column})
    expected: list[tuple[object, ...]] = [(("a", b"1"), ("b", None)), (), (), (("c", b""),)]
    for start in range(5):
        assert [record[3] for record in _records(arrow_to_batches(rows.slice(start)))] == expected[start:]


def test_a_header_without_a_name_is_refused() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch({"value": [b""], "headers": pa.array([[{"key": None, "value": b"1"}]], kind)})
    with pytest.raises((ValueError, pa.ArrowInvalid)):
        arrow_to_batches(rows)


def test_a_column_of_another_kind_is_refused() -> None:
    with pytest.raises((ValueError, TypeError, pa.ArrowInvalid, NotImplementedError)):
        arrow_to_batches(pa.record_batch({"value": pa.array([[1], [2]])}))


def test_batches_stay_below_the_limit_and_sequences_go_on() -> None:
    rows = pa.record_batch({"value": [b"v" * size for size in (10, 500, 10, 10, 10)]})
    batches = arrow_to_batches(rows, max_bytes=120, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    headers = [read_header(batch) for batch in batches]
    assert [header.record_count for header in headers] == [1, 1, 3]
    assert [header.base_sequence for header in headers] == [2**31 - 2, 2**31 - 1, 0]
    assert [header.size_bytes <= 120 for header in headers] == [True, False, True]


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_carry_what_a_transaction_needs(codec: Codec) -> None:
    rows = pa.record_batch({"value": [b"v"] * 100})
    [batch] = arrow_to_batches(
        rows, codec=codec, producer_id=9, producer_epoch=4, base_sequence=0, transactional=True
    )
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.is_transactional) == (9, 4, True)
    assert header.codec is codec
    assert len(decode_batch(batch)) == 100


def test_a_column_s_offsets_are_32_bits_wide() -> None:
    assert COLUMN_BYTES_MAX == 2**31 - 1
    assert SCHEMA.field("value").type == pa.binary()
