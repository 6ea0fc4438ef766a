"""What every table format keeps: batches whole and once, in the order of offsets, also while others commit."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.archive.files.data_files import layout_of, write_files
from odradek.archive.opening import check_place, format_at, open_archive, open_or_create
from odradek.archive.tables.commit import Committed, commit_batch
from odradek.archive.tables.port import TableFormat
from odradek.archive.values import ArchiveError, CommitConflict
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.offsets import OffsetRange

from .conftest import ORDERS, SCHEMA, TestArchive, rows


def test_a_batch_is_there_with_its_name_and_its_offsets(archive: TestArchive) -> None:
    assert archive.add(3, 10, 15) is Committed.NOW
    state = open_archive(archive.place).state()
    assert state.archived == {ORDERS: OffsetRange(partition=ORDERS, start=10, end=15)}
    assert state.batches == {("s", "q"): 3}
    assert archive.offsets() == [10, 11, 12, 13, 14]


def test_rows_come_back_as_they_were(archive: TestArchive) -> None:
    archive.add(0, 2, 7)
    assert archive.rows() == rows(ORDERS, range(2, 7)).to_pylist()


def test_rows_of_a_partitioned_table_come_back_as_they_were(archive_by_bucket: TestArchive) -> None:
    archive_by_bucket.add(0, 2, 14)
    assert archive_by_bucket.rows() == rows(ORDERS, range(2, 14)).to_pylist()
    values = {file.partition_values for file in archive_by_bucket.table.files()}
    assert values == {(("bucket", text),) for text in (None, "1 %/=é", "2 %/=é", "3 %/=é")}


def test_a_batch_that_comes_twice_is_there_once(archive: TestArchive) -> None:
    assert [archive.add(0, 0, 5), archive.add(0, 0, 5)] == [Committed.NOW, Committed.BEFORE]
    assert archive.offsets() == [0, 1, 2, 3, 4]


def test_the_offsets_of_a_partition_are_kept_though_others_are_written(archive: TestArchive) -> None:
    """Delta writes a checkpoint meanwhile, the manifest a snapshot."""
    other = TopicPartition("orders", 1)
    archive.add(0, 0, 5)
    for number in range(1, 30):
        extent = OffsetRange(partition=other, start=number * 2, end=number * 2 + 2)
        archive.commit(archive.batch(number, [extent]))
    state = open_archive(archive.place).state()
    assert state.archived == {
        ORDERS: OffsetRange(partition=ORDERS, start=0, end=5),
        other: OffsetRange(partition=other, start=2, end=60),
    }
    assert state.batches == {("s", "q"): 29}
    assert len(archive.rows()) == 5 + 58


def test_a_commit_after_a_version_that_is_not_the_newest_is_a_conflict(archive: TestArchive) -> None:
    table = archive.table
    before = table.state()
    late = archive.batch(1, [OffsetRange(partition=ORDERS, start=0, end=5)], query="late")
    archive.add(0, 0, 5)
    with pytest.raises(CommitConflict):
        table.append(late, before)
    assert archive.offsets() == [0, 1, 2, 3, 4]
    assert table.state().batches == {("s", "q"): 0}


def test_two_sinks_that_commit_at_the_same_time_both_get_in(archive: TestArchive) -> None:
    other = TopicPartition("clicks", 0)
    mine = archive.batch(0, [OffsetRange(partition=ORDERS, start=0, end=5)], query="mine")
    theirs = archive.batch(0, [OffsetRange(partition=other, start=0, end=5)], query="theirs")
    table = archive.table
    first_look = table.state

    def look_then_lose() -> Any:
        state = first_look()
        table.state = first_look  # type: ignore[method-assign]
        archive.commit(theirs)
        return state

    table.state = look_then_lose  # type: ignore[method-assign]
    assert commit_batch(table, mine) is Committed.NOW
    assert table.state().positions == {ORDERS: 5, other: 5}
    assert len(archive.rows()) == 10


def test_two_drivers_of_one_sink_commit_a_batch_once(archive: TestArchive) -> None:
    extent = OffsetRange(partition=ORDERS, start=0, end=5)
    mine, theirs = archive.batch(0, [extent]), archive.batch(0, [extent])
    table = archive.table
    first_look = table.state

    def look_then_lose() -> Any:
        state = first_look()
        table.state = first_look  # type: ignore[method-assign]
        archive.commit(theirs)
        return state

    table.state = look_then_lose  # type: ignore[method-assign]
    commit_batch(table, mine)
    assert archive.offsets() == [0, 1, 2, 3, 4]


def test_files_are_replaced_in_one_step_and_nothing_else_changes(archive_by_bucket: TestArchive) -> None:
    archive = archive_by_bucket
    archive.add(0, 0, 6)
    archive.add(1, 6, 12)
    table = archive.table
    before, old = archive.rows(), table.files()
    layout = layout_of(table, 1 << 20)
    new = write_files(
        archive.place.file_system(), archive.place.path, "new", layout, [rows(ORDERS, range(12))]
    )
    table.replace(old, new)
    assert {file.path for file in table.files()} == {file.path for file in new}
    assert archive.rows() == before
    state = table.state()
    assert state.positions == {ORDERS: 12}
    assert state.batches == {("s", "q"): 1}
    with pytest.raises(CommitConflict, match="not part of the table any more"):
        table.replace(old, new)


def test_a_file_says_which_records_it_may_hold(archive: TestArchive) -> None:
    archive.add(0, 10, 20)
    (file,) = archive.table.files()
    assert file.may_hold(OffsetRange(partition=ORDERS, start=19, end=30))
    assert not file.may_hold(OffsetRange(partition=ORDERS, start=20, end=30))
    assert not file.may_hold(OffsetRange(partition=TopicPartition("orders", 1), start=0, end=30))
    assert not file.may_hold(OffsetRange(partition=TopicPartition("zebras", 0), start=0, end=30))
    assert file.row_count == 10


def test_a_table_may_be_pickled(archive: TestArchive) -> None:
    archive.add(0, 0, 5)
    table = pickle.loads(pickle.dumps(archive.table))
    assert table.schema == SCHEMA
    assert table.state().positions == {ORDERS: 5}


def test_a_table_is_found_and_has_its_columns(archive_by_bucket: TestArchive) -> None:
    assert archive_by_bucket.table is not None
    table = open_archive(archive_by_bucket.place)
    assert table.format is archive_by_bucket.table_format
    assert table.schema == SCHEMA
    assert table.partition_by == ("bucket",)


def test_no_table_is_an_error_that_says_how_to_make_one(archive: TestArchive) -> None:
    assert format_at(archive.place) is None
    with pytest.raises(ArchiveError, match=r"there is no archive at .*: `odradek archive run` makes one"):
        open_archive(archive.place)


def test_other_columns_formats_and_partitions_are_refused(archive: TestArchive) -> None:
    assert archive.table is not None
    other = next(table_format for table_format in TableFormat if table_format is not archive.table_format)
    with pytest.raises(ConfigError, match=f"is in the format {archive.table_format}, not {other}"):
        open_or_create(archive.place, SCHEMA, table_format=other)
    with pytest.raises(ConfigError, match="is partitioned by nothing, not by bucket"):
        open_or_create(archive.place, SCHEMA, partition_by=["bucket"])
    with pytest.raises(ConfigError, match="value is binary there, and absent in what is to be written"):
        open_or_create(archive.place, SCHEMA.remove(SCHEMA.get_field_index("value")))


def test_a_place_may_be_an_archive_or_nothing(archive: TestArchive) -> None:
    assert archive.table is not None
    check_place(archive.place, table_format=archive.table_format)
    other = next(table_format for table_format in TableFormat if table_format is not archive.table_format)
    with pytest.raises(ConfigError, match=f"is in the format {archive.table_format}, not {other}"):
        check_place(archive.place, table_format=other)
    inside = replace(archive.place, path=archive.place.within("x/y"))
    with pytest.raises(ConfigError, match="is within the archive at"):
        check_place(inside, table_format=archive.table_format)
    nothing = replace(archive.place, path=f"{archive.place.path}-beside/x")
    check_place(nothing, table_format=archive.table_format)
    Path(nothing.path, "_delta_log").mkdir(
        parents=True
    )  # of a table that was being made when its process died
    check_place(nothing, table_format=archive.table_format)
    Path(nothing.path, "photo.png").touch()
    with pytest.raises(ConfigError, match=r"is no archive, and holds something else \(photo.png\)"):
        check_place(nothing, table_format=archive.table_format)
    with pytest.raises(ConfigError, match="is a file"):
        check_place(replace(nothing, path=nothing.within("photo.png")), table_format=archive.table_format)


@pytest.mark.parametrize(
    ("columns", "partition_by", "reason"),
    [
        (["topic", "offset", "value"], [], "partition is missing"),
        (SCHEMA.names, ["day"], "partitionBy names day, which is no column"),
        (SCHEMA.names, ["headers"], "column headers is list"),
        (["topic", "partition", "offset"], ["topic", "partition", "offset"], "holds nothing"),
    ],
)
def test_a_table_that_could_not_work_is_not_made(
    archive: TestArchive, columns: list[str], partition_by: list[str], reason: str
) -> None:
    chosen = SCHEMA.empty_table().select(columns).schema
    with pytest.raises(ConfigError, match=reason):
        open_or_create(archive.place, chosen, table_format=archive.table_format, partition_by=partition_by)
    assert format_at(archive.place) is None
