"""What is inside a batch is checked to the last byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import (
    BatchBuilder,
    Codec,
    ControlKind,
    Limits,
    assign,
    control_batch,
    decode_batch,
    read_header,
    validate_records,
)

BatchMaker = Callable[..., bytearray]

GOOD = bytes([16, 0, 0, 0, 2, 107, 2, 118, 0])  # length 8, key "k", value "v", no headers
WITH_HEADER = bytes([24, 0, 0, 0, 2, 107, 2, 118, 2, 2, 104, 2, 120])  # ... and a header h = x
NEXT = bytes([16, 0, 0, 2, 2, 107, 2, 118, 0])  # GOOD at offset delta 1


def _refusal(batch: bytearray) -> ErrorCode:
    """The one code with which both validation and decoding refuse the batch."""
    header = read_header(batch)
    with pytest.raises(KafkaError) as decoding:
        decode_batch(batch, header)
    with pytest.raises(KafkaError) as validation:
        validate_records(batch, header)
    assert decoding.value.code is validation.value.code
    return decoding.value.code


def test_a_hand_made_record_is_read(batch_of: BatchMaker) -> None:
    [record] = decode_batch(batch_of(WITH_HEADER))
    assert (record.timestamp, record.key, record.value, record.headers) == (1_000, b"k", b"v", (("h", b"x"),))


def test_the_summary_says_what_was_found() -> None:
    builder = BatchBuilder()
    for timestamp, key in ((50, b"k"), (70, None), (10, b"k"), (70, None)):
        builder.append(timestamp, key, b"value")
    batch = builder.build()
    assign(batch, 100, 0)
    summary = validate_records(batch, read_header(batch))
    assert (summary.record_count, summary.null_key_count) == (4, 2)
    assert (summary.min_timestamp, summary.max_timestamp, summary.offset_of_max_timestamp) == (10, 70, 101)
    assert summary.records_bytes == len(batch) - 61


def test_records_without_a_timestamp_do_not_count_as_the_earliest() -> None:
    builder = BatchBuilder()
    builder.append(-1, None, b"")
    builder.append(30, None, b"")
    batch = builder.build()
    assert validate_records(batch, read_header(batch)).min_timestamp == 30


@pytest.mark.parametrize("codec", list(Codec))
def test_records_size_is_counted_decompressed(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for number in range(100):
        builder.append(number, b"key", b"value" * 10)
    size = builder.size_bytes
    batch = builder.build()
    assert validate_records(batch, read_header(batch)).records_bytes == size - 61


LIES = {
    "no bytes at all": b"",
    "a length only": GOOD[:1],
    "cut in the middle": GOOD[:5],
    "cut before the last byte": GOOD[:-1],
    "a byte behind the last record": GOOD + b"\0",
    "another whole record behind the last": GOOD + NEXT,
    "a length longer than the batch": bytes([18]) + GOOD[1:],
    "a length shorter than the record": bytes([14]) + GOOD[1:],
    "length 0": b"\0" * 9,
    "a negative length": bytes([1]) + GOOD[1:],
    "a length of 2**31 - 1": b"\xfe\xff\xff\xff\x0f" + GOOD[1:],
    "a length of -2**31": b"\xff\xff\xff\xff\x0f" + GOOD[1:],
    "a length in 6 bytes": b"\x90\x80\x80\x80\x80\x00" + GOOD[1:],
    "a length beyond 32 bits": b"\x90\x80\x80\x80\x10" + GOOD[1:],
    "a varint that never ends": b"\xff" * 40,
    "a timestamp in 11 bytes": bytes([36, 0]) + b"\x80" * 10 + b"\0" + GOOD[3:],
    "a timestamp beyond 64 bits": bytes([34, 0]) + b"\xff" * 9 + b"\x02" + GOOD[3:],
    "a timestamp that overflows with its base": bytes([34, 0]) + b"\xfe" + b"\xff" * 8 + b"\x01" + GOOD[3:],
    "a key length of -2": bytes([16, 0, 0, 0, 3, 107, 2, 118, 0]),
    "a key longer than the record": bytes([16, 0, 0, 0, 20, 107, 2, 118, 0]),
    "a value longer than the record": bytes([16, 0, 0, 0, 2, 107, 20, 118, 0]),
    "a value into the header count": bytes([16, 0, 0, 0, 2, 107, 4, 118, 0]),
    "a value length of -2": bytes([16, 0, 0, 0, 2, 107, 3, 118, 0]),
    "-1 headers": bytes([16, 0, 0, 0, 2, 107, 2, 118, 1]),
    "a header where none is": bytes([16, 0, 0, 0, 2, 107, 2, 118, 2]),
    "2**31 - 1 headers": bytes([24, 0, 0, 0, 2, 107, 2, 118]) + b"\xfe\xff\xff\xff\x0f",
    "a header without a key": bytes([22, 0, 0, 0, 2, 107, 2, 118, 2, 1, 1]) + b"\0",
    "a header with a key length of -2": bytes([24, 0, 0, 0, 2, 107, 2, 118, 2, 3, 104, 2, 120]),
    "a header key longer than the record": bytes([24, 0, 0, 0, 2, 107, 2, 118, 2, 40, 104, 2, 120]),
    "a header value longer than the record": bytes([24, 0, 0, 0, 2, 107, 2, 118, 2, 2, 104, 40, 120]),
    "a byte behind the last header": bytes([26, 0, 0, 0, 2, 107, 2, 118, 2, 2, 104, 2, 120, 0]),
    "a negative offset delta": bytes([16, 0, 0, 1, 2, 107, 2, 118, 0]),
    "an offset delta beyond the last": NEXT,
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_lying_records_are_refused(lie: str, codec: Codec, batch_of: BatchMaker) -> None:
    assert _refusal(batch_of(LIES[lie], codec=codec)) is ErrorCode.INVALID_RECORD


def test_varints_longer_than_need_be_are_accepted_as_kafka_does(batch_of: BatchMaker) -> None:
    padded = b"\x98\x80\x80\x80\x00" + bytes([0, 0, 0]) + b"\x82\x80\x80\x80\x00k" + GOOD[6:]
    batch = batch_of(padded)
    assert decode_batch(batch)[0].key == b"k"
    validate_records(batch, read_header(batch))


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (1, 1)])
def test_offset_deltas_must_rise(deltas: tuple[int, int], batch_of: BatchMaker) -> None:
    records = b"".join(GOOD[:3] + bytes([2 * delta]) + GOOD[4:] for delta in deltas)
    assert _refusal(batch_of(records, record_count=2)) is ErrorCode.INVALID_RECORD


def test_offsets_with_gaps_are_read_but_not_taken_from_a_producer(batch_of: BatchMaker) -> None:
    batch = batch_of(GOOD + GOOD[:3] + bytes([8]) + GOOD[4:], record_count=2, last_offset_delta=9)
    assert [record.offset for record in decode_batch(batch)] == [0, 4]
    with pytest.raises(KafkaError) as caught:
        validate_records(batch, read_header(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_an_emptied_batch_is_read_but_not_taken_from_a_producer(batch_of: BatchMaker) -> None:
    batch = batch_of(b"", record_count=0, last_offset_delta=9)
    assert decode_batch(batch) == []
    with pytest.raises(KafkaError) as caught:
        validate_records(batch, read_header(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [-(2**31), -1, 2, 2**31 - 1])
def test_a_lying_record_count_is_refused_at_no_cost(count: int, batch_of: BatchMaker) -> None:
    assert _refusal(batch_of(GOOD, record_count=count, last_offset_delta=0)) is ErrorCode.INVALID_RECORD
    assert _refusal(batch_of(GOOD, record_count=count, last_offset_delta=count - 1 & 0x7FFF_FFFF)) is (
        ErrorCode.INVALID_RECORD
    )


def test_a_length_that_is_not_the_batch_s_is_corrupt(batch_of: BatchMaker) -> None:
    batch = batch_of(GOOD)
    header = read_header(batch)
    with pytest.raises(KafkaError) as caught:
        decode_batch(batch + b"\0", header)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"attributes": 0x05}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"producer_id": 1, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 1}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_a_producer_s_header_may_not_say(
    fields: dict[str, int], code: ErrorCode, batch_of: BatchMaker
) -> None:
    batch = batch_of(GOOD, **fields)
    with pytest.raises(KafkaError) as caught:
        validate_records(batch, read_header(batch))
    assert caught.value.code is code


def test_a_control_batch_from_a_producer_is_refused() -> None:
    batch = control_batch(ControlKind.ABORT, 1, 0, coordinator_epoch=0, timestamp=0)
    with pytest.raises(KafkaError) as caught:
        validate_records(batch, read_header(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 2])
def test_offsets_that_cannot_be_are_not_read(base_offset: int, batch_of: BatchMaker) -> None:
    batch = batch_of(GOOD + NEXT, record_count=2, base_offset=base_offset)
    if base_offset > 0:
        assert decode_batch(batch)[1].offset == 2**63 - 1
        batch = batch_of(GOOD + NEXT, record_count=2, base_offset=2**63 - 1)
    with pytest.raises(KafkaError) as caught:
        decode_batch(batch)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_records_below_the_wanted_offset_are_left_out() -> None:
    builder = BatchBuilder()
    for number in range(10):
        builder.append(number, None, bytes([number]))
    batch = builder.build()
    assign(batch, 100, 0)
    assert [record.offset for record in decode_batch(batch, from_offset=107)] == [107, 108, 109]
    assert decode_batch(batch, from_offset=110) == []
    assert len(decode_batch(batch, from_offset=-1)) == 10


def test_header_names_that_are_not_utf8_are_replaced(batch_of: BatchMaker) -> None:
    batch = batch_of(bytes([24, 0, 0, 0, 2, 107, 2, 118, 2, 2, 0xFF, 2, 120]))
    assert decode_batch(batch)[0].headers == (("\ufffd", b"x"),)


def test_a_bomb_in_a_batch_is_refused_before_it_goes_off(batch_of: BatchMaker) -> None:
    limits = Limits(decompressed_bytes_max=1 << 20, ratio_free_bytes=1 << 20)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        batch = batch_of(bytes(2 << 20), codec=codec)
        for action in (decode_batch, validate_records):
            with pytest.raises(KafkaError) as caught:
                action(batch, read_header(batch), limits=limits)
            assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_the_largest_record_is_measured_without_its_own_length(codec: Codec, batch_of: BatchMaker) -> None:
    batch = batch_of(
        GOOD + WITH_HEADER.replace(b"\x00\x00\x00", b"\x00\x00\x02", 1), codec=codec, record_count=2
    )
    assert validate_records(batch, read_header(batch)).record_bytes_max == 12
    batch = batch_of(GOOD, codec=codec)
    assert validate_records(batch, read_header(batch)).record_bytes_max == 8


def test_a_length_that_is_longer_written_than_need_be_counts_as_what_it_says(batch_of: BatchMaker) -> None:
    batch = batch_of(bytes([0x80 | 16, 0x80, 0]) + GOOD[1:])
    assert validate_records(batch, read_header(batch)).record_bytes_max == 8


def test_a_large_record_between_small_ones_is_found() -> None:
    builder = BatchBuilder(Codec.ZSTD)
    for size in (1, 100_000, 1):
        builder.append(1_000, b"k", b"v" * size)
    batch = builder.build()
    assert validate_records(batch, read_header(batch)).record_bytes_max == 100_000 + 9


@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_that_declares_two_gigabytes_is_refused(codec: Codec, batch_of: BatchMaker) -> None:
    declared = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0x0F])  # 2,147,483,647
    assert _refusal(batch_of(declared + GOOD[1:], codec=codec)) is ErrorCode.INVALID_RECORD
