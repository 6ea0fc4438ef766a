"""What goes, when, and how its files go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.storage.log.retention_rules import DeletionReason, RetentionSegment, RetentionTerms, deletable

Lab = Any
HOUR_MS = 3_600_000
TERMS = RetentionTerms(keep_ms=1000, keep_bytes=None, start_offset=0, deletable_below=10**9, now_ms=50_000)


def candidate(end_offset: int, last_append_ms: int = 0, size_bytes: int = 100) -> RetentionSegment:
    return RetentionSegment(end_offset=end_offset, size_bytes=size_bytes, last_append_ms=last_append_ms)


def test_deletion_stops_at_the_first_segment_that_stays() -> None:
    ages = [0, 0, 49_500, 0]
    candidates = [candidate(10 * number + 10, age) for number, age in enumerate(ages)]
    assert deletable(candidates, 400, TERMS) == [DeletionReason.AGE] * 2


def test_a_segment_is_kept_until_it_is_older_than_the_limit() -> None:
    assert deletable([candidate(1, 49_000)], 100, TERMS) == []
    assert deletable([candidate(1, 48_999)], 100, TERMS) == [DeletionReason.AGE]


def test_size_keeps_at_least_the_bytes_asked_for() -> None:
    terms = replace(TERMS, keep_ms=None, keep_bytes=250)
    candidates = [candidate(number + 1) for number in range(5)]
    assert deletable(candidates, 500, terms) == [DeletionReason.SIZE] * 2


def test_nothing_beyond_the_high_watermark_goes() -> None:
    candidates = [candidate(10), candidate(20), candidate(30)]
    assert len(deletable(candidates, 300, replace(TERMS, deletable_below=25))) == 2


def test_without_the_delete_policy_only_what_is_below_the_start_goes() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=1)
    terms = RetentionTerms.of(config, start_offset=15, deletable_below=99, now_ms=10**12)
    assert deletable([candidate(10), candidate(20)], 200, terms) == [DeletionReason.BELOW_START]


def delete_due(lab: Lab, log: Any) -> list[Any]:
    deleted = log.apply_retention(lab.now_ms)
    job = log.jobs.removal_job(lab.now_ms)
    if job is not None:
        job.run()
        log.jobs.removed(job, lab.now_ms + log.config.file_delete_delay_ms)
    return deleted


def test_old_segments_go_and_the_log_starts_later(lab: Lab, small: LogConfig) -> None:
    log = lab.open(replace(small, retention_ms=HOUR_MS))
    lab.fill(log, 30)
    lab.now_ms += HOUR_MS
    lab.fill(log, 30)
    lab.flush(log)
    lab.now_ms += 1
    assert delete_due(lab, log)
    assert 0 < log.start_offset <= 30
    assert len(lab.records(log)) == 60 - log.start_offset
    with pytest.raises(KafkaError) as caught:
        log.read(log.start_offset - 1, 100, end_offset=60)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert lab.segment_names()[0] == f"{log.start_offset:020d}.log"
    assert log.size_bytes == sum(len(lab.read(name)) for name in lab.segment_names())


def test_files_are_renamed_at_once_and_removed_after_the_delay(lab: Lab, small: LogConfig) -> None:
    log = lab.open(replace(small, retention_ms=HOUR_MS, file_delete_delay_ms=60_000))
    lab.fill(log, 40)
    lab.flush(log)
    lab.now_ms += HOUR_MS + 1
    deleted = delete_due(lab, log)
    assert len(lab.segment_names(".deleted")) == len(deleted) > 1
    assert lab.segment_names(".index") == lab.segment_names(".timeindex") == []
    lab.now_ms += 59_999
    assert log.jobs.removal_job(lab.now_ms) is None
    lab.now_ms += 1
    delete_due(lab, log)
    assert lab.segment_names(".deleted") == []
    assert lab.segment_names() == ["00000000000000000040.log"]


def test_an_expired_active_segment_is_replaced_by_an_empty_one(lab: Lab) -> None:
    log = lab.open(LogConfig(retention_ms=HOUR_MS))
    lab.fill(log, 5)
    lab.flush(log)
    lab.now_ms += HOUR_MS + 1
    (deleted,) = delete_due(lab, log)
    assert (deleted.base_offset, deleted.end_offset) == (0, 5)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (5, 5, 0)
    assert delete_due(lab, log) == []
    assert lab.append(log, b"next").first_offset == 5
    log.close()
    reopened = lab.open(LogConfig())
    assert (reopened.start_offset, reopened.end_offset) == (5, 6)


@pytest.mark.parametrize("timestamp", [-1, 0, 1, 4_000_000_000_000])
def test_a_records_own_timestamp_neither_keeps_nor_kills_it(lab: Lab, timestamp: int) -> None:
    log = lab.open(LogConfig(retention_ms=HOUR_MS, message_timestamp_after_max_ms=10**15))
    lab.append(log, timestamps=(timestamp,))
    lab.flush(log)
    log.close()
    log = lab.open(LogConfig(retention_ms=HOUR_MS))
    lab.now_ms += HOUR_MS
    assert delete_due(lab, log) == []
    lab.now_ms += 1
    assert len(delete_due(lab, log)) == 1


def test_nothing_that_is_not_durable_goes(lab: Lab, small: LogConfig) -> None:
    log = lab.open(replace(small, retention_ms=HOUR_MS))
    lab.fill(log, 40)
    lab.now_ms += HOUR_MS + 1
    assert delete_due(lab, log) == []
    lab.flush(log)
    assert delete_due(lab, log)


def test_only_what_lies_below_the_high_watermark_goes(lab: Lab, small: LogConfig) -> None:
    log = lab.open(replace(small, retention_ms=HOUR_MS))
    lab.fill(log, 40)
    lab.flush(log)
    lab.now_ms += HOUR_MS + 1
    assert log.apply_retention(lab.now_ms, below=5) == []


def test_retention_looks_only_at_the_segments_that_may_go(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 200)
    log.close()
    log = lab.open(small)
    looked: list[str] = []
    real = lab.disk.modified_ms
    type(lab.disk).modified_ms = lambda self, path: looked.append(path) or real(path)
    try:
        log.apply_retention(lab.now_ms)
    finally:
        del type(lab.disk).modified_ms
        type(lab.disk).modified_ms = real.__func__
    assert len(looked) <= 1


def test_deleted_records_cannot_be_read_and_their_segments_go(lab: Lab, small: LogConfig) -> None:
    log = lab.open(small)
    lab.fill(log, 60)
    lab.flush(log)
    assert log.delete_records(35) == 35
    assert log.delete_records(20) == 35
    assert lab.records(log)[0].offset == 35
    assert log.epoch_end_offset(0) == (0, 60)
    deleted = delete_due(lab, log)
    assert {segment.reason for segment in deleted} == {DeletionReason.BELOW_START}
    assert int(lab.segment_names()[0][:20]) <= 35
    assert log.start_offset == 35
    for offset in (-1, 61):
        with pytest.raises(KafkaError) as caught:
            log.delete_records(offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_crash_at_any_point_of_a_deletion_leaves_no_hole(lab: Lab, small: LogConfig) -> None:
    from random import Random

    from odradek.testing.sim import CrashAt, CrashKind, HostCrashed

    for kind in CrashKind:
        for number in range(1, 60):
            here = type(lab)()
            log = here.open(small)
            here.fill(log, 60)
            here.flush(log)
            here.now_ms += 8 * 24 * HOUR_MS
            here.disk.faults.append(
                CrashAt(number=here.disk.point_count + number, kind=kind, rng=Random(number))
            )
            try:
                delete_due(here, log)
                here.now_ms += 60_000
                delete_due(here, log)
            except HostCrashed:
                here.mount()
                log = here.open(small, clean=False, recovery_point=60)
            assert log.end_offset == 60
            assert [record.offset for record in here.records(log)] == list(range(log.start_offset, 60))


def test_producers_are_known_after_all_their_segments_went_and_the_broker_crashed(
    lab: Lab, small: LogConfig
) -> None:
    log = lab.open(replace(small, retention_ms=HOUR_MS))
    for sequence in range(40):
        lab.append(log, bytes(900), producer=(9, 0, sequence))
    lab.kill()
    log = lab.open(replace(small, retention_ms=HOUR_MS), clean=False)
    lab.now_ms += HOUR_MS + 1
    assert delete_due(lab, log)
    assert log.start_offset == 40
    lab.cut_power()
    log = lab.open(small, clean=False, recovery_point=40)
    assert lab.append(log, bytes(900), producer=(9, 0, 39)) == (39, 39, -1, True)
    assert lab.append(log, producer=(9, 0, 40)).first_offset == 40
