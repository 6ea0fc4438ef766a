"""What the broker accepts from producers, and the code that each kind of bad batch gets."""

import struct
from dataclasses import replace

import pytest

from odradek.broker.produce.record_validation import (
    INLINE_BYTES_MAX,
    RECORDS_NAMED_MAX,
    RECORDS_SEARCHED_MAX,
    InlineWork,
    OffloadRequired,
    ValidationTerms,
    checked_batches,
)
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError, RecordsRefusedError
from odradek.records import BatchBuilder, Codec, check_crc, control_batch, crc_of, decode_batch
from odradek.records.control import ControlKind

NOW_MS = 1_700_000_000_000


def batch(
    codec: Codec = Codec.NONE,
    *,
    count: int = 3,
    key: bytes | None = b"k",
    timestamp: int = NOW_MS,
    size: int = 10,
) -> bytearray:
    builder = BatchBuilder(codec)
    for number in range(count):
        builder.append(timestamp + number, key, b"v" * size, [("h", b"x")])
    return builder.build()


def terms(config: LogConfig | None = None, version: int = 9) -> ValidationTerms:
    return ValidationTerms(config=config or LogConfig(), api_version=version, now_ms=NOW_MS)


def refusal(records: bytes | bytearray | None, with_terms: ValidationTerms | None = None) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        checked_batches(records, with_terms or terms())
    return refused.value.code


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_of_every_codec_is_accepted_as_it_is(codec: Codec) -> None:
    records = batch(codec)
    [(header, view)] = checked_batches(records, terms())
    assert header.record_count == 3
    assert bytes(view) == bytes(records)


def test_none_and_more_than_one_batch_are_refused() -> None:
    assert refusal(None) is ErrorCode.INVALID_RECORD
    assert refusal(b"") is ErrorCode.INVALID_RECORD
    assert refusal(batch() + batch()) is ErrorCode.INVALID_RECORD


def test_every_flipped_byte_is_noticed_or_harmless() -> None:
    good = batch()
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x40
        try:
            checked_batches(damaged, terms())
        except KafkaError:
            continue
        assert position < 8 or 12 <= position < 16, (
            f"byte {position} is not covered by the CRC but was believed"
        )


