"""The short way through the checks of a batch takes no batch that the general way refuses or changes, and most small ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.produce.record_validation import (
    PLAIN_BYTES_MAX,
    ValidationTerms,
    checked_batches,
    plain_batch,
)
from odradek.config.topic import LogConfig
from odradek.model.errors import KafkaError
from odradek.records import BatchBuilder, Codec, control_batch, engine
from odradek.records.batch import read_header, write_header
from odradek.records.control import ControlKind

NOW_MS = 1_700_000_000_000
FAST = engine.compiled()
pytestmark = pytest.mark.skipif(FAST is None, reason="the package was installed without a compiler")

CONFIGS = [
    LogConfig(),
    replace(LogConfig(), message_timestamp_type="LogAppendTime"),
    replace(LogConfig(), cleanup_policy=frozenset({"compact"})),
    replace(LogConfig(), compression_type="zstd"),
    replace(LogConfig(), compression_type="uncompressed"),
    replace(LogConfig(), max_message_bytes=120),
    replace(LogConfig(), segment_bytes=120),
    replace(LogConfig(), message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000),
]
timestamps = st.sampled_from([NOW_MS, NOW_MS - 1000, NOW_MS - 1001, NOW_MS + 1000, NOW_MS + 1001, -1, -5, 0])


@pytest.fixture(autouse=True)
def compiled_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "active", FAST)


def batch(
    *, times: list[int] | None = None, key: bytes | None = b"k", codec: Codec = Codec.NONE, **how: int
) -> bytearray:
    builder = BatchBuilder(codec)
    for time in times or [NOW_MS]:
        builder.append(time, key, b"value", [("h", b"x")])
    return builder.build(**how)


def assert_agreement(records: bytes | bytearray, config: LogConfig) -> bool:
    """The short way takes the batch as the general way does, or not at all; returns whether it takes it."""
    before = bytes(records)
    short = plain_batch(memoryview(bytearray(before)), config, NOW_MS)
    if short is None:
        return False
    terms = ValidationTerms(config=config, api_version=9, now_ms=NOW_MS)
    [(header, view)] = checked_batches(bytearray(before), terms)
    assert header == short[0]
    assert bytes(view) == bytes(short[1]) == before
    return True


@settings(max_examples=300)
@given(
    st.sampled_from(CONFIGS),
    st.lists(timestamps, min_size=1, max_size=3),
    st.none() | st.just(b"k"),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP]),
    st.sampled_from([-1, -1, 7]),
    st.booleans(),
)
def test_it_takes_what_the_general_way_takes_unchanged(
    config: LogConfig,
    times: list[int],
    key: bytes | None,
    codec: Codec,
    producer_id: int,
    transactional: bool,
) -> None:
    producer = (
        {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    )
    records = batch(
        times=times, key=key, codec=codec, transactional=transactional and producer_id >= 0, **producer
    )
    is_odd = codec is not Codec.NONE or (transactional and producer_id >= 0)
    if assert_agreement(records, config):
        assert not is_odd
        return
    if is_odd:
        return
    terms = ValidationTerms(config=config, api_version=9, now_ms=NOW_MS)
    try:
        [(header, _)] = checked_batches(bytearray(records), terms)
    except KafkaError:
        return
    assert header != read_header(records), "a batch that passes unchanged takes the long way"


@settings(max_examples=400)
@given(st.integers(0, 200), st.integers(1, 255), st.booleans(), st.integers(0, 3))
def test_any_damaged_byte_is_seen_or_harmless_on_both_ways(
    position: int, flips: int, mends_crc: bool, cut: int
) -> None:
    records = batch(times=[NOW_MS, NOW_MS + 1, NOW_MS])
    records[position % len(records)] ^= flips
    if mends_crc and position % len(records) >= 21:
        write_header(records, read_header(records))
    assert_agreement(records[: len(records) - cut], LogConfig())


def test_nearly_all_small_batches_take_it() -> None:
    assert assert_agreement(batch(), LogConfig())
    assert assert_agreement(batch(key=None), LogConfig())
    assert assert_agreement(batch(producer_id=5, producer_epoch=1, base_sequence=3), LogConfig())
    assert assert_agreement(batch(times=[NOW_MS] * 100), LogConfig())


@pytest.mark.parametrize(
    "records",
    [
        b"",
        bytes(batch()) + bytes(batch()),
        bytes(batch())[:-1],
        bytes(control_batch(ControlKind.COMMIT, 5, 1, coordinator_epoch=0, timestamp=NOW_MS)),
        bytes(batch(times=[NOW_MS] * (PLAIN_BYTES_MAX // 16))),
    ],
    ids=["nothing", "two batches", "a batch cut short", "a control batch", "a large batch"],
)
def test_what_is_odd_takes_the_long_way(records: bytes) -> None:
    assert plain_batch(memoryview(bytearray(records)), LogConfig(), NOW_MS) is None


def test_a_header_that_contradicts_its_records_takes_the_long_way() -> None:
    good = batch(times=[NOW_MS, NOW_MS + 1])
    header = read_header(good)
    for wrong in (
        header._replace(max_timestamp=NOW_MS),
        header._replace(record_count=3),
        header._replace(record_count=0),
        header._replace(record_count=-1),
        header._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        header._replace(last_offset_delta=2),
        header._replace(attributes=8),
        header._replace(attributes=32),
        header._replace(attributes=7),
        header._replace(producer_id=3, producer_epoch=-1, base_sequence=0),
        header._replace(producer_id=3, producer_epoch=0, base_sequence=-1),
    ):
        records = bytearray(good)
        write_header(records, wrong)
        assert plain_batch(memoryview(records), LogConfig(), NOW_MS) is None
        assert not assert_agreement(records, LogConfig())


def test_the_plain_engine_has_no_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "active", engine.PLAIN)
    assert plain_batch(memoryview(batch()), LogConfig(), NOW_MS) is None
