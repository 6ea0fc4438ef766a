"""The options of `format("odradek-archive")`: names, where they apply, what they mean, and what is wrong with a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from typing import Final

from odradek.archive.store.location import ArchiveLocation, archive_location
from odradek.archive.tables.port import TableFormat
from odradek.config.definition import Setting, SettingType
from odradek.config.options import GivenOptions, OptionTable
from odradek.model.errors import ConfigError

DEFAULT_FILE_BYTES: Final = 128 << 20
DEFAULT_SINK: Final = "archive"
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


class ArchiveUse(Flag):
    """The operations to which an option can be given."""

    READ = auto()
    WRITE = auto()


_option: Final = partial(Setting, type=SettingType.TEXT, default=None)
_ROWS: Final = (
    _option(
        key="path",
        meaning="where the archive is: a directory, or `s3://bucket/prefix`; the argument of `start` and `load`",
    ),
    _option(key="catalog", meaning="Iceberg: `NAME:NAMESPACE.TABLE` of a catalog that pyiceberg knows"),
    _option(key="endpoint", meaning="the URL of an S3-compatible store (`AWS_ENDPOINT_URL`)"),
    _option(key="region", meaning="the region of the store (`AWS_REGION`)"),
    _option(
        key="tableFormat",
        use=ArchiveUse.WRITE,
        type=SettingType.STRING,
        choices=TableFormat,
        default_words="`delta`",
        meaning="`delta`, `iceberg` or `parquet`, for a new archive",
    ),
    _option(
        key="partitionBy",
        use=ArchiveUse.WRITE,
        meaning="columns by which a new archive is partitioned, separated by commas",
    ),
    _option(
        key="sinkId",
        use=ArchiveUse.WRITE,
        default_words=f"the query's name, else `{DEFAULT_SINK}`",
        meaning="names this sink in commits",
    ),
    _option(
        key="fileBytes",
        use=ArchiveUse.WRITE,
        type=SettingType.SIZE,
        default=DEFAULT_FILE_BYTES,
        meaning="a file that is so large is closed, and another one begun",
    ),
    _option(
        key="leaveGaps",
        use=ArchiveUse.WRITE,
        type=SettingType.BOOLEAN,
        default=False,
        meaning="`true` continues after records that the topic lost before they were archived",
    ),
    _option(
        key="columns",
        use=ArchiveUse.READ,
        default_words="all",
        meaning="columns to read, separated by commas",
    ),
    _option(key="checkpointLocation", meaning="Spark's own"),
    _option(key="queryName", meaning="Spark's own; without a `sinkId`, the query's name is the sink's"),
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
    """The format; None: the existing archive's format, else Delta."""
    partition_by: tuple[str, ...] | None
    """The columns to partition by; None: the existing archive's columns."""
    sink_id: str
    file_bytes: int
    leaving_gaps: bool
    checkpoint: str | None


def archive_read_options(options: Mapping[str, str]) -> ArchiveReadOptions:
    """Checks the options of a read; ConfigError names the wrong one and what would be right."""
    parsed = ARCHIVE_OPTIONS.given(options, ArchiveUse.READ)
    columns = parsed.text("columns")
    return ArchiveReadOptions(
        location=_location(parsed),
        catalog=parsed.text("catalog"),
        columns=None if columns is None else names_in(columns, "columns"),
    )


def archive_write_options(options: Mapping[str, str]) -> ArchiveWriteOptions:
    """Checks the options of a write; ConfigError names the wrong one and what would be right."""
    parsed = ARCHIVE_OPTIONS.given(options, ArchiveUse.WRITE)
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
