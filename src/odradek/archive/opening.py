"""Which table is at a place, and making one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from odradek.archive.place import ArchivePlace
from odradek.archive.tables.port import ArchiveTable, TableFormat
from odradek.archive.values import ArchiveError
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

    from odradek.archive.tables import delta, parquet
else:
    fs = lazy("pyarrow.fs")
    delta = lazy("odradek.archive.tables.delta")
    parquet = lazy("odradek.archive.tables.parquet")

_MARKS: Final = (
    (TableFormat.DELTA, "_delta_log/00000000000000000000.json"),
    (TableFormat.DELTA, "_delta_log/_last_checkpoint"),
    (TableFormat.PARQUET, "_odradek/table.json"),
)
"""Files by which a complete table of each format is recognised."""
_EXTRAS: Final = {TableFormat.DELTA: "delta", TableFormat.PARQUET: "parquet"}
NEEDED: Final = ("topic", "partition", "offset")


def format_at(place: ArchivePlace) -> TableFormat | None:
    """The format of the table there; None where there is none. ArchiveError when the store does not answer."""
    try:
        found = place.file_system().get_file_info([place.within(mark) for _, mark in _MARKS])
    except OSError as error:
        raise ArchiveError(f"{place} cannot be looked at: {error}") from None
    for (table_format, _), info in zip(_MARKS, found, strict=True):
        if info.type != fs.FileType.NotFound:
            return table_format
    return None


def open_archive(place: ArchivePlace) -> ArchiveTable:
    """The table at a place; ArchiveError when there is none."""
    found = format_at(place)
    if found is None:
        raise ArchiveError(f"there is no archive at {place}: `odradek archive run` makes one")
    return _open(place, found)


def open_or_create(
    place: ArchivePlace,
    schema: pa.Schema,
    *,
    table_format: TableFormat | None = None,
    partition_by: Sequence[str] | None = None,
) -> ArchiveTable:
    """The table at a place; one with these columns is made where there is none.

    ConfigError when the table that is there has another format, other columns or other partitions than what is asked for.
    """
    wanted = table_format or TableFormat.DELTA
    _check_new(schema, partition_by or ())
    found = format_at(place)
    if found is None:
        table = _create(place, wanted, schema, partition_by or ())
    else:
        if table_format is not None and table_format is not found:
            raise ConfigError(f"the archive at {place} is in the format {found}, not {table_format}")
        table = _open(place, found)
    _check_same(table, schema, partition_by)
    return table


def _open(place: ArchivePlace, table_format: TableFormat) -> ArchiveTable:
    try:
        return (
            delta.DeltaArchive(place) if table_format is TableFormat.DELTA else parquet.ParquetArchive(place)
        )
    except ImportError as error:
        raise _missing(table_format, error) from None


def _create(
    place: ArchivePlace, table_format: TableFormat, schema: pa.Schema, partition_by: Sequence[str]
) -> ArchiveTable:
    try:
        if table_format is TableFormat.DELTA:
            return delta.DeltaArchive.create(place, schema, partition_by)
        return parquet.ParquetArchive.create(place, schema, partition_by)
    except ImportError as error:
        raise _missing(table_format, error) from None


def _missing(table_format: TableFormat, error: ImportError) -> ConfigError:
    return ConfigError(
        f"an archive in the format {table_format} needs `pip install 'odradek[{_EXTRAS[table_format]}]'` ({error})"
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
        raise ConfigError("an archive that is partitioned by all its columns holds nothing")


def _check_same(table: ArchiveTable, schema: pa.Schema, partition_by: Sequence[str] | None) -> None:
    there = {each.name: each.type for each in table.schema}
    asked = {each.name: each.type for each in schema}
    if there != asked:
        differing = sorted(name for name in there.keys() | asked.keys() if there.get(name) != asked.get(name))
        first = differing[0]
        raise ConfigError(
            f"the archive at {table.place} has other columns: {first} is {there.get(first, 'absent')} there, and"
            f" {asked.get(first, 'absent')} in what is to be written. Archive it to another place"
        )
    if partition_by is not None and tuple(partition_by) != table.partition_by:
        raise ConfigError(
            f"the archive at {table.place} is partitioned by {', '.join(table.partition_by) or 'nothing'}, not by"
            f" {', '.join(partition_by) or 'nothing'}"
        )
