"""Renders the server's answers for people: tables that fit the terminal, or JSON lines. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from odradek.model.safe_text import safe_json, safe_line

Entity = Mapping[str, Any]
_CELL_WIDTH_MIN: Final = 6
_NUMBER: Final = re.compile(r"-?[0-9][0-9,]*(?:\.[0-9]+)?\Z")
_OF_SEVERAL_LINES: Final = frozenset(
    ("statementText", "statement", "queryString", "message", "description", "executionPlan")
)
"""Members of entities whose line ends people want to see. Names, values and errors are on one line each."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text.

    `title`: a line above it.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    def lines(self, width: int) -> list[str]:
        """Returns lines of at most `width` cells: columns that are too wide are wrapped. Numbers are aligned to the right."""
        wanted = [
            max([width_of(name), *(width_of(row[index]) for row in self.rows)])
            for index, name in enumerate(self.columns)
        ]
        widths = fitting(wanted, width)
        to_the_right = [
            bool(self.rows) and all(_NUMBER.match(row[index]) for row in self.rows)
            for index in range(len(self.columns))
        ]
        head = line_of(self.columns, widths, to_the_right)
        rule = "-+-".join("-" * cells for cells in widths)
        shown = [*([self.title] if self.title else []), *head, rule]
        for row in self.rows:
            shown += line_of(row, widths, to_the_right)
        return [line.rstrip() for line in shown]


def cell(value: object) -> str:
    """Returns a value of a row."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return safe_line(value)
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{safe_line(str(name))}={cell(member)}" for name, member in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(cell, value)) + "]"
    return safe_json(value)


def width_of(text: str) -> int:
    """Returns the cells of a terminal that a text of one line takes; of several lines, the widest."""
    return max((cell_len(line) for line in text.split("\n")), default=0)


def fitting(widths: Sequence[int], width: int) -> list[int]:
    """Takes from the widest, until all fit."""
    room = width - 3 * (len(widths) - 1)
    fitted = list(widths)
    while sum(fitted) > room and max(fitted) > _CELL_WIDTH_MIN:
        widest = max(fitted)
        index = fitted.index(widest)
        second = max([cells for cells in fitted if cells < widest], default=_CELL_WIDTH_MIN)
        over = sum(fitted) - room
        fitted[index] = max(widest - over, second - 1, _CELL_WIDTH_MIN)
    return fitted


def line_of(texts: Sequence[str], widths: Sequence[int], to_the_right: Sequence[bool]) -> list[str]:
    """Returns one row, in as many lines as its longest cell needs."""
    parts = [_wrapped(text, width) for text, width in zip(texts, widths, strict=True)]
    height = max((len(part) for part in parts), default=1)
    return [
        " | ".join(
            _placed(part[index] if index < len(part) else "", width, right)
            for part, width, right in zip(parts, widths, to_the_right, strict=True)
        )
        for index in range(height)
    ]


def _placed(text: str, width: int, right: bool) -> str:
    return " " * max(0, width - cell_len(text)) + text if right else set_cell_size(text, width)


def _wrapped(text: str, width: int) -> list[str]:
    lines = []
    for paragraph in text.split("\n"):
        rest = paragraph
        while cell_len(rest) > width:
            cut = len(rest)
            while cell_len(rest[:cut]) > width:
                cut -= max(1, (cell_len(rest[:cut]) - width) // 2)
            lines.append(rest[:cut])
            rest = rest[cut:]
        lines.append(rest)
    return lines


# ---- entities of /ksql


def rendered(entity: Entity) -> Iterable[str | TextTable]:
    """Renders an answer of /ksql as lines and tables. An answer of an unknown kind is shown as JSON.

    Others choose names, values and texts in it: no part of them begins a line of its own.
    """
    safe = _safe(entity)
    for warning in safe.get("warnings") or ():
        yield _indented(f"WARNING: {warning.get('message', warning)}")
    render = RENDERERS.get(entity.get("@type", ""))
    if render is None:
        yield safe_json(entity, indent=2)
        return
    for part in render(safe):
        yield part if isinstance(part, TextTable) else _indented(part)


def _safe(value: object, name: str = "") -> Any:
    """Returns the same value; its texts have no controls, and only texts of several lines have line ends."""
    if isinstance(value, str):
        lines = value.splitlines() if name in _OF_SEVERAL_LINES else [value]
        return "\n".join(map(safe_line, lines))
    if isinstance(value, dict):
        return {safe_line(member): _safe(content, member) for member, content in value.items()}
    return [_safe(member, name) for member in value] if isinstance(value, list) else value


def _indented(text: str) -> str:
    """Indents a text's second and later lines, so that they do not look like lines of ours."""
    return text.replace("\n", "\n  ")


def _status(entity: Entity) -> Iterable[str | TextTable]:
    status = entity["commandStatus"]
    yield ("" if status["status"] == "SUCCESS" else f"{status['status']}: ") + status["message"]


