"""Every option of `format("odradek-archive")`, checked. Spark hands the names over in lower case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from odradek.archive.store.location import ArchiveLocation, archive_location
from odradek.archive.tables.port import TableFormat
from odradek.config.options import (
    BOOLEAN,
    BYTES,
    TEXT,
    GivenOptions,
    Option,
    OptionTable,
    OptionType,
    choice,
)
from odradek.model.errors import ConfigError

DEFAULT_FILE_BYTES: Final = 128 << 20
DEFAULT_SINK: Final = "archive"
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


class ArchiveUse(Flag):
    """The operations to which an option can be given."""

    READ = auto()
    WRITE = auto()
    BOTH = READ | WRITE


def _option(
    name: str,
    use: ArchiveUse,
    meaning: str,
    type: OptionType = TEXT,  # noqa: A002 - the field's name
    default: object = None,
) -> Option:
    return Option(name=name, use=use, meaning=meaning, type=type, default=default)


_ROWS: Final = (
    _option("path", ArchiveUse.BOTH, "the archive: a directory, or s3://bucket/prefix"),
    _option("endpoint", ArchiveUse.BOTH, "URL of an S3-compatible store (AWS_ENDPOINT_URL)"),
    _option("region", ArchiveUse.BOTH, "its region (AWS_REGION)"),
    _option("catalog", ArchiveUse.BOTH, "Iceberg: NAME:NAMESPACE.TABLE of a catalog that pyiceberg knows"),
    _option(
        "tableFormat", ArchiveUse.WRITE, "delta, iceberg or parquet, for a new archive", choice(TableFormat)
    ),
    _option(
        "partitionBy", ArchiveUse.WRITE, "columns by which a new archive is partitioned, separated by commas"
    ),
    _option("sinkId", ArchiveUse.WRITE, "names this sink in commits"),
    _option(
        "fileBytes",
        ArchiveUse.WRITE,
        "a file that is so large is closed, and another one begun",
        BYTES,
        DEFAULT_FILE_BYTES,
    ),
    _option(
        "leaveGaps",
        ArchiveUse.WRITE,
        "go on behind records that the topic lost before they were archived",
        BOOLEAN,
        False,
    ),
    _option("columns", ArchiveUse.READ, "columns to read, separated by commas"),
    _option("checkpointLocation", ArchiveUse.BOTH, "Spark's own"),
    _option("queryName", ArchiveUse.BOTH, "Spark's own"),
)
ARCHIVE_OPTIONS: Final = OptionTable(_ROWS, {ArchiveUse.READ: "reads", ArchiveUse.WRITE: "writes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReadOptions:
    location: ArchiveLocation
    catalog: str | None
    columns: tuple[str, ...] | None
    """The columns; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveWriteOptions:
    location: ArchiveLocation
    catalog: str | None
    table_format: TableFormat | None
    """The format; None: that of the existing archive, else Delta."""
    partition_by: tuple[str, ...] | None
    """The columns to partition by; None: those of the existing archive."""
    sink_id: str
    file_bytes: int
    leaving_gaps: bool
    checkpoint: str | None


def archive_read_options(options: Mapping[str, str]) -> ArchiveReadOptions:
    """Checks the options of a read; ConfigError says which one is wrong and what would be right."""
    parsed = _parsed(options, ArchiveUse.READ)
    columns = parsed.text("columns")
    return ArchiveReadOptions(
        location=_location(parsed),
        catalog=parsed.text("catalog"),
        columns=None if columns is None else names_in(columns, "columns"),
    )


def archive_write_options(options: Mapping[str, str]) -> ArchiveWriteOptions:
    """Checks the options of a write; ConfigError says which one is wrong and what would be right."""
    parsed = _parsed(options, ArchiveUse.WRITE)
    sink_id = parsed.text("sinkId") or parsed.text("queryName") or DEFAULT_SINK
    if not _SINK_ID.fullmatch(sink_id):
        raise ConfigError(
            f"option sinkId takes 1 to 100 letters, digits, dots, dashes and underscores, not {sink_id!r:.80}"
        )
    partition_by = parsed.text("partitionBy")
    return ArchiveWriteOptions(
        location=_location(parsed),
        catalog=parsed.text("catalog"),
        table_format=parsed.choice_or_none("tableFormat", TableFormat),
        partition_by=None if partition_by is None else names_in(partition_by, "partitionBy"),
        sink_id=sink_id,
        file_bytes=parsed.number("fileBytes"),
        leaving_gaps=parsed.flag("leaveGaps"),
        checkpoint=parsed.text("checkpointLocation"),
    )


def _parsed(options: Mapping[str, str], use: ArchiveUse) -> GivenOptions:
    values = {name.lower(): ARCHIVE_OPTIONS.parse(name, text, use) for name, text in options.items()}
    return GivenOptions(table=ARCHIVE_OPTIONS, values=values)


def _location(parsed: GivenOptions) -> ArchiveLocation:
    path = parsed.text("path")
    if path is None:
        raise ConfigError(
            'the path of the archive is missing: .option("path", "s3://bucket/orders"), or .load(PATH)'
        )
    return archive_location(path, endpoint=parsed.text("endpoint"), region=parsed.text("region"))


def names_in(text: str, what: str) -> tuple[str, ...]:
    """Returns the names that are separated by commas, each once."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"option {what} names {sorted(twice)[0]} twice")
    return names
