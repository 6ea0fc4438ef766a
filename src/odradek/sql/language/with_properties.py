"""The properties of WITH: which statements have them, what they take, and what is wrong with a value."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Flag, StrEnum, auto
from functools import partial
from typing import Any, Final, Protocol

from odradek.archive.options import DEFAULT_FILE_BYTES
from odradek.archive.tables.port import TableFormat
from odradek.config.definition import Setting, SettingType, at_least
from odradek.config.options import GivenOptions, OptionTable
from odradek.model.errors import ConfigError
from odradek.pipelines.upgrade import UpgradeMode
from odradek.sql.language.statements import Properties
from odradek.values.errors import Position, SqlError, nearest


class With(Flag):
    """The statements whose WITH describes a topic, or how a query is replaced."""

    SOURCE = auto()
    SINK = auto()
    UPGRADE = auto()
    TOPIC = SOURCE | SINK


class ArchiveWith(Flag):
    """The statement whose WITH describes an archive."""

    ARCHIVE = auto()


class Nullable(StrEnum):
    """How PROTOBUF writes null in a simple column."""

    OPTIONAL = "OPTIONAL"
    WRAPPER = "WRAPPER"


class ArchivedValue(StrEnum):
    """What an archive keeps of keys and values: the columns of the source, the bytes, or text."""

    COLUMNS = "COLUMNS"
    RAW = "RAW"
    STRING = "STRING"


class HasProperties(Protocol):
    """A statement with WITH."""

    @property
    def properties(self) -> Properties: ...
    @property
    def position(self) -> Position: ...


_topic: Final = partial(Setting, type=SettingType.TEXT, default=None, use=With.TOPIC)
_source: Final = partial(Setting, type=SettingType.TEXT, default=None, use=With.SOURCE)
_archive: Final = partial(Setting, type=SettingType.TEXT, default=None)
_NULLABLE: Final = "how PROTOBUF writes null in a simple column: `OPTIONAL` or `WRAPPER`"

WITH: Final = OptionTable(
    (
        _topic(
            key="KAFKA_TOPIC",
            use=With.TOPIC | With.UPGRADE,
            default_words="`AS SELECT`: the name",
            meaning="the topic; with `MODE='rebuild'`, the one that is written next",
        ),
        _topic(key="FORMAT", meaning="the format of keys and values"),
        _topic(key="KEY_FORMAT", default_words="`KAFKA`, or the source's", meaning="the format of keys"),
        _topic(key="VALUE_FORMAT", default_words="the source's", meaning="the format of values"),
        _topic(
            key="PARTITIONS",
            type=SettingType.INT,
            valid=at_least(1),
            default_words="the broker's, or the source's",
            meaning="the topic's partitions, if it is made",
        ),
        _topic(
            key="REPLICAS",
            type=SettingType.SHORT,
            valid=at_least(1),
            default_words="the broker's, or the source's",
            meaning="the topic's replicas, if it is made",
        ),
        _topic(key="TIMESTAMP", default_words="the record's", meaning="the column with the record's time"),
        _topic(
            key="TIMESTAMP_FORMAT",
            meaning="the pattern of java.time in which a STRING column has it",
        ),
        _topic(
            key="WRAP_SINGLE_VALUE",
            type=SettingType.BOOLEAN,
            default_words="`true`",
            meaning="whether a single value column is in a record, or bare",
        ),
        _topic(
            key="VALUE_DELIMITER",
            default_words="`,`",
            meaning="what is between columns in DELIMITED: a character, `SPACE` or `TAB`",
        ),
        _topic(key="KEY_DELIMITER", default_words="`,`", meaning="the same for keys"),
        _topic(
            key="RETENTION_MS",
            type=SettingType.LONG,
            valid=at_least(1),
            meaning="the topic's `retention.ms`, if it is made; how long windows of a table are held",
        ),
        _topic(
            key="CLEANUP_POLICY",
            meaning="the topic's `cleanup.policy`, if it is made: `delete`, `compact` or `compact,delete`",
        ),
        _topic(
            key="KEY_SCHEMA_ID",
            type=SettingType.INT,
            valid=at_least(0),
            meaning="the id of the key's schema in the registry",
        ),
        _topic(
            key="VALUE_SCHEMA_ID",
            type=SettingType.INT,
            valid=at_least(0),
            meaning="the id of the value's schema in the registry",
        ),
        _topic(key="KEY_SCHEMA_FULL_NAME", meaning="the name of the key's record or message"),
        _topic(key="VALUE_SCHEMA_FULL_NAME", meaning="the name of the value's record or message"),
        _topic(
            key="KEY_PROTOBUF_NULLABLE_REPRESENTATION",
            type=SettingType.STRING,
            choices=Nullable,
            meaning=_NULLABLE,
        ),
        _topic(
            key="VALUE_PROTOBUF_NULLABLE_REPRESENTATION",
            type=SettingType.STRING,
            choices=Nullable,
            meaning=_NULLABLE,
        ),
        _topic(
            key="BAD",
            meaning="the topic of dead letters, for records that cannot be read"
            " ([processing log](sql.md#records-that-cannot-be-read))",
        ),
        _source(key="WINDOW_TYPE", meaning="of a windowed key: `SESSION`, `TUMBLING` or `HOPPING`"),
        _source(key="WINDOW_SIZE", meaning="the length of its windows, such as `10 SECONDS`"),
        _source(key="SOURCED_BY_CONNECTOR", meaning="accepted, does nothing"),
        Setting(
            key="MODE",
            type=SettingType.STRING,
            default=None,
            use=With.UPGRADE,
            choices=UpgradeMode,
            default_words="the first possible of `keep` and `carry`",
            meaning="`ALTER … AS SELECT`: how the next query gets state and position: `keep`, `carry` or `rebuild`",
        ),
    ),
    {With.SOURCE: "CREATE", With.SINK: "CREATE … AS SELECT", With.UPGRADE: "ALTER … AS SELECT"},
    noun="property",
)
ARCHIVE_WITH: Final = OptionTable(
    (
        _archive(
            key="PATH",
            meaning="an absolute path on the server's machine, or `s3://bucket/prefix`; the keys of a store are in the"
            " server's environment",
        ),
        _archive(
            key="FORMAT",
            type=SettingType.STRING,
            choices=TableFormat,
            default_words="`delta`",
            meaning="`delta`, `iceberg` or `parquet`",
        ),
        _archive(
            key="VALUE",
            type=SettingType.STRING,
            choices=ArchivedValue,
            default=ArchivedValue.COLUMNS,
            meaning="`COLUMNS`: `key` and `value` are structs with the columns of the source, and bytes that cannot be read"
            " are in `undecoded` and `undecoded_key`. `RAW`: the bytes, as"
            " [read-through](archive.md#topic-and-archive-as-one-table) needs them. `STRING`: text",
        ),
        _archive(
            key="PARTITION_BY",
            meaning="columns of the archive, or `NAME=SQL` over them in Spark's words, separated by semicolons:"
            " `'day=date(timestamp); who=key.CUSTOMER'`",
        ),
        _archive(
            key="EVERY",
            default_words="`10 MINUTES`",
            meaning="so long records wait for others, at most: `'10 MINUTES'`",
        ),
        _archive(
            key="FILE_BYTES",
            type=SettingType.SIZE,
            default=DEFAULT_FILE_BYTES,
            meaning="so large files are to become: `'128MiB'`",
        ),
        _archive(key="ENDPOINT", meaning="the URL of an S3-compatible store"),
        _archive(key="REGION", meaning="the region of the store"),
        _archive(key="CATALOG", meaning="Iceberg: `NAME:NAMESPACE.TABLE` of a catalog that pyiceberg knows"),
        _archive(
            key="SKIP_LOST",
            type=SettingType.BOOLEAN,
            default=False,
            meaning="`TRUE` continues after records that the topic lost before they were archived",
        ),
    ),
    {ArchiveWith.ARCHIVE: "CREATE ARCHIVE"},
    noun="property",
)


def checked_with(
    statement: HasProperties,
    table: OptionTable,
    use: Flag,
    *,
    hint: str | None = None,
    known_elsewhere: Iterable[str] = (),
) -> GivenOptions:
    """Returns the properties of WITH. Raises SqlError for a property that the statement does not have, and for a wrong value.

    `hint`: what to write in place of an unknown property. `known_elsewhere`: names that a misspelt one may mean, too.
    """
    known = {option.key: option for option in table.of(use)}
    values: dict[str, Any] = {}
    for name, written in statement.properties:
        option = known.get(name)
        if option is None:
            raise SqlError(
                f"Invalid config variable(s) in the WITH clause: {name}",
                statement.position,
                hint or nearest(name, (*known, *known_elsewhere)) or f"There are {', '.join(known)}.",
            )
        values[name.lower()] = property_value(table, name, written, statement.position)
    return GivenOptions(table=table, values=values)


def property_value(table: OptionTable, name: str, written: object, position: Position) -> Any:
    """Returns the value of a property. Raises SqlError for one that it cannot have."""
    option = table.get(name)
    assert option is not None, name
    try:
        return option.parse(str(written), name)
    except ConfigError as error:
        near = nearest(str(written), option.choices) if option.choices else None
        raise SqlError(str(error), position, near) from None
