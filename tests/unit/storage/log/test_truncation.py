"""A log whose end is taken away, or all of it: in memory at once, on the disk with the next flush, whole at every crash."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import read_header, split_batches
from odradek.records.batch import write_header
from odradek.testing.guarded_disk import off_loop
from odradek.testing.sim import CrashAt, CrashKind, HostCrashed

Lab = Any
LOG = "00000000000000000000.log"


def whole(log: Any) -> list[tuple[int, int, bytes]]:
    """Every batch: offset, epoch, bytes."""
    found: list[tuple[int, int, bytes]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        for header, batch in split_batches(read.records):
            found.append((header.base_offset, header.partition_leader_epoch, bytes(batch)))
        offset = read.next_offset
    return found


def at(lab: Lab, offset: int, *values: bytes, epoch: int = 0, **more: Any) -> Any:
    """A batch as a leader's log has it."""
    copy = bytearray(lab.batch(*values, **more)[0][1])
    write_header(copy, read_header(copy)._replace(base_offset=offset, partition_leader_epoch=epoch))
    return read_header(copy), memoryview(copy)


def fetch(lab: Lab, log: Any, count: int, *, epoch: int, value: bytes = b"new") -> None:
    """As a follower does: when the files have followed a truncation."""
    if log.awaits_truncation:
        lab.flush(log)
    for _ in range(count):
        log.append_as_follower(
            [at(lab, log.end_offset, value + b"%d:" % log.end_offset + bytes(900), epoch=epoch)],
            now_ms=lab.now_ms,
        )


def fetch_one(lab: Lab, log: Any, *, epoch: int) -> None:
    log.append_as_follower([at(lab, log.end_offset, b"new", epoch=epoch)], now_ms=lab.now_ms)


def reopened(lab: Lab, log: Any, config: LogConfig, how: str, **more: Any) -> Any:
    if how == "closed":
        log.close()
        return lab.open(config, **more)
    if how == "killed":
        lab.kill()
    else:
        lab.flush(log)
        lab.cut_power()
    return lab.open(config, clean=False, **more)


RESTARTS = pytest.mark.parametrize("how", ["closed", "power cut", "killed"])


# -- what is left


@pytest.mark.parametrize("offset", [1, 17, 18, 19, 20, 21, 35, 36, 37, 41, 59])
def test_what_lies_below_is_left_and_the_log_goes_on_there(lab: Lab, small: LogConfig, offset: int) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    before = whole(log)
    log.truncate_to(offset)
    assert (log.end_offset, log.flushed_offset, log.recovery_point) == (offset, offset, offset)
    assert whole(log) == before[:offset]
    lab.flush(log)
    assert whole(log) == before[:offset]
    assert log.size_bytes == sum(lab.disk.length(f"/data/flights-0/{name}") for name in lab.segment_names())
    fetch(lab, log, 30, epoch=2)
    assert [record.offset for record in lab.records(log)] == list(range(offset + 30))
    assert log.epoch_of(offset) == 2
    assert log.epoch_end_offset(0) == (0, offset)


@RESTARTS
@pytest.mark.parametrize("offset", [5, 19, 40])
def test_a_restart_finds_what_was_left_and_what_came_after(
    lab: Lab, small: LogConfig, offset: int, how: str
) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    log.truncate_to(offset)
    fetch(lab, log, 25, epoch=3)
    expected = whole(log)
    log = reopened(lab, log, small, how, recovery_point=60)
    assert whole(log) == expected
    assert log.epoch_end_offset(0) == (0, offset)
    assert log.latest_epoch == 3
    found = log.max_timestamp_offset()
    assert found is not None
    assert log.offset_for_timestamp(found.timestamp).offset <= found.offset


def test_a_batch_that_holds_the_offset_goes_as_a_whole(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"a", b"b")
    lab.append(log, b"c", b"d", b"e")
    log.truncate_to(3)
    assert log.end_offset == 2
    assert lab.values(log) == [b"a", b"b"]


def test_where_offsets_are_missing_the_log_ends_behind_the_last_batch(lab: Lab) -> None:
    log = lab.open()
    log.append_as_follower([at(lab, 4), at(lab, 20)], now_ms=lab.now_ms)
    log.truncate_to(15)
    assert log.end_offset == 5


