"""Every option of `format("odradek-archive")`, checked. Spark hands the names over in lower case."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from odradek.archive.location import ArchiveLocation, archive_location
from odradek.archive.tables.port import TableFormat
from odradek.model.errors import ConfigError

DEFAULT_FILE_BYTES: Final = 128 << 20
DEFAULT_SINK: Final = "archive"
_BYTE_UNITS: Final = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "k": 1 << 10,
    "mib": 1 << 20,
    "m": 1 << 20,
    "gib": 1 << 30,
    "g": 1 << 30,
}
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})


class ArchiveUse(Flag):
    """The operations to which an option can be given."""

    READ = auto()
    WRITE = auto()
    BOTH = READ | WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOption:
    """One option; `docs/archive.md` has the same."""

    name: str
    use: ArchiveUse
    meaning: str


def _option(name: str, use: ArchiveUse, meaning: str) -> ArchiveOption:
    return ArchiveOption(name=name, use=use, meaning=meaning)


ARCHIVE_OPTIONS: Final = (
    _option("path", ArchiveUse.BOTH, "the archive: a directory, or s3://bucket/prefix"),
    _option("endpoint", ArchiveUse.BOTH, "URL of an S3-compatible store (AWS_ENDPOINT_URL)"),
    _option("region", ArchiveUse.BOTH, "its region (AWS_REGION)"),
    _option("catalog", ArchiveUse.BOTH, "Iceberg: NAME:NAMESPACE.TABLE of a catalog that pyiceberg knows"),
    _option("tableFormat", ArchiveUse.WRITE, "delta, iceberg or parquet, for a new archive"),
    _option(
        "partitionBy", ArchiveUse.WRITE, "columns by which a new archive is partitioned, separated by commas"
    ),
    _option("sinkId", ArchiveUse.WRITE, "names this sink in commits"),
    _option("fileBytes", ArchiveUse.WRITE, "a file that is so large is closed, and another one begun"),
    _option(
        "leaveGaps", ArchiveUse.WRITE, "go on behind records that the topic lost before they were archived"
    ),
    _option("columns", ArchiveUse.READ, "columns to read, separated by commas"),
)
_BY_KEY: Final = {option.name.lower(): option for option in ARCHIVE_OPTIONS}


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
    given = _given(options, ArchiveUse.READ)
    columns = given.get("columns")
    return ArchiveReadOptions(
        location=_location(given),
        catalog=given.get("catalog"),
        columns=None if columns is None else names_in(columns, "columns"),
    )


def archive_write_options(options: Mapping[str, str]) -> ArchiveWriteOptions:
    """Checks the options of a write; ConfigError says which one is wrong and what would be right."""
    given = _given(options, ArchiveUse.WRITE)
    sink_id = given.get("sinkid") or given.get("queryname") or DEFAULT_SINK
    if not _SINK_ID.fullmatch(sink_id):
        raise ConfigError(
            f"option sinkId takes 1 to 100 letters, digits, dots, dashes and underscores, not {sink_id!r:.80}"
        )
    partition_by = given.get("partitionby")
    return ArchiveWriteOptions(
        location=_location(given),
        catalog=given.get("catalog"),
        table_format=_table_format(given.get("tableformat")),
        partition_by=None if partition_by is None else names_in(partition_by, "partitionBy"),
        sink_id=sink_id,
        file_bytes=byte_count(given.get("filebytes", str(DEFAULT_FILE_BYTES)), "option fileBytes"),
        leaving_gaps=_boolean(given, "leaveGaps"),
        checkpoint=given.get("checkpointlocation"),
    )


def _boolean(given: Mapping[str, str], name: str) -> bool:
    word = given.get(name.lower(), "false").strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"option {name} is true or false, not {word!r}")
    return word == "true"


def _given(options: Mapping[str, str], use: ArchiveUse) -> dict[str, str]:
    given = {key.lower(): value for key, value in options.items()}
    for key in given:
        option = _BY_KEY.get(key)
        if option is None and key not in _SPARKS_OWN:
            raise ConfigError(_unknown(key))
        if option is not None and not option.use & use:
            raise ConfigError(
                f"option {option.name} does not apply to {'reads' if use is ArchiveUse.READ else 'writes'}"
            )
    return given


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, _BY_KEY, n=1, cutoff=0.6)
    known = ", ".join(option.name for option in ARCHIVE_OPTIONS)
    return f"unknown option {key!r}" + (
        f"; did you mean {_BY_KEY[near[0]].name}?" if near else f"; known are {known}"
    )


def _location(given: Mapping[str, str]) -> ArchiveLocation:
    path = given.get("path")
    if path is None:
        raise ConfigError(
            'the path of the archive is missing: .option("path", "s3://bucket/orders"), or .load(PATH)'
        )
    return archive_location(path, endpoint=given.get("endpoint"), region=given.get("region"))


def _table_format(text: str | None) -> TableFormat | None:
    if text is None:
        return None
    try:
        return TableFormat(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option tableFormat is one of {', '.join(TableFormat)}, not {text!r}") from None


def names_in(text: str, what: str) -> tuple[str, ...]:
    """Names that are separated by commas, each once."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"option {what} names {sorted(twice)[0]} twice")
    return names


def byte_count(text: str, what: str) -> int:
    """Parses a size such as `128MiB`, `1g`, `4096`."""
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*([a-z]*)\s*", text.lower(), re.ASCII)
    unit = _BYTE_UNITS.get(match.group(2)) if match else None
    if match is None or unit is None or int(match.group(1)) == 0:
        raise ConfigError(f"{what} is a number of bytes such as 128MiB, not {text!r:.80}")
    return int(match.group(1)) * unit
