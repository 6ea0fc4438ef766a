"""A topic that is archived is deleted and made again: rows of the two are not mixed, and none is left out silently."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="PySpark is absent")

from tests.unit.archive.conftest import ORDERS, ListedTopics, TestArchive
from tests.unit.spark.logs import FIRST_ID, Logs

from odradek.archive.checks.status import archive_status
from odradek.archive.checks.topic_side import LogExtent
from odradek.archive.checks.verify import all_faults, verify_archive
from odradek.archive.files.compaction import compact
from odradek.archive.history.read_through import ArchiveHistory, divide
from odradek.archive.opening import open_archive
from odradek.archive.run import RunTerms, continuation
from odradek.archive.store.values import ArchiveError, ArchiveState, BatchId, NewBatch
from odradek.archive.tables.admission import is_new
from odradek.archive.tables.commit import Committed
from odradek.archive.tables.parquet import SNAPSHOT_EVERY
from odradek.model.ids import ZERO_UUID
from odradek.runtime.real import SystemClock
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.reading.batch import plan_batch
from odradek.spark.reading.offsets import OffsetRange

SECOND_ID = UUID(int=2)
IDS = st.sampled_from([ZERO_UUID, FIRST_ID, SECOND_ID])
AGAIN = f"'orders' was deleted and made again: .* id {FIRST_ID}, .* id {SECOND_ID}.*at another location"


def extent(start: int, end: int, topic_id: UUID = FIRST_ID) -> OffsetRange:
    return OffsetRange(partition=ORDERS, start=start, end=end, topic_id=topic_id)


def add(archive: TestArchive, number: int, start: int, end: int, topic_id: UUID = FIRST_ID) -> Committed:
    return archive.commit(archive.batch(number, [extent(start, end, topic_id)]))


@given(
    archived=IDS,
    read=IDS,
    start=st.integers(0, 20),
    size=st.integers(1, 20),
    number=st.integers(0, 3),
    is_same_query=st.booleans(),
    leaving_gaps=st.booleans(),
)
@example(  # the new topic is longer than the archive, and the query begins where the archive ends
    archived=FIRST_ID, read=SECOND_ID, start=10, size=4, number=0, is_same_query=False, leaving_gaps=False
)
@example(  # what it reads lies below the archive's end: it was taken for what is archived
    archived=FIRST_ID, read=SECOND_ID, start=0, size=4, number=0, is_same_query=False, leaving_gaps=False
)
def test_no_batch_of_another_topic_of_the_name_is_admitted_or_passed_over(
    archived: UUID, read: UUID, start: int, size: int, number: int, is_same_query: bool, leaving_gaps: bool
) -> None:
    state = ArchiveState(
        version=1,
        archived={ORDERS: extent(0, 10)},
        batches={("s", "q"): 1},
        topic_ids={} if archived == ZERO_UUID else {"orders": archived},
    )
    batch = NewBatch(
        id=BatchId(sink="s", query="q" if is_same_query else "other", batch=number),
        files=(),
        ranges=(extent(start, start + size, read),),
    )
    outcome = ""
    try:
        is_new(batch, state, leaving_gaps=leaving_gaps)
    except ArchiveError as error:
        outcome = str(error)
    is_another = ZERO_UUID not in (archived, read) and archived != read
    assert ("deleted and made again" in outcome) is is_another


def test_an_archive_keeps_the_ids_of_its_topics(archive: TestArchive) -> None:
    """The ids outlive more commits than a snapshot sums up, a compaction, and the end of old versions."""
    for number in range(SNAPSHOT_EVERY + 2):
        assert add(archive, number, number, number + 1) is Committed.NOW
    compact(archive.table, 1 << 20)
    archive.table.expire(SystemClock().wall_ms() + 1, dry_run=False)
    assert open_archive(archive.location).state().topic_ids == {"orders": FIRST_ID}
    with pytest.raises(ArchiveError, match=AGAIN):
        add(archive, 99, 0, 4, SECOND_ID)
    assert add(archive, 100, SNAPSHOT_EVERY + 2, SNAPSHOT_EVERY + 3) is Committed.NOW


def test_an_archive_of_a_former_version_learns_the_ids(archive: TestArchive) -> None:
    add(archive, 0, 0, 5, ZERO_UUID)
    assert archive.table.state().topic_ids == {}
    add(archive, 1, 5, 7)
    assert open_archive(archive.location).state().topic_ids == {"orders": FIRST_ID}


def topic_of_now(end: int, topic_id: UUID) -> ListedTopics:
    return ListedTopics({ORDERS: LogExtent(start=0, end=end)}, {ORDERS: range(end)}, ids={"orders": topic_id})


@pytest.mark.parametrize("end", [4, 10, 14])
def test_a_run_does_not_continue_an_archive_in_another_topic(archive: TestArchive, end: int) -> None:
    add(archive, 0, 0, 10)
    terms = RunTerms(bootstrap="h:1", location=archive.location, topics=("orders",))
    state = archive.table.state()
    assert continuation(terms, state, topic_of_now(end, FIRST_ID)) == '{"orders": {"0": 10}}'
    with pytest.raises(ArchiveError, match=AGAIN):
        continuation(terms, state, topic_of_now(end, SECOND_ID))


@pytest.mark.parametrize("end", [4, 14])
def test_an_archive_is_not_compared_with_another_topic(archive: TestArchive, end: int) -> None:
    """Whose records are not missing in it, and which it is not behind."""
    add(archive, 0, 0, 10)
    (status,) = archive_status(archive.table, topic_of_now(end, SECOND_ID)).partitions
    assert (status.position, status.end, status.behind) == (10, None, None)
    (finding,) = verify_archive(archive.table, topic_of_now(end, SECOND_ID))
    assert finding.is_gone
    assert not all_faults([finding])
    (finding,) = verify_archive(archive.table, topic_of_now(end, FIRST_ID))
    assert not finding.is_gone


@pytest.mark.parametrize("end", [4, 14])
def test_topic_and_archive_are_read_as_one_only_if_they_are_one(archive: TestArchive, end: int) -> None:
    add(archive, 0, 0, 10)
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders", "archive": str(archive.location)}
    options = read_options({**given, "columns": "topic,partition,offset"}, Use.BATCH_READ)
    assert options.archive is not None
    history = ArchiveHistory(options.archive, options)
    logs = Logs({ORDERS: (0, end)}, ids={"orders": SECOND_ID})
    with pytest.raises(ArchiveError, match=f"'orders' was created again.*{FIRST_ID}.*{SECOND_ID}"):
        plan_batch(options, history.over(logs))


def test_a_plan_of_another_topic_takes_nothing_from_the_archive() -> None:
    """A batch that runs again has the id that its query noted."""
    archived, ids = {ORDERS: extent(0, 10)}, {"orders": FIRST_ID}
    for topic_id, wanted in ((FIRST_ID, [(0, 10)]), (ZERO_UUID, [(0, 10)]), (SECOND_ID, [])):
        kept, rest = divide([extent(0, 14, topic_id)], archived, ids)
        assert [(span.start, span.end) for span in kept] == wanted
        assert sum(span.size for span in (*kept, *rest)) == 14
    assert divide([replace(extent(0, 14), topic_id=SECOND_ID)], archived)[0], "the archive knows no ids"
