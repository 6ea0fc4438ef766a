"""Building one batch."""

from __future__ import annotations

import pytest

from odradek.records import BatchBuilder, Codec, check_crc, decode_batch, read_header, validate_records


def test_a_batch_is_full_at_its_limit_and_not_a_byte_later() -> None:
    probe = BatchBuilder()
    probe.append(0, b"k", b"v" * 50)
    record_bytes = probe.size_bytes
    probe.append(0, b"k", b"v" * 50)
    two = probe.size_bytes
    exact = BatchBuilder(max_bytes=two)
    assert [exact.append(0, b"k", b"v" * 50) for _ in range(3)] == [True, True, False]
    assert exact.size_bytes == two
    tight = BatchBuilder(max_bytes=two - 1)
    assert [tight.append(0, b"k", b"v" * 50) for _ in range(2)] == [True, False]
    assert tight.size_bytes == record_bytes


def test_the_first_record_always_fits() -> None:
    builder = BatchBuilder(max_bytes=10)
    assert builder.append(0, None, b"v" * 1000)
    assert not builder.append(0, None, b"")
    assert len(decode_batch(builder.build())) == 1


def test_a_record_that_does_not_fit_changes_nothing() -> None:
    builder = BatchBuilder(max_bytes=100)
    builder.append(5, None, b"v")
    before = (builder.size_bytes, builder.record_count, builder.max_timestamp)
    assert not builder.append(9, None, b"v" * 100, [("name", b"x")])
    assert (builder.size_bytes, builder.record_count, builder.max_timestamp) == before
    assert builder.append(6, None, b"w")
    assert [record.value for record in decode_batch(builder.build())] == [b"v", b"w"]


def test_the_size_is_that_of_the_batch_when_it_is_not_compressed() -> None:
    builder = BatchBuilder()
    for number in range(300):
        builder.append(
            number * 1000, b"k" * number, None if number % 2 else b"v", [("h", None)] * (number % 3)
        )
    size = builder.size_bytes
    assert len(builder.build()) == size


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="without records"):
        BatchBuilder().build()


def test_a_builder_is_empty_after_building() -> None:
    builder = BatchBuilder()
    empty = builder.size_bytes
    builder.append(1_000, None, b"one")
    first = builder.build()
    assert (builder.size_bytes, builder.record_count, builder.max_timestamp) == (empty, 0, -1)
    builder.append(2_000, None, b"two")
    second = builder.build()
    assert [record.value for record in decode_batch(first)] == [b"one"]
    assert read_header(second).base_timestamp == 2_000


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_built_is_what_a_broker_accepts(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for number in range(100):
        builder.append(number, b"key", b"value", [("h", b"x")])
    batch = builder.build(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    check_crc(batch)
    header = read_header(batch)
    assert header.is_transactional
    assert validate_records(batch, header).record_count == 100


def test_timestamps_may_go_back_and_be_negative() -> None:
    timestamps = [0, -1, 5_000_000_000_000, -(2**62), 2**62 - 1, 0]
    builder = BatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp, None, None)
    batch = builder.build()
    assert [record.timestamp for record in decode_batch(batch)] == timestamps
    assert read_header(batch).max_timestamp == 2**62 - 1


@pytest.mark.parametrize(("first", "second"), [(2**63 - 1, -2), (-(2**63), 0), (0, -(2**63) - 1), (0, 2**63)])
def test_timestamps_that_no_batch_can_hold_are_refused_and_change_nothing(first: int, second: int) -> None:
    builder = BatchBuilder()
    builder.append(first, None, b"first")
    with pytest.raises(OverflowError):
        builder.append(second, None, b"second")
    assert [record.value for record in decode_batch(builder.build())] == [b"first"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_a_key_a_value_or_a_header_s_value(kind: type) -> None:
    builder = BatchBuilder()
    builder.append(0, kind(b"key"), kind(b"value"), [("name", kind(b"content"))])
    [record] = decode_batch(builder.build())
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("name", b"content"),))


def test_a_buffer_of_wider_items_counts_its_bytes() -> None:
    builder = BatchBuilder()
    builder.append(0, None, memoryview(b"12345678").cast("q"))
    assert decode_batch(builder.build())[0].value == b"12345678"


@pytest.mark.parametrize(
    "record",
    [
        (0, "text", None),
        (0, None, "text"),
        (0, None, 5),
        (0, None, None, [("name", "text")]),
        (0, None, None, [(b"name", b"")]),
        (0, None, None, [("name",)]),
        (0, None, None, [(None, b"")]),
        ("0", None, None),
        (None, None, None),
    ],
)
def test_what_is_not_a_record_is_refused_and_changes_nothing(record: tuple[object, ...]) -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"before")
    with pytest.raises((TypeError, ValueError)):
        builder.append(*record)
    builder.append(0, None, b"after")
    assert [batch_bytes.value for batch_bytes in decode_batch(builder.build())] == [b"before", b"after"]


def test_headers_may_repeat_be_empty_and_hold_any_text() -> None:
    headers = (("", b""), ("a", None), ("a", b"2"), ("ключ 🗝", b"\0\xff"))
    builder = BatchBuilder()
    builder.append(0, None, None, headers)
    builder.append(0, None, None, list(headers))
    assert [record.headers for record in decode_batch(builder.build())] == [headers, headers]
