"""The answers of statements over REST, as JSON. Pure. Source: ksqlDB's HTTP API reference, "Execute a statement"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.spark.options.sink_ids import group_of
from odradek.sql.functions import FunctionLibrary
from odradek.sql.metastore.catalog import Catalog, PersistentQuery, Source
from odradek.sql.planning import Plan, explain, sink_id
from odradek.sql.queries.channel import StartQuery
from odradek.sql.queries.engine import QueryFailure, SupervisedQuery

Entity = dict[str, Any]


def entity(kind: str, statement: str, **members: object) -> Entity:
    return {"@type": kind, "statementText": statement, **members, "warnings": []}


def status_entity(statement: str, command_id: str, status: Mapping[str, object], sequence: int) -> Entity:
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


_SHOWN_STATES: Final = {"STARTING": "RUNNING", "SLEEPING": "RUNNING"}
"""ksqlDB's clients know neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryHealth:
    """The health of a persistent query. `failure_count`: failures one after another; `failing_since_ms`: time of the first, in
    milliseconds since 1970; `failures`: the last ones, also of a query that runs again.
    """

    state: str = "RUNNING"
    failure_count: int = 0
    failing_since_ms: int | None = None
    failures: tuple[QueryFailure, ...] = ()
    consumer_group: str | None = None
    """The group in which it commits what it has read; None for one that fills an archive."""

    @classmethod
    def of(cls, query: SupervisedQuery | None) -> QueryHealth:
        """Returns the health of a query; `query` None: the engine does not have it yet."""
        if query is None:
            return cls()
        return cls(
            state=_SHOWN_STATES.get(query.state, query.state),
            failure_count=query.failure_count,
            failing_since_ms=query.failing_since_ms,
            failures=tuple(query.failures),
            consumer_group=group_of(sink_id(query.order.name))
            if isinstance(query.order, StartQuery)
            else None,
        )

    @property
    def problem(self) -> str | None:
        """The reason why it fails; None where it does not."""
        return self.failures[-1].reason if self.failure_count else None

    @property
    def members(self) -> Entity:
        """The state, and what is wrong, as members of a query's JSON. The fields of errors are ksqlDB's."""
        members: Entity = {"state": self.state, "queryErrors": self.errors}
        if self.consumer_group is not None:
            members["consumerGroupId"] = self.consumer_group
        if self.failure_count:
            members |= {"failureCount": self.failure_count, "failingSince": self.failing_since_ms}
        return members

    @property
    def errors(self) -> list[Entity]:
        return [
            {"timestamp": failure.at_ms, "errorMessage": failure.reason, "type": "UNKNOWN"}
            for failure in self.failures
        ]


def listed_query(catalog: Catalog, query: PersistentQuery, health: QueryHealth) -> Entity:
    sink = None if query.fills_archive else catalog.sources.get(query.sink)
    return {
        "queryString": query.text if query.text.endswith(";") else query.text + ";",
        "sinks": [query.sink],
        "sinkKafkaTopics": [sink.topic] if sink else [],
        "id": query.id,
        "statusCount": {health.state: 1},
        "queryType": "PERSISTENT",
        **health.members,
    }


def described_source(
    catalog: Catalog,
    source: Source,
    healths: Mapping[str, QueryHealth],
    topic: tuple[int, int] | None,
    statistics: str = "",
    error_text: str = "",
    error_stats: Sequence[Entity] = (),
) -> Entity:
    """Describes a source. `topic`: partitions and replicas; None: not extended. `statistics`: about its records;
    `error_text`, `error_stats`: about records that were left out.
    """

    def queries(ids: Iterable[str]) -> list[Entity]:
        return [
            listed_query(catalog, catalog.queries[query_id], healths.get(query_id, QueryHealth()))
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
        "statistics": statistics,
        "errorStats": error_text,
        "extended": topic is not None,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "topic": source.topic,
        "partitions": 0 if topic is None else topic[0],
        "replication": 0 if topic is None else topic[1],
        "statement": source.text,
        "queryOffsetSummaries": [],
        "sourceConstraints": [],
        "clusterStatistics": [],
        "clusterErrorStats": list(error_stats),
    }


def described_plan(planned: Plan, query_id: str, text: str, health: QueryHealth | None) -> Entity:
    """Describes a plan. `health`: None for a query that does not run."""
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
        **({"state": None, "queryErrors": []} if health is None else health.members),
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
