"""A follower's log: what a leader's log has, batch for batch."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import read_header, split_batches
from odradek.records.batch import write_header
from odradek.records.cleaning import placeholder

Lab = Any


@pytest.fixture
def leader(lab: Lab, small: LogConfig) -> Any:
    """A log on another disk."""
    return type(lab)().open(small)


def fetched(log: Any, offset: int = 0, max_bytes: int = 1 << 20) -> list[Any]:
    """All batches from `offset` to the log's end, in memory of their own."""
    batches: list[Any] = []
    while offset < log.end_offset:
        read = log.read(offset, max_bytes, end_offset=log.end_offset, at_least_one=True)
        batches += split_batches(bytearray(read.records))
        offset = read.next_offset
    return batches


def follow(lab: Lab, log: Any, leader: Any, **more: Any) -> None:
    log.append_as_follower(fetched(leader, log.end_offset, **more), now_ms=lab.now_ms)


def at(header_and_batch: Any, offset: int, epoch: int) -> Any:
    """The batch with another place and leader epoch."""
    _, batch = header_and_batch
    copy = bytearray(batch)
    write_header(copy, read_header(copy)._replace(base_offset=offset, partition_leader_epoch=epoch))
    return read_header(copy), memoryview(copy)


def one(lab: Lab, offset: int, *values: bytes, epoch: int = 0, **more: Any) -> Any:
    return at(lab.batch(*values, **more)[0], offset, epoch)


def whole(log: Any) -> bytes:
    return b"".join(bytes(batch) for _, batch in fetched(log, log.start_offset))


def refused(call: Any, *arguments: Any, **more: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **more)
    return caught.value.code


# -- what it takes over


def test_a_follower_has_the_same_bytes_at_the_same_offsets(lab: Lab, small: LogConfig, leader: Any) -> None:
    lab.fill(leader, 30)
    lab.fill(leader, 20, epoch=3)
    log = lab.open(small)
    follow(lab, log, leader)
    assert (log.end_offset, log.latest_epoch) == (50, 3)
    assert whole(log) == whole(leader)
    assert log.segment_count > 1
    assert [log.epoch_of(offset) for offset in (0, 29, 30, 49)] == [0, 0, 3, 3]
    assert log.epoch_end_offset(0) == leader.epoch_end_offset(0) == (0, 30)


def test_all_batches_of_a_fetch_are_one_write(lab: Lab, leader: Any) -> None:
    lab.fill(leader, 10, value_bytes=10)
    log = lab.open()
    before = lab.disk.point_count
    follow(lab, log, leader)
    assert lab.disk.point_count == before + 1


def test_offsets_may_be_missing_between_batches_and_at_the_end(lab: Lab) -> None:
    log = lab.open()
    filler = placeholder(30, 1)
    log.append_as_follower(
        [one(lab, 5, b"a"), one(lab, 20, b"b", b"c"), (read_header(filler), memoryview(filler))],
        now_ms=lab.now_ms,
    )
    assert log.end_offset == 31
    assert [record.offset for record in lab.records(log)] == [5, 20, 21]
    assert log.read(7, 100, end_offset=31, at_least_one=True).next_offset == 22


@pytest.mark.parametrize("how", ["closed", "power cut"])
def test_gaps_survive_a_restart_also_where_a_segment_ends(lab: Lab, small: LogConfig, how: str) -> None:
    log = lab.open(small)
    for number in range(30):
        log.append_as_follower([one(lab, number * 10, b"%d" % number + bytes(2000))], now_ms=lab.now_ms)
    assert log.segment_count > 2
    lab.flush(log)
    if how == "closed":
        log.close()
        log = lab.open(small, recovery_point=291)
    else:
        lab.cut_power()
        log = lab.open(small, clean=False, recovery_point=291)
    assert log.end_offset == 291
    assert [record.offset for record in lab.records(log)] == list(range(0, 300, 10))


def test_a_segment_never_spans_more_offsets_than_its_indexes_can_say(lab: Lab) -> None:
    log = lab.open()
    near, far = 2**31 - 1, 2**31 + 5
    log.append_as_follower([one(lab, 0, b"a"), one(lab, near, b"b"), one(lab, far, b"c")], now_ms=lab.now_ms)
    assert log.segment_count == 2
    lab.flush(log)
    lab.cut_power()
    log = lab.open(clean=False, recovery_point=far + 1)
    assert [record.offset for record in lab.records(log)] == [0, near, far]


def test_a_fetch_larger_than_a_segment_fills_several(lab: Lab, small: LogConfig) -> None:
    batches = [one(lab, offset, bytes(3000)) for offset in range(40)]
    log = lab.open(small)
    log.append_as_follower(batches, now_ms=lab.now_ms)
    sizes = [lab.disk.length(f"/data/flights-0/{name}") for name in lab.segment_names()]
    assert len(sizes) == 7
    assert max(sizes) <= small.segment_bytes


def test_what_the_leader_took_is_not_too_large_nor_too_old(lab: Lab) -> None:
    config = LogConfig(max_message_bytes=1000, segment_bytes=2000, message_timestamp_before_max_ms=5)
    log = lab.open(config)
    log.append_as_follower([one(lab, 0, bytes(5000), timestamps=(1,)), one(lab, 1)], now_ms=lab.now_ms)
    assert log.end_offset == 2


def test_times_are_those_of_the_leader_and_can_be_searched(lab: Lab, leader: Any) -> None:
    log = lab.open(LogConfig(message_timestamp_type="LogAppendTime"))
    log.append_as_follower([one(lab, 4, b"a", b"b", timestamps=(100, 300))], now_ms=lab.now_ms)
    offsets = log.offset_for_timestamp(200)
    assert (offsets.timestamp, offsets.offset) == (300, 5)


