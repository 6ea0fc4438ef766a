"""Compaction of a log on a simulated disk, by the broker's own cleaner."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.simulation.compaction import keyed_log
from tests.simulation.compaction.keyed_log import KeyedLog
from tests.unit.storage.cleaning.compacted import DIRECTORY, EAGER, Fixed, files, filled, keys

from odradek.config.broker import BrokerConfig
from odradek.config.server import CleanerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import Codec, Record, decode_batch, split_batches
from odradek.runtime.ports import Buffer
from odradek.storage.cleaning.access import CleaningAccess
from odradek.storage.cleaning.target import CleanedSegment
from odradek.storage.dump import check_segment
from odradek.storage.files import naming
from odradek.storage.segment.segment import Segment
from odradek.testing.guarded_disk import off_loop
from odradek.testing.sim import CrashKind

# ---- what stays --------------------------------------------------------------------------------------------------


def test_the_newest_value_of_each_key_stays_and_the_active_segment_is_left_alone() -> None:
    keyed = filled()
    active = keyed.log.segment_count
    assert active > 3
    keyed.compact()
    keyed.check()
    clean = [record for record in keyed.records() if record.offset < keyed.cleaned_offset]
    assert len({record.key for record in clean}) == len(clean)
    assert keyed.log.size_bytes == sum(
        keyed.disk.length(f"{DIRECTORY}/{name}") for name in files(keyed, ".log")
    )
    assert not [name for name in files(keyed) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_small_segments_become_one_as_far_as_they_fit() -> None:
    keyed = KeyedLog(EAGER)
    for number in range(200):
        keyed.write((b"same", b"%d" % number * 30))
    keyed.flush()
    before = keyed.log.segment_count
    keyed.compact()
    keyed.compact_again()
    assert before > 6
    assert keyed.log.segment_count == 2
    keyed.check()
    keyed.close()
    keyed.open()
    keyed.check()


def test_a_second_compaction_changes_no_byte() -> None:
    keyed = filled()
    keyed.compact()
    keyed.compact_again()
    before = {name: keyed.disk.read(f"{DIRECTORY}/{name}") for name in files(keyed)}
    keyed.now_ms += 10
    keyed.compact_again()
    assert {name: keyed.disk.read(f"{DIRECTORY}/{name}") for name in files(keyed)} == before


def test_a_clean_log_is_left_alone() -> None:
    keyed = filled()
    keyed.compact()
    points = keyed.disk.point_count
    keyed.run_round()
    assert keyed.disk.point_count == points


def test_topics_that_are_not_compacted_are_left_alone() -> None:
    keyed = filled()
    keyed.log.reconfigure(replace(EAGER, cleanup_policy=frozenset({"delete"})))
    size_bytes = keyed.log.size_bytes
    keyed.compact()
    assert keyed.log.size_bytes == size_bytes


def test_compaction_can_be_switched_off() -> None:
    keyed = filled(broker=BrokerConfig(cleaner=CleanerConfig(enable=False)))
    size_bytes = keyed.log.size_bytes
    keyed.compact()
    assert keyed.log.size_bytes == size_bytes


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_kept(codec: Codec) -> None:
    keyed = KeyedLog(EAGER)
    for number in range(60):
        keyed.write((b"k%d" % (number % 3), b"v" * 90), (b"k%d" % number, b"w" * 90), codec=codec)
    keyed.roll()
    keyed.compact()
    keyed.check()
    assert {header.codec for header, _ in keyed.batches() if header.record_count} == {codec}


def test_more_keys_than_memory_take_several_goes() -> None:
    keyed = filled(count=120, broker=BrokerConfig(cleaner=CleanerConfig(dedupe_buffer_size=1024)))
    dirty = keyed.log.end_offset
    keyed.compact()
    keyed.check()
    assert dirty > 1024 // 24 * 2
    assert keyed.cleaned_offset > dirty // 2


def test_a_batch_larger_than_the_buffers_is_compacted_too() -> None:
    keyed = KeyedLog(
        replace(EAGER, segment_bytes=200_000), broker=BrokerConfig(cleaner=CleanerConfig(io_buffer_size=1))
    )
    for number in range(4):
        keyed.write((b"large", bytes([number]) * 60_000), (b"k%d" % number, b"x"))
    keyed.roll()
    keyed.compact()
    keyed.check()
    assert keyed.log.size_bytes < 70_000


def test_records_without_a_key_from_before_the_topic_was_compacted_go() -> None:
    keyed = KeyedLog(EAGER)
    for _ in range(30):
        keyed.write((None, b"v" * 100))
    keyed.write((b"a", b"1"))
    keyed.roll()
    keyed.compact()
    assert keys(keyed) == [b"a"]


# ---- tombstones and time -------------------------------------------------------------------------------------------


def test_a_tombstone_stays_for_its_time_counted_from_the_first_compaction() -> None:
    keyed = KeyedLog(EAGER)
    keyed.write((b"a", b"1"))
    keyed.write((b"a", None), (b"b", b"2"))
    keyed.roll()
    keyed.now_ms += 5000
    keyed.compact()
    assert keys(keyed) == [b"a", b"b"]
    keyed.now_ms += 999
    keyed.compact_again()
    assert keys(keyed) == [b"a", b"b"]
    keyed.now_ms += 1
    keyed.compact_again()
    assert keys(keyed) == [b"b"]
    keyed.check()


def test_a_tombstone_covers_what_was_written_before_it_for_ever() -> None:
    keyed = KeyedLog(EAGER)
    keyed.write((b"a", b"1"))
    keyed.roll()
    keyed.compact()
    keyed.write((b"a", None))
    keyed.roll()
    for _ in range(4):
        keyed.compact_again()
        keyed.now_ms += 600
    assert keys(keyed) == []
    keyed.check()


def test_the_active_segment_is_ended_in_time_for_the_longest_wait() -> None:
    keyed = KeyedLog(replace(EAGER, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0))
    keyed.write((b"a", b"1"))
    keyed.write((b"a", b"2"))
    keyed.flush()
    keyed.now_ms += 999
    keyed.compact()
    assert keys(keyed) == [b"a", b"a"]
    keyed.now_ms += 2
    keyed.compact()
    assert [record.value for record in keyed.records()] == [b"2"]


def test_records_that_are_young_wait() -> None:
    keyed = filled(replace(EAGER, min_compaction_lag_ms=1000))
    size_bytes = keyed.log.size_bytes
    keyed.now_ms += 999
    keyed.compact()
    assert keyed.log.size_bytes == size_bytes
    keyed.now_ms += 1
    keyed.compact()
    assert keyed.log.size_bytes < size_bytes


def test_retention_goes_on_counting_from_the_append() -> None:
    keyed = filled(replace(EAGER, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000))
    keyed.now_ms += 9000
    keyed.compact()
    keyed.close()
    keyed.open()
    keyed.now_ms += 1001
    assert keyed.log.apply_retention(keyed.now_ms)
    assert keyed.records() == []


def test_retention_leaves_a_compacted_segment_alone_until_its_files_have_its_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deletion would miss the files, and a crash bring them back."""
    keyed = filled(replace(EAGER, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000))
    settle = CleaningAccess.settle
    too_early: list[object] = []

    def settling(self: CleaningAccess, segment: Segment, target: CleanedSegment) -> None:
        too_early.extend(
            deleted_segment
            for deleted_segment in keyed.log.apply_retention(keyed.now_ms + 20_000)
            if deleted_segment.base_offset >= segment.base_offset
        )
        settle(self, segment, target)

    with monkeypatch.context() as patch:
        patch.setattr(CleaningAccess, "settle", settling)
        keyed.compact()
    assert too_early == []
    assert keyed.log.apply_retention(keyed.now_ms + 20_000)


