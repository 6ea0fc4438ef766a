"""Batches without the records that go, and the map that says which. On both engines (conftest)."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

from odradek.model.errors import KafkaError
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    Codec,
    ControlKind,
    check_crc,
    control_batch,
    data_batches,
    decode_batch,
    read_control,
    read_header,
)
from odradek.records.batch import HEADER_BYTES, assign
from odradek.records.cleaning import (
    KeyMap,
    emptied,
    new_key_map,
    note_keys,
    placeholder,
    sieve_batch,
    with_horizon,
)

SEED = bytes(range(16))
NOW_MS = 1_700_000_000_000


def keys_of(*batches: bytearray, slots: int = 64, keys_max: int = 63) -> KeyMap:
    keys = new_key_map(slots, keys_max, SEED)
    for batch in batches:
        assert note_keys(keys, batch, read_header(batch), 0) == -1
    return keys


def batch(
    *records: tuple[bytes | None, bytes | None],
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    times: tuple[int, ...] = (),
    append_time: int | None = None,
) -> bytearray:
    builder = BatchBuilder(codec)
    for number, (key, value) in enumerate(records):
        builder.append(times[number] if times else NOW_MS + number, key, value, [("h", b"x")])
    built = builder.build(producer_id=7, producer_epoch=3, base_sequence=40)
    assign(built, base_offset, 5, log_append_time=append_time)
    return built


def sieved(keys: KeyMap, data: bytearray, **terms: int) -> bytes | None:
    said = {"end_offset": 1 << 40, "drops_tombstones": False, "delete_horizon_ms": -1} | terms
    left = sieve_batch(keys, data, read_header(data), **said)  # type: ignore[arg-type]
    if left is not None:
        check_crc(left)
    return None if left is None else bytes(left)


@pytest.mark.parametrize("codec", Codec)
def test_what_was_written_later_stays_and_nothing_else_changes(codec: Codec) -> None:
    first = batch((b"a", b"1"), (b"b", b"2" * 300), (b"c", b"3"), codec=codec)
    keys = keys_of(first, batch((b"a", b"4"), (b"c", b"5"), base_offset=3))
    left = sieved(keys, first)
    assert left is not None
    header, before = read_header(left), read_header(first)
    assert [(r.offset, r.key, r.timestamp, r.headers) for r in decode_batch(left)] == [
        (1, b"b", NOW_MS + 1, (("h", b"x"),))
    ]
    assert header == before._replace(
        record_count=1, max_timestamp=NOW_MS + 1, batch_length=header.batch_length, crc=header.crc
    )


def test_a_batch_that_keeps_everything_is_the_batch_itself() -> None:
    only = batch((b"a", b"1"), (b"b", b"2"))
    keys = keys_of(only)
    assert (
        sieve_batch(keys, only, read_header(only), end_offset=9, drops_tombstones=True, delete_horizon_ms=5)
        is only
    )


def test_within_a_batch_the_last_of_a_key_wins() -> None:
    only = batch((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), base_offset=10)
    left = sieved(keys_of(only), only)
    assert left is not None
    assert [(r.offset, r.value) for r in decode_batch(left)] == [(12, b"3")]


def test_records_without_a_key_go_and_records_behind_the_map_stay() -> None:
    only = batch((None, b"1"), (b"a", b"2"), (None, b"3"))
    assert [r.offset for r in decode_batch(sieved(keys_of(only), only) or b"")] == [1]
    assert [r.offset for r in decode_batch(sieved(keys_of(only), only, end_offset=2) or b"")] == [1, 2]
    assert sieved(keys_of(only), batch((None, b"1"))) is None


def test_an_empty_key_is_a_key() -> None:
    only = batch((b"", b"1"), (b"a", b"2"), (b"", b"3"))
    assert [r.offset for r in decode_batch(sieved(keys_of(only), only) or b"")] == [1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_kept_tombstones_give_their_batch_a_horizon_and_no_record_another_time(codec: Codec) -> None:
    only = batch((b"a", None), (b"b", b"2"), codec=codec, times=(NOW_MS, -1))
    left = sieved(keys_of(only), only, delete_horizon_ms=NOW_MS + 99)
    assert left is not None
    header = read_header(left)
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW_MS + 99)
    assert decode_batch(left) == decode_batch(only)
    again = bytearray(left)
    assert sieved(keys_of(only), again, delete_horizon_ms=NOW_MS + 500) == left
    dropped = sieved(keys_of(only), again, drops_tombstones=True)
    assert [r.key for r in decode_batch(dropped or b"")] == [b"b"]
    assert read_header(dropped or b"").base_timestamp == NOW_MS + 99


def test_times_of_the_broker_stay_those_of_the_broker() -> None:
    only = batch((b"a", None), (b"b", b"2"), append_time=NOW_MS + 7)
    left = sieved(keys_of(only), only, delete_horizon_ms=NOW_MS + 99)
    assert {r.timestamp for r in decode_batch(left or b"")} == {NOW_MS + 7}
    left = sieved(keys_of(only), only, drops_tombstones=True)
    assert {r.timestamp for r in decode_batch(left or b"")} == {NOW_MS + 7}


def test_a_time_too_far_from_the_horizon_leaves_the_batch_without_one() -> None:
    only = batch((b"a", None), times=(-(1 << 63),))
    assert sieved(keys_of(only), only, delete_horizon_ms=NOW_MS) == bytes(only)


def test_a_full_map_says_where_it_stopped_and_still_knows_its_keys() -> None:
    keys = new_key_map(3, 2, SEED)
    full = batch((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), base_offset=100)
    assert note_keys(keys, full, read_header(full), 0) == 103
    assert keys.key_count == 2
    assert keys.size_bytes == 72
    left = sieved(keys, full, end_offset=103)
    assert [r.offset for r in decode_batch(left or b"")] == [101, 102, 103]


def test_records_below_where_the_map_begins_are_not_noted() -> None:
    keys = new_key_map(8, 7, SEED)
    old = batch((b"a", b"1"), (b"b", b"2"), base_offset=10)
    assert note_keys(keys, old, read_header(old), 11) == -1
    assert keys.key_count == 1


def test_many_keys_are_distinguished() -> None:
    count = 3000
    keys = new_key_map(count + 1, count, SEED)
    for number in range(count):
        batch_bytes = batch((b"key %d" % number, b""), base_offset=number)
        assert note_keys(keys, batch_bytes, read_header(batch_bytes), 0) == -1
    assert keys.key_count == count
    for number in range(1, count, 7):
        batch_bytes = batch((b"key %d" % number, b""), base_offset=number)
        assert sieved(keys, batch_bytes) == bytes(batch_bytes)
        assert sieved(keys, batch((b"key %d" % number, b""), base_offset=number - 1)) is None


def test_damaged_records_are_refused(batch_of: Callable[..., bytearray]) -> None:
    keys = new_key_map(8, 7, SEED)
    for bad in (b"\x02\x00", b"\x0c\x00\x00\x00\x01\x01", bytes(7)):
        data = batch_of(bad)
        with pytest.raises(KafkaError):
            note_keys(keys, data, read_header(data), 0)
        with pytest.raises(KafkaError):
            sieved(keys, data)
        with pytest.raises(KafkaError):
            with_horizon(data, read_header(data), NOW_MS)


def test_a_marker_with_a_horizon_is_the_same_marker() -> None:
    marker = control_batch(ControlKind.ABORT, 7, 3, coordinator_epoch=2, timestamp=NOW_MS)
    left = with_horizon(marker, read_header(marker), NOW_MS + 1000)
    check_crc(left)
    assert read_control(left) == read_control(marker)
    header = read_header(left)
    assert header.has_delete_horizon
    assert header.is_control
    assert header.is_transactional
    assert header.base_timestamp == NOW_MS + 1000


def test_an_emptied_batch_keeps_offsets_producer_and_sequence() -> None:
    only = batch((b"a", b"1"), (b"b", b"2"), base_offset=9, codec=Codec.GZIP)
    header = read_header(only)
    left = emptied(header)
    check_crc(left)
    assert decode_batch(left) == []
    assert read_header(left) == header._replace(
        record_count=0,
        attributes=0,
        base_timestamp=-1,
        batch_length=HEADER_BYTES - 12,
        crc=read_header(left).crc,
    )
    assert emptied(read_header(left)) == left


def test_a_marker_that_was_emptied_is_passed_over_by_readers() -> None:
    marker = control_batch(ControlKind.ABORT, 7, 3, coordinator_epoch=2, timestamp=NOW_MS)
    left = emptied(read_header(marker))
    batches = [(read_header(left), memoryview(left))]
    assert list(data_batches(batches, aborted=[(7, 0)])) == []


def test_a_placeholder_is_of_no_producer() -> None:
    left = placeholder(77, 4)
    check_crc(left)
    header: BatchHeader = read_header(left)
    assert (header.base_offset, header.last_offset, header.record_count) == (77, 77, 0)
    assert (header.producer_id, header.partition_leader_epoch, decode_batch(left)) == (-1, 4, [])


def test_a_seed_has_16_bytes(record_engine: str) -> None:
    if record_engine == "compiled":
        with pytest.raises(ValueError, match="16 bytes"):
            new_key_map(8, 7, b"short")


def test_the_hash_is_siphash(record_engine: str) -> None:
    if record_engine != "compiled":
        pytest.skip("the plain twin hashes otherwise")
    siphash = importlib.import_module("odradek.records._fast_cleaning").siphash
    assert siphash(SEED, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert siphash(SEED, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"
