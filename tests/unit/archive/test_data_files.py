"""Files of a useful size, split as the table is, with what the table gets to know about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from odradek.archive.files.data_files import (
    OPEN_FILES_MAX,
    FileLayout,
    partition_path,
    split_by,
    values_in_path,
    write_files,
)
from odradek.archive.files.reading import share_files
from odradek.archive.values import ArchiveError, DataFile
from odradek.model.ids import TopicPartition
from odradek.spark.offsets import OffsetRange

from .conftest import HOUR_US, ORDERS, SCHEMA, rows


def written(
    directory: Path, *batches: Any, partition_by: tuple[str, ...] = (), file_bytes: int = 1 << 20
) -> list[DataFile]:
    in_files = pa.schema([named for named in SCHEMA if named.name not in partition_by])
    layout = FileLayout(
        schema=SCHEMA,
        file_schema=in_files,
        partition_by=partition_by,
        directory="",
        file_bytes=file_bytes,
    )
    return write_files(fs.LocalFileSystem(), str(directory), "x", layout, batches)


def test_a_file_tells_what_is_in_it(tmp_path: Path) -> None:
    other = TopicPartition("clicks", 2)
    (file,) = written(tmp_path, rows(ORDERS, [5, 6, 9]), rows(other, [1]), rows(ORDERS, [12]))
    assert file.row_count == 5
    assert file.size_bytes == (tmp_path / file.path).stat().st_size
    assert file.ranges == (
        OffsetRange(partition=other, start=1, end=2),
        OffsetRange(partition=ORDERS, start=5, end=13),
    )
    assert file.timestamps_us == (HOUR_US, 12 * HOUR_US)


def test_nothing_is_written_for_no_rows(tmp_path: Path) -> None:
    assert written(tmp_path, rows(ORDERS, [])) == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_large_enough_is_closed_and_order_is_kept(tmp_path: Path) -> None:
    batches = [rows(ORDERS, range(start, start + 50)) for start in range(0, 500, 50)]
    files = written(tmp_path, *batches, file_bytes=3_000)
    assert len(files) > 2
    offsets = [
        offset for file in files for offset in pq.read_table(tmp_path / file.path)["offset"].to_pylist()
    ]
    assert offsets == list(range(500))
    assert all(file.size_bytes >= 3_000 for file in files[:-1])


def test_files_of_a_partition_lie_in_its_directory_without_its_column(tmp_path: Path) -> None:
    files = written(tmp_path, rows(ORDERS, range(2, 6)), partition_by=("bucket",))
    assert [file.partition_values for file in files] == [(("bucket", None),), (("bucket", "1 %/=é"),)]
    assert [values_in_path(file.path) for file in files] == [file.partition_values for file in files]
    assert "bucket" not in pq.read_schema(tmp_path / files[0].path).names


def test_more_partitions_than_may_be_open_go_to_more_files(tmp_path: Path) -> None:
    count = OPEN_FILES_MAX + 5
    batch = rows(ORDERS, range(4 * count))
    files = written(tmp_path, batch, batch, partition_by=("bucket",))
    assert sum(file.row_count for file in files) == 8 * count
    assert len({file.partition_values for file in files}) == count


@pytest.mark.parametrize("column", ["topic", "partition", "offset"])
def test_a_row_without_a_place_in_its_topic_is_refused(tmp_path: Path, column: str) -> None:
    batch = rows(ORDERS, range(3))
    index = batch.schema.get_field_index(column)
    broken = batch.set_column(index, column, pa.nulls(3, batch.schema.field(column).type))
    with pytest.raises(ArchiveError, match=f"a row has no {column}"):
        written(tmp_path, broken)


def test_rows_are_split_by_several_columns() -> None:
    batch = pa.record_batch({"a": ["x", "y", "x", None], "b": [1, 1, 2, 1], "c": [0, 1, 2, 3]})
    shares = [(dict(values), share["c"].to_pylist()) for values, share in split_by(batch, ("a", "b"))]
    assert shares == [
        ({"a": "x", "b": "1"}, [0]),
        ({"a": "y", "b": "1"}, [1]),
        ({"a": "x", "b": "2"}, [2]),
        ({"a": None, "b": "1"}, [3]),
    ]


@pytest.mark.parametrize("value", ["", "2026-01-31", "a/b", "50 %", "=", "é", None])
def test_paths_keep_every_value(value: str | None) -> None:
    path = partition_path((("day", value), ("topic", "t")))
    assert path.count("/") == 2
    assert values_in_path(f"{path}file.parquet") == (("day", value), ("topic", "t"))


def test_tasks_share_files_by_their_size() -> None:
    files = [DataFile(path=str(size), size_bytes=size, row_count=1) for size in (5, 5, 30, 1, 1)]
    assert [[file.path for file in share] for share in share_files(files, 10)] == [
        ["5", "5"],
        ["30"],
        ["1", "1"],
    ]
    assert share_files([], 10) == []