@pytest.mark.parametrize("how", ["truncated", "begun again"])
@pytest.mark.parametrize("kind", CrashKind)
def test_a_log_that_is_cut_under_its_compaction_holds_together(
    how: str, kind: CrashKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash comes between any two of the cleaner's steps, or between the end of work on a thread and its being known."""
    monkeypatch.setattr(keyed_log.InlineOffload, "run", _run_and_be_late)
    done: list[int] = []
    for steps in range(50):
        keyed = filled(count=40, seed=steps)
        for number in range(20):
            keyed.write((b"k%d" % number, b"v" * 100))
        keyed.flush()
        cut = asyncio.run(_cut_while_compacting(keyed, steps, how))
        done.append(cut)
        held = [bytes(batch) for _, batch in keyed.batches()]
        assert keyed.log.end_offset == (7 if how == "begun again" else 34)
        keyed.flush()
        keyed.crash(kind)
        keyed.open()
        assert [bytes(batch) for _, batch in keyed.batches()] == held, steps
        assert not [name for name in files(keyed) if name.endswith((".cleaned", ".swap"))]
        keyed.write((b"k1", b"goes on"))
        keyed.flush()
        keyed.compact()
    assert any(done)


async def _run_and_be_late(self: object, work: Any, *arguments: object) -> Any:
    await asyncio.sleep(0)
    try:
        with off_loop():
            return work(*arguments)
    finally:
        await asyncio.sleep(0)


async def _cut_while_compacting(keyed: KeyedLog, steps: int, how: str) -> bool:
    """Whether the compaction was under way."""

    async def cut() -> bool:
        for _ in range(steps):
            await asyncio.sleep(0)
        under_way = keyed.log.cleaning.in_work
        keyed.log.restart_at(7) if how == "begun again" else keyed.log.truncate_to(34)
        return under_way

    _, under_way = await asyncio.gather(keyed.cleaner.run_round([Fixed(keyed)], keyed.broker), cut())
    return under_way


# ---- reading -------------------------------------------------------------------------------------------------------


def test_a_read_at_a_removed_offset_gives_what_comes_next() -> None:
    keyed = filled()
    keyed.compact()
    present = [record.offset for record in keyed.records()]
    for offset in range(keyed.log.end_offset):
        got: list[int] = []
        position = offset
        while not got and position < keyed.log.end_offset:
            read = keyed.log.read(position, 1, end_offset=keyed.log.end_offset, at_least_one=True)
            got = [record.offset for record in decode_batch_all(read.records) if record.offset >= offset]
            assert read.next_offset > position
            position = read.next_offset
        assert got[:1] == [present_record for present_record in present if present_record >= offset][:1]


def decode_batch_all(data: Buffer) -> list[Record]:
    return [record for header, batch in split_batches(data) for record in decode_batch(batch, header)]


def test_times_lead_to_the_records_that_are_left() -> None:
    keyed = KeyedLog(EAGER)
    rng = Random(3)
    for number in range(120):
        keyed.now_ms += rng.randint(-300, 400)
        keyed.write((b"k%d" % rng.randrange(9), b"%d" % number * 10))
    keyed.roll()
    keyed.compact()
    left = keyed.records()
    for timestamp in range(left[0].timestamp - 500, keyed.now_ms + 500, 97):
        expected = next((record.offset for record in left if record.timestamp >= timestamp), None)
        position = keyed.log.offset_for_timestamp(timestamp)
        assert (position.offset if position else None) == expected
    latest = keyed.log.max_timestamp_offset()
    assert latest is not None
    assert latest.timestamp == max(record.timestamp for record in left)


def test_the_time_of_a_batch_that_was_emptied_is_no_records_time() -> None:
    keyed = KeyedLog(EAGER)
    keyed.write((b"b", b"1"))
    keyed.now_ms += 500
    keyed.write((b"a", b"1"), producer_id=5)
    keyed.now_ms -= 400
    keyed.write((b"a", b"2"))
    keyed.roll()
    keyed.compact()
    assert [record.offset for record in keyed.records()] == [0, 2]
    latest = keyed.log.max_timestamp_offset()
    assert latest is not None
    assert (latest.offset, latest.timestamp) == (2, keyed.now_ms)
    assert keyed.log.offset_for_timestamp(keyed.now_ms + 1) is None


def test_epochs_end_where_they_did() -> None:
    keyed = filled()
    before = [keyed.log.epoch_end_offset(epoch) for epoch in range(3)]
    keyed.compact()
    assert [keyed.log.epoch_end_offset(epoch) for epoch in range(3)] == before


def test_segments_and_indexes_are_sound() -> None:
    keyed = filled()
    keyed.compact()
    keyed.close()
    for name in files(keyed, ".log"):
        assert check_segment(keyed.disk, f"{DIRECTORY}/{name}").problems == ()


# ---- producers and transactions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loses_snapshots", [False, True])
def test_what_a_producer_sends_again_is_known_after_a_compaction_and_a_restart(loses_snapshots: bool) -> None:
    keyed = KeyedLog(EAGER)
    first = keyed.write((b"a", b"1"), producer_id=5)
    mine = keyed.write((b"a", b"2"), (b"b", b"3"), producer_id=5)
    keyed.write((b"a", b"4"))
    keyed.write((b"b", b"4"))
    keyed.roll()
    keyed.compact()
    assert [record.value for record in keyed.records()] == [b"4", b"4"]
    keyed.close()
    if loses_snapshots:
        for name in files(keyed, naming.SNAPSHOT):
            keyed.disk.remove(f"{DIRECTORY}/{name}")
    keyed.open()
    again = keyed.send([(b"a", b"2"), (b"b", b"3")], Codec.NONE, 5, 1)
    assert again == mine._replace(duplicate=True)
    with pytest.raises(KafkaError) as gap:
        keyed.send([(b"a", b"9")], Codec.NONE, 5, 9)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert first.first_offset == 0


def test_records_of_aborted_transactions_go_and_count_for_nothing() -> None:
    keyed = KeyedLog(EAGER)
    keyed.write((b"a", b"kept"))
    keyed.write((b"a", b"aborted"), producer_id=5, transactional=True)
    keyed.end_transaction(5, is_commit=False)
    keyed.write((b"b", b"1"), producer_id=5, transactional=True)
    keyed.end_transaction(5, is_commit=True)
    keyed.roll()
    keyed.compact()
    keyed.check()
    assert [record.value for record in keyed.records()] == [b"kept", b"1"]
    assert keyed.committed() == keyed.records()


def test_markers_go_once_nothing_is_left_of_their_transaction_and_their_time_is_over() -> None:
    keyed = KeyedLog(EAGER)
    keyed.write((b"a", b"aborted"), producer_id=5, transactional=True)
    keyed.end_transaction(5, is_commit=False)
    keyed.write((b"b", b"1"), producer_id=6, transactional=True)
    keyed.end_transaction(6, is_commit=True)
    keyed.write((b"b", b"2"))
    keyed.roll()
    keyed.log.producers.expire_idle_producers(keyed.now_ms + 10, 1)

    def markers() -> list[int]:
        return [header.base_offset for header, _ in keyed.batches() if header.is_control]

    keyed.compact()
    assert markers() == [1, 3]
    assert len(keyed.log.aborted_transactions(0, 9)) == 1
    keyed.compact_again()
    assert markers() == [1, 3]
    assert keyed.log.aborted_transactions(0, 9) == []
    keyed.now_ms += 999
    keyed.compact_again()
    assert markers() == [1, 3]
    keyed.now_ms += 1
    keyed.compact_again()
    assert markers() == []
    keyed.check()
    assert files(keyed, naming.TRANSACTION_INDEX) == []


def test_nothing_from_an_open_transaction_on_is_touched() -> None:
    keyed = filled(count=20)
    stable = keyed.log.end_offset
    keyed.write((b"k1", b"open"), producer_id=5, transactional=True)
    for number in range(40):
        keyed.write((b"k1", b"%d" % number * 20))
    keyed.roll()
    keyed.compact()
    keyed.check()
    assert keyed.cleaned_offset <= stable
    present = {record.offset for record in keyed.records()}
    assert set(range(stable, keyed.log.end_offset)) <= present
    keyed.end_transaction(5, is_commit=False)
    keyed.flush()
    keyed.compact()
    keyed.check()
    assert keyed.cleaned_offset > stable