def test_times_that_are_gone_are_not_found(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    for number in range(40):
        lab.append(log, bytes(900), timestamps=(1000 + number,))
    log.truncate_to(25)
    assert log.max_timestamp_offset().timestamp == 1024
    assert log.offset_for_timestamp(1030) is None
    lab.flush(log)
    lab.append(log, bytes(900), timestamps=(1030,))
    assert log.offset_for_timestamp(1026).offset == 25


def test_the_cut_of_an_active_segment_reads_no_more_than_its_end(lab: Lab) -> None:
    """Also when all times are the same: the index in memory is known to be right."""
    log = lab.open()
    for _ in range(200):
        lab.append(log, bytes(900), timestamps=(1000,))
    lab.disk.points = []
    log.truncate_to(190)
    read = [point for point in lab.disk.points if point.operation == "pread"]
    assert len(read) <= 4
    assert log.max_timestamp_offset().offset == 0
    lab.flush(log)
    assert log.max_timestamp_offset().timestamp == 1000


def test_files_that_go_are_renamed_and_removed_later(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    names = lab.segment_names()
    log.truncate_to(5)
    lab.flush(log)
    assert lab.segment_names() == names[:1]
    assert lab.segment_names(".deleted") == [f"{name}.deleted" for name in names[1:]]
    assert lab.segment_names(".snapshot") == []
    assert lab.segment_names(".index") == [names[0].replace(".log", ".index")]
    lab.now_ms += small.file_delete_delay_ms + 1
    job = log.jobs.removal_job(lab.now_ms)
    job.run()
    log.jobs.removed(job, lab.now_ms + log.config.file_delete_delay_ms)
    assert lab.segment_names(".deleted") == []


def test_at_the_log_s_end_only_an_epoch_without_records_goes(lab: Lab) -> None:
    log = lab.open()
    lab.fill(log, 5, epoch=1)
    log.begin_epoch(4)
    for offset in (5, 9):
        log.truncate_to(offset)
        assert (log.end_offset, log.latest_epoch) == (5, 1)
    lab.flush(log)
    assert lab.read("leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_epochs_above_are_forgotten(lab: Lab) -> None:
    log = lab.open()
    lab.fill(log, 3, epoch=1)
    lab.fill(log, 3, epoch=4)
    lab.fill(log, 3, epoch=6)
    log.truncate_to(4)
    assert (log.latest_epoch, log.epoch_end_offset(6), log.epoch_end_offset(4)) == (4, (-1, -1), (4, 4))
    log.truncate_to(3)
    assert (log.latest_epoch, log.epoch_end_offset(1)) == (1, (1, 3))


# -- nothing is left


@RESTARTS
@pytest.mark.parametrize("offset", [0, 7, 20, 60, 1000])
def test_a_log_can_begin_again_anywhere(lab: Lab, small: LogConfig, offset: int, how: str) -> None:
    log = lab.open(small)
    lab.fill(log, 60, epoch=3)
    lab.flush(log)
    log.restart_at(offset)
    assert (log.start_offset, log.end_offset, log.flushed_offset, log.latest_epoch) == (offset,) * 3 + (-1,)
    assert log.size_bytes == 0
    lab.flush(log)
    assert lab.segment_names() == [f"{offset:020d}.log"]
    fetch(lab, log, 25, epoch=1)
    expected = whole(log)
    log = reopened(lab, log, small, how, recovery_point=60, start_offset=50)
    assert (log.start_offset, log.end_offset, log.latest_epoch) == (offset, offset + 25, 1)
    assert whole(log) == expected


@RESTARTS
def test_an_empty_log_that_began_again_stays_there(lab: Lab, small: LogConfig, how: str) -> None:
    log = lab.open(small)
    lab.fill(log, 30)
    lab.flush(log)
    log.restart_at(500)
    lab.flush(log)
    log = reopened(lab, log, small, how, recovery_point=30)
    assert (log.start_offset, log.end_offset) == (500, 500)


@pytest.mark.parametrize("offset", [0, 3, 10])
def test_a_truncation_at_or_below_the_start_leaves_an_empty_log_there(lab: Lab, offset: int) -> None:
    log = lab.open()
    lab.fill(log, 20)
    lab.flush(log)
    log.delete_records(10)
    log.truncate_to(offset)
    assert (log.start_offset, log.end_offset) == (offset, offset)


def test_a_truncation_inside_the_batch_with_the_start_leaves_an_empty_log_at_the_start(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, *[b"x"] * 10)
    lab.flush(log)
    log.delete_records(4)
    log.truncate_to(8)
    assert (log.start_offset, log.end_offset) == (4, 4)


def test_offsets_below_zero_are_refused(lab: Lab) -> None:
    log = lab.open()
    for call in (log.truncate_to, log.restart_at):
        with pytest.raises(KafkaError) as caught:
            call(-1)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@RESTARTS
def test_an_empty_log_takes_a_first_batch_that_begins_before_it(lab: Lab, how: str) -> None:
    config = LogConfig()
    log = lab.open()
    lab.fill(log, 8)
    lab.flush(log)
    log.restart_at(105)
    lab.flush(log)
    first = at(lab, 100, *[b"x"] * 10)
    assert log.starts_inside_batch(first[0])
    log.begin_with(first[0])
    lab.flush(log)
    log.append_as_follower([first, at(lab, 110, b"y")], now_ms=lab.now_ms)
    assert (log.start_offset, log.end_offset) == (105, 111)
    assert len(lab.values(log)) == 6
    log = reopened(lab, log, config, how, recovery_point=8)
    assert (log.start_offset, log.end_offset) == (105, 111)
    assert len(lab.values(log)) == 6


# -- crashes


@pytest.mark.parametrize("kind", list(CrashKind))
@pytest.mark.parametrize("offset", [5, 18, 42])
def test_a_crash_at_any_point_leaves_the_log_as_it_was_or_as_it_is_to_be(
    lab: Lab, small: LogConfig, kind: CrashKind, offset: int
) -> None:
    for number in range(1, 200):
        here = type(lab)()
        log = here.open(small)
        here.fill(log, 30, epoch=1)
        here.fill(log, 30, epoch=2)
        here.flush(log)
        before = whole(log)
        crash = CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number))
        here.disk.faults.append(crash)
        new_end, crashed = -1, False
        try:
            log.truncate_to(offset)
            here.flush(log)
            new_end = offset
            fetch(here, log, 4, epoch=5)
            here.flush(log)
            new_end = log.end_offset
        except HostCrashed:
            crashed = True
        else:
            here.disk.crash(kind)
        here.mount()
        log = here.open(small, clean=False, recovery_point=60)
        found = whole(log)
        if found == before:
            assert new_end < 0, number
            assert log.latest_epoch == 2
        else:
            assert found[:offset] == before[:offset], number
            assert all(epoch == 5 for _, epoch, _ in found[offset:]), number
            assert log.end_offset >= max(new_end, offset), number
            assert log.latest_epoch == (5 if log.end_offset > offset else 1 if offset <= 30 else 2), number
        fetch(here, log, 3, epoch=7)
        assert [record.offset for record in here.records(log)] == list(range(log.end_offset))
    assert not crashed, "there are more points than were tried"


@pytest.mark.parametrize("kind", list(CrashKind))
@pytest.mark.parametrize("offset", [0, 42, 900])
def test_a_crash_while_a_log_begins_again_leaves_the_old_or_the_new_one(
    lab: Lab, small: LogConfig, kind: CrashKind, offset: int
) -> None:
    for number in range(1, 120):
        here = type(lab)()
        log = here.open(small)
        here.fill(log, 60, epoch=1)
        here.flush(log)
        before = whole(log)
        crash = CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number))
        here.disk.faults.append(crash)
        done = False
        try:
            log.restart_at(offset)
            here.flush(log)
            done = True
            fetch(here, log, 4, epoch=5)
            here.flush(log)
        except HostCrashed:
            pass
        else:
            here.disk.crash(kind)
        here.mount()
        log = here.open(small, clean=False, recovery_point=60, start_offset=3)
        if log.start_offset == 3 and log.end_offset == 60:
            assert not done
            assert whole(log) == before[3:]
        else:
            assert log.start_offset == offset, number
            assert all(epoch == 5 for _, epoch, _ in whole(log))
            assert log.latest_epoch in (-1, 5)


