"""Columns whose names have blanks, commas and signs: each format keeps them, and Delta has column mapping for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.archive.files.compaction import compact
from odradek.archive.files.data_files import layout_of, write_files
from odradek.archive.files.reading import FileReader
from odradek.archive.opening import open_archive, open_or_create
from odradek.archive.store.location import archive_location
from odradek.archive.store.values import BatchId, NewBatch
from odradek.archive.tables.commit import commit_batch
from odradek.archive.tables.delta_mapping import needs_mapping
from odradek.archive.tables.port import TableFormat
from odradek.runtime.real import SystemClock
from odradek.spark.reading.offsets import OffsetRange

from .conftest import ORDERS

DETAILS = pa.struct([("x, y", pa.int64()), ("list of", pa.list_(pa.struct([("z=", pa.string())])))])
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("first name", pa.string()),
        ("details", DETAILS),
        ("day; {of}", pa.string()),
    ]
)
SPECIAL = " ,;{}()\n\t="


def row(offset: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "first name": f"name {offset}",
        "details": {"x, y": offset, "list of": [{"z=": "z"}]},
        "day; {of}": "even" if offset % 2 == 0 else "odd",
    }


def write(location: Any, table_format: TableFormat, number: int, offsets: range) -> Any:
    table = open_or_create(location, SCHEMA, table_format=table_format, partition_by=("day; {of}",))
    batch = pa.RecordBatch.from_pylist([row(offset) for offset in offsets], schema=SCHEMA)
    files = write_files(
        location.file_system(), location.path, f"s-{number}", layout_of(table, 1 << 20), [batch]
    )
    extent = OffsetRange(partition=ORDERS, start=offsets.start, end=offsets.stop)
    batch_id = BatchId(sink="s", query="q", batch=number)
    commit_batch(table, NewBatch(id=batch_id, files=tuple(files), ranges=(extent,)))
    return table


def test_rows_come_back_under_their_names_also_after_a_compaction(
    tmp_path: Path, table_format: TableFormat
) -> None:
    location = archive_location(str(tmp_path / "archive"))
    write(location, table_format, 0, range(3))
    compact(write(location, table_format, 1, range(3, 6)), 1 << 20)
    table = open_archive(location)
    reader = FileReader(location=table.location, schema=table.schema)
    results = [
        read_row for file in table.files() for batch in reader.read(file) for read_row in batch.to_pylist()
    ]
    assert sorted(results, key=lambda made: made["offset"]) == [row(offset) for offset in range(6)]
    later_ms = SystemClock().wall_ms() + 60_000
    assert table.expire(later_ms, dry_run=False).files


def test_delta_maps_such_columns_and_its_readers_find_them(tmp_path: Path) -> None:
    location = archive_location(str(tmp_path / "archive"))
    write(location, TableFormat.DELTA, 0, range(3))
    write(location, TableFormat.DELTA, 1, range(3, 6))
    table = deltalake.DeltaTable(location.path)
    assert table.metadata().configuration["delta.columnMapping.mode"] == "name"
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (2, 5)
    fields = json.loads(table.schema().to_json())["fields"]
    ids = [field["metadata"]["delta.columnMapping.id"] for field in _all_fields({"fields": fields})]
    assert sorted(ids) == list(range(1, 10))
    assert table.metadata().configuration["delta.columnMapping.maxColumnId"] == "9"
    expected = [row(offset) for offset in range(6)]
    rows = table.to_pyarrow_table().sort_by("offset").to_pylist()
    assert rows == expected
    query = deltalake.QueryBuilder().register("t", table)
    names = query.execute('SELECT "first name", "day; {of}" FROM t WHERE "offset" > 3 ORDER BY "offset"')
    assert pa.table(names.read_all()).to_pylist() == [
        {"first name": made["first name"], "day; {of}": made["day; {of}"]} for made in expected[4:]
    ]


def test_another_writer_may_make_the_table_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = archive_location(str(tmp_path / "archive"))
    write(location, TableFormat.DELTA, 0, range(3))
    monkeypatch.setattr("odradek.archive.tables.delta.DeltaArchive.is_at", lambda location: False)
    write(location, TableFormat.DELTA, 1, range(3, 6))
    assert deltalake.DeltaTable(location.path).to_pyarrow_table().num_rows == 6


def _all_fields(kind: Any) -> list[Any]:
    if not isinstance(kind, dict):
        return []
    parts = [kind.get(part) for part in ("elementType", "keyType", "valueType")]
    nested = [inner for field in kind.get("fields", ()) for inner in [field, *_all_fields(field["type"])]]
    return nested + [inner for part in parts for inner in _all_fields(part)]


@given(name=st.text(min_size=1, max_size=5), nesting=st.lists(st.sampled_from(["list", "struct", "map"])))
def test_a_special_name_is_seen_wherever_it_is(name: str, nesting: list[str]) -> None:
    kind: Any = pa.struct([(name, pa.int32())])
    for outer in nesting:
        kind = {
            "list": pa.list_(kind),
            "struct": pa.struct([("plain", kind)]),
            "map": pa.map_(pa.string(), kind),
        }[outer]
    assert needs_mapping(pa.schema([("column", kind)])) == any(sign in name for sign in SPECIAL)
