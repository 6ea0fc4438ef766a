"""A truncation that a crash, a full disk, or work on another thread meets: the log is whole all the same."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest
from tests.unit.storage.log.truncated import Lab, fetch, fetch_one, whole

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.testing.guarded_disk import off_loop
from odradek.testing.sim import CrashAt, CrashKind, HostCrashed


def filled(lab: Lab, config: LogConfig, epoch: int = 0) -> Any:
    """A log with 60 records, all on disk."""
    log = lab.open(config)
    lab.fill(log, 60, epoch=epoch)
    lab.flush(log)
    return log


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
        content = whole(log)
        if content == before:
            assert new_end < 0, number
            assert log.latest_epoch == 2
        else:
            assert content[:offset] == before[:offset], number
            assert all(epoch == 5 for _, epoch, _ in content[offset:]), number
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
        log = filled(here, small, epoch=1)
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
        log = filled(here, small)
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
    log = filled(lab, small)
    before = whole(log)
    log.truncate_to(9)
    lab.cut_power()
    log = lab.open(small, clean=False, recovery_point=60)
    assert whole(log) == before


def test_old_claims_of_a_checkpoint_do_not_spare_new_batches_their_check(lab: Lab, small: LogConfig) -> None:
    """What was below the recovery point once is written again, is not synced, and is torn by a power cut."""
    for seed in range(20):
        here = type(lab)()
        here.lives = seed * 100
        here.mount()
        log = filled(here, small)
        log.truncate_to(10)
        here.flush(log)
        fetch(here, log, 45, epoch=1)
        expected = whole(log)
        here.cut_power()
        log = here.open(small, clean=False, recovery_point=60)
        results = whole(log)
        assert results == expected[: len(results)]
        assert len(results) >= 10


def test_the_second_truncation_knows_what_the_first_took_back(lab: Lab, small: LogConfig) -> None:
    for seed in range(10):
        here = type(lab)()
        here.lives = seed * 100
        here.mount()
        log = filled(here, small)
        log.truncate_to(5)
        here.flush(log)
        fetch(here, log, 50, epoch=1)
        log.truncate_to(45)
        expected = whole(log)
        assert log.recovery_point <= 5
        here.flush(log)
        here.cut_power()
        log = here.open(small, clean=False, recovery_point=60)
        results = whole(log)
        assert results == expected[: len(results)]


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
    log = filled(lab, small)
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
    """The disk refuses to be waited for on a loop."""
    log = filled(lab, small)
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


@pytest.mark.parametrize("first", ["cut", "begun again"])
@pytest.mark.parametrize("second", ["cut", "begun again", "begun again there"])
@pytest.mark.parametrize("kind", list(CrashKind))
def test_truncations_one_after_another_are_carried_out_together(
    small: LogConfig, lab: Lab, first: str, second: str, kind: CrashKind
) -> None:
    """Decided before the files followed any; also when a job that knows only the first has begun. A crash at any point leaves
    the log as one of them has it."""
    for number in range(1, 60):
        here = type(lab)()
        log = filled(here, small, epoch=1)
        expected = [whole(log)]
        log.truncate_to(40) if first == "cut" else log.restart_at(7)
        expected.append(whole(log))
        early = log.flush_job()
        if number % 2:
            early.run()
        if second == "cut":
            log.truncate_to(20)
        else:
            log.restart_at(30 if second == "begun again" else log.start_offset)
        log.flushed(early)
        expected.append(whole(log))
        assert log.awaits_truncation or expected[2] == expected[1]
        here.disk.faults.append(CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number)))
        try:
            here.flush(log)
        except HostCrashed:
            here.mount()
            content = whole(here.open(small, clean=False, recovery_point=60))
            assert content in expected
            continue
        assert not log.awaits_truncation
        here.cut_power()
        assert whole(here.open(small, clean=False, recovery_point=60)) == expected[2]
        return
    raise AssertionError("it never ended without a crash")


def test_retention_waits_for_the_files(lab: Lab, small: LogConfig) -> None:
    log = filled(lab, small)
    log.truncate_to(40)
    lab.now_ms += 10**12
    assert log.apply_retention(lab.now_ms) == []
    assert log.flush_due
    lab.flush(log)
    assert log.apply_retention(lab.now_ms)


def test_a_full_disk_puts_a_truncation_off(lab: Lab, small: LogConfig) -> None:
    log = filled(lab, small)
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

    log = filled(lab, small)
    log.truncate_to(10)
    lab.disk.faults.append(FailAt(number=1, error=errno.EIO, operations={"rename"}))
    job = log.flush_job()
    with pytest.raises(OSError, match="error"):
        job.run()
