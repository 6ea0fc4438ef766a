"""What every table format keeps: batches whole and once, in the order of offsets, also while others commit."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.archive.files.compaction import compact
from odradek.archive.files.data_files import NULL_IN_A_PATH, layout_of, write_files
from odradek.archive.files.extent_index import ExtentIndex, sort_key
from odradek.archive.files.reading import FileReader
from odradek.archive.history.archived_rows import first_at
from odradek.archive.opening import check_location, format_at, open_archive, open_or_create
from odradek.archive.store.location import archive_location
from odradek.archive.store.values import ArchiveError, BatchId, CommitConflict, NewBatch
from odradek.archive.tables.commit import Committed, commit_batch
from odradek.archive.tables.port import TableFormat
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.runtime.real import SystemClock
from odradek.spark.reading.offsets import OffsetRange

from .conftest import HOUR_US, ORDERS, SCHEMA, TestArchive, at_times, rows


def test_a_batch_is_there_with_its_name_and_its_offsets(archive: TestArchive) -> None:
    assert archive.add(3, 10, 15) is Committed.NOW
    state = open_archive(archive.location).state()
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


@pytest.mark.parametrize(
    "strange_us", [1_700_000_000_000_000_000, 2**63 - 1, -(2**63), 253_402_300_799_999_999]
)
def test_a_time_beyond_the_year_9999_is_kept_and_the_archive_goes_on(
    archive: TestArchive, strange_us: int
) -> None:
    """The last one is the last of the year 9999: rounded up it is beyond it."""
    extent = OffsetRange(partition=ORDERS, start=0, end=2)
    assert archive.commit(archive.batch(0, [extent], at_times([HOUR_US, strange_us]))) is Committed.NOW
    archive.add(1, 2, 6)
    table = open_archive(archive.location)
    reader = FileReader(location=table.location, schema=pa.schema([SCHEMA.field("timestamp")]))
    times = [
        time_us
        for file in sorted(table.files(), key=sort_key)
        for batch in reader.read(file)
        for time_us in batch["timestamp"].cast(pa.int64()).to_pylist()
    ]
    assert times == [HOUR_US, strange_us, *(hour * HOUR_US for hour in range(2, 6))]
    compact(table, 1 << 20)
    assert first_at(archive.location, table.files(), {ORDERS: 2**63 - 1}) in ({}, {ORDERS: 1})
    assert first_at(archive.location, table.files(), {ORDERS: 5 * HOUR_US // 1_000})[ORDERS] in (1, 5)
    assert table.state().positions == {ORDERS: 6}


def test_values_of_partitions_are_those_of_the_table_not_of_its_paths(
    tmp_path: Path, table_format: TableFormat
) -> None:
    """Nothing is read from names of directories: one of these texts is the name of null's."""
    parts = {
        "text": pa.array(["__HIVE_DEFAULT_PARTITION__", None, "%2F/=é"], pa.string()),
        "day": pa.array([19_000, None, -1], pa.int32()).cast(pa.date32()),
        "number": pa.array([-5, None, 7], pa.int64()),
        "flag": pa.array([True, None, False], pa.bool_()),
    }
    batch = rows(ORDERS, range(3)).drop_columns(["timestamp", "headers", "bucket"])
    for name, column in parts.items():
        batch = batch.append_column(name, column)
    location = archive_location(str(tmp_path / "a"))
    table = open_or_create(location, batch.schema, table_format=table_format, partition_by=tuple(parts))
    files = write_files(location.file_system(), location.path, "x", layout_of(table, 1 << 20), [batch])
    extent = OffsetRange(partition=ORDERS, start=0, end=3)
    commit_batch(
        table, NewBatch(id=BatchId(sink="s", query="q", batch=0), files=tuple(files), ranges=(extent,))
    )
    again = open_archive(location)
    assert {file.partition_values for file in again.files()} == {file.partition_values for file in files}
    reader = FileReader(location=location, schema=again.schema)
    results = [row for file in again.files() for read in reader.read(file) for row in read.to_pylist()]
    assert sorted(results, key=lambda row: row["offset"]) == batch.to_pylist()