def _table(member: str, columns: Mapping[str, Callable[[Entity], Any]]) -> Callable[[Entity], Iterable[Any]]:
    def render(entity: Entity) -> Iterable[str | TextTable]:
        rows = tuple(tuple(_text(value(content)) for value in columns.values()) for content in entity[member])
        yield TextTable(tuple(columns), rows)

    return render


def _of(name: str) -> Callable[[Entity], Any]:
    return lambda content: content.get(name)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else safe_json(value)


def schema_text(schema: Entity) -> str:
    """Returns a type as people write it, from the REST API's form."""
    kind = schema["type"]
    if kind == "STRUCT":
        fields = ", ".join(
            f"{field['name']} {schema_text(field['schema'])}" for field in schema["fields"] or ()
        )
        return f"STRUCT<{fields}>"
    if kind == "ARRAY":
        return f"ARRAY<{schema_text(schema['memberSchema'])}>"
    if kind == "MAP":
        return f"MAP<STRING, {schema_text(schema['memberSchema'])}>"
    if kind == "DECIMAL" and schema.get("parameters"):
        return f"DECIMAL({schema['parameters']['precision']}, {schema['parameters']['scale']})"
    return {"STRING": "VARCHAR(STRING)"}.get(kind, str(kind))


def _fields(fields: Iterable[Entity], key_word: str) -> TextTable:
    rows = tuple(
        (
            field["name"],
            schema_text(field["schema"]) + (f"  ({key_word})" if field.get("type") == "KEY" else ""),
        )
        for field in fields
    )
    return TextTable(("Field", "Type"), rows)


def _source(entity: Entity) -> Iterable[str | TextTable]:
    source = entity["sourceDescription"]
    yield f"Name                 : {source['name']}"
    if source.get("extended"):
        yield f"Type                 : {source['type']}"
        yield f"Key format           : {source['keyFormat']}"
        yield f"Value format         : {source['valueFormat']}"
        placed = f"partitions: {source['partitions']}, replication: {source['replication']}"
        yield f"Kafka topic          : {source['topic']} ({placed})"
        if source.get("windowType"):
            yield f"Window type          : {source['windowType']}"
        if source.get("statement"):
            yield f"Statement            : {source['statement']}"
    yield _fields(source["fields"], "primary key" if source["type"] == "TABLE" else "key")
    if source.get("statistics"):
        yield "Statistics of the topic"
        yield f"  {source['statistics']}"
    if source.get("errorStats"):
        yield "Records of the topic that were left out"
        yield f"  {' '.join(source['errorStats'].split())}"
    for member, title in (
        ("readQueries", "Queries that read from it"),
        ("writeQueries", "Queries that write to it"),
    ):
        queries = source.get(member) or ()
        if queries:
            yield title
            yield from (
                f"  {query['id']} ({query.get('state', '')}): {query['queryString']}" for query in queries
            )
            yield from _failing(queries)


def _query(entity: Entity) -> Iterable[str | TextTable]:
    yield from _query_lines(entity["queryDescription"])


def _query_lines(query: Entity) -> Iterable[str | TextTable]:
    if query["id"]:
        yield f"ID                   : {query['id']}"
    yield f"SQL                  : {query['statementText']}"
    if query.get("state"):
        yield f"State                : {query['state']}"
    yield f"Sources              : {', '.join(query['sources'])}"
    yield f"Sinks                : {', '.join(query['sinks'])}"
    if query.get("consumerGroupId"):
        yield f"Consumer group       : {query['consumerGroupId']}"
    if query.get("failureCount"):
        yield f"Failing              : {_failures(query)}"
    for problem in query.get("queryErrors") or ():
        at_ms = problem.get("timestamp")
        when = "" if at_ms is None else f"{_moment(at_ms)} "
        yield f"Problem              : {when}{problem['errorMessage']}"
    yield _fields(query["fields"], "key")
    if query.get("executionPlan"):
        yield "Execution plan"
        yield "  " + query["executionPlan"]


def _queries(entity: Entity) -> Iterable[str | TextTable]:
    yield from _QUERY_TABLE(entity)
    yield from _failing(entity["queries"])


def _failing(queries: Iterable[Entity]) -> Iterable[str]:
    """Yields a line for each query that fails: how often, since when, and why."""
    for query in queries:
        if query.get("failureCount"):
            errors = query.get("queryErrors") or ()
            reason = f": {errors[-1]['errorMessage']}" if errors else ""
            yield f"  {query['id']} failed {_failures(query)}{reason}"


def _failures(query: Entity) -> str:
    count, since = query["failureCount"], query.get("failingSince")
    times = "once" if count == 1 else f"{count} times"
    return times if since is None else f"{times} since {_moment(since)}"


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "seconds").replace("+00:00", "Z")


