"""Records that a share group gives up, where it has dead letters: they hold up the window until the letter is written."""

from __future__ import annotations

from odradek.groups.share.partition import (
    AcknowledgedRange,
    DeadRecord,
    RecordState,
    ShareLimits,
    SharePartition,
    StateBatch,
)
from odradek.protocol.acknowledge_types import AcknowledgeType

ME, OTHER = "me", "other"
LIMITS = ShareLimits(record_locks_max=100, delivery_count_max=2, lock_ms=1_000, has_dead_letters=True)


def acquired(count: int, limits: ShareLimits = LIMITS) -> SharePartition:
    partition = SharePartition(0, lambda: limits)
    partition.acquire(ME, 0, count - 1, records_max=count, now_ms=0)
    return partition


def acknowledge(partition: SharePartition, *kinds: AcknowledgeType) -> list[StateBatch]:
    ranges = [AcknowledgedRange(0, len(kinds) - 1, list(kinds))]
    return partition.acknowledge(ME, ranges, now_ms=1)


def test_a_rejected_record_is_archived_after_its_letter_and_holds_up_the_start_until_then() -> None:
    partition = acquired(3)
    stored = acknowledge(partition, AcknowledgeType.REJECT, AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT)
    assert stored == [StateBatch(1, 2, RecordState.ACKNOWLEDGED, 1)]
    assert partition.start_offset == 0
    dead = partition.drain_dead()
    assert dead == [DeadRecord(0, 1, is_rejected=True)]
    assert partition.drain_dead() == []
    assert partition.archive(dead) == [StateBatch(0, 0, RecordState.ARCHIVED, 1)]
    assert partition.start_offset == 3
    assert partition.archive(dead) == []


def test_a_record_that_was_delivered_too_often_is_dead_however_it_came_back() -> None:
    partition = acquired(2)
    acknowledge(partition, AcknowledgeType.RELEASE, AcknowledgeType.RELEASE)
    assert partition.drain_dead() == []
    partition.acquire(ME, 0, 1, records_max=2, now_ms=10)
    partition.acknowledge(ME, [AcknowledgedRange(0, 0, [AcknowledgeType.RELEASE])], now_ms=11)
    assert partition.drain_dead() == [DeadRecord(0, 2, is_rejected=False)]
    assert partition.expire(2_000) == []
    assert partition.drain_dead() == [DeadRecord(1, 2, is_rejected=False)]


def test_no_member_gets_a_record_that_waits_for_its_letter() -> None:
    partition = acquired(2)
    acknowledge(partition, AcknowledgeType.REJECT, AcknowledgeType.RELEASE)
    assert [span.first_offset for span in partition.acquire(OTHER, 0, 1, records_max=5, now_ms=2)] == [1]
    assert partition.expire(10_000) == []
    assert partition.release(ME) == []
    assert [record.offset for record in partition.drain_dead()] == [0, 1]
    assert partition.acquire(OTHER, 0, 1, records_max=5, now_ms=20_000) == []


def test_a_restart_before_the_letter_is_written_delivers_the_record_again() -> None:
    partition = acquired(1)
    acknowledge(partition, AcknowledgeType.REJECT)
    again = SharePartition(partition.start_offset, lambda: LIMITS, partition.snapshot())
    [span] = again.acquire(OTHER, 0, 0, records_max=1, now_ms=5)
    assert (span.first_offset, span.delivery_count) == (0, 1)


def test_a_record_that_the_log_deletes_meanwhile_needs_no_archive() -> None:
    partition = acquired(2)
    acknowledge(partition, AcknowledgeType.REJECT, AcknowledgeType.RELEASE)
    dead = partition.drain_dead()
    partition.begin_at(2)
    assert partition.archive(dead) == []
    assert partition.start_offset == 2


def test_a_group_without_a_topic_for_letters_archives_at_once() -> None:
    partition = acquired(1, LIMITS._replace(has_dead_letters=False))
    assert acknowledge(partition, AcknowledgeType.REJECT) == [StateBatch(0, 0, RecordState.ARCHIVED, 1)]
    assert partition.drain_dead() == []


def test_an_offset_without_a_record_is_no_dead_letter() -> None:
    partition = acquired(1)
    assert acknowledge(partition, AcknowledgeType.GAP) == [StateBatch(0, 0, RecordState.ARCHIVED, 1)]
    assert partition.drain_dead() == []
