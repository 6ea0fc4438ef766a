"""The catalog (ksqlDB's metastore): streams, tables, types, queries.

It is a value: a statement makes the next one (`applying.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, Never, TypeVar

from odradek.archive.row_columns import RowColumns
from odradek.archive.store.location import ArchiveLocation
from odradek.archive.tables.port import TableFormat
from odradek.model.aliases import Json
from odradek.sql.functions import FUNCTIONS, FunctionLibrary
from odradek.sql.functions.library import Definition
from odradek.sql.functions.registering import PythonFunction
from odradek.sql.language.statements import CreateFunction, SourceKind
from odradek.values.errors import SqlError, nearest
from odradek.values.formats.format_info import FormatInfo, WindowInfo
from odradek.values.schema_registry import SchemaRegistryTerms
from odradek.values.types import SqlType, struct_of_fields

V = TypeVar("V")

WINDOW_BOUNDS: Final = ("WINDOWSTART", "WINDOWEND")
PSEUDO_COLUMNS: Final = ("ROWTIME", "ROWPARTITION", "ROWOFFSET", *WINDOW_BOUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlColumn:
    """A column of a stream or table.

    `header`: of a HEADER('name') column.
    """

    name: str
    type: SqlType
    role: Literal["key", "value", "headers"] = "value"
    header: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampColumn:
    """The column whose value is a record's time. `format`: a pattern of Java's DateTimeFormatter for text."""

    name: str
    format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSource:
    """A stream or a table on a topic. `text`: the statement that made it; `query_id`: of the query that made it."""

    name: str
    kind: SourceKind
    columns: tuple[SqlColumn, ...]
    topic: str
    key_format: FormatInfo
    value_format: FormatInfo
    timestamp: TimestampColumn | None = None
    window: WindowInfo | None = None
    partitions: int | None = None
    replicas: int | None = None
    topic_settings: tuple[tuple[str, str], ...] = ()
    """The settings of the topic when it is made, by Kafka's names."""
    read_only: bool = False
    text: str = ""
    query_id: str | None = None
    carried_at: int | None = None
    """The number of the command since which its query has its current checkpoint; None: since it was created."""
    bad: str | None = None
    """The topic of dead letters."""
    inherited_key_format: FormatInfo | None = None
    """The format of keys that queries make from a source without a key, from FORMAT."""

    @property
    def is_table(self) -> bool:
        return self.kind == "table"

    @property
    def key(self) -> tuple[SqlColumn, ...]:
        return tuple(column for column in self.columns if column.role == "key")

    @property
    def value(self) -> tuple[SqlColumn, ...]:
        return tuple(column for column in self.columns if column.role == "value")

    def column(self, name: str) -> SqlColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    def schema_json(self) -> list[dict[str, Json]]:
        """Describes the columns as ksqlDB's REST API does."""
        described = []
        for column in self.columns:
            shown: dict[str, Json] = {"name": column.name, "schema": column.type.schema_json()}
            if column.role == "key":
                shown["type"] = "KEY"
            elif column.role == "headers":
                shown |= {"type": "HEADER", "headerKey": column.header}
            described.append(shown)
        return described


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentQuery:
    """A persistent query.

    `sources`: the names that it reads; `sink`: what it writes: a stream, a table, or with `fills_archive` an archive."""

    id: str
    sink: str
    sources: tuple[str, ...]
    text: str
    creates_sink: bool
    fills_archive: bool = False
    state: Literal["running", "paused"] = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlArchive:
    """A table in files or object storage that follows the topic of `source`. `text`: the statement that made it."""

    name: str
    source: SqlSource
    """The source as it was when the archive was made: rows keep their columns."""
    location: ArchiveLocation
    query_id: str
    text: str
    table_format: TableFormat | None = None
    """The format; None: the format of the table in the directory, else Delta."""
    catalog: str | None = None
    """The Iceberg catalog, in the form of `odradek archive run --catalog`."""
    with_columns: bool = True
    """Keys and values are structs with the columns of the source; else `columns` defines how the bytes are stored."""
    columns: RowColumns = field(default_factory=RowColumns)
    every_ms: int
    file_bytes: int
    skips_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedFunction:
    """A function of a user. `parameters`, `returns`: the types of its statement when it was made, by CREATE TYPE, too.
    `registered`: what a Spark session needs for it.
    """

    statement: CreateFunction
    parameters: tuple[tuple[str, SqlType], ...]
    returns: SqlType
    definition: Definition
    registered: tuple[PythonFunction, ...]


