"""Verification counts offsets: it finds what is lost and doubled, and explains the other gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from odradek.archive.checks.topic_side import LogExtent
from odradek.archive.checks.verify import PartitionFindings, all_faults, verify_archive
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange

from .conftest import ORDERS, ListedTopics, TestArchive, rows

MakeTopics = Callable[..., ListedTopics]


def archived(archive: TestArchive, end: int, *, without: Iterable[int] = (), start: int = 0) -> None:
    """One batch that has read `start` to `end - 1`, with a row for each offset but those left out."""
    present = sorted(set(range(start, end)) - set(without))
    extent = OffsetRange(partition=ORDERS, start=start, end=end)
    archive.commit(archive.batch(0, [extent], rows(ORDERS, present)))


def the_finding(archive: TestArchive, topics: ListedTopics) -> PartitionFindings:
    (finding,) = verify_archive(archive.table, topics)
    return finding


def test_all_is_there_once(archive: TestArchive, topics: MakeTopics) -> None:
    archive.add(0, 0, 8)
    archive.add(1, 8, 20)
    brokers = topics(0, 30)
    finding = the_finding(archive, brokers)
    assert finding.faults == []
    assert (finding.first, finding.position, finding.row_count) == (0, 20, 20)
    assert brokers.reads == 0, "without a gap there is nothing to ask the topic"


def test_a_record_that_the_topic_has_and_the_archive_has_not_is_lost(
    archive: TestArchive, topics: MakeTopics
) -> None:
    archived(archive, 20, without=[5, 6, 11])
    finding = the_finding(archive, topics(0, 30))
    assert finding.faults == ["3 records of orders-0 are missing: offsets 5-6, 11"]


def test_rows_that_are_there_twice_are_counted(archive: TestArchive, topics: MakeTopics) -> None:
    extent = OffsetRange(partition=ORDERS, start=0, end=10)
    archive.commit(archive.batch(0, [extent], rows(ORDERS, range(10)), rows(ORDERS, range(3, 5))))
    finding = the_finding(archive, topics(0, 10))
    assert finding.doubled == 2
    assert finding.faults == ["2 rows of orders-0 are there twice"]


def test_rows_that_no_commit_claims_are_a_fault(archive: TestArchive, topics: MakeTopics) -> None:
    table = archive.table
    archive.add(0, 0, 5)
    stray = archive.batch(1, [OffsetRange(partition=ORDERS, start=5, end=7)])
    table.replace([], stray.files)
    assert the_finding(archive, topics(0, 10)).faults == [
        "orders-0 has rows outside of 0 to 4, which is archived: offsets 5-6"
    ]


def test_aborted_records_and_control_records_are_explained(archive: TestArchive, topics: MakeTopics) -> None:
    archived(archive, 20, without=[4, 5, 6, 12])
    finding = the_finding(archive, topics(0, 30, gaps=[6, 12], aborted=[4, 5]))
    assert finding.faults == []
    assert (finding.aborted, finding.control, len(finding.unknown)) == (2, 2, 0)
    assert not finding.is_compacted


def test_what_compaction_took_is_explained(archive: TestArchive, topics: MakeTopics) -> None:
    archived(archive, 20, without=[4, 5])
    brokers = topics(0, 30, gaps=[4, 5])
    brokers.compacted = {"orders"}
    finding = the_finding(archive, brokers)
    assert (finding.faults, finding.control, finding.is_compacted) == ([], 2, True)


def test_gaps_below_the_topics_first_offset_are_distinguished(
    archive: TestArchive, topics: MakeTopics
) -> None:
    archived(archive, 20, without=[4, 5, 15])
    finding = the_finding(archive, topics(10, 30, gaps=[15]))
    assert finding.faults == []
    assert list(finding.unknown) == [(4, 6)]
    assert finding.control == 1


def test_a_topic_that_is_gone_faults_nothing(archive: TestArchive) -> None:
    archived(archive, 20, without=[4])
    finding = the_finding(archive, ListedTopics({}, {}))
    assert finding.is_gone
    assert (finding.faults, len(finding.unknown)) == ([], 1)


def test_records_that_the_topic_has_compacted_since_are_no_fault(
    archive: TestArchive, topics: MakeTopics
) -> None:
    archive.add(0, 0, 20)
    assert the_finding(archive, topics(0, 30, gaps=range(3, 9))).faults == []


def test_a_partition_without_rows_is_verified_too(archive: TestArchive, topics: MakeTopics) -> None:
    archived(archive, 5, without=range(5), start=2)
    assert the_finding(archive, topics(0, 5, aborted=range(2, 5))).aborted == 3
    assert the_finding(archive, topics(0, 5)).faults == ["3 records of orders-0 are missing: offsets 2-4"]


def test_what_a_run_commits_meanwhile_is_no_fault(archive: TestArchive, topics: MakeTopics) -> None:
    archive.add(0, 0, 5)
    table = archive.table
    state = table.state

    def then_commit() -> object:
        archive_state = state()
        table.state = state  # type: ignore[method-assign]
        archive.add(1, 5, 10)
        return archive_state

    table.state = then_commit  # type: ignore[method-assign, assignment]
    (finding,) = verify_archive(table, topics(0, 10))
    assert finding.faults == []
    assert finding.position == 5


def test_every_partition_is_looked_at(archive: TestArchive) -> None:
    other = TopicPartition("orders", 1)
    archive.add(0, 0, 5)
    extent = OffsetRange(partition=other, start=7, end=10)
    archive.commit(archive.batch(1, [extent], rows(other, [7, 9])))
    brokers = ListedTopics(
        {ORDERS: LogExtent(start=0, end=5), other: LogExtent(start=0, end=10)},
        {ORDERS: range(5), other: range(10)},
    )
    findings = verify_archive(archive.table, brokers)
    assert [finding.partition for finding in findings] == [ORDERS, other]
    assert all_faults(findings) == ["1 records of orders-1 are missing: offsets 8"]


@pytest.mark.parametrize("count", [200])
def test_many_batches_are_summed_up(archive: TestArchive, topics: MakeTopics, count: int) -> None:
    held = [rows(ORDERS, [number]) for number in range(count)]
    extent = OffsetRange(partition=ORDERS, start=0, end=count)
    archive.commit(archive.batch(0, [extent], *held))
    assert the_finding(archive, topics(0, count)).faults == []
