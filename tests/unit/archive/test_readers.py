"""What others see: DuckDB, polars and the formats' own libraries read the same rows, also after a compaction and a crash."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="DuckDB is absent")
pytest.importorskip("polars", reason="polars is absent")

import deltalake
import duckdb
import polars
import pyarrow.compute as pc
from pyiceberg.table import StaticTable

from odradek.archive.files.compaction import compact
from odradek.archive.files.file_lists import SYMLINKS, ListStyle, write_file_list
from odradek.archive.tables.port import TableFormat
from odradek.spark.reading.offsets import OffsetRange

from .conftest import ORDERS, TestArchive, at_times

COLUMNS = '"offset", "value", bucket'
Row = tuple[int, bytes, str | None]
EXPECTED: list[Row] = [(n, b"value %d" % n, f"{n // 4} %/=é" if n // 4 else None) for n in range(14)]


@pytest.fixture
def archive(archive_by_bucket: TestArchive) -> TestArchive:
    """An archive with small files that were replaced, and files of a batch that was never committed."""
    for number in range(3):
        archive_by_bucket.add(number, number * 4, number * 4 + 4)
    compact(archive_by_bucket.table, 1 << 20)
    archive_by_bucket.add(3, 12, 14)
    archive_by_bucket.batch(9, [OffsetRange(partition=ORDERS, start=14, end=16)])
    return archive_by_bucket


def listed_files(archive: TestArchive) -> list[str]:
    """Returns the files that the symlink manifests list, as Athena reads them."""
    write_file_list(archive.table, ListStyle.ATHENA)
    manifests = Path(archive.location.path, SYMLINKS).rglob("manifest")
    return [
        line.removeprefix("file://") for manifest in manifests for line in manifest.read_text().splitlines()
    ]


def in_order(results: list[Any]) -> list[Row]:
    return sorted((row[0], bytes(row[1]), row[2]) for row in results)


def test_duckdb_reads_the_listed_files(archive: TestArchive) -> None:
    parquet = duckdb.read_parquet(listed_files(archive), hive_partitioning=True)
    assert in_order(parquet.project(COLUMNS).fetchall()) == EXPECTED


def test_polars_reads_the_listed_files(archive: TestArchive) -> None:
    lazy_frame = polars.scan_parquet(listed_files(archive), hive_partitioning=True)
    assert in_order(lazy_frame.select("offset", "value", "bucket").collect().rows()) == EXPECTED


@pytest.mark.parametrize("table_format", [TableFormat.DELTA])
def test_delta_tables(archive: TestArchive) -> None:
    frame = polars.scan_delta(archive.location.path).select("offset", "value", "bucket").collect()
    assert in_order(frame.rows()) == EXPECTED
    relation = duckdb.from_arrow(deltalake.DeltaTable(archive.location.path).to_pyarrow_dataset())
    assert in_order(relation.project(COLUMNS).fetchall()) == EXPECTED
    assert len(relation.filter("topic = 'orders' AND \"offset\" < 3").fetchall()) == 3
    later = polars.scan_delta(archive.location.path).filter(polars.col("offset") >= 12).collect()
    assert sorted(later["offset"]) == [12, 13]


@pytest.mark.parametrize("table_format", [TableFormat.ICEBERG])
def test_iceberg_tables(archive: TestArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own planner is a package of its own
    table = StaticTable.from_metadata(archive.location.path)
    columns = ("offset", "value", "bucket")
    frame = polars.scan_iceberg(table).select(*columns).collect()
    assert in_order(frame.rows()) == EXPECTED
    connection = table.scan(selected_fields=columns).to_duckdb("archive")
    assert in_order(connection.table("archive").project(COLUMNS).fetchall()) == EXPECTED
    assert table.scan(row_filter="offset >= 12").to_arrow().num_rows == 2


@pytest.mark.parametrize("table_format", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_filters_on_time_find_rows_beside_those_beyond_the_year_9999(
    archive_by_bucket: TestArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the three that are later than 2020 are in files with a strange time, before and after a compaction."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    year_55000_us, year_2027_us = 1_700_000_000_000_000_000, 1_800_000_000_000_000
    times = at_times([-(2**63), 0, 1, year_2027_us, year_55000_us, year_2027_us])
    extent = OffsetRange(partition=ORDERS, start=0, end=6)
    archive_by_bucket.commit(archive_by_bucket.batch(0, [extent], times))
    archive_by_bucket.add(1, 6, 8)
    path = archive_by_bucket.location.path
    for is_compacted in (False, True):
        if is_compacted:
            compact(archive_by_bucket.table, 1 << 20)
        if archive_by_bucket.table_format is TableFormat.DELTA:
            scan = polars.scan_delta(path)
            later = pc.field("timestamp") > pc.scalar(datetime(2020, 1, 1, tzinfo=UTC))
            rows = deltalake.DeltaTable(path).to_pyarrow_dataset().to_table(filter=later, columns=["offset"])
        else:
            table = StaticTable.from_metadata(path)
            scan = polars.scan_iceberg(table)
            rows = table.scan(row_filter="timestamp > '2020-01-01T00:00:00+00:00'").to_arrow()
        assert sorted(rows["offset"].to_pylist()) == [3, 4, 5]
        selected = scan.filter(polars.col("timestamp") > datetime(2020, 1, 1, tzinfo=UTC)).collect()
        assert sorted(selected["offset"]) == [3, 4, 5]
