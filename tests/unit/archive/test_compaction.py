"""Compaction makes fewer files of the same rows; expiry removes what nothing needs, and nothing else."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from odradek.archive.checks.verify import verify_archive
from odradek.archive.files.compaction import CompactionResult, compact, plan_compaction
from odradek.archive.files.file_lists import ListStyle, file_lists, write_file_list
from odradek.archive.opening import open_archive
from odradek.archive.store.values import ArchiveError, CommitConflict, DataFile, RowBounds
from odradek.archive.tables.iceberg_directory import DirectoryCatalog
from odradek.archive.tables.parquet import COMMITS
from odradek.archive.tables.port import TableFormat
from odradek.model.ids import TopicPartition
from odradek.runtime.real import SystemClock
from odradek.spark.reading.offsets import OffsetRange

from .conftest import ORDERS, TestArchive

SOON_MS = 60_000


def soon() -> int:
    """All that is there now is older."""
    return SystemClock().wall_ms() + SOON_MS


def file(path: str, size_bytes: int, offset: int = 0, day: str | None = None) -> DataFile:
    bounds = RowBounds(topics=("t", "t"), partitions=(0, 0), offsets=(offset, offset))
    values = () if day is None else (("day", day),)
    return DataFile(path=path, size_bytes=size_bytes, row_count=1, partition_values=values, bounds=bounds)


def names(groups: list[tuple[DataFile, ...]]) -> list[list[str]]:
    return [[data_file.path for data_file in group] for group in groups]


def test_small_neighbours_are_grouped_up_to_the_wanted_size() -> None:
    files = [file("c", 40, 3), file("a", 40, 1), file("b", 40, 2), file("large", 75, 0), file("d", 10, 4)]
    assert names(plan_compaction(files, 100)) == [["a", "b"], ["c", "d"]]


def test_a_small_file_alone_is_left_alone() -> None:
    assert plan_compaction([file("a", 10), file("large", 99)], 100) == []


def test_files_of_different_partitions_are_not_mixed() -> None:
    files = [file("a", 10, 0, "1"), file("b", 10, 1, "2"), file("c", 10, 2, "1")]
    assert names(plan_compaction(files, 100)) == [["a", "c"]]


def test_compaction_keeps_rows_order_and_offsets(archive_by_bucket: TestArchive, topics: Any) -> None:
    archive = archive_by_bucket
    for number in range(6):
        archive.add(number, number * 3, number * 3 + 3)
    before = archive.rows()
    done = compact(archive.table, 1 << 20)
    assert (done.removed_count, done.added_count, done.skipped_count) == (8, 4, 0)
    assert archive.rows() == before
    assert len(archive.table.files()) == 5
    (finding,) = verify_archive(archive.table, topics(0, 18))
    assert finding.faults == []
    assert compact(archive.table, 1 << 20) == CompactionResult()
    archive.add(6, 18, 20)
    assert archive.offsets() == list(range(20))


def test_compaction_gives_way_to_what_is_appended_meanwhile(archive: TestArchive) -> None:
    for number in range(3):
        archive.add(number, number, number + 1)
    table = archive.table
    replace = table.replace

    def append_first(*files: Any) -> None:
        table.replace = replace  # type: ignore[method-assign]
        archive.add(3, 3, 4)
        raise CommitConflict("someone was first")

    table.replace = append_first  # type: ignore[method-assign, assignment]
    assert compact(table, 1 << 20).added_count == 1
    assert archive.offsets() == [0, 1, 2, 3]
    assert len(archive.table.files()) == 2


def test_two_compactions_at_a_time_double_nothing(archive: TestArchive) -> None:
    for number in range(3):
        archive.add(number, number, number + 1)
    table = archive.table
    replace = table.replace

    def lose(*files: Any) -> None:
        table.replace = replace  # type: ignore[method-assign]
        compact(archive.table, 1 << 20)
        replace(*files)

    table.replace = lose  # type: ignore[method-assign, assignment]
    assert compact(table, 1 << 20) == CompactionResult(skipped_count=1)
    assert archive.offsets() == [0, 1, 2]


def test_rows_that_a_file_lacks_stop_a_compaction(archive: TestArchive, monkeypatch: Any) -> None:
    for number in range(3):
        archive.add(number, number * 2, number * 2 + 2)
    table = archive.table
    truth = table.files()
    wrong = [
        DataFile(path=data_file.path, size_bytes=data_file.size_bytes, row_count=9) for data_file in truth
    ]
    monkeypatch.setattr(table, "files", lambda: wrong)
    with pytest.raises(ArchiveError, match="hold 6 rows, but the table has 27; nothing was replaced"):
        compact(table, 1 << 20)
    assert archive.offsets() == list(range(6))


def data_files(archive: TestArchive) -> set[str]:
    root = archive.location.path

    return {
        str(path_of_file.relative_to(root))
        for path_of_file in Path(root).rglob("*.parquet")
        if "_delta_log" not in str(path_of_file)
    }


def test_expiry_removes_what_was_replaced_and_what_crashes_left(archive: TestArchive, topics: Any) -> None:
    for number in range(4):
        archive.add(number, number, number + 1)
    archive.batch(9, [OffsetRange(partition=ORDERS, start=4, end=5)])
    compact(archive.table, 1 << 20)
    assert len(data_files(archive)) == 6
    table = archive.table
    before = data_files(archive)
    would = table.expire(soon(), dry_run=True)
    assert data_files(archive) == before
    done = table.expire(soon(), dry_run=False)
    assert {
        text for text in done.files if text.endswith(".parquet") and "_delta" not in text
    } >= before - data_files(archive)
    assert set(would.files) <= set(done.files)
    assert data_files(archive) == {data_file.path for data_file in table.files()}
    assert archive.offsets() == [0, 1, 2, 3]
    (finding,) = verify_archive(open_archive(archive.location), topics(0, 4))
    assert finding.faults == []
    archive.add(4, 4, 6)
    assert archive.offsets() == list(range(6))


@pytest.mark.parametrize("spelling", ["link", "dots"])
def test_an_archive_may_be_reached_by_another_path(
    archive: TestArchive, tmp_path: Path, spelling: str
) -> None:
    for number in range(3):
        archive.add(number, number, number + 1)
    compact(archive.table, 1 << 20)
    (tmp_path / "link").symlink_to(archive.location.path)
    paths = {"link": tmp_path / "link", "dots": tmp_path / ".." / tmp_path.name / "archive"}
    archive.location = replace(archive.location, path=str(paths[spelling]))
    archive.add(3, 3, 4)
    compact(archive.table, 1 << 20)
    archive.table.expire(soon(), dry_run=False)
    assert archive.offsets() == [0, 1, 2, 3]
    assert data_files(archive) == {data_file.path for data_file in archive.table.files()}


@pytest.mark.parametrize("table_format", [TableFormat.ICEBERG])
def test_nothing_expires_in_the_place_of_another_table(archive: TestArchive, tmp_path: Path) -> None:
    """A copy of an Iceberg table names the files of the original."""
    archive.add(0, 0, 3)
    copy = replace(archive.location, path=str(tmp_path / "copy"))
    shutil.copytree(archive.location.path, copy.path)
    table = open_archive(copy)
    before = sorted(Path(copy.path).rglob("*"))
    with pytest.raises(ArchiveError, match=r"is at file://.*/archive, not at .*/copy: name it by that path"):
        table.expire(soon(), dry_run=False)
    with pytest.raises(ArchiveError, match="not at"):
        table.append(archive.batch(1, [OffsetRange(partition=ORDERS, start=3, end=4)]), archive.table.state())
    assert sorted(Path(copy.path).rglob("*")) == before


@pytest.mark.parametrize("table_format", [TableFormat.ICEBERG])
def test_nothing_expires_while_a_table_names_files_elsewhere(archive: TestArchive, tmp_path: Path) -> None:
    archive.add(0, 0, 3)
    archive.batch(1, [OffsetRange(partition=ORDERS, start=3, end=4)])
    (file,) = archive.table.files()
    stray = tmp_path / "stray.parquet"
    shutil.copy(archive.location.within(file.path), stray)
    DirectoryCatalog(archive.location).load_table("archive").add_files([f"file://{stray}"])
    before = data_files(archive)
    with pytest.raises(ArchiveError, match=r"names file://.*/stray.parquet, which is not below"):
        archive.table.expire(soon(), dry_run=False)
    assert data_files(archive) == before


def test_expiry_keeps_what_is_younger(archive: TestArchive) -> None:
    for number in range(4):
        archive.add(number, number, number + 1)
    archive.batch(9, [OffsetRange(partition=ORDERS, start=4, end=5)])
    compact(archive.table, 1 << 20)
    before = data_files(archive)
    assert archive.table.expire(SystemClock().wall_ms() - 3_600_000, dry_run=False).files == ()
    assert data_files(archive) == before


def test_an_archive_goes_on_after_many_commits_have_expired(archive: TestArchive) -> None:
    other = TopicPartition("orders", 1)
    archive.commit(archive.batch(0, [OffsetRange(partition=other, start=3, end=5)]))
    for number in range(45):
        archive.add(number + 1, number, number + 1)
        if number % 20 == 10:
            compact(archive.table, 1 << 20)
            archive.table.expire(soon(), dry_run=False)
    state = open_archive(archive.location).state()
    assert state.archived == {
        ORDERS: OffsetRange(partition=ORDERS, start=0, end=45),
        other: OffsetRange(partition=other, start=3, end=5),
    }
    assert [row["offset"] for row in archive.rows() if row["partition"] == 0] == list(range(45))


@pytest.mark.parametrize("table_format", [TableFormat.PARQUET, TableFormat.ICEBERG])
def test_a_writer_that_slept_through_an_expiry_does_not_commit_into_the_past(archive: TestArchive) -> None:
    """The name of the version after the one that it knows is free again, and far behind the newest one."""
    for number in range(3):
        archive.add(number, number, number + 1)
    table = archive.table
    slept = table.state()
    loaded = pickled_view(table)
    for number in range(3, 45):
        archive.add(number, number, number + 1)
    archive.table.expire(soon(), dry_run=False)
    late = archive.batch(3, [OffsetRange(partition=ORDERS, start=3, end=4)], query="late")
    with pytest.raises(ArchiveError):
        loaded.append(late, slept)
    assert archive.offsets() == list(range(45))


@pytest.mark.parametrize("table_format", [TableFormat.PARQUET])
def test_a_writer_that_slept_since_the_table_was_empty_does_not_commit(archive: TestArchive) -> None:
    table = archive.table
    slept = table.state()
    for number in range(45):
        archive.add(number, number, number + 1)
    archive.table.expire(soon(), dry_run=False)
    late = archive.batch(0, [OffsetRange(partition=TopicPartition("other", 0), start=0, end=1)], query="late")
    with pytest.raises(CommitConflict, match="version 0 had been committed, and has expired since"):
        table.append(late, slept)
    assert archive.offsets() == list(range(45))


@pytest.mark.parametrize("table_format", [TableFormat.ICEBERG])
def test_a_change_of_an_expired_version_of_an_iceberg_table_is_refused(archive: TestArchive) -> None:
    archive.add(0, 0, 1)
    slept = DirectoryCatalog(archive.location).load_table("archive")
    for number in range(1, 5):
        archive.add(number, number, number + 1)
    archive.table.expire(soon(), dry_run=False)
    with pytest.raises(CommitFailedException, match="has expired since"):
        slept.transaction().set_properties({"a": "b"}).commit_transaction()
    assert archive.offsets() == list(range(5))


def pickled_view(table: Any) -> Any:
    """The table as a writer holds it that has looked at it already: Iceberg's metadata is in its memory."""
    if table.format is TableFormat.ICEBERG:
        opened = table._open()
        table._open = lambda: opened
    return table