def _nothing() -> Mapping[str, Never]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCatalog:
    """The catalog: sources, types, functions and queries.

    `functions`: SQL's own, and functions of users. `allows_python`: users may make some.
    """

    sources: Mapping[str, SqlSource] = field(default_factory=_nothing)
    types: Mapping[str, SqlType] = field(default_factory=_nothing)
    queries: Mapping[str, PersistentQuery] = field(default_factory=_nothing)
    archives: Mapping[str, SqlArchive] = field(default_factory=_nothing)
    candidates: Mapping[str, SqlSource] = field(default_factory=_nothing)
    """The future versions of streams and tables that are being rebuilt, by name."""
    created_functions: Mapping[str, CreatedFunction] = field(default_factory=_nothing)
    functions: FunctionLibrary = FUNCTIONS
    allows_python: bool = False
    registry: SchemaRegistryTerms | None = None
    """The registry of the schemas of AVRO, PROTOBUF and JSON_SR."""

    @property
    def registered_functions(self) -> tuple[PythonFunction, ...]:
        """The functions to register in a Spark session before it runs a query of this catalog."""
        return tuple(python for created in self.created_functions.values() for python in created.registered)

    def source(self, name: str, position: tuple[int, int] | None = None) -> SqlSource:
        """Returns a source. SqlError with the nearest name when there is none."""
        source = self.sources.get(name)
        if source is None:
            raise SqlError(f"{name} does not exist.", position, nearest(name, self.sources))
        return source

    def archive(self, name: str, position: tuple[int, int] | None = None) -> SqlArchive:
        """Returns the archive of this name. Raises SqlError with the nearest name when there is none."""
        archive = self.archives.get(name)
        if archive is None:
            raise SqlError(f"Archive {name} does not exist.", position, nearest(name, self.archives))
        return archive

    def query(self, query_id: str, position: tuple[int, int] | None = None) -> PersistentQuery:
        query = self.queries.get(query_id) or self.queries.get(query_id.upper())
        if query is None:
            raise SqlError(f"Unknown queryId: {query_id}", position, nearest(query_id, self.queries))
        return query

    def readers(self, name: str) -> list[str]:
        """Ids of the queries that read a source."""
        return sorted(query.id for query in self.queries.values() if name in query.sources)

    def writers(self, name: str) -> list[str]:
        """Ids of the queries that write to a source."""
        return sorted(
            query.id for query in self.queries.values() if query.sink == name and not query.fills_archive
        )

    def with_source(self, source: SqlSource) -> SqlCatalog:
        return replace(self, sources=MappingProxyType({**self.sources, source.name: source}))

    def without_source(self, name: str) -> SqlCatalog:
        return replace(self, sources=_without(self.sources, name))

    def with_query(self, query: PersistentQuery) -> SqlCatalog:
        return replace(self, queries=MappingProxyType({**self.queries, query.id: query}))

    def without_query(self, query_id: str) -> SqlCatalog:
        """Returns the catalog without a query, and without the candidate that goes with it."""
        candidates = {name: source for name, source in self.candidates.items() if source.query_id != query_id}
        return replace(
            self, queries=_without(self.queries, query_id), candidates=MappingProxyType(candidates)
        )

    def with_candidate(self, source: SqlSource) -> SqlCatalog:
        return replace(self, candidates=MappingProxyType({**self.candidates, source.name: source}))

    def without_candidate(self, name: str) -> SqlCatalog:
        return replace(self, candidates=_without(self.candidates, name))

    def with_archive(self, archive: SqlArchive) -> SqlCatalog:
        return replace(self, archives=MappingProxyType({**self.archives, archive.name: archive}))

    def without_archive(self, name: str) -> SqlCatalog:
        return replace(self, archives=_without(self.archives, name))

    def with_function(self, created: CreatedFunction) -> SqlCatalog:
        return replace(
            self,
            created_functions=MappingProxyType({**self.created_functions, created.definition.name: created}),
            functions=self.functions.with_functions([created.definition]),
        )

    def without_function(self, name: str) -> SqlCatalog:
        return replace(
            self,
            created_functions=_without(self.created_functions, name),
            functions=self.functions.without(name),
        )

    def with_type(self, name: str, kind: SqlType) -> SqlCatalog:
        return replace(self, types=MappingProxyType({**self.types, name: kind}))

    def without_type(self, name: str) -> SqlCatalog:
        return replace(self, types=_without(self.types, name))


def _without(mapping: Mapping[str, V], name: str) -> Mapping[str, V]:
    return MappingProxyType({known: value for known, value in mapping.items() if known != name})


def row_type(columns: tuple[SqlColumn, ...]) -> SqlType:
    """Returns the columns as one STRUCT."""
    return struct_of_fields([(column.name, column.type) for column in columns])


Catalog = SqlCatalog
Source = SqlSource
"""The names that the server uses."""
