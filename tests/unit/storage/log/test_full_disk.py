"""A full disk passes; every other disk error does not."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.testing.sim import FailOperations

Lab = Any


def failing(log: Any, lab: Lab, *values: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        lab.append(log, *(values or (b"lost",)))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def repair(log: Any) -> None:
    job = log.jobs.repair_job()
    job.run()
    log.jobs.repaired(job)


@pytest.mark.parametrize("done", [0.0, 0.3, 0.99, 1.0])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_write_that_finds_no_space_leaves_nothing_and_appends_wait(
    lab: Lab, error: int, done: float
) -> None:
    log = lab.open()
    lab.append(log, b"before")
    size = log.size_bytes
    lab.disk.faults.append(FailOperations(operations={"pwrite"}, error=error, done=done))
    failing(log, lab, bytes(3000))
    assert len(lab.read("00000000000000000000.log")) == size
    failing(log, lab)
    assert lab.values(log) == [b"before"], "what is there can still be read"
    repair(log)
    assert lab.append(log, b"after").first_offset == 1
    assert lab.values(log) == [b"before", b"after"]


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_batches_that_are_refused_stay_as_their_producers_sent_them(lab: Lab, timestamp_type: str) -> None:
    log = lab.open(LogConfig(message_timestamp_type=timestamp_type))
    lab.append(log, b"before")
    lab.now_ms += 5
    batches = lab.batch(b"a", timestamps=(7,)) + lab.batch(b"b", timestamps=(8,))
    sent = [bytes(batch) for _, batch in batches]
    lab.disk.faults.append(FailOperations(operations={"pwritev"}, error=errno.ENOSPC))
    with pytest.raises(KafkaError):
        log.append(batches, leader_epoch=3, now_ms=lab.now_ms)
    assert [bytes(batch) for _, batch in batches] == sent


def test_what_a_write_left_is_cut_by_the_repair_when_it_could_not_be_cut_at_once(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"before")
    lab.disk.faults += [
        FailOperations(operations={"pwrite"}, error=errno.ENOSPC, done=0.7),
        FailOperations(operations={"truncate"}, error=errno.EIO),
    ]
    failing(log, lab, bytes(3000))
    repair(log)
    lab.append(log, b"after")
    log.close()
    assert lab.values(lab.open()) == [b"before", b"after"]


def test_what_was_appended_before_can_be_made_durable_on_a_full_disk(lab: Lab) -> None:
    log = lab.open()
    lab.append(log, b"before")
    lab.disk.faults.append(FailOperations(operations={"pwrite"}, error=errno.ENOSPC))
    failing(log, lab)
    lab.flush(log)
    assert log.flushed_offset == 1


def test_there_is_no_repair_before_there_is_space(lab: Lab) -> None:
    log = lab.open()
    lab.medium.capacity_bytes = 50_000
    while True:
        try:
            lab.append(log, bytes(5000))
        except KafkaError:
            break
    assert log.failed is not None
    assert log.jobs.repair_job() is None
    lab.medium.capacity_bytes = 10**9
    repair(log)
    assert log.failed is None
    end_offset = log.end_offset
    lab.append(log)
    assert len(lab.values(log)) == end_offset + 1


def test_a_roll_without_space_leaves_the_segment_as_it_was(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 17)
    for operations in ({"create"}, {"pwrite"}):
        lab.disk.faults.append(FailOperations(operations=operations, error=errno.ENOSPC))
        with pytest.raises(KafkaError):
            lab.fill(log, 9)
        repair(log)
    lab.fill(log, 30)
    lab.flush(log)
    assert len(lab.values(log)) == log.end_offset == log.flushed_offset
    log.close()
    assert len(lab.values(lab.open(small))) == log.end_offset


def test_an_input_output_error_is_final(lab: Lab) -> None:
    heard = []
    log = lab.open(on_failed=lambda name, error: heard.append((str(name), error.errno)))
    lab.append(log)
    lab.disk.faults.append(FailOperations(operations={"pwrite"}, error=errno.EIO))
    failing(log, lab)
    assert heard == [("flights-0", errno.EIO)]
    assert log.jobs.repair_job() is None
    assert log.flush_job() is None
    failing(log, lab)
    with pytest.raises(KafkaError):
        log.read(0, 100, end_offset=1)
    log.close()


def test_a_closed_log_refuses_everything(lab: Lab) -> None:
    log = lab.open()
    lab.append(log)
    log.close()
    log.close()
    failing(log, lab)
    with pytest.raises(KafkaError):
        log.read(0, 100, end_offset=1)
    assert log.flush_job() is None
    assert log.closed


def test_retention_makes_space_on_a_full_disk(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    lab.disk.faults.append(FailOperations(operations={"pwrite", "rename"}, error=errno.ENOSPC, remaining=99))
    failing(log, lab)
    lab.now_ms += 8 * 86_400_000
    deleted = log.apply_retention(lab.now_ms)
    job = log.jobs.removal_job(lab.now_ms)
    job.run()
    log.jobs.removed(job, lab.now_ms + log.config.file_delete_delay_ms)
    assert len(deleted) == 3
    assert len(lab.segment_names()) == 1
    lab.disk.faults.clear()
    repair(log)
    assert lab.append(log, b"after").first_offset == 60


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_process_out_of_descriptors_harms_no_log(lab: Lab, small: LogConfig, error: int) -> None:
    log = lab.open(small)
    lab.fill(log, 17)
    lab.disk.faults.append(FailOperations(operations={"create", "open"}, error=error, remaining=99))
    with pytest.raises(KafkaError):
        lab.fill(log, 5)
    assert log.failed is None
    lab.disk.faults.clear()
    lab.fill(log, 20)
    lab.disk.faults.append(FailOperations(operations={"open"}, error=error))
    with pytest.raises(KafkaError):
        log.read(0, 1000, end_offset=log.end_offset)
    assert len(lab.values(log)) == log.end_offset