def test_a_batch_whose_files_have_expired_is_not_committed(archive: TestArchive) -> None:
    archive.add(0, 0, 3)
    late = archive.batch(1, [OffsetRange(partition=ORDERS, start=3, end=6)])
    archive.table.expire(soon(), dry_run=False)
    with pytest.raises(
        ArchiveError, match=r"s-1-2-0.parquet no longer exists: .* expired before it was committed"
    ):
        archive.commit(late)
    assert archive.add(1, 3, 6)
    assert archive.offsets() == list(range(6))


def test_lists_of_files_for_other_engines(archive_by_bucket: TestArchive) -> None:
    archive = archive_by_bucket
    archive.add(0, 0, 6)
    table = archive.table
    assert write_file_list(table, ListStyle.ATHENA) == "_symlink_format_manifest"
    root = f"{archive.location.path}/_symlink_format_manifest"
    listed = []
    for data_file in table.files():
        directory = data_file.path.removeprefix(table.data_directory).rpartition("/")[0]
        with open(f"{root}/{directory}/manifest") as lines:
            listed += lines.read().splitlines()
    assert sorted(listed) == sorted(
        f"file://{archive.location.path}/{table_file.path}" for table_file in table.files()
    )
    assert write_file_list(table, ListStyle.REDSHIFT) == "_redshift_manifest/manifest"
    with open(f"{archive.location.path}/_redshift_manifest/manifest") as content:
        entries = json.load(content)["entries"]
    assert {entry["url"]: entry["meta"]["content_length"] for entry in entries} == {
        f"file://{archive.location.path}/{path_of_file.path}": path_of_file.size_bytes
        for path_of_file in table.files()
    }


