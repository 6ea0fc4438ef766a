"""Answers of SHOW, DESCRIBE and EXPLAIN as values that pages show. A ksqlDB server leaves out some members. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from odradek.sql.shell.rendering import schema_text

Entity = Mapping[str, Any]
UNKNOWN_STATE: Final = "UNKNOWN"
GROUP_ID_CHARS_MAX: Final = 249
"""A longer id, or one that no request can have, is taken for none: the server may be anyone's."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STATES_WORST_FIRST: Final = ("ERROR", "UNRESPONSIVE", UNKNOWN_STATE, "PAUSED", "RUNNING")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLine:
    """A persistent query in a list."""

    query_id: str
    state: str
    sink: str
    topic: str
    text: str
    problem: str = ""
    """The reason of the last failure, while it fails."""
    failure_count: int = 0
    failing_since_ms: int = -1
    group_id: str = ""
    """The group in which it commits what it has read; empty where the server does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A stream or a table in a list."""

    name: str
    topic: str
    formats: str
    is_windowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLine:
    """A column: its name, its type, and whether it is of the key."""

    name: str
    type: str
    is_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescription:
    """A stream or table, as DESCRIBE EXTENDED has it."""

    name: str
    kind: str
    topic: str
    formats: str
    partitions: int
    replication: int
    window: str
    timestamp: str
    statement: str
    rate: str
    """Records a second in the last minute, as the server writes it; empty where it does not tell."""
    total: str
    last: str
    columns: tuple[ColumnLine, ...]
    readers: tuple[QueryLine, ...]
    writers: tuple[QueryLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDescription:
    """A query, as EXPLAIN has it."""

    query_id: str
    state: str
    text: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    plan: str
    failure_count: int
    failing_since_ms: int
    failures: tuple[tuple[int, str], ...]
    """Time and reason of the last failures, the newest first."""
    columns: tuple[ColumnLine, ...]
    group_id: str = ""
    """The group in which it commits what it has read; empty where the server does not tell."""


def query_lines(entities: Iterable[Entity]) -> list[QueryLine]:
    """Returns the queries of SHOW QUERIES, those that fail first."""
    lines = [_query_line(query) for query in _members(entities, "queries")]
    return sorted(lines, key=lambda line: (_rank(line.state), line.query_id))


def source_lines(entities: Iterable[Entity], kind: str) -> list[SourceLine]:
    """Returns the sources of SHOW STREAMS or SHOW TABLES. `kind`: streams or tables."""
    return [
        SourceLine(
            name=_text(source, "name"),
            topic=_text(source, "topic"),
            formats=_formats(source),
            is_windowed=bool(source.get("isWindowed")),
        )
        for source in _members(entities, kind)
    ]


def source_description(entities: Iterable[Entity]) -> SourceDescription | None:
    """Returns the source of DESCRIBE EXTENDED; None where the answer has none."""
    for entity in entities:
        source = entity.get("sourceDescription")
        if isinstance(source, Mapping):
            statistics = _statistics(_text(source, "statistics"))
            return SourceDescription(
                name=_text(source, "name"),
                kind=_text(source, "type").lower(),
                topic=_text(source, "topic"),
                formats=_formats(source),
                partitions=_whole(source, "partitions", 0),
                replication=_whole(source, "replication", 0),
                window=_text(source, "windowType"),
                timestamp=_text(source, "timestamp"),
                statement=_text(source, "statement"),
                rate=statistics.get("messages-per-sec", ""),
                total=statistics.get("total-messages", ""),
                last=statistics.get("last-message", ""),
                columns=_columns(source),
                readers=tuple(map(_query_line, source.get("readQueries") or ())),
                writers=tuple(map(_query_line, source.get("writeQueries") or ())),
            )
    return None


def query_description(entities: Iterable[Entity]) -> QueryDescription | None:
    """Returns the query of EXPLAIN; None where the answer has none."""
    for entity in entities:
        query = entity.get("queryDescription")
        if isinstance(query, Mapping):
            errors = [error for error in query.get("queryErrors") or () if isinstance(error, Mapping)]
            return QueryDescription(
                query_id=_text(query, "id"),
                state=_text(query, "state") or UNKNOWN_STATE,
                text=_text(query, "statementText"),
                sources=_names(query.get("sources")),
                sinks=_names(query.get("sinks")),
                plan=_text(query, "executionPlan"),
                failure_count=_whole(query, "failureCount", 0),
                failing_since_ms=_whole(query, "failingSince", -1),
                failures=tuple(
                    (_whole(error, "timestamp", -1), _text(error, "errorMessage"))
                    for error in reversed(errors)
                ),
                columns=_columns(query),
                group_id=_group_id(query),
            )
    return None


def _members(entities: Iterable[Entity], name: str) -> list[Entity]:
    return [member for entity in entities for member in entity.get(name) or ()]


def _query_line(query: Entity) -> QueryLine:
    errors = query.get("queryErrors") or ()
    count = _whole(query, "failureCount", 0)
    return QueryLine(
        query_id=_text(query, "id"),
        state=_text(query, "state") or UNKNOWN_STATE,
        sink=", ".join(_names(query.get("sinks"))),
        topic=", ".join(_names(query.get("sinkKafkaTopics"))),
        text=_text(query, "queryString"),
        problem=_text(errors[-1], "errorMessage") if count and errors else "",
        failure_count=count,
        failing_since_ms=_whole(query, "failingSince", -1),
        group_id=_group_id(query),
    )


def _rank(state: str) -> int:
    return _STATES_WORST_FIRST.index(state if state in _STATES_WORST_FIRST else UNKNOWN_STATE)


def _columns(entity: Entity) -> tuple[ColumnLine, ...]:
    return tuple(
        ColumnLine(
            name=_text(column, "name"), type=schema_text(column["schema"]), is_key=column.get("type") == "KEY"
        )
        for column in entity.get("fields") or ()
    )


def _formats(source: Entity) -> str:
    key, value = _text(source, "keyFormat"), _text(source, "valueFormat") or _text(source, "format")
    return f"{key} → {value}" if key else value


def _statistics(text: str) -> dict[str, str]:
    """Parses `messages-per-sec: 1.50 total-messages: 12 last-message: 2026-01-01T00:00:00Z`."""
    words = text.split()
    return {name.removesuffix(":"): value for name, value in pairwise(words)}


def _names(names: Sequence[Any] | None) -> tuple[str, ...]:
    return tuple(str(name) for name in names or ())


def _text(entity: Entity, name: str) -> str:
    value = entity.get(name)
    return "" if value is None else str(value)


def _group_id(query: Entity) -> str:
    group_id = _text(query, "consumerGroupId")
    is_sendable = len(group_id) <= GROUP_ID_CHARS_MAX and not _SURROGATE.search(group_id)
    return group_id if is_sendable else ""


def _whole(entity: Entity, name: str, default: int) -> int:
    value = entity.get(name)
    return value if isinstance(value, int) else default
