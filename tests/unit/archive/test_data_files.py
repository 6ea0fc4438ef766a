"""Files of a useful size, split as the table is, with what the table gets to know about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from odradek.archive.files.data_files import (
    NULL_IN_A_PATH,
    OPEN_FILES_MAX,
    FileLayout,
    partition_path,
    split_by,
    write_files,
)
from odradek.archive.files.reading import share_files
from odradek.archive.files.unfit_values import with_fitting_values
from odradek.archive.store.values import KEY_HEADER, TIME_HEADER, ArchiveError, DataFile
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange

from .conftest import HEADERS, HOUR_US, ORDERS, SCHEMA, rows


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
    assert [file.path.split("/")[0] for file in files] == [
        f"bucket={NULL_IN_A_PATH}",
        "bucket=1%20%25%2F%3D%C3%A9",
    ]
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


class CountedRows:
    """Rows that count how many of them are copied or looked at to make others."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.num_rows = rows.num_rows
        self.step_count = 0
        self._rows = rows

    def __getitem__(self, name: str) -> pa.Array:
        return self._rows[name]

    def filter(self, mask: pa.Array) -> pa.RecordBatch:
        self.step_count += len(mask)
        return self._rows.filter(mask)

    def take(self, indices: pa.Array) -> pa.RecordBatch:
        self.step_count += len(indices)
        return self._rows.take(indices)


def test_splitting_copies_each_row_once_however_many_shares_there_are() -> None:
    row_count, share_count = 5_000, 1_000
    batch = pa.record_batch(
        {"a": [row % share_count for row in range(row_count)], "b": list(range(row_count))}
    )
    counted = CountedRows(batch)
    shares = list(split_by(cast(pa.RecordBatch, counted), ["a"]))
    assert [values for values, _ in shares] == [(("a", str(number)),) for number in range(share_count)]
    assert all(
        share["b"].to_pylist() == list(range(number, row_count, share_count))
        for number, (_, share) in enumerate(shares)
    )
    assert counted.step_count <= row_count
    assert list(split_by(batch.slice(0, 0), ["a"])) == []


def test_each_value_has_a_directory_of_its_own_in_hives_layout() -> None:
    values = ["", "2026-01-31", "a/b", "50 %", "=", "é", None, "y" * 300, "y" * 301, "я" * 300, "я" * 299]
    paths = [partition_path((("day", value), ("topic", "t"))) for value in values]
    assert len(set(paths)) == len(values)
    assert paths[:3] == ["day=/topic=t/", "day=2026-01-31/topic=t/", "day=a%2Fb/topic=t/"]
    for path in paths:
        assert path.count("/") == 2
        assert all(len(name.encode()) <= 255 for name in path.split("/"))
        assert unquote(path).encode().decode() == unquote(path), "no half of an encoded byte"


def test_all_directories_of_a_file_leave_room_for_its_name_in_s3() -> None:
    path = partition_path(tuple((f"column{number}", "y" * 300) for number in range(8)))
    assert len(path) <= 8 + 512
    assert path.count("-") == 8


def text_array(*data: bytes | None) -> Any:
    return pa.array(data, pa.binary()).view(pa.string())


def test_text_that_is_none_is_mended_wherever_it_is() -> None:
    bad = text_array(b"\xff", b"ok", None, b"x\xfe")
    struct = pa.StructArray.from_arrays([bad], ["t"], mask=pa.array([False, False, True, False]))
    listed = pa.ListArray.from_arrays(pa.array([0, 2, None, 3, 4], pa.int32()), bad)
    mapped = pa.MapArray.from_arrays(
        pa.array([0, 1, None, 2, 4], pa.int32()), text_array(b"\xfa", b"b", b"c", b"d"), bad
    )
    batch = pa.record_batch(
        {"plain": bad, "struct": struct, "list": listed, "map": mapped, "bytes": bad.view(pa.binary())}
    )
    for rows_before in (batch, batch.slice(1)):
        mended = with_fitting_values(rows_before)
        mended.validate(full=True)
        assert mended.schema == rows_before.schema
    assert with_fitting_values(batch).to_pylist() == [
        {
            "plain": "\ufffd",
            "struct": {"t": "\ufffd"},
            "list": ["\ufffd", "ok"],
            "map": [("\ufffd", "\ufffd")],
            "bytes": b"\xff",
        },
        {"plain": "ok", "struct": {"t": "ok"}, "list": [None], "map": [("b", "ok")], "bytes": b"ok"},
        {"plain": None, "struct": None, "list": None, "map": None, "bytes": None},
        {
            "plain": "x\ufffd",
            "struct": {"t": "x\ufffd"},
            "list": ["x\ufffd"],
            "map": [("c", None), ("d", "x\ufffd")],
            "bytes": b"x\xfe",
        },
    ]
    good = rows(ORDERS, range(3))
    assert with_fitting_values(good) is good


def test_a_key_that_is_no_text_is_kept_in_a_header() -> None:
    own = [{"key": "h", "value": b"x"}]
    kept = [{"key": TIME_HEADER, "value": None}, {"key": KEY_HEADER, "value": b"\xff"}]
    batch = pa.record_batch(
        {"key": text_array(b"\xff", b"ok", b"\xff"), "headers": pa.array([own, own, None], HEADERS)}
    )
    assert with_fitting_values(batch).to_pylist() == [
        {"key": None, "headers": [*own, *kept]},
        {"key": "ok", "headers": own},
        {"key": None, "headers": kept},
    ]


def test_tasks_share_files_by_their_size() -> None:
    files = [DataFile(path=str(size), size_bytes=size, row_count=1) for size in (5, 5, 30, 1, 1)]
    assert [[file.path for file in share] for share in share_files(files, 10)] == [
        ["5", "5"],
        ["30"],
        ["1", "1"],
    ]
    assert share_files([], 10) == []
