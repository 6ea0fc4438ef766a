"""Finds the table at a location, and makes one."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.archive.store.location import ArchiveLocation
from odradek.archive.store.values import ArchiveError
from odradek.archive.tables.port import ArchiveTable, TableFormat
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

    from odradek.archive.tables import delta, iceberg, parquet
else:
    fs = lazy("pyarrow.fs")
    delta = lazy("odradek.archive.tables.delta")
    iceberg = lazy("odradek.archive.tables.iceberg")
    parquet = lazy("odradek.archive.tables.parquet")

_MARKS: Final = (
    (TableFormat.DELTA, "_delta_log/00000000000000000000.json"),
    (TableFormat.DELTA, "_delta_log/_last_checkpoint"),
    (TableFormat.ICEBERG, "metadata/v1.metadata.json"),
    (TableFormat.ICEBERG, "metadata/version-hint.text"),
    (TableFormat.PARQUET, "_odradek/table.json"),
)
"""Files by which a complete table of each format is recognised."""
_DIRECTORIES: Final = frozenset(mark.partition("/")[0] for _, mark in _MARKS)
_PACKAGES: Final = {
    TableFormat.DELTA: "deltalake",
    TableFormat.ICEBERG: "pyiceberg",
    TableFormat.PARQUET: "pyarrow",
}
NEEDED: Final = ("topic", "partition", "offset")


def format_at(location: ArchiveLocation) -> TableFormat | None:
    """Returns the format of the table there; None where there is none. ArchiveError when the store does not answer."""
    try:
        infos = location.file_system().get_file_info([location.within(mark) for _, mark in _MARKS])
    except OSError as error:
        raise ArchiveError(f"{location} cannot be looked at: {error}") from None
    for (table_format, _), info in zip(_MARKS, infos, strict=True):
        if info.type != fs.FileType.NotFound:
            return table_format
    return None


def find_archive(location: ArchiveLocation, catalog: str | None = None) -> ArchiveTable | None:
    """Returns the table at a location, or the one that the user's Iceberg catalog has there, if there is one."""
    table_format = _format_of(location, catalog)
    if table_format is None:
        return None
    with _explaining_missing(table_format):
        return _opened(location, table_format, catalog)


def open_archive(location: ArchiveLocation, catalog: str | None = None) -> ArchiveTable:
    """Returns the table of `find_archive`; ArchiveError when there is none."""
    table = find_archive(location, catalog)
    if table is None:
        raise ArchiveError(f"there is no archive at {location}: `odradek archive run` makes one")
    return table


def open_or_create(
    location: ArchiveLocation,
    schema: pa.Schema,
    *,
    table_format: TableFormat | None = None,
    partition_by: Sequence[str] | None = None,
    catalog: str | None = None,
) -> ArchiveTable:
    """Returns the table at a location; one with these columns is made where there is none.

    ConfigError when the table that is there has another format, other columns or other partitions than what is asked for.
    """
    if catalog is not None and table_format not in (None, TableFormat.ICEBERG):
        raise ConfigError(f"a catalog is of use with the format iceberg, not {table_format}")
    wanted = table_format or (TableFormat.DELTA if catalog is None else TableFormat.ICEBERG)
    _check_new(schema, partition_by or ())
    actual = _format_of(location, catalog)
    if actual is not None and table_format is not None and table_format is not actual:
        raise ConfigError(f"the archive at {location} is in the format {actual}, not {table_format}")
    with _explaining_missing(actual or wanted):
        by = partition_by or ()
        table = (
            _opened(location, actual, catalog) if actual else _create(location, wanted, schema, by, catalog)
        )
        _check_same(table, schema, partition_by)
    return table


def check_location(
    location: ArchiveLocation, *, table_format: TableFormat | None = None, catalog: str | None = None
) -> None:
    """Raises ConfigError or ArchiveError when an archive could not be made or continued at a location."""
    actual = _format_of(location, catalog)
    if actual is not None and table_format is not None and table_format is not actual:
        raise ConfigError(f"the archive at {location} is in the format {actual}, not {table_format}")
    wanted = actual or table_format or (TableFormat.DELTA if catalog is None else TableFormat.ICEBERG)
    if importlib.util.find_spec(_PACKAGES[wanted]) is None:
        raise _missing(wanted, f"there is no package {_PACKAGES[wanted]}")
    if actual is None:
        _check_unused(location)


