"""Group commit: what is durable, and when the log says so."""

from __future__ import annotations

import errno
import threading
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.config.topic import LogConfig
from odradek.testing.sim import FailOperations

Lab = Any


def test_nothing_is_flushed_before_the_job_ran(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"a", b"b")
    job = log.flush_job()
    assert (log.flushed_offset, job.end_offset) == (0, 2)
    job.run()
    assert log.flushed_offset == 0
    log.flushed(job)
    assert log.flushed_offset == 2
    assert log.flush_job() is None


def test_what_is_appended_during_a_flush_waits_for_the_next(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    job = log.flush_job()
    lab.append(log)
    job.run()
    log.flushed(job)
    assert (log.flushed_offset, log.end_offset) == (1, 2)
    lab.flush(log)
    assert log.flushed_offset == 2


def test_the_flushed_offset_never_goes_back(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    first = log.flush_job()
    lab.append(log)
    second = log.flush_job()
    for job in (second, first):
        job.run()
    log.flushed(second)
    log.flushed(first)
    assert log.flushed_offset == 2


def test_everything_flushed_survives_a_power_cut_and_the_order_of_jobs(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    for round_number in range(8):
        lab.fill(log, 11, epoch=round_number)
        job = log.flush_job()
        lab.fill(log, 13, epoch=round_number)  # rolls while the job is under way
        job.run()
        log.flushed(job)
    flushed = log.flushed_offset
    lab.cut_power()
    log = lab.open(small, clean=False)
    assert log.end_offset >= flushed
    assert [record.value.split(b":")[0] for record in lab.records(log)] == [
        b"%d" % n for n in range(log.end_offset)
    ]
    assert log.epoch_end_offset(3) == (3, 96)


@pytest.mark.parametrize("what", ["roll", "close", "abandon", "retention"])
def test_a_job_under_way_is_not_broken_by(lab: Lab, small: LogConfig, what: str) -> None:
    log = lab.open(small)
    lab.fill(log, 30)
    job = log.flush_job()
    if what == "roll":
        lab.fill(log, 30)
    elif what == "close":
        log.close()
    elif what == "abandon":
        log.abandon()
        log.close()
        lab.disk.rename("/data/flights-0", "/data/flights-0.gone-delete")
    else:
        lab.flush(log)
        lab.now_ms += 8 * 86_400_000
        assert log.apply_retention(lab.now_ms)
        removal = log.jobs.removal_job(lab.now_ms)
        removal.run()
    job.run()
    log.flushed(job)


def test_closing_waits_for_a_job_that_is_running(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    job = log.flush_job()
    entered, go_on = threading.Event(), threading.Event()
    real = lab.disk.replace

    def slow(path: str, data: bytes) -> None:
        entered.set()
        go_on.wait(PATIENCE_S)
        real(path, data)

    type(lab.disk).replace, original = (lambda self, path, data: slow(path, data)), type(lab.disk).replace
    try:
        runner = threading.Thread(target=job.run)
        runner.start()
        assert entered.wait(PATIENCE_S)
        closer = threading.Thread(target=log.abandon)
        closer.start()
        closer.join(0.05)
        assert closer.is_alive()
        go_on.set()
        runner.join(PATIENCE_S)
        closer.join(PATIENCE_S)
        assert not closer.is_alive()
    finally:
        type(lab.disk).replace = original


def test_a_new_log_is_durable_with_its_name_and_its_epochs(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"first", epoch=5)
    lab.flush(log)
    lab.cut_power()
    log = lab.open(clean=False)
    assert lab.values(log) == [b"first"]
    assert log.latest_epoch == 5


def test_a_failed_sync_is_raised_and_the_log_stays_as_it_was(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    job = log.flush_job()
    lab.disk.faults.append(FailOperations(operations={"sync"}))
    with pytest.raises(OSError, match="Input/output"):
        job.run()
    assert log.flushed_offset == 0
    log.disk_failed(OSError("sync failed"))
    assert log.flush_job() is None


def test_a_full_disk_does_not_fail_a_flush_for_the_small_files(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, epoch=1)
    job = log.flush_job()
    fault = FailOperations(operations={"pwrite"}, error=errno.ENOSPC, remaining=99)
    lab.disk.faults.append(fault)
    job.run()
    log.flushed(job)
    assert log.flushed_offset == 1
    fault.remaining = 0
    assert log.flush_job() is not None
    lab.flush(log)
    assert lab.read("leader-epoch-checkpoint") == b"0\n1\n1 0\n"


def test_flushes_are_due_by_records_and_by_time(lab: Lab) -> None:
    log = lab.open(LogConfig(flush_messages=3, flush_ms=1000))
    assert not log.flush_due
    lab.append(log, b"a", b"b")
    assert not log.flush_due
    lab.seconds += 1.0
    assert log.flush_due
    lab.flush(log)
    assert not log.flush_due
    lab.append(log, b"a", b"b", b"c")
    assert log.flush_due


def test_a_finished_segment_calls_for_a_flush(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 10)
    assert not log.flush_due
    lab.fill(log, 10)
    assert log.segment_count == 2
    assert log.flush_due
    lab.flush(log)
    assert not log.flush_due


def test_an_epoch_that_began_is_durable_before_it_wrote_anything(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, epoch=1)
    lab.flush(log)
    log.begin_epoch(4)
    lab.flush(log)
    lab.cut_power()
    log = lab.open(clean=False)
    assert log.latest_epoch == 4
    assert log.epoch_end_offset(2) == (1, 1)


def test_after_a_failed_sync_no_later_job_succeeds(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    first, second = log.flush_job(), log.flush_job()
    lab.disk.faults.append(FailOperations(operations={"sync"}))
    for job in (first, second):
        with pytest.raises(OSError, match=r"."):
            job.run()
    assert log.flushed_offset == 0


def test_after_a_failed_sync_that_the_loop_has_not_heard_of_a_close_syncs_nothing_again(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    lab.disk.faults.append(FailOperations(operations={"sync"}))
    with pytest.raises(OSError, match=r"."):
        log.flush_job().run()
    lab.disk.faults.clear()
    with pytest.raises(OSError, match="an earlier error was final"):
        log.close()
    assert log.flushed_offset == 0


def test_a_process_out_of_descriptors_flushes_later(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    job = log.flush_job()
    lab.disk.faults.append(
        FailOperations(operations={"sync_directory", "create"}, error=errno.EMFILE, remaining=3)
    )
    job.run()
    log.flushed(job)
    assert log.flushed_offset == 0
    lab.disk.faults.clear()
    lab.flush(log)
    assert log.flushed_offset == 1


def test_recovery_begins_at_a_sealed_segment_until_all_of_it_is_synced(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 10)
    lab.flush(log)
    assert log.recovery_point == log.flushed_offset == 10
    while log.segment_count == 1:
        lab.fill(log, 1)
    assert (log.recovery_point, log.flushed_offset) == (0, 10)
    lab.flush(log)
    assert log.recovery_point == log.flushed_offset == log.end_offset
