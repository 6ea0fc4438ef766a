"""Statements that define or fill something: CREATE, INSERT, DROP, ALTER, ASSERT, SELECT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from sqlglot import exp

from odradek.sql.language.queries import Query
from odradek.sql.language.query_parsing import QueryReader
from odradek.sql.language.reading import StatementReader
from odradek.sql.language.statements import (
    AlterQuery,
    AlterSource,
    AlterSwap,
    AlterSystem,
    AssertSchema,
    AssertSource,
    AssertTopic,
    AssertValues,
    ColumnDefinition,
    CreateArchive,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    CreateType,
    DropArchive,
    DropFunction,
    DropSource,
    DropType,
    FunctionParameter,
    InsertIntoSelect,
    InsertValues,
    Properties,
    PropertyValue,
    SelectStatement,
    SourceKind,
    Statement,
    StatementText,
)
from odradek.values.errors import Position, SqlError

_CONNECTORS: Final = (
    "connectors of Kafka Connect are not part of this server: write to the topics, and read from them"
)


def _ends_value(reader: StatementReader) -> bool:
    return reader.word() == ","


class DefinitionReader:
    """Reads one statement. `common`: its text and position, which are known when it ends."""

    def __init__(self, reader: StatementReader, text: str) -> None:
        self._reader = reader
        self._text = text
        self._position = reader.position()

    def _common(self) -> StatementText:
        return {"text": self._reader.text_from(0), "position": self._position}

    def _query(self) -> Query:
        return QueryReader(self._reader, self._text).query()

    def select(self) -> Statement:
        query = self._query()
        return SelectStatement(query=query, **self._common())

    def create(self) -> Statement:
        reader = self._reader
        reader.expect("CREATE")
        or_replace = reader.accept("OR", "REPLACE")
        read_only = reader.accept("SOURCE")
        if reader.word() in ("SINK", "CONNECTOR") or (read_only and reader.follows("CONNECTOR")):
            raise SqlError(_CONNECTORS, self._position)
        word = reader.choose("STREAM", "TABLE", "TYPE", "FUNCTION", "AGGREGATE", "ARCHIVE")
        if word == "AGGREGATE" or (word == "TABLE" and reader.follows("FUNCTION")):
            reader.expect("FUNCTION")
            return self._function(word, or_replace)
        if word == "FUNCTION":
            return self._function("SCALAR", or_replace)
        if_not_exists = reader.accept("IF", "NOT", "EXISTS")
        if word == "TYPE":
            name = reader.name("the name of the type")
            reader.expect("AS")
            kind = reader.type_text()
            return CreateType(name=name, type=kind, if_not_exists=if_not_exists, **self._common())
        name = reader.name(f"the name of the {word.lower()}")
        if word == "ARCHIVE":
            return self._archive(name, or_replace=or_replace, if_not_exists=if_not_exists)
        columns = reader.in_brackets(self._column) if reader.follows("(") else ()
        properties = self._properties()
        kind_of_source: SourceKind = "stream" if word == "STREAM" else "table"
        if not reader.accept("AS"):
            return CreateSource(
                kind=kind_of_source,
                name=name,
                columns=columns,
                properties=properties,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                read_only=read_only,
                **self._common(),
            )
        if columns:
            raise SqlError(
                "CREATE … AS SELECT has no list of columns: the query defines them", columns[0].position
            )
        query = self._query()
        return CreateAsSelect(
            kind=kind_of_source,
            name=name,
            properties=properties,
            query=query,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            **self._common(),
        )

    def _archive(self, name: str, *, or_replace: bool, if_not_exists: bool) -> Statement:
        reader = self._reader
        if or_replace:
            raise SqlError(
                "CREATE OR REPLACE ARCHIVE is not supported",
                self._position,
                "Write DROP ARCHIVE, which keeps the files, and CREATE ARCHIVE: it continues where the files end.",
            )
        if reader.accept("FROM"):
            source = reader.name("the name of a stream or table")
            properties = self._properties()
            return CreateArchive(
                name=name,
                source=source,
                properties=properties,
                if_not_exists=if_not_exists,
                **self._common(),
            )
        properties = self._properties()
        if not reader.accept("AS"):
            raise reader.unexpected("AS SELECT" if properties else "FROM")
        start = reader.index
        query = self._query()
        return CreateArchive(
            name=name,
            properties=properties,
            query=query,
            query_text=reader.text_from(start),
            if_not_exists=if_not_exists,
            **self._common(),
        )

    def _column(self) -> ColumnDefinition:
        reader, where = self._reader, self._reader.position()
        name = reader.name("the name of a column")
        kind = reader.type_text()
        role: Literal["value", "key", "primary key", "headers"] = "value"
        header = None
        if reader.accept("PRIMARY", "KEY"):
            role = "primary key"
        elif reader.accept("KEY"):
            role = "key"
        elif reader.accept("HEADERS"):
            role = "headers"
        elif reader.accept("HEADER"):
            role = "headers"
            reader.expect("(")
            header = reader.string("the name of a header in single quotes")
            reader.expect(")")
        return ColumnDefinition(name=name, type=kind, role=role, header=header, position=where)

    def _properties(self) -> Properties:
        reader = self._reader
        if not reader.accept("WITH"):
            return ()
        if reader.accept("(", ")"):
            return ()
        return reader.in_brackets(self._property)

    def _property(self) -> tuple[str, PropertyValue]:
        reader = self._reader
        name = reader.string() if reader.follows_string() else reader.name("the name of a property")
        reader.expect("=")
        if reader.follows_string():
            return name.upper(), reader.string()
        value = reader.expression(_ends_value)
        negative = isinstance(value, exp.Neg)
        literal = value.this if negative else value
        if isinstance(literal, exp.Boolean):
            return name.upper(), bool(literal.this)
        if isinstance(literal, exp.Literal):
            number = float(literal.this) if set(literal.this) & set(".eE") else int(literal.this)
            return name.upper(), -number if negative else number
        if isinstance(literal, exp.Column):
            return name.upper(), literal.name
        raise SqlError(f"the property {name} needs a constant", reader.position())

    def _function(self, kind: str, or_replace: bool) -> Statement:
        reader = self._reader
        kinds: dict[str, Literal["scalar", "aggregate", "table"]] = {
            "SCALAR": "scalar",
            "AGGREGATE": "aggregate",
            "TABLE": "table",
        }
        if_not_exists = reader.accept("IF", "NOT", "EXISTS")
        name = reader.name("the name of the function")
        parameters: tuple[FunctionParameter, ...] = ()
        if not reader.accept("(", ")"):
            parameters = reader.in_brackets(self._parameter)
        reader.expect("RETURNS")
        returns = reader.type_text()
        if reader.accept("LANGUAGE"):
            reader.expect("PYTHON")
        reader.expect("AS")
        code = reader.code()
        return CreateFunction(
            name=name,
            kind=kinds[kind],
            parameters=parameters,
            returns=returns,
            code=code,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            **self._common(),
        )

    def _parameter(self) -> FunctionParameter:
        name = self._reader.name("the name of a parameter")
        return FunctionParameter(name=name, type=self._reader.type_text())

    def insert(self) -> Statement:
        reader = self._reader
        reader.expect("INSERT", "INTO")
        target = reader.name("the name of a stream or table")
        columns: tuple[str, ...] = ()
        if reader.follows("("):
            columns = reader.in_brackets(lambda: reader.name("the name of a column"))
        if reader.accept("VALUES"):
            values = reader.in_brackets(lambda: reader.expression(_ends_value))
            if reader.follows(","):
                raise SqlError(
                    "INSERT INTO … VALUES takes one row", reader.position(), "Write a statement for each row."
                )
            return InsertValues(target=target, columns=columns, values=values, **self._common())
        if columns:
            raise reader.unexpected("VALUES")
        properties = self._properties()
        query = self._query()
        return InsertIntoSelect(target=target, properties=properties, query=query, **self._common())

    def drop(self) -> Statement:
        reader = self._reader
        reader.expect("DROP")
        word = reader.choose("STREAM", "TABLE", "TYPE", "FUNCTION", "ARCHIVE", "CONNECTOR")
        if word == "CONNECTOR":
            raise SqlError(_CONNECTORS, self._position)
        if_exists = reader.accept("IF", "EXISTS")
        name = reader.name(f"the name of the {word.lower()}")
        if word == "TYPE":
            return DropType(name=name, if_exists=if_exists, **self._common())
        if word == "FUNCTION":
            return DropFunction(name=name, if_exists=if_exists, **self._common())
        if word == "ARCHIVE":
            delete_files = reader.accept("DELETE", "FILES")
            return DropArchive(name=name, if_exists=if_exists, delete_files=delete_files, **self._common())
        delete_topic = reader.accept("DELETE", "TOPIC")
        return DropSource(
            kind="stream" if word == "STREAM" else "table",
            name=name,
            if_exists=if_exists,
            delete_topic=delete_topic,
            **self._common(),
        )

    def alter(self) -> Statement:
        reader = self._reader
        reader.expect("ALTER")
        word = reader.choose("STREAM", "TABLE", "SYSTEM")
        if word == "SYSTEM":
            name = reader.string("a property in single quotes")
            reader.expect("=")
            value = reader.string()
            return AlterSystem(name=name, value=value, **self._common())
        source = reader.name(f"the name of the {word.lower()}")
        kind: SourceKind = "stream" if word == "STREAM" else "table"
        if reader.word() in ("AS", "WITH"):
            properties = self._properties()
            reader.expect("AS")
            start = reader.index
            query = self._query()
            return AlterQuery(
                kind=kind,
                name=source,
                properties=properties,
                query=query,
                query_text=reader.text_from(start),
                **self._common(),
            )
        if reader.accept("SWAP"):
            return AlterSwap(kind=kind, name=source, **self._common())
        columns = reader.listed(self._added_column)
        return AlterSource(kind=kind, name=source, columns=columns, **self._common())

    def _added_column(self) -> ColumnDefinition:
        self._reader.expect("ADD")
        self._reader.accept("COLUMN")
        column = self._column()
        if column.role != "value":
            raise SqlError("ALTER adds columns of the value only", column.position)
        return replace(column)

    def assertion(self) -> Statement:
        reader = self._reader
        reader.expect("ASSERT")
        exists = not reader.accept("NOT", "EXISTS")
        if reader.accept("TOPIC"):
            topic = reader.name_as_written("the name of a topic")
            properties = self._properties()
            timeout_ms = self._timeout()
            return AssertTopic(
                topic=topic, properties=properties, exists=exists, timeout_ms=timeout_ms, **self._common()
            )
        if reader.accept("SCHEMA"):
            subject = reader.name_as_written("a subject") if reader.accept("SUBJECT") else None
            schema_id = reader.whole() if reader.accept("ID") else None
            timeout_ms = self._timeout()
            if subject is None and schema_id is None:
                raise SqlError("ASSERT SCHEMA needs SUBJECT or ID", self._position)
            return AssertSchema(
                subject=subject, schema_id=schema_id, exists=exists, timeout_ms=timeout_ms, **self._common()
            )
        if not exists:
            raise reader.unexpected("TOPIC", "SCHEMA")
        return self._asserted_source()

    def _asserted_source(self) -> Statement:
        reader = self._reader
        word = reader.choose("STREAM", "TABLE", "VALUES", "NULL")
        if word in ("STREAM", "TABLE"):
            name = reader.name()
            columns = reader.in_brackets(self._column) if reader.follows("(") else ()
            properties = self._properties()
            kind: SourceKind = "stream" if word == "STREAM" else "table"
            return AssertSource(
                kind=kind, name=name, columns=columns, properties=properties, **self._common()
            )
        if word == "NULL":
            reader.expect("VALUES")
        source = reader.name()
        names: tuple[str, ...] = ()
        if reader.follows("("):
            names = reader.in_brackets(lambda: reader.name("the name of a column"))
        reader.choose("VALUES", "KEY")
        values = reader.in_brackets(lambda: reader.expression(_ends_value))
        timeout_ms = self._timeout()
        return AssertValues(
            source=source,
            columns=names,
            values=values,
            tombstone=word == "NULL",
            timeout_ms=timeout_ms,
            **self._common(),
        )

    def _timeout(self) -> int | None:
        return self._reader.duration_ms() if self._reader.accept("TIMEOUT") else None


def _with(
    read: Callable[[DefinitionReader], Statement],
) -> Callable[[StatementReader, str], Statement]:
    return lambda reader, text: read(DefinitionReader(reader, text))


DEFINITIONS: Final[dict[str, Callable[[StatementReader, str], Statement]]] = {
    "SELECT": _with(DefinitionReader.select),
    "CREATE": _with(DefinitionReader.create),
    "INSERT": _with(DefinitionReader.insert),
    "DROP": _with(DefinitionReader.drop),
    "ALTER": _with(DefinitionReader.alter),
    "ASSERT": _with(DefinitionReader.assertion),
}
"""The readers of definitions, by the first word of a statement."""


def defined(position: Position, reader: StatementReader, text: str) -> Statement:
    """Returns the statement that follows EXPLAIN. SqlError for one that has no plan."""
    read = DEFINITIONS.get(reader.word())
    if read is None or reader.word() not in ("SELECT", "CREATE", "INSERT", "ALTER"):
        raise SqlError(
            "EXPLAIN needs the id of a query, or a SELECT, CREATE … AS, INSERT or ALTER … AS", position
        )
    start = reader.index
    statement = read(reader, text)
    return replace(statement, text=reader.text_from(start), position=position)
