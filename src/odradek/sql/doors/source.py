"""`USING odradek_sql`: a stream or a table of the SQL server as a table of Spark, decoded as the server's own queries do it.

A stream has all its records, as they are when a query is planned; a table has the present row of each key. What there is, is
in a file that the doors' process writes: Spark asks for a table by its columns alone, and they name the source.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.spark.engine.plain_errors import errors_in_one_line
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.source import BatchReader
from odradek.spark.tables import comment_of as options_comment
from odradek.spark.tables import stored_options
from odradek.sql.metastore.catalog import Source
from odradek.sql.queries.source_rows import SourceRows
from odradek.telemetry import events
from odradek.values.arrow_types import SPARK, arrow_type
from odradek.values.formats.row_codec import UnreadableRecord
from odradek.values.rows import Row
from odradek.values.types import SqlType

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

_log = events.get("sql")
FORMAT: Final = "odradek_sql"
CATALOG_VARIABLE: Final = "ODRADEK_SQL_DOORS"
"""Names the file, in the environment of the doors' JVM and of its Python workers."""
_RECORDS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
    ]
)
_ROWS_MAX: Final = 10_000
"""The most rows in one Arrow batch of a table."""
_MICROSECONDS: Final = 1_000
"""The microseconds in a millisecond."""
Convert = Callable[[Any], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorCatalog:
    """The sources of the doors, by name. `options`, of `format("odradek")`, contain log-ins: only its user reads the file."""

    servers: str
    options: Mapping[str, str] = field(repr=False)
    sources: Mapping[str, Source]

    def write(self, path: Path) -> None:
        """Writes all of it or nothing: planners read it at any time. Its directory is for this user only."""
        draft = path.with_suffix(".new")
        draft.write_bytes(pickle.dumps(self))
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> DoorCatalog:
        catalog = pickle.loads(path.read_bytes())
        assert isinstance(catalog, cls)
        return catalog

    def reading_options(self, source: Source) -> dict[str, str]:
        return {
            **self.options,
            "kafka.bootstrap.servers": self.servers,
            "subscribe": source.topic,
            "columns": ",".join(_RECORDS.fieldNames()),
            "startingOffsets": "earliest",
            "failOnDataLoss": "false",
        }


class OdradekSqlSource(DataSource):
    """The data source that Spark calls."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        raise ConfigError(
            f"tables of {FORMAT} are made by the doors of the SQL server, and have their columns"
        )

    @errors_in_one_line()
    def reader(self, schema: StructType) -> SourceReader:
        catalog = DoorCatalog.read(Path(os.environ[CATALOG_VARIABLE]))
        name = stored_options(schema).get("source", "")
        source = catalog.sources.get(name)
        if source is None:
            raise ConfigError(f"{name} was dropped a moment ago: ask for the tables again")
        return SourceReader(source, catalog.reading_options(source), schema)


class SourceReader(DataSourceReader):
    """A batch read: records as `format("odradek")` reads them, made into rows."""

    def __init__(self, source: Source, options: Mapping[str, str], schema: StructType) -> None:
        self._source = source
        self._schema = schema
        self._records = BatchReader(read_options(dict(options), Use.BATCH_READ), _RECORDS)

    def partitions(self) -> Sequence[InputPartition]:
        return self._records.partitions()

    @errors_in_one_line()
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = SourceRows.of(self._source)
        batch_of = _batches(rows, self._schema)
        records = self._records.read(partition)
        for part in _present(records) if self._source.is_table else map(_all, records):
            asyncio.run(rows.learn([(record.key, record.value) for record in part]))
            decoded = [row for record in part if (row := _row(rows, record)) is not None]
            yield batch_of(decoded)


@dataclass(frozen=True, slots=True)
class _Record:
    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    timestamp_ms: int


def _all(batch: pa.RecordBatch) -> list[_Record]:
    times = batch["timestamp"].cast(pa.int64()).to_pylist()
    columns = [batch[name].to_pylist() for name in ("key", "value", "partition", "offset")]
    return [
        _Record(key, value, partition, offset, time_us // _MICROSECONDS)
        for key, value, partition, offset, time_us in zip(*columns, times, strict=True)
    ]


def _present(batches: Iterator[pa.RecordBatch]) -> Iterator[list[_Record]]:
    """Yields the last record of each key, without those whose last one is a tombstone."""
    last: dict[tuple[int, bytes], _Record] = {}
    for batch in batches:
        for record in _all(batch):
            if record.key is None:
                continue
            if record.value is None:
                last.pop((record.partition, record.key), None)
            else:
                last[record.partition, record.key] = record
    records = list(last.values())
    for start in range(0, len(records), _ROWS_MAX):
        yield records[start : start + _ROWS_MAX]


def _row(rows: SourceRows, record: _Record) -> Row | None:
    coordinates = {
        "ROWTIME": record.timestamp_ms,
        "ROWPARTITION": record.partition,
        "ROWOFFSET": record.offset,
    }
    try:
        return rows.row(record.key, record.value, coordinates)
    except UnreadableRecord as error:
        _log.warning(
            "sql_record_unreadable",
            source=rows.source.name,
            partition=f"{rows.source.topic}-{record.partition}",
            offset=record.offset,
            reason=str(error),
        )
        return None


def shown_columns(source: Source) -> Mapping[str, SqlType]:
    """Returns the columns of a source's table in Spark, in a stream with the record's place. NeedsSpark, SqlError."""
    columns = SourceRows.of(source).scope(source.name, with_coordinates=not source.is_table).columns
    return {name: kind for name, kind in columns.items() if not (source.is_table and name == "ROWTIME")}


def comment_of(source: Source) -> str:
    """Returns the comment of a table's first column, which names the table's source."""
    return options_comment({"source": source.name})


def _batches(rows: SourceRows, schema: StructType) -> Callable[[list[Row]], pa.RecordBatch]:
    columns = shown_columns(rows.source)
    converted = [(name, to_arrow(columns[name])) for name in schema.fieldNames()]
    arrow = pa.schema([(name, arrow_type(columns[name], SPARK)) for name in schema.fieldNames()])

    def batch_of(decoded: list[Row]) -> pa.RecordBatch:
        arrays = [
            pa.array([row[name] if convert is None else convert(row[name]) for row in decoded], field.type)
            for (name, convert), field in zip(converted, arrow, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow)

    return batch_of


def to_arrow(kind: SqlType) -> Convert | None:
    """Returns a function from a value of `row_codec` to one that Arrow takes for the type; None: no conversion is needed."""
    match kind.kind:
        case "TIMESTAMP":
            return lambda value: None if value is None else value * _MICROSECONDS
        case "ARRAY":
            element = to_arrow(kind.element)
            if element is None:
                return None
            return lambda value: None if value is None else [element(member) for member in value]
        case "MAP":
            member = to_arrow(kind.element) or _same
            return lambda value: (
                None if value is None else [(key, member(content)) for key, content in value.items()]
            )
        case "STRUCT":
            fields = [(name, to_arrow(field) or _same) for name, field in kind.fields]
            return lambda value: (
                None if value is None else {name: convert(value.get(name)) for name, convert in fields}
            )
    return None


def _same(value: object) -> object:
    return value