def by(column: pa.Array) -> Any:
    """Rows that have the column `part`, one for each of its values."""
    batch = rows(ORDERS, range(len(column))).drop_columns(["timestamp", "headers", "bucket"])
    return batch.append_column("part", column)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["y" * 300, "Я" * 200, "x"]), ["y" * 300, "Я" * 200, "x"]),
        (pa.array([b"\xff\xfe", b"ok"]).view(pa.string()), ["\ufffd\ufffd", "ok"]),
        (pa.array([19_000_000, -800_000, 0], pa.int32()).view(pa.date32()), [None, None, date(1970, 1, 1)]),
    ],
)
def test_any_value_to_partition_by_is_archived(
    tmp_path: Path, table_format: TableFormat, column: pa.Array, expected: list[Any]
) -> None:
    """Long text, bytes that are no text, and dates of six digits: names of directories know none of these."""
    batch = by(column)
    location = archive_location(str(tmp_path / "a"))
    table = open_or_create(location, batch.schema, table_format=table_format, partition_by=["part"])
    for number in range(2):
        files = write_files(
            location.file_system(), location.path, f"x{number}", layout_of(table, 1 << 20), [batch]
        )
        extent = OffsetRange(partition=ORDERS, start=0, end=len(column))
        new = BatchId(sink="s", query=f"q{number}", batch=0)
        table.append(NewBatch(id=new, files=tuple(files), ranges=(extent,)), table.state())
    assert compact(table, 1 << 20).removed_count == 2 * len(set(expected))
    table.expire(SystemClock().wall_ms() + 60_000, dry_run=False)  # which knows the files by their paths
    reader = FileReader(location=location, schema=table.schema)
    results = [row for file in table.files() for read in reader.read(file) for row in read.to_pylist()]
    assert sorted(row["offset"] for row in results) == [offset for offset in range(len(column)) for _ in "ab"]
    assert {(row["offset"], row["part"]) for row in results} == set(enumerate(expected))


def test_delta_knows_no_empty_text_to_partition_by(tmp_path: Path, table_format: TableFormat) -> None:
    """Its protocol: an empty text is null there. So it lies in null's directory, too, where others look for it."""
    batch = by(pa.array(["", None, "x"]))
    location = archive_location(str(tmp_path / "a"))
    table = open_or_create(location, batch.schema, table_format=table_format, partition_by=["part"])
    files = write_files(location.file_system(), location.path, "x", layout_of(table, 1 << 20), [batch])
    known: list[str | None] = [None, "x"] if table_format is TableFormat.DELTA else ["", None, "x"]
    assert [file.partition_values for file in files] == [(("part", text),) for text in known]
    assert any(f"part={NULL_IN_A_PATH}/" in file.path for file in files)


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
    state = open_archive(archive.location).state()
    assert state.archived == {
        ORDERS: OffsetRange(partition=ORDERS, start=0, end=5),
        other: OffsetRange(partition=other, start=2, end=60),
    }
    assert state.batches == {("s", "q"): 29}
    assert len(archive.rows()) == 5 + 58


def test_a_gap_that_is_left_is_named(archive: TestArchive, caplog: pytest.LogCaptureFixture) -> None:
    archive.add(0, 0, 5)
    archive.add(1, 5, 7, leaving_gaps=True)
    assert caplog.text == ""
    archive.add(2, 10, 12, leaving_gaps=True)
    assert "orders-0: offsets 7 to 9 are left out, because leaveGaps is set" in caplog.text
    assert archive.offsets() == [*range(7), 10, 11]


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
        archive.location.file_system(), archive.location.path, "new", layout, [rows(ORDERS, range(12))]
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
    other, strange = TopicPartition("orders", 1), TopicPartition("zebras", 0)
    for partition, start, may_hold in (
        (ORDERS, 19, True),
        (ORDERS, 20, False),
        (other, 0, False),
        (strange, 0, False),
    ):
        index = ExtentIndex([OffsetRange(partition=partition, start=start, end=30)])
        assert list(index.extent_numbers(file)) == [0] * may_hold
        assert [location for run in index.runs(file) for location in run] == [0] * (partition == ORDERS)
    assert file.row_count == 10