def test_a_leader_epoch_that_began_without_records_is_replaced_by_the_next(lab: Lab) -> None:
    log = lab.open()
    log.begin_epoch(3)
    log.append_as_follower([one(lab, 0, epoch=5)], now_ms=lab.now_ms)
    assert log.epoch_end_offset(4) == (4, 0)
    assert log.epoch_of(0) == 5


# -- producers and transactions


def test_a_follower_that_becomes_leader_knows_the_producers(lab: Lab, leader: Any) -> None:
    lab.append(leader, b"a", b"b", producer=(7, 0, 0))
    lab.append(leader, b"c", producer=(7, 0, 2))
    log = lab.open()
    follow(lab, log, leader)
    again = lab.append(log, b"a", b"b", producer=(7, 0, 0))
    assert (again.duplicate, again.first_offset) == (True, 0)
    assert lab.append(log, b"d", producer=(7, 0, 3)).first_offset == 3


def test_what_the_leader_took_from_a_producer_is_a_fact(lab: Lab) -> None:
    log = lab.open()
    log.append_as_follower(
        [
            one(lab, 0, producer=(7, 5, 0)),
            one(lab, 1, producer=(7, 5, 40)),
            one(lab, 2, producer=(7, 5, 40)),
            one(lab, 3, producer=(7, 2, 8)),
        ],
        now_ms=lab.now_ms,
    )
    assert log.end_offset == 4
    assert lab.append(log, producer=(7, 2, 9)).first_offset == 4


@pytest.mark.parametrize("how", ["running", "closed", "power cut"])
def test_transactions_open_end_and_are_remembered_when_aborted(lab: Lab, leader: Any, how: str) -> None:
    lab.append(leader, b"a", producer=(7, 0, 0), transactional=True)
    lab.append(leader, b"b", producer=(8, 0, 0), transactional=True)
    lab.end(leader, 7, commit=False)
    lab.append(leader, b"c", producer=(9, 0, 0), transactional=True)
    lab.end(leader, 9, commit=True)
    log = lab.open()
    follow(lab, log, leader)
    if how == "closed":
        log.close()
        log = lab.open(recovery_point=5)
    elif how == "power cut":
        lab.flush(log)
        lab.cut_power()
        log = lab.open(clean=False, recovery_point=5)
    assert log.last_stable_offset(5) == leader.last_stable_offset(5) == 1
    assert log.aborted_transactions(0, 5) == leader.aborted_transactions(0, 5) == [(7, 0)]


def test_a_marker_whose_record_a_compaction_took_ends_nothing(lab: Lab, leader: Any) -> None:
    lab.append(leader, b"a", producer=(7, 0, 0), transactional=True)
    lab.end(leader, 7, commit=True)
    first, (header, batch) = fetched(leader)
    empty = bytearray(batch[:61])
    write_header(empty, header._replace(record_count=0))
    log = lab.open()
    log.append_as_follower([first, (read_header(empty), memoryview(empty))], now_ms=lab.now_ms)
    assert log.end_offset == 2
    assert log.last_stable_offset(2) == 0


# -- durability


def test_what_is_flushed_survives_a_power_cut_and_what_is_not_leaves_no_trace(lab: Lab, leader: Any) -> None:
    lab.fill(leader, 8)
    log = lab.open()
    follow(lab, log, leader)
    assert log.flushed_offset == 0
    lab.flush(log)
    assert log.flushed_offset == 8
    lab.cut_power()
    log = lab.open(clean=False, recovery_point=8)
    assert whole(log) == whole(leader)


# -- what it refuses


@pytest.mark.parametrize(
    ("offsets", "epochs", "code"),
    [
        ((2,), (1,), ErrorCode.OFFSET_OUT_OF_RANGE),
        ((3, 3), (1, 1), ErrorCode.CORRUPT_MESSAGE),
        ((9, 7), (1, 1), ErrorCode.CORRUPT_MESSAGE),
        ((3,), (0,), ErrorCode.CORRUPT_MESSAGE),
        ((3, 4), (2, 1), ErrorCode.CORRUPT_MESSAGE),
        ((3, 2**32), (2, 2), ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["below the end", "the same twice", "descending", "an older epoch", "an epoch going back", "too far"],
)
def test_what_cannot_follow_is_refused_and_nothing_changes(
    lab: Lab, offsets: tuple[int, ...], epochs: tuple[int, ...], code: ErrorCode
) -> None:
    log = lab.open()
    lab.fill(log, 3, epoch=1)
    before = (log.end_offset, log.size_bytes, log.latest_epoch, lab.read("00000000000000000000.log"))
    batches = [one(lab, offset, epoch=epoch) for offset, epoch in zip(offsets, epochs, strict=True)]
    assert refused(log.append_as_follower, batches, now_ms=lab.now_ms) is code
    assert before == (log.end_offset, log.size_bytes, log.latest_epoch, lab.read("00000000000000000000.log"))


def test_batches_of_another_shape_are_corrupt(lab: Lab) -> None:
    log = lab.open()
    header, batch = one(lab, 0)
    for changed in (
        header._replace(magic=1),
        header._replace(last_offset_delta=-1),
        header._replace(base_offset=-1),
    ):
        assert refused(log.append_as_follower, [(changed, batch)], now_ms=1) is ErrorCode.CORRUPT_MESSAGE
    assert refused(log.append_as_follower, [(header, batch[:-1])], now_ms=1) is ErrorCode.CORRUPT_MESSAGE
    broken = header._replace(attributes=0x30, producer_id=7)
    assert refused(log.append_as_follower, [(broken, batch)], now_ms=1) is ErrorCode.CORRUPT_MESSAGE
    assert log.end_offset == 0
