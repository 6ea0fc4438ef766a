"""Idempotent producers: duplicates, gaps, epochs, wrapping sequences, expiry, snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError

Lab = Any
LAST = 2**31 - 1


def send(lab: Lab, log: Any, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 9) -> Any:
    return lab.append(log, *([b"v"] * count), producer=(producer, epoch, sequence))


def refused(lab: Lab, log: Any, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    end_offset = log.end_offset
    with pytest.raises(KafkaError) as caught:
        send(lab, log, sequence, count, epoch=epoch)
    assert log.end_offset == end_offset
    return caught.value.code


def test_a_batch_sent_again_is_answered_with_its_first_offset(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"other")
    first = send(lab, log, 0, 3)
    assert first == (1, 3, -1, False)
    assert send(lab, log, 0, 3) == (1, 3, -1, True)
    assert log.end_offset == 4


def test_the_last_five_batches_are_known_and_older_ones_are_out_of_order(lab: Lab) -> None:
    log = lab.open()
    for sequence in range(7):
        send(lab, log, sequence)
    for sequence in range(2, 7):
        assert send(lab, log, sequence) == (sequence, sequence, -1, True)
    assert refused(lab, log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_covers_a_known_one_otherwise_is_out_of_order(lab: Lab) -> None:
    log = lab.open()
    send(lab, log, 0, 4)
    assert refused(lab, log, 0, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(lab, log, 2, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused(lab: Lab) -> None:
    log = lab.open()
    send(lab, log, 0, 2)
    assert refused(lab, log, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(lab, log, 2).first_offset == 2


def test_a_new_epoch_begins_with_sequence_0_and_fences_the_old_one(lab: Lab) -> None:
    log = lab.open()
    send(lab, log, 0, 5, epoch=3)
    assert refused(lab, log, 5, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(lab, log, 0, epoch=4)
    assert refused(lab, log, 5, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(lab, log, 0, 5, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(lab, log, 1, epoch=4).duplicate is False


def test_an_unknown_producer_may_begin_anywhere(lab: Lab) -> None:
    log = lab.open()
    assert send(lab, log, 77).first_offset == 0
    assert refused(lab, log, 79) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_within_and_between_batches(lab: Lab) -> None:
    log = lab.open()
    send(lab, log, LAST - 2, 2)
    assert send(lab, log, LAST, 4) == (2, 5, -1, False)
    assert send(lab, log, LAST, 4) == (2, 5, -1, True)
    assert send(lab, log, 3).first_offset == 6
    send(lab, log, LAST, producer=10)
    assert send(lab, log, 0, producer=10).duplicate is False


def test_producers_do_not_disturb_each_other(lab: Lab) -> None:
    log = lab.open()
    for sequence in range(3):
        for producer in (1, 2, 3):
            send(lab, log, sequence, producer=producer)
    assert send(lab, log, 1, producer=2) == (4, 4, -1, True)


def test_several_batches_at_once_are_checked_one_after_another(lab: Lab) -> None:
    log = lab.open()
    both = lab.batch(b"a", producer=(9, 0, 0)) + lab.batch(b"b", b"c", producer=(9, 0, 1))
    assert log.append(both, leader_epoch=0, now_ms=lab.now_ms) == (0, 2, -1, False)
    assert log.append(both, leader_epoch=0, now_ms=lab.now_ms) == (0, 2, -1, True)
    mixed = lab.batch(b"b", b"c", producer=(9, 0, 1)) + lab.batch(b"d", producer=(9, 0, 3))
    with pytest.raises(KafkaError) as caught:
        log.append(mixed, leader_epoch=0, now_ms=lab.now_ms)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    gap = lab.batch(b"d", producer=(9, 0, 3)) + lab.batch(b"e", producer=(9, 0, 5))
    with pytest.raises(KafkaError):
        log.append(gap, leader_epoch=0, now_ms=lab.now_ms)
    assert log.end_offset == 3


def test_a_duplicate_under_log_append_time_has_the_first_time(lab: Lab) -> None:
    log = lab.open(LogConfig(message_timestamp_type="LogAppendTime"))
    appended_ms = send(lab, log, 0).log_append_time_ms
    lab.now_ms += 99
    assert send(lab, log, 0) == (0, 0, appended_ms, True)


def test_a_failed_write_leaves_the_sequence_free_for_another_try(lab: Lab) -> None:
    from odradek.testing.sim import FailOperations

    log = lab.open()
    send(lab, log, 0)
    lab.disk.faults.append(FailOperations(operations={"pwrite"}, error=28))
    assert refused(lab, log, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    job = log.jobs.repair_job()
    job.run()
    log.jobs.repaired(job)
    assert send(lab, log, 1) == (1, 1, -1, False)


@pytest.mark.parametrize("clean", [True, False])
def test_state_outlives_the_broker(lab: Lab, small: LogConfig, clean: bool) -> None:
    log = lab.open(small)
    for number in range(40):
        lab.append(log, bytes(900), producer=(number % 3, 1, number // 3))
        lab.flush(log)
    if clean:
        log.close()
    else:
        lab.kill()
    log = lab.open(small, clean=clean)
    assert send(lab, log, 13, producer=0, epoch=1) == (39, 39, -1, True)
    with pytest.raises(KafkaError):
        send(lab, log, 15, producer=1, epoch=1)
    assert send(lab, log, 13, producer=1, epoch=1) == (40, 40, -1, False)


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "other version"])
def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_log(
    lab: Lab, small: LogConfig, damage: str
) -> None:
    log = lab.open(small)
    for number in range(60):
        lab.append(log, bytes(900), producer=(number % 3, 1, number // 3))
    log.close()
    names = lab.segment_names(".snapshot")
    assert len(names) >= 3
    for name in names[-2:]:
        data = lab.read(name)
        damaged = {
            "flip": data[:-3] + b"\xff" + data[-2:],
            "cut": data[:-1],
            "other version": b"\0\2" + data[2:],
        }
        if damage == "missing":
            lab.disk.remove(f"/data/flights-0/{name}")
        else:
            lab.write(name, damaged[damage])
    log = lab.open(small)
    for producer in range(3):
        assert send(lab, log, 19, producer=producer, epoch=1).duplicate


def test_snapshots_of_what_recovery_cut_are_not_believed(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    for number in range(30):
        lab.append(log, bytes(900), producer=(9, 0, number))
    log.close()
    first = lab.segment_names()[0]
    data = lab.read(first)
    lab.write(first, data[: len(data) // 2])
    log = lab.open(small, clean=False)
    assert log.end_offset < 15
    assert send(lab, log, log.end_offset) == (log.end_offset - 1, log.end_offset - 1, -1, False)
    assert [int(name[:20]) for name in lab.segment_names(".snapshot")] == []


def test_idle_producers_are_forgotten_by_the_brokers_clock(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"old times", timestamps=(1,), producer=(9, 0, 0))
    assert log.producers.expire_idle_producers(lab.now_ms + 999, 1000) == 0
    assert log.producers.expire_idle_producers(lab.now_ms + 1000, 1000) == 1
    assert send(lab, log, 5).duplicate is False


def test_old_snapshots_go_with_their_segments_and_stray_ones_at_the_next_start(
    lab: Lab, small: LogConfig
) -> None:
    log = lab.open(small)
    for _ in range(3):
        lab.fill(log, 10)
        log.close()
        log = lab.open(small)
    log.close()
    snapshots = {int(name[:20]) for name in lab.segment_names(".snapshot")}
    bases = {int(name[:20]) for name in lab.segment_names()}
    assert snapshots <= bases | {30}


def test_a_batch_sent_again_is_answered_with_the_time_of_its_first_append(lab: Lab) -> None:
    log = lab.open(LogConfig(message_timestamp_type="LogAppendTime"))
    first = lab.append(log, b"v", producer=(9, 0, 0), timestamps=(5,))
    at = lab.now_ms
    lab.now_ms += 1000
    again = lab.append(log, b"v", producer=(9, 0, 0), timestamps=(5,))
    assert (first.log_append_time_ms, again.log_append_time_ms, again.duplicate) == (at, at, True)


def test_what_retention_took_is_known_from_a_snapshot_although_all_that_is_left_is_scanned(
    lab: Lab, small: LogConfig
) -> None:
    log = lab.open(small)
    send(lab, log, 0)
    lab.fill(log, 40)
    log.close()
    bases = [int(name[:20]) for name in lab.segment_names()]
    for name in lab.segment_names(".snapshot")[:-1]:
        lab.disk.remove(f"/data/flights-0/{name}")
    lab.disk.remove(f"/data/flights-0/{lab.segment_names()[0]}")
    log = lab.open(small, clean=False, recovery_point=0)
    assert log.start_offset == bases[1]
    assert send(lab, log, 0).duplicate