def _archive(entity: Entity) -> Iterable[str | TextTable]:
    archive = entity["archiveDescription"]
    yield f"Name                 : {archive['name']}"
    yield f"Of                   : {archive['source']} (topic: {archive['topic']})"
    yield f"Path                 : {archive['path']} ({archive['format']})"
    yield f"Query                : {archive['queryId']} ({archive['state']})"
    if archive.get("problem"):
        yield f"Problem              : {archive['problem']}"
    yield f"Value                : {archive['value']}"
    if archive["partitionBy"]:
        yield f"Partitioned by       : {', '.join(archive['partitionBy'])}"
    if archive["extended"]:
        yield f"Holds                : {archive['rows']:,} rows, {archive['files']:,} files, {archive['bytes']:,} bytes"
        yield f"Statement            : {archive['statement']}"
    yield _fields(archive["fields"], "key")
    if archive["extended"]:
        rows = tuple(
            tuple(_text(partition[name]) for name in ("partition", "position", "end", "behind"))
            for partition in archive["partitions"]
        )
        yield TextTable(("Partition", "Archived to", "End of topic", "Behind"), rows)


def _function(entity: Entity) -> Iterable[str | TextTable]:
    yield f"Name        : {entity['name']}"
    yield f"Type        : {entity.get('type', '')}"
    if entity.get("description"):
        yield f"Overview    : {entity['description']}"
    yield "Variations  :"
    for variation in entity.get("functions") or ():
        arguments = ", ".join(
            f"{argument.get('name') or ''} {argument['type']}{'[]' if argument.get('isVariadic') else ''}".strip()
            for argument in variation.get("arguments") or ()
        )
        yield f"  {entity['name']}({arguments}) -> {variation['returnType']}"
        if variation.get("description"):
            yield f"      {variation['description']}"


def _types(entity: Entity) -> Iterable[str | TextTable]:
    yield TextTable(
        ("Type name", "Schema"), tuple((name, schema_text(kind)) for name, kind in entity["types"].items())
    )


_QUERY_TABLE: Final = _table(
    "queries",
    {
        "Query ID": _of("id"),
        "Query type": _of("queryType"),
        "Status": _of("state"),
        "Sink": _of("sinks"),
        "Query": _of("queryString"),
    },
)
RENDERERS: Final[dict[str, Callable[[Entity], Iterable[str | TextTable]]]] = {
    "currentStatus": _status,
    "streams": _table(
        "streams",
        {
            "Stream name": _of("name"),
            "Kafka topic": _of("topic"),
            "Key format": _of("keyFormat"),
            "Value format": _of("valueFormat"),
            "Windowed": _of("isWindowed"),
        },
    ),
    "tables": _table(
        "tables",
        {
            "Table name": _of("name"),
            "Kafka topic": _of("topic"),
            "Key format": _of("keyFormat"),
            "Value format": _of("valueFormat"),
            "Windowed": _of("isWindowed"),
        },
    ),
    "queries": _queries,
    "archives": _table(
        "archives",
        {
            "Archive": _of("name"),
            "Of": _of("source"),
            "Format": _of("format"),
            "Path": _of("path"),
            "Query ID": _of("queryId"),
            "Status": _of("state"),
        },
    ),
    "archiveDescription": _archive,
    "kafka_topics": _table(
        "topics",
        {
            "Kafka topic": _of("name"),
            "Partitions": lambda topic: len(topic["replicaInfo"]),
            "Replicas": lambda topic: max(topic["replicaInfo"], default=0),
        },
    ),
    "properties": _table(
        "properties", {"Property": _of("name"), "Value": _of("value"), "Scope": _of("scope")}
    ),
    "variables": _table("variables", {"Variable": _of("name"), "Value": _of("value")}),
    "function_names": _table("functions", {"Function name": _of("name"), "Type": _of("type")}),
    "sourceDescription": _source,
    "source_descriptions": lambda entity: [
        line
        for source in entity["sourceDescriptions"]
        for line in (*_source({"sourceDescription": source}), "")
    ],
    "queryDescription": _query,
    "query_descriptions": lambda entity: [
        line for query in entity["queryDescriptions"] for line in (*_query_lines(query), "")
    ],
    "describe_function": _function,
    "type_list": _types,
    "assert_stream": lambda entity: [f"Stream {entity['name']} is as asserted."],
    "assert_table": lambda entity: [f"Table {entity['name']} is as asserted."],
    "assert_topic": lambda entity: [
        f"Topic {entity['topicName']} {'exists' if entity['exists'] else 'does not exist'}"
    ],
    "assert_schema": lambda entity: [
        f"Schema of {entity.get('subject') or entity.get('id')} {'exists' if entity['exists'] else 'does not exist'}"
    ],
    "warning_entity": lambda entity: [entity["message"]],
}
