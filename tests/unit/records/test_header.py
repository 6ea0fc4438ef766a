"""The 61 bytes in front of a batch."""

from __future__ import annotations

import struct

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import (
    HEADER_BYTES,
    BatchBuilder,
    BatchHeader,
    Codec,
    TimestampType,
    assign,
    check_crc,
    crc_of,
    decode_batch,
    read_header,
    split_batches,
    stamp_producer,
)


def _batch(record_count: int = 3, codec: Codec = Codec.NONE, **producer: int) -> bytearray:
    builder = BatchBuilder(codec)
    for number in range(record_count):
        builder.append(1_000 + number, b"key", b"value")
    return builder.build(**producer)


def _code(action: object, *arguments: object, **named: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action(*arguments, **named)  # type: ignore[operator]
    return caught.value.code


def test_a_built_batch_has_the_header_it_should() -> None:
    batch = _batch(3, Codec.LZ4, producer_id=7, producer_epoch=2, base_sequence=40)
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.magic) == (0, -1, 2)
    assert (header.record_count, header.last_offset, header.next_offset) == (3, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        7,
        2,
        40,
        42,
    )
    assert header.codec is Codec.LZ4
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (False, False, False)
    assert header.crc == crc_of(batch)


@pytest.mark.parametrize(("base", "last"), [(-1, -1), (0, 2), (2**31 - 3, 2**31 - 1), (2**31 - 1, 1)])
def test_sequence_numbers_wrap_to_zero(base: int, last: int) -> None:
    assert read_header(_batch(3, base_sequence=base)).last_sequence == last


def test_attribute_bits_are_read_one_by_one() -> None:
    header = read_header(_batch())
    assert header._replace(attributes=0x08).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header._replace(attributes=0x10).is_transactional
    assert header._replace(attributes=0x20).is_control
    assert header._replace(attributes=0x40).has_delete_horizon
    assert header._replace(attributes=0x7C).codec is Codec.ZSTD
    assert _code(lambda: header._replace(attributes=5).codec) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [0, 11, 16, 17, 60])
def test_a_header_cut_short_is_corrupt(length: int) -> None:
    assert _code(read_header, _batch()[:length]) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_formats_are_refused_by_name_even_when_shorter_than_a_header(magic: int) -> None:
    old = struct.pack(">qiIbb", 0, 20, 0, magic, 0)
    assert _code(read_header, old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert _code(split_batches, old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_an_unknown_format_is_corrupt(magic: int) -> None:
    batch = _batch()
    batch[16] = magic
    assert _code(read_header, batch) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    batch = _batch()
    struct.pack_into(">i", batch, 8, length)
    assert _code(read_header, batch) is ErrorCode.CORRUPT_MESSAGE
    assert _code(split_batches, batch) is ErrorCode.CORRUPT_MESSAGE
    assert _code(split_batches, batch, allow_partial=True) is ErrorCode.CORRUPT_MESSAGE


def test_batches_are_split_without_copying() -> None:
    first, second = _batch(1), _batch(2)
    buffer = first + second
    parts = split_batches(buffer)
    assert [header.record_count for header, _ in parts] == [1, 2]
    parts[1][1][0:8] = struct.pack(">q", 99)
    assert read_header(buffer, len(first)).base_offset == 99


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_split_batches_have_the_headers_that_are_read_one_by_one(byte: int) -> None:
    first, second = _batch(1, producer_id=7, producer_epoch=2, base_sequence=40), _batch(2)
    for position in {*range(HEADER_BYTES)} - {*range(8, 12), 16}:  # all but length and format
        second[position] = byte
    parts = split_batches(first + second)
    assert [header for header, _ in parts] == [read_header(first), read_header(second)]
    assert [type(header) for header, _ in parts] == [BatchHeader, BatchHeader]
    assert [bytes(part) for _, part in parts] == [bytes(first), bytes(second)]


def test_a_batch_of_an_old_format_behind_a_good_one_is_refused() -> None:
    first, second = _batch(1), _batch(2)
    second[16] = 1
    assert _code(split_batches, first + second) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_nothing_splits_into_nothing() -> None:
    assert split_batches(b"") == []


def test_a_partial_tail_is_left_out_only_where_that_is_allowed() -> None:
    first, second = _batch(1), _batch(2)
    whole = first + second
    for length in range(len(first) + 1, len(whole)):
        assert _code(split_batches, whole[:length]) is ErrorCode.CORRUPT_MESSAGE
        assert len(split_batches(whole[:length], allow_partial=True)) == 1


def test_any_changed_byte_behind_the_crc_is_noticed() -> None:
    batch = _batch()
    check_crc(batch)
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x40
        assert _code(check_crc, damaged) is ErrorCode.CORRUPT_MESSAGE
    assert _code(check_crc, batch[: HEADER_BYTES - 1]) is ErrorCode.CORRUPT_MESSAGE


def test_the_leader_sets_offset_and_epoch_without_touching_the_crc() -> None:
    batch = _batch(3)
    crc = crc_of(batch)
    assign(memoryview(batch), 2**40, 5)
    check_crc(batch)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (2**40, 2**40 + 2, 5)
    assert header.crc == crc
    assert [record.offset for record in decode_batch(batch)] == [2**40, 2**40 + 1, 2**40 + 2]
    assert {record.leader_epoch for record in decode_batch(batch)} == {5}


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = _batch(3)
    assign(batch, 0, 0, log_append_time=5_000)
    check_crc(batch)
    records = decode_batch(batch)
    assert {record.timestamp for record in records} == {5_000}
    assert {record.timestamp_type for record in records} == {TimestampType.LOG_APPEND_TIME}


def test_a_wrong_max_timestamp_can_be_mended() -> None:
    batch = _batch(3)
    assign(batch, 0, 0, max_timestamp=77)
    check_crc(batch)
    assert read_header(batch).max_timestamp == 77
    assert decode_batch(batch)[2].timestamp == 1_002


def test_a_producer_can_put_another_identity_on_a_batch() -> None:
    batch = _batch(3, Codec.GZIP)
    stamp_producer(batch, producer_id=9, producer_epoch=1, base_sequence=0)
    check_crc(batch)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 0)
    assert len(decode_batch(batch)) == 3