def test_a_partition_that_has_no_files_any_more_has_no_list(archive_by_bucket: TestArchive) -> None:
    archive = archive_by_bucket
    archive.add(0, 0, 6)
    table = archive.table
    write_file_list(table, ListStyle.ATHENA)
    (gone, *_) = [
        data_file for data_file in table.files() if data_file.partition_values != (("bucket", None),)
    ]
    table.replace([gone], [])
    write_file_list(table, ListStyle.ATHENA)
    assert write_file_list(table, ListStyle.ATHENA)
    directory = gone.path.removeprefix(table.data_directory).rpartition("/")[0]
    assert not Path(archive.location.path, "_symlink_format_manifest", directory, "manifest").exists()


def test_an_empty_archive_has_an_empty_list() -> None:
    assert file_lists("s3://lake/a", [], ListStyle.ATHENA) == {"_symlink_format_manifest/manifest": b""}
    assert json.loads(file_lists("s3://lake/a", [], ListStyle.REDSHIFT)["_redshift_manifest/manifest"]) == {
        "entries": []
    }


def test_commits_of_a_manifest_are_summed_up(archive: TestArchive) -> None:
    """What a new reader reads does not grow with the number of commits."""
    if archive.table_format is not TableFormat.PARQUET:
        pytest.skip("the manifest is the Parquet format's")
    for number in range(50):
        archive.add(number, number, number + 1)
    archive.table.expire(soon(), dry_run=False)

    commits = sorted(named.name for named in Path(archive.location.path, COMMITS).iterdir())
    assert [int(commit[:20]) for commit in commits] == list(range(39, 50))
    assert archive.offsets() == list(range(50))