def test_a_crash_while_an_opening_finishes_a_truncation_does_no_harm(lab: Lab, small: LogConfig) -> None:
    for number in range(1, 60):
        here = type(lab)()
        log = here.open(small)
        here.fill(log, 60)
        here.flush(log)
        expected = whole(log)[:25]
        log.truncate_to(25)
        job = log.flush_job()
        renamed = CrashAt(
            number=1, kind=CrashKind.POWER_LOSS, rng=Random(1), operations={"rename"}, suffix=".log"
        )
        here.disk.faults.append(renamed)
        with pytest.raises(HostCrashed):
            job.run()
        for kind in (CrashKind.PROCESS_KILL, CrashKind.POWER_LOSS):
            here.mount()
            here.disk.faults.append(CrashAt(number=number, kind=kind, rng=Random(number)))
            try:
                here.open(small, clean=False, recovery_point=60)
            except HostCrashed:
                continue
            here.disk.crash(kind)
        here.mount()
        log = here.open(small, clean=False, recovery_point=60)
        assert whole(log) == expected


def test_a_truncation_that_no_flush_followed_did_not_happen(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    before = whole(log)
    log.truncate_to(9)
    lab.cut_power()
    log = lab.open(small, clean=False, recovery_point=60)
    assert whole(log) == before


def test_old_claims_of_a_checkpoint_do_not_spare_new_batches_their_check(lab: Lab, small: LogConfig) -> None:
    """What was below the recovery point once is written anew, is not synced, and is torn by a power cut."""
    for seed in range(20):
        here = type(lab)()
        here.lives = seed * 100
        here.mount()
        log = here.open(small)
        here.fill(log, 60)
        here.flush(log)
        log.truncate_to(10)
        here.flush(log)
        fetch(here, log, 45, epoch=1)
        expected = whole(log)
        here.cut_power()
        log = here.open(small, clean=False, recovery_point=60)
        found = whole(log)
        assert found == expected[: len(found)]
        assert len(found) >= 10


def test_the_second_truncation_knows_what_the_first_took_back(lab: Lab, small: LogConfig) -> None:
    for seed in range(10):
        here = type(lab)()
        here.lives = seed * 100
        here.mount()
        log = here.open(small)
        here.fill(log, 60)
        here.flush(log)
        log.truncate_to(5)
        here.flush(log)
        fetch(here, log, 50, epoch=1)
        log.truncate_to(45)
        expected = whole(log)
        assert log.recovery_point <= 5
        here.flush(log)
        here.cut_power()
        log = here.open(small, clean=False, recovery_point=60)
        found = whole(log)
        assert found == expected[: len(found)]


# -- work on other threads


def test_a_flush_under_way_claims_nothing_beyond_the_new_end(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60, epoch=1)
    late, later = log.flush_job(), None
    lab.append(log, epoch=2)
    later = log.flush_job()
    log.truncate_to(10)
    late.run()
    log.flushed(late)
    assert log.flushed_offset <= 10
    lab.flush(log)
    names = lab.names()
    later.run()
    log.flushed(later)
    assert (log.flushed_offset, log.end_offset) == (10, 10)
    assert lab.names() == names
    assert lab.read("leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_a_removal_that_was_due_does_not_touch_what_took_the_place(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    log.delete_records(50)
    assert log.apply_retention(lab.now_ms)
    job = log.jobs.removal_job(lab.now_ms)
    log.restart_at(0)
    fetch(lab, log, 5, epoch=1)
    job.run()
    log.jobs.removed(job, lab.now_ms + log.config.file_delete_delay_ms)
    assert log.jobs.removal_job(lab.now_ms) is None
    lab.flush(log)
    lab.cut_power()
    log = lab.open(small, clean=False, recovery_point=60, start_offset=50)
    assert (log.start_offset, log.end_offset) == (0, 5)


async def test_an_append_that_comes_before_the_files_followed_is_refused_and_touches_no_disk(
    lab: Lab, small: LogConfig
) -> None:
    """On a loop: the disk would refuse to be waited for."""
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    log.truncate_to(20)
    job = log.flush_job()
    for append in (lambda: lab.append(log, b"x", epoch=1), lambda: fetch_one(lab, log, epoch=1)):
        points = lab.disk.point_count
        with pytest.raises(KafkaError) as refused:
            append()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert lab.disk.point_count == points
    assert log.failed is None
    with off_loop():
        job.run()
    log.flushed(job)
    assert not log.awaits_truncation
    assert lab.append(log, b"x", epoch=1).first_offset == 20
    assert lab.values(log)[20:] == [b"x"]
    assert log.flushed_offset == 20
    lab.flush(log)
    lab.cut_power()
    assert lab.values(lab.open(small, clean=False, recovery_point=60))[20:] == [b"x"]


@pytest.mark.parametrize("first", ["cut", "begun anew"])
@pytest.mark.parametrize("second", ["cut", "begun anew", "begun anew there"])
@pytest.mark.parametrize("kind", list(CrashKind))
def test_truncations_one_after_another_are_carried_out_together(
    small: LogConfig, lab: Lab, first: str, second: str, kind: CrashKind
) -> None:
    """Decided before the files followed any; also when a job that knows only the first has begun. A crash at any point leaves
    the log as one of them has it."""
    for number in range(1, 60):
        here = type(lab)()
        log = here.open(small)
        here.fill(log, 60, epoch=1)
        here.flush(log)
        expected = [whole(log)]
        log.truncate_to(40) if first == "cut" else log.restart_at(7)
        expected.append(whole(log))
        early = log.flush_job()
        if number % 2:
            early.run()
        if second == "cut":
            log.truncate_to(20)
        else:
            log.restart_at(30 if second == "begun anew" else log.start_offset)
        log.flushed(early)
        expected.append(whole(log))
        assert log.awaits_truncation or expected[2] == expected[1]
        here.disk.faults.append(CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number)))
        try:
            here.flush(log)
        except HostCrashed:
            here.mount()
            found = whole(here.open(small, clean=False, recovery_point=60))
            assert found in expected
            continue
        assert not log.awaits_truncation
        here.cut_power()
        assert whole(here.open(small, clean=False, recovery_point=60)) == expected[2]
        return
    raise AssertionError("it never ended without a crash")


