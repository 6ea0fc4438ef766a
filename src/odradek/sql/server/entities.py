"""What statements answer over REST, as JSON. Pure. Source: ksqlDB's HTTP API reference, "Execute a statement"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.sql.catalog import Catalog, PersistentQuery, Source
from odradek.sql.functions import FunctionLibrary
from odradek.sql.planning import Plan, explain

Entity = dict[str, Any]


def entity(kind: str, statement: str, **members: Any) -> Entity:
    return {"@type": kind, "statementText": statement, **members, "warnings": []}


def status_entity(statement: str, command_id: str, status: Mapping[str, Any], sequence: int) -> Entity:
    return entity(
        "currentStatus",
        statement,
        commandId=command_id,
        commandStatus=dict(status),
        commandSequenceNumber=sequence,
    )


def listed_source(source: Source) -> Entity:
    return {
        "type": source.kind.upper(),
        "name": source.name,
        "topic": source.topic,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "isWindowed": source.window is not None,
    }


def listed_query(catalog: Catalog, query: PersistentQuery, state: str) -> Entity:
    sink = None if query.fills_archive else catalog.sources.get(query.sink)
    return {
        "queryString": query.text if query.text.endswith(";") else query.text + ";",
        "sinks": [query.sink],
        "sinkKafkaTopics": [sink.topic] if sink else [],
        "id": query.id,
        "statusCount": {state: 1},
        "queryType": "PERSISTENT",
        "state": state,
    }


def described_source(
    catalog: Catalog,
    source: Source,
    states: Mapping[str, str],
    topic: tuple[int, int] | None,
) -> Entity:
    """`topic`: partitions and replicas; None: it is not an extended description."""

    def queries(ids: Iterable[str]) -> list[Entity]:
        return [
            listed_query(catalog, catalog.queries[query_id], states.get(query_id, "RUNNING"))
            for query_id in ids
        ]

    return {
        "name": source.name,
        "windowType": None if source.window is None else source.window.kind.upper(),
        "readQueries": queries(catalog.readers(source.name)),
        "writeQueries": queries(catalog.writers(source.name)),
        "fields": source.schema_json(),
        "type": source.kind.upper(),
        "timestamp": "" if source.timestamp is None else source.timestamp.name,
        "statistics": "",
        "errorStats": "",
        "extended": topic is not None,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "topic": source.topic,
        "partitions": 0 if topic is None else topic[0],
        "replication": 0 if topic is None else topic[1],
        "statement": source.text,
        "queryOffsetSummaries": [],
        "sourceConstraints": [],
    }


def described_plan(planned: Plan, query_id: str, text: str, state: str | None, problem: str | None) -> Entity:
    fields = [
        {
            "name": column.name,
            "schema": column.type.schema_json(),
            **({"type": "KEY"} if column.role == "key" else {}),
        }
        for column in planned.columns
    ]
    return {
        "id": query_id,
        "statementText": text,
        "windowType": None if planned.window is None else planned.window.kind.upper(),
        "fields": fields,
        "sources": [source.name for source in planned.sources],
        "sinks": [] if planned.sink is None else [planned.sink.name],
        "topology": "",
        "executionPlan": explain(planned),
        "overriddenProperties": {},
        "queryType": "PUSH" if planned.sink is None else "PERSISTENT",
        "state": state,
        "queryErrors": [] if problem is None else [{"errorMessage": problem, "type": "UNKNOWN"}],
        "tasksMetadata": [],
    }


def described_function(functions: FunctionLibrary, name: str) -> Entity:
    described = functions.describe(name)
    return {
        "name": described.name,
        "description": described.description,
        "author": "",
        "version": "",
        "path": "internal",
        "type": described.kind,
        "functions": [
            {
                "arguments": [
                    {
                        "name": argument,
                        "type": kind,
                        "description": "",
                        "isVariadic": variation.is_variadic and index == len(variation.arguments) - 1,
                    }
                    for index, (argument, kind) in enumerate(variation.arguments)
                ],
                "returnType": variation.returns,
                "description": described.note,
            }
            for variation in described.variations
        ],
    }


PROPERTIES: Final = {
    "auto.offset.reset": "latest",
    "cache.max.bytes.buffering": "10000000",
    "commit.interval.ms": "500",
    "default.deserialization.exception.handler": "log and go on",
    "ksql.service.id": "",
    "ksql.schema.registry.url": "",
    "processing.guarantee": "exactly_once_v2",
}
"""Those that a client may ask about. Only `auto.offset.reset` changes what a query does."""
SETTABLE: Final = frozenset(
    {"auto.offset.reset", "cache.max.bytes.buffering", "commit.interval.ms", "processing.guarantee"}
)


def plain_property(name: str) -> str:
    """Without the prefix that ksqlDB allows."""
    return name.removeprefix("ksql.streams.")