def _check_unused(location: ArchiveLocation) -> None:
    """Checks that a location is unused. The rest of a table that was being made at a crash does not count."""
    selector = fs.FileSelector(location.path, recursive=False, allow_not_found=True)
    try:
        strange = [
            info.base_name
            for info in location.file_system().get_file_info(selector)
            if info.base_name not in _DIRECTORIES
        ]
    except NotADirectoryError:
        raise ConfigError(f"{location} is a file: an archive is a directory") from None
    except OSError as error:
        raise ArchiveError(f"{location} cannot be looked at: {error}") from None
    if strange:
        raise ConfigError(
            f"{location} is no archive, and holds something else ({min(strange)}): choose an empty directory, or one that"
            " does not exist"
        )
    if not location.is_s3:
        around = next(
            (path for path in Path(location.path).parents if format_at(replace(location, path=str(path)))),
            None,
        )
        if around is not None:
            raise ConfigError(f"{location} is within the archive at {around}: choose another directory")
        above = next(path for path in (Path(location.path), *Path(location.path).parents) if path.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise ConfigError(
                f"{location} cannot be made: {above} is no directory that this process may write to"
            )


def _format_of(location: ArchiveLocation, catalog: str | None) -> TableFormat | None:
    if catalog is None:
        return format_at(location)
    with _explaining_missing(TableFormat.ICEBERG):
        return TableFormat.ICEBERG if iceberg.IcebergArchive.is_at(location, catalog) else None


def _opened(location: ArchiveLocation, table_format: TableFormat, catalog: str | None) -> ArchiveTable:
    if table_format is TableFormat.DELTA:
        return delta.DeltaArchive(location)
    if table_format is TableFormat.ICEBERG:
        return iceberg.IcebergArchive(location, catalog)
    return parquet.ParquetArchive(location)


def _create(
    location: ArchiveLocation,
    table_format: TableFormat,
    schema: pa.Schema,
    partition_by: Sequence[str],
    catalog: str | None,
) -> ArchiveTable:
    if table_format is TableFormat.DELTA:
        return delta.DeltaArchive.create(location, schema, partition_by)
    if table_format is TableFormat.ICEBERG:
        return iceberg.IcebergArchive.create(location, schema, partition_by, catalog)
    return parquet.ParquetArchive.create(location, schema, partition_by)


@contextmanager
def _explaining_missing(table_format: TableFormat) -> Iterator[None]:
    """Libraries of table formats are extras."""
    try:
        yield
    except ImportError as error:
        raise _missing(table_format, str(error)) from None


def _missing(table_format: TableFormat, reason: str) -> ConfigError:
    return ConfigError(
        f"an archive in the format {table_format} needs `pip install 'odradek[{table_format}]'` ({reason})"
    )


def _check_new(schema: pa.Schema, partition_by: Sequence[str]) -> None:
    missing = [name for name in NEEDED if name not in schema.names]
    if missing:
        raise ConfigError(
            f"an archive needs the columns topic, partition and offset of the source; {', '.join(missing)} is missing"
        )
    unknown = [name for name in partition_by if name not in schema.names]
    if unknown:
        raise ConfigError(
            f"partitionBy names {unknown[0]}, which is no column; there are {', '.join(schema.names)}"
        )
    for name in partition_by:
        kind = str(schema.field(name).type)
        if kind not in ("string", "date32[day]", "int32", "int64", "int16", "int8", "bool"):
            raise ConfigError(f"column {name} is {kind}: partition by a string, date, integer or boolean")
    if set(schema.names) <= set(partition_by):
        raise ConfigError(
            "partitionBy names all columns of the archive: leave at least one out, for the files to hold"
        )


def _check_same(table: ArchiveTable, schema: pa.Schema, partition_by: Sequence[str] | None) -> None:
    there = {column.name: column.type for column in table.schema}
    asked = {column.name: column.type for column in schema}
    if there != asked:
        differing = sorted(name for name in there.keys() | asked.keys() if there.get(name) != asked.get(name))
        first = differing[0]
        raise ConfigError(
            f"the archive at {table.location} has other columns: {first} is {there.get(first, 'absent')} there, and"
            f" {asked.get(first, 'absent')} in the rows to write. Archive them to another location"
        )
    if partition_by is not None and tuple(partition_by) != table.partition_by:
        raise ConfigError(
            f"the archive at {table.location} is partitioned by {', '.join(table.partition_by) or 'nothing'}, not by"
            f" {', '.join(partition_by) or 'nothing'}"
        )
