"""The statements of ksqlDB's language, as values. Names are as they are kept: unquoted ones are in upper case.

Every statement has its own `text`, without the semicolon, and the `position` of its first word in what was parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

from sqlglot import exp

from odradek.sql.language.queries import Query
from odradek.values.errors import Position

SourceKind: TypeAlias = Literal["stream", "table"]
PropertyValue: TypeAlias = str | int | float | bool
Properties: TypeAlias = tuple[tuple[str, PropertyValue], ...]
"""The properties of a WITH clause; names are in upper case."""
Constant: TypeAlias = exp.Expr
"""An expression that INSERT VALUES computes once: a tree of sqlglot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    text: str
    position: Position


class StatementText(TypedDict):
    """The fields that every statement has, for its constructor."""

    text: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column in a CREATE statement. `role` is a KEY column of a stream, a PRIMARY KEY one of a table, HEADERS (`header`:
    of one header only), or a value. `type` is the text as it is written."""

    name: str
    type: str
    role: Literal["value", "key", "primary key", "headers"] = "value"
    header: str | None = None
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSource(Statement):
    """CREATE [OR REPLACE] [SOURCE] STREAM | TABLE [IF NOT EXISTS] name (columns) WITH (…)."""

    kind: SourceKind
    name: str
    columns: tuple[ColumnDefinition, ...]
    properties: Properties
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAsSelect(Statement):
    """CREATE [OR REPLACE] STREAM | TABLE name WITH (…) AS SELECT …."""

    kind: SourceKind
    name: str
    properties: Properties
    query: Query
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertIntoSelect(Statement):
    """INSERT INTO name [WITH (QUERY_ID = …)] SELECT …."""

    target: str
    properties: Properties
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertValues(Statement):
    """INSERT INTO name [(columns)] VALUES (…). `columns` is empty when the statement names none."""

    target: str
    columns: tuple[str, ...]
    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectStatement(Statement):
    """A push query (`query.emit` is set) or a pull query."""

    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSource(Statement):
    kind: SourceKind
    name: str
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSource(Statement):
    """ALTER STREAM | TABLE name ADD [COLUMN] …, …."""

    kind: SourceKind
    name: str
    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuery(Statement):
    """ALTER STREAM | TABLE name [WITH (MODE = …)] AS SELECT …. `query_text`: the SELECT as it is written."""

    kind: SourceKind
    name: str
    properties: Properties
    query: Query
    query_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSwap(Statement):
    """ALTER STREAM | TABLE name SWAP: the query that is being rebuilt takes its place now."""

    kind: SourceKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSystem(Statement):
    """ALTER SYSTEM 'property' = 'value'."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateType(Statement):
    name: str
    type: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropType(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionParameter:
    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(Statement):
    """CREATE [OR REPLACE] [AGGREGATE | TABLE] FUNCTION name(a TYPE, …) RETURNS type [LANGUAGE PYTHON] AS $$ code $$."""

    name: str
    kind: Literal["scalar", "aggregate", "table"]
    parameters: tuple[FunctionParameter, ...]
    returns: str
    code: str
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFunction(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateArchive(Statement):
    """CREATE ARCHIVE [IF NOT EXISTS] name FROM source WITH (…), or name WITH (…) AS SELECT …: `source` or `query` is set.
    `query_text`: the SELECT as it is written.
    """

    name: str
    properties: Properties
    source: str | None = None
    query: Query | None = None
    query_text: str = ""
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropArchive(Statement):
    """DROP ARCHIVE [IF EXISTS] name [DELETE FILES]."""

    name: str
    if_exists: bool = False
    delete_files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryControl(Statement):
    """PAUSE, RESUME or TERMINATE; `query_id` None: ALL."""

    action: Literal["pause", "resume", "terminate"]
    query_id: str | None
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    """DESCRIBE name [EXTENDED]."""

    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeArchive(Statement):
    """DESCRIBE ARCHIVE name [EXTENDED]."""

    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeFunction(Statement):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAll(Statement):
    """DESCRIBE STREAMS | TABLES [EXTENDED]."""

    kind: SourceKind
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """EXPLAIN of a running query, or of a statement."""

    query_id: str | None = None
    statement: Statement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Statement):
    """SHOW | LIST: streams, tables, topics, queries, archives, functions, types, properties, variables, connectors."""

    what: Literal[
        "streams",
        "tables",
        "topics",
        "queries",
        "archives",
        "functions",
        "types",
        "properties",
        "variables",
        "connectors",
        "connector plugins",
    ]
    extended: bool = False
    include_hidden: bool = False
    """SHOW ALL TOPICS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintTopic(Statement):
    topic: str
    from_beginning: bool = False
    interval: int = 1
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperty(Statement):
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetProperty(Statement):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DefineVariable(Statement):
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndefineVariable(Statement):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScript(Statement):
    """RUN SCRIPT, a command of the shell."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spool(Statement):
    """SPOOL, a command of the shell. `path` None: OFF."""

    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTopic(Statement):
    """ASSERT [NOT EXISTS] TOPIC name [WITH (PARTITIONS = …)] [TIMEOUT 10 SECONDS]."""

    topic: str
    properties: Properties
    exists: bool
    timeout_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertSchema(Statement):
    """ASSERT [NOT EXISTS] SCHEMA [SUBJECT name] [ID number] [TIMEOUT …]."""

    subject: str | None
    schema_id: int | None
    exists: bool
    timeout_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertSource(Statement):
    """ASSERT STREAM | TABLE name (columns) WITH (…): what a source must be like."""

    kind: SourceKind
    name: str
    columns: tuple[ColumnDefinition, ...]
    properties: Properties


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertValues(Statement):
    """ASSERT VALUES name (columns) VALUES (…) [TIMEOUT …]: a record. ASSERT NULL VALUES … KEY (…): a `tombstone`."""

    source: str
    columns: tuple[str, ...]
    values: tuple[Constant, ...]
    tombstone: bool = False
    timeout_ms: int | None = None
