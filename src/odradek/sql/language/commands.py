"""Statements that ask, or that act on what exists: SHOW, DESCRIBE, EXPLAIN, PRINT, SET, TERMINATE and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from odradek.sql.language.definitions import DEFINITIONS, defined
from odradek.sql.language.reading import StatementReader
from odradek.sql.language.statements import (
    DefineVariable,
    Describe,
    DescribeAll,
    DescribeArchive,
    DescribeFunction,
    Explain,
    PrintTopic,
    QueryControl,
    RunScript,
    SetProperty,
    Show,
    Spool,
    Statement,
    StatementText,
    UndefineVariable,
    UnsetProperty,
)
from odradek.values.errors import SqlError


class CommandReader:
    """Reads one statement."""

    def __init__(self, reader: StatementReader, text: str) -> None:
        self._reader = reader
        self._text = text
        self._position = reader.position()

    def _common(self) -> StatementText:
        return {"text": self._reader.text_from(0), "position": self._position}

    def show(self) -> Statement:
        reader = self._reader
        reader.choose("SHOW", "LIST")
        if reader.accept("CONNECTOR", "PLUGINS"):
            return Show(what="connector plugins", **self._common())
        if reader.word() in ("SOURCE", "SINK") and reader.word(1) == "CONNECTORS":
            reader.choose("SOURCE", "SINK")
        include_hidden = reader.accept("ALL")
        word = reader.choose(
            "STREAMS",
            "TABLES",
            "TOPICS",
            "QUERIES",
            "ARCHIVES",
            "FUNCTIONS",
            "TYPES",
            "PROPERTIES",
            "VARIABLES",
            "CONNECTORS",
        )
        if include_hidden and word != "TOPICS":
            raise SqlError("ALL is for SHOW ALL TOPICS", self._position)
        extended = reader.accept("EXTENDED")
        what: Any = word.lower()
        return Show(what=what, extended=extended, include_hidden=include_hidden, **self._common())

    def describe(self) -> Statement:
        reader = self._reader
        reader.choose("DESCRIBE", "DESC")
        if reader.accept("FUNCTION"):
            name = reader.name("the name of a function")
            return DescribeFunction(name=name, **self._common())
        if reader.follows("ARCHIVE") and reader.word(1) != "EXTENDED" and len(reader.rest().split()) > 1:
            reader.expect("ARCHIVE")
            name = reader.name("the name of an archive")
            extended = reader.accept("EXTENDED")
            return DescribeArchive(name=name, extended=extended, **self._common())
        if reader.follows("CONNECTOR") and reader.word(1):
            raise SqlError("connectors of Kafka Connect are not part of this server", self._position)
        kinds: dict[str, Literal["stream", "table"]] = {"STREAMS": "stream", "TABLES": "table"}
        if reader.word() in kinds and reader.word(1) in ("", "EXTENDED"):
            kind = kinds[reader.choose(*kinds)]
            extended = reader.accept("EXTENDED")
            return DescribeAll(kind=kind, extended=extended, **self._common())
        early = reader.accept("EXTENDED")
        name = reader.name("the name of a stream or table")
        extended = reader.accept("EXTENDED") or early
        return Describe(name=name, extended=extended, **self._common())

    def explain(self) -> Statement:
        reader = self._reader
        reader.expect("EXPLAIN")
        if reader.word() in DEFINITIONS and reader.word(1):
            statement = defined(reader.position(), reader, self._text)
            return Explain(statement=statement, **self._common())
        query_id = reader.name_as_written("a statement or the id of a query")
        return Explain(query_id=query_id, **self._common())

    def print_topic(self) -> Statement:
        reader = self._reader
        reader.expect("PRINT")
        topic = reader.name_as_written("the name of a topic")
        from_beginning = reader.accept("FROM", "BEGINNING")
        interval = reader.whole() if (reader.accept("INTERVAL") or reader.accept("SAMPLE")) else 1
        limit = reader.whole() if reader.accept("LIMIT") else None
        return PrintTopic(
            topic=topic, from_beginning=from_beginning, interval=interval, limit=limit, **self._common()
        )

    def set_property(self) -> Statement:
        reader = self._reader
        reader.expect("SET")
        name = reader.string("a property in single quotes")
        reader.expect("=")
        value = reader.string()
        return SetProperty(name=name, value=value, **self._common())

    def unset_property(self) -> Statement:
        self._reader.expect("UNSET")
        name = self._reader.string("a property in single quotes")
        return UnsetProperty(name=name, **self._common())

    def define(self) -> Statement:
        reader = self._reader
        reader.expect("DEFINE")
        name = reader.name("the name of a variable")
        reader.expect("=")
        value = reader.string()
        return DefineVariable(name=name, value=value, **self._common())

    def undefine(self) -> Statement:
        self._reader.expect("UNDEFINE")
        name = self._reader.name("the name of a variable")
        return UndefineVariable(name=name, **self._common())

    def run_script(self) -> Statement:
        self._reader.expect("RUN", "SCRIPT")
        path = self._reader.string("a path in single quotes")
        return RunScript(path=path, **self._common())

    def spool(self) -> Statement:
        self._reader.expect("SPOOL")
        path = None if self._reader.accept("OFF") else self._reader.string("a path in single quotes, or OFF,")
        return Spool(path=path, **self._common())

    def control(self) -> Statement:
        reader = self._reader
        actions: dict[str, Literal["pause", "resume", "terminate"]] = {
            "PAUSE": "pause",
            "RESUME": "resume",
            "TERMINATE": "terminate",
        }
        action = actions[reader.choose(*actions)]
        reader.accept("QUERY")
        if_exists = reader.accept("IF", "EXISTS")
        query_id = None if reader.accept("ALL") else reader.name_as_written("the id of a query, or ALL,")
        return QueryControl(action=action, query_id=query_id, if_exists=if_exists, **self._common())


def _with(read: Callable[[CommandReader], Statement]) -> Callable[[StatementReader, str], Statement]:
    return lambda reader, text: read(CommandReader(reader, text))


COMMANDS: Final[dict[str, Callable[[StatementReader, str], Statement]]] = {
    "SHOW": _with(CommandReader.show),
    "LIST": _with(CommandReader.show),
    "DESCRIBE": _with(CommandReader.describe),
    "DESC": _with(CommandReader.describe),
    "EXPLAIN": _with(CommandReader.explain),
    "PRINT": _with(CommandReader.print_topic),
    "SET": _with(CommandReader.set_property),
    "UNSET": _with(CommandReader.unset_property),
    "DEFINE": _with(CommandReader.define),
    "UNDEFINE": _with(CommandReader.undefine),
    "RUN": _with(CommandReader.run_script),
    "SPOOL": _with(CommandReader.spool),
    "PAUSE": _with(CommandReader.control),
    "RESUME": _with(CommandReader.control),
    "TERMINATE": _with(CommandReader.control),
}
"""The readers of commands, by the first word of a statement."""