def test_a_batch_larger_than_the_topic_allows_is_refused() -> None:
    config = replace(LogConfig(), max_message_bytes=200)
    assert refusal(batch(size=100), terms(config)) is ErrorCode.MESSAGE_TOO_LARGE
    config = replace(LogConfig(), segment_bytes=200)
    assert refusal(batch(size=100), terms(config)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_zstd_needs_produce_7() -> None:
    assert refusal(batch(Codec.ZSTD), terms(version=6)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert checked_batches(batch(Codec.ZSTD), terms(version=7))


def test_timestamps_out_of_bounds_are_refused_unless_the_broker_stamps() -> None:
    config = replace(LogConfig(), message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    assert refusal(batch(timestamp=NOW_MS - 1001), terms(config)) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(batch(timestamp=NOW_MS + 1001), terms(config)) is ErrorCode.INVALID_TIMESTAMP
    stamped = replace(config, message_timestamp_type="LogAppendTime")
    assert checked_batches(batch(timestamp=NOW_MS - 99999), terms(stamped))


def test_a_refused_batch_names_the_records_that_are_wrong() -> None:
    config = replace(LogConfig(), message_timestamp_after_max_ms=1000, cleanup_policy=frozenset({"compact"}))
    builder = BatchBuilder(Codec.ZSTD)
    for timestamp, key in ((NOW_MS, b"k"), (NOW_MS + 2000, b"k"), (NOW_MS, None), (NOW_MS + 3000, b"k")):
        builder.append(timestamp, key, b"v", [])
    mixed = builder.build()
    with pytest.raises(RecordsRefusedError, match="with a key") as refused:
        checked_batches(bytearray(mixed), terms(config))
    assert [position for position, _ in refused.value.records] == [2]
    config = replace(config, cleanup_policy=frozenset({"delete"}))
    with pytest.raises(RecordsRefusedError, match=f"timestamp {NOW_MS + 2000} is more than") as refused:
        checked_batches(bytearray(mixed), terms(config))
    assert [position for position, _ in refused.value.records] == [1, 3]
    assert str(NOW_MS + 3000) in refused.value.records[1][1]


def test_of_many_wrong_records_only_so_many_are_named() -> None:
    compacted = terms(replace(LogConfig(), cleanup_policy=frozenset({"compact"})))
    with pytest.raises(RecordsRefusedError) as refused:
        checked_batches(batch(Codec.GZIP, count=RECORDS_NAMED_MAX + 1, key=None), compacted)
    assert len(refused.value.records) == RECORDS_NAMED_MAX
    with pytest.raises(KafkaError) as unnamed:
        checked_batches(batch(Codec.GZIP, count=RECORDS_SEARCHED_MAX + 1, key=None, size=0), compacted)
    assert unnamed.value.code is ErrorCode.INVALID_RECORD
    assert not isinstance(unnamed.value, RecordsRefusedError)


def test_a_header_that_lies_about_its_latest_timestamp_is_mended() -> None:
    lying = batch(timestamp=NOW_MS)
    struct.pack_into(">q", lying, 35, NOW_MS + 10_000_000_000)
    struct.pack_into(">I", lying, 17, crc_of(lying))
    [(header, view)] = checked_batches(lying, terms())
    assert header.max_timestamp == NOW_MS + 2
    assert decode_batch(view)[-1].timestamp == NOW_MS + 2
    check_crc(view)


def test_a_compacted_topic_needs_keys() -> None:
    compacted = terms(replace(LogConfig(), cleanup_policy=frozenset({"compact"})))
    assert refusal(batch(key=None), compacted) is ErrorCode.INVALID_RECORD
    assert checked_batches(batch(), compacted)


def test_clients_may_not_write_control_batches() -> None:
    control = control_batch(
        ControlKind.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
    )
    assert refusal(control) is ErrorCode.INVALID_RECORD


def test_a_transactional_batch_has_a_producer_and_stays_transactional_when_it_is_compressed_again() -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", b"v")
    good = builder.build(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    [(header, _)] = checked_batches(good, terms(LogConfig(compression_type="gzip")))
    assert header.is_transactional
    assert header.codec is Codec.GZIP
    builder.append(NOW_MS, b"k", b"v")
    assert refusal(builder.build(transactional=True)) is ErrorCode.INVALID_RECORD


def test_old_message_formats_are_refused_by_name() -> None:
    for magic in (0, 1):
        old = bytearray(batch())
        old[16] = magic
        assert refusal(old) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Codec))
def test_a_topic_with_a_codec_of_its_own_stores_that_codec(wanted: str, sent: Codec) -> None:
    config = replace(LogConfig(), compression_type=wanted)
    builder = BatchBuilder(sent)
    builder.append(NOW_MS, b"k", b"v" * 50, [("h", None)])
    builder.append(NOW_MS + 5, None, None)
    sent_batch = builder.build(producer_id=9, producer_epoch=2, base_sequence=40)
    before = decode_batch(bytes(sent_batch))
    [(header, view)] = checked_batches(sent_batch, terms(config))
    assert header.codec.name.lower() == ("none" if wanted == "uncompressed" else wanted)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)
    assert decode_batch(view) == before


def test_what_is_checked_at_once_is_counted_expanded_and_over_the_whole_request() -> None:
    """Batches of a few kB each, of which none is too large by itself."""
    batch_bytes = batch(Codec.GZIP, count=1, size=INLINE_BYTES_MAX // 4)
    assert len(batch_bytes) < INLINE_BYTES_MAX // 100
    inline = InlineWork()
    for _ in range(3):
        checked_batches(bytearray(batch_bytes), terms(), inline)
    with pytest.raises(OffloadRequired):
        checked_batches(bytearray(batch_bytes), terms(), inline)


def test_nothing_of_a_batch_is_done_that_is_too_large_for_what_is_left() -> None:
    records = batch(Codec.GZIP, count=1, size=INLINE_BYTES_MAX)
    before = bytes(records)
    with pytest.raises(OffloadRequired):
        checked_batches(records, terms(), InlineWork())
    assert bytes(records) == before


def test_to_compress_again_counts_for_more_than_to_check() -> None:
    zstd = terms(LogConfig(compression_type="zstd"))
    records = batch(count=1, size=INLINE_BYTES_MAX // 8)
    checked_batches(bytearray(records), terms(), InlineWork())
    with pytest.raises(OffloadRequired):
        checked_batches(bytearray(records), zstd, InlineWork())
    [(header, _)] = checked_batches(bytearray(records), zstd)
    assert header.codec is Codec.ZSTD


LIMITED = replace(LogConfig(), max_decompressed_message_bytes=1_000)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_record_of_a_compressed_batch_is_refused_if_it_is_larger_than_the_topic_allows(
    codec: Codec,
) -> None:
    overhead = 12  # attributes, deltas, lengths, the key, and the header h=x
    assert checked_batches(batch(codec, size=1_000 - overhead), terms(LIMITED))
    with pytest.raises(
        KafkaError,
        match=r"a record has 1001 bytes once decompressed, max\.decompressed\.message\.bytes is 1000",
    ) as refused:
        checked_batches(batch(codec, size=1_000 - overhead + 1), terms(LIMITED))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert not isinstance(refused.value, RecordsRefusedError)


def test_the_limit_counts_records_and_not_batches() -> None:
    assert checked_batches(batch(Codec.ZSTD, count=1_000, size=500), terms(LIMITED))


def test_a_batch_that_was_not_compressed_is_bounded_by_max_message_bytes_alone() -> None:
    assert checked_batches(batch(size=5_000), terms(LIMITED))
    compressing = replace(LIMITED, compression_type="lz4")
    assert checked_batches(batch(size=5_000), terms(compressing))