def test_a_table_may_be_pickled(archive: TestArchive) -> None:
    archive.add(0, 0, 5)
    table = pickle.loads(pickle.dumps(archive.table))
    assert table.schema == SCHEMA
    assert table.state().positions == {ORDERS: 5}


def test_a_table_is_found_and_has_its_columns(archive_by_bucket: TestArchive) -> None:
    assert archive_by_bucket.table is not None
    table = open_archive(archive_by_bucket.location)
    assert table.format is archive_by_bucket.table_format
    assert table.schema == SCHEMA
    assert table.partition_by == ("bucket",)


def test_no_table_is_an_error_that_says_how_to_make_one(archive: TestArchive) -> None:
    assert format_at(archive.location) is None
    with pytest.raises(ArchiveError, match=r"there is no archive at .*: `odradek archive run` makes one"):
        open_archive(archive.location)


def test_other_columns_formats_and_partitions_are_refused(archive: TestArchive) -> None:
    assert archive.table is not None
    other = next(table_format for table_format in TableFormat if table_format is not archive.table_format)
    with pytest.raises(ConfigError, match=f"is in the format {archive.table_format}, not {other}"):
        open_or_create(archive.location, SCHEMA, table_format=other)
    with pytest.raises(ConfigError, match="is partitioned by nothing, not by bucket"):
        open_or_create(archive.location, SCHEMA, partition_by=["bucket"])
    with pytest.raises(ConfigError, match="value is binary there, and absent in the rows to write"):
        open_or_create(archive.location, SCHEMA.remove(SCHEMA.get_field_index("value")))


def test_a_place_may_be_an_archive_or_nothing(archive: TestArchive) -> None:
    assert archive.table is not None
    check_location(archive.location, table_format=archive.table_format)
    other = next(table_format for table_format in TableFormat if table_format is not archive.table_format)
    with pytest.raises(ConfigError, match=f"is in the format {archive.table_format}, not {other}"):
        check_location(archive.location, table_format=other)
    inside = replace(archive.location, path=archive.location.within("x/y"))
    with pytest.raises(ConfigError, match="is within the archive at"):
        check_location(inside, table_format=archive.table_format)
    nothing = replace(archive.location, path=f"{archive.location.path}-beside/x")
    check_location(nothing, table_format=archive.table_format)
    Path(nothing.path, "_delta_log").mkdir(
        parents=True
    )  # of a table that was being made when its process died
    check_location(nothing, table_format=archive.table_format)
    Path(nothing.path, "photo.png").touch()
    with pytest.raises(ConfigError, match=r"is no archive, and holds something else \(photo.png\)"):
        check_location(nothing, table_format=archive.table_format)
    with pytest.raises(ConfigError, match="is a file"):
        check_location(replace(nothing, path=nothing.within("photo.png")), table_format=archive.table_format)


@pytest.mark.parametrize(
    ("columns", "partition_by", "reason"),
    [
        (["topic", "offset", "value"], [], "partition is missing"),
        (SCHEMA.names, ["day"], "partitionBy names day, which is no column"),
        (SCHEMA.names, ["headers"], "column headers is list"),
        (["topic", "partition", "offset"], ["topic", "partition", "offset"], "leave at least one out"),
    ],
)
def test_a_table_that_could_not_work_is_not_made(
    archive: TestArchive, columns: list[str], partition_by: list[str], reason: str
) -> None:
    chosen = SCHEMA.empty_table().select(columns).schema
    with pytest.raises(ConfigError, match=reason):
        open_or_create(archive.location, chosen, table_format=archive.table_format, partition_by=partition_by)
    assert format_at(archive.location) is None


def test_a_catalog_that_is_not_described_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the catalog lake cannot be used: URI missing") as refused:
        check_location(archive_location(str(tmp_path / "a")), table_format=None, catalog="lake:db.a")
    assert "PYICEBERG_CATALOG__LAKE__URI" in str(refused.value)
    assert "\n" not in str(refused.value)