def test_retention_waits_for_the_files(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    log.truncate_to(40)
    lab.now_ms += 10**12
    assert log.apply_retention(lab.now_ms) == []
    assert log.flush_due
    lab.flush(log)
    assert log.apply_retention(lab.now_ms)


def test_a_full_disk_puts_a_truncation_off(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    expected = whole(log)[:10]
    log.truncate_to(10)
    lab.medium.capacity_bytes = lab.medium.used_bytes()
    lab.flush(log)
    with pytest.raises(KafkaError) as caught:
        lab.append(log, epoch=1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert whole(log) == expected
    lab.medium.capacity_bytes = None
    job = log.jobs.repair_job()
    job.run()
    log.jobs.repaired(job)
    fetch(lab, log, 3, epoch=1)
    lab.flush(log)
    lab.cut_power()
    log = lab.open(small, clean=False, recovery_point=60)
    assert (whole(log)[:10], log.end_offset) == (expected, 13)


def test_a_disk_that_fails_under_a_truncation_fails_the_log(lab: Lab, small: LogConfig) -> None:
    from odradek.testing.sim import FailAt

    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    log.truncate_to(10)
    lab.disk.faults.append(FailAt(number=1, error=errno.EIO, operations={"rename"}))
    job = log.flush_job()
    with pytest.raises(OSError, match="error"):
        job.run()


# -- producers and transactions


def test_producers_are_those_of_what_is_left(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    for sequence in range(40):
        lab.append(log, bytes(900), producer=(7, 0, sequence))
    lab.append(log, producer=(8, 0, 0))
    lab.flush(log)
    log.truncate_to(30)
    lab.flush(log)
    assert log.producers.get(8) is None
    assert lab.append(log, bytes(900), producer=(7, 0, 29)).duplicate
    assert lab.append(log, bytes(900), producer=(7, 0, 30)).first_offset == 30


@RESTARTS
def test_a_marker_that_is_gone_ended_nothing(lab: Lab, how: str) -> None:
    config = LogConfig()
    log = lab.open()
    for producer in (7, 8):
        lab.append(log, producer=(producer, 0, 0), transactional=True)
    lab.end(log, 7, commit=False)
    lab.end(log, 8, commit=False)
    log.close()
    log = lab.open()
    assert log.aborted_transactions(0, 4) == [(7, 0), (8, 1)]
    log.truncate_to(3)
    lab.flush(log)
    assert log.aborted_transactions(0, 3) == [(7, 0)]
    assert log.last_stable_offset(3) == 1
    lab.fill(log, 3, value_bytes=5)
    log = reopened(lab, log, config, how, recovery_point=4)
    assert log.aborted_transactions(0, 6) == [(7, 0)]
    assert log.last_stable_offset(6) == 1
    assert lab.end(log, 8, commit=True) == 6
    assert log.aborted_transactions(0, 7) == [(7, 0)]


def test_without_any_marker_left_there_is_no_index_of_them(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.append(log, producer=(7, 0, 0), transactional=True)
    lab.end(log, 7, commit=False)
    lab.fill(log, 40)
    lab.flush(log)
    assert lab.segment_names(".txnindex")
    log.truncate_to(1)
    lab.flush(log)
    assert not lab.segment_names(".txnindex")
    assert log.aborted_transactions(0, 1) == []


# -- the data directory's checkpoints


async def test_the_note_about_a_truncation_goes_with_the_next_checkpoint(lab: Lab, small: LogConfig) -> None:
    from uuid import UUID

    from odradek.model.ids import TopicPartition

    name, topic_id = TopicPartition("flights", 0), UUID(int=7, version=4)
    directories = lab.directories()
    log = await directories.open_log(name, topic_id, small)
    lab.fill(log, 60)
    lab.flush(log)
    await directories.write_checkpoints()
    log.truncate_to(20)
    lab.flush(log)
    assert "truncation" in lab.names()
    await directories.write_checkpoints()
    assert "truncation" not in lab.names()
    log.truncate_to(10)
    await directories.close_logs()
    assert "truncation" in lab.names()
    directories.close()
    assert "truncation" not in lab.names()
    directories = lab.directories()
    assert (await directories.open_log(name, topic_id, small)).end_offset == 10
    directories.close()
