"""ALTER STREAM or TABLE … AS SELECT: a running query gets another statement. What that changes; which modes are possible is
looked up by `server/upgrades.py`, once, before the statement is written to the command topic.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from odradek.pipelines.upgrade import UpgradeMode
from odradek.sql.changes import (
    AppliedChange,
    ArchiveCreated,
    Change,
    QueryStarted,
    QueryStopped,
    SourceCreated,
    SourceDropped,
)
from odradek.sql.language.rewriting import quoted, with_clause
from odradek.sql.language.statements import AlterQuery, AlterSwap, Properties, Statement
from odradek.sql.language.with_properties import WITH, With, checked_with
from odradek.sql.metastore.catalog import PersistentQuery, SqlCatalog, SqlSource
from odradek.sql.metastore.query_ids import free_query_id
from odradek.sql.planning.plan import Plan, plan
from odradek.values.errors import SqlError

_VERSION: Final = re.compile(r"\.v([0-9]+)$")


def alter_query(catalog: SqlCatalog, statement: AlterQuery, number: int) -> AppliedChange:
    """Alters a query. `number`: the command's number, which names a new checkpoint."""
    source, query = altered(catalog, statement)
    mode = mode_of(statement) or UpgradeMode.KEEP
    planned = plan(catalog, statement)
    assert planned.sink is not None
    if any(read.name == source.name for read in planned.sources):
        raise SqlError(f"{source.name} cannot read itself", statement.position)
    if mode is UpgradeMode.REBUILD:
        return _rebuild(catalog, statement, source, planned, number)
    check_replacement(source, planned.sink, statement)
    sink = replace(planned.sink, text=f"{source.text}; {statement.text}")
    if mode is UpgradeMode.CARRY:
        sink = replace(sink, carried_at=number)
    changed = replace(
        query,
        sources=tuple(dict.fromkeys(read.name for read in planned.sources)),
        text=statement.text,
    )
    return AppliedChange(
        catalog=catalog.with_source(sink).with_query(changed),
        changes=(
            SourceCreated(source=sink, replaces=source),
            QueryStarted(query=changed, plan=replace(planned, sink=sink), replaces=query.id),
        ),
        message=f"{source.kind.capitalize()} altered: {query.id} continues by {mode}",
    )


def _rebuild(
    catalog: SqlCatalog, statement: AlterQuery, source: SqlSource, planned: Plan, number: int
) -> AppliedChange:
    """Starts a query that rebuilds a source while the present one runs, with a topic of its own."""
    assert planned.sink is not None
    reasons = rebuild_reasons(catalog, source)
    if reasons:
        raise SqlError(f"{source.name} cannot be rebuilt: {'; '.join(reasons)}", statement.position)
    kind = f"{'CTAS' if source.is_table else 'CSAS'}_{source.name}"
    query_id = free_query_id(catalog.queries, kind, number)
    topic = planned.sink.topic if planned.sink.topic != source.topic else next_topic(source)
    text = f"{source.text}; {statement.text}"
    candidate = replace(planned.sink, topic=topic, query_id=query_id, carried_at=None, text=text)
    query = PersistentQuery(
        id=query_id,
        sink=source.name,
        sources=tuple(dict.fromkeys(read.name for read in planned.sources)),
        text=statement.text,
        creates_sink=True,
    )
    return AppliedChange(
        catalog=catalog.with_candidate(candidate).with_query(query),
        changes=(QueryStarted(query=query, plan=replace(planned, sink=candidate)),),
        message=f"Created query with ID {query_id}: it takes the place of {source.query_id} when it has caught up",
    )


def rebuild_reasons(catalog: SqlCatalog, source: SqlSource) -> list[str]:
    """Returns why a source cannot be rebuilt: readers and writers of its topic would stay there."""
    others = sorted(
        query_id
        for query_id in {*catalog.readers(source.name), *catalog.writers(source.name)}
        if query_id != source.query_id
    )
    if not others:
        return []
    return [f"{', '.join(others)} would stay with the topic {source.topic}: terminate it before"]


def next_topic(source: SqlSource) -> str:
    """Returns the topic of the next version: `totals`, `totals.v2`, `totals.v3`, …"""
    version = _VERSION.search(source.topic)
    if version is None:
        return f"{source.topic}.v2"
    return f"{source.topic[: version.start()]}.v{int(version[1]) + 1}"


def swap(catalog: SqlCatalog, statement: AlterSwap) -> AppliedChange:
    """Puts the candidate in its source's place."""
    source = catalog.source(statement.name, statement.position)
    candidate = catalog.candidates.get(statement.name)
    if candidate is None or source.kind != statement.kind:
        raise SqlError(
            f"{statement.name} is no {statement.kind} that is being rebuilt",
            statement.position,
            f"Write ALTER {source.kind.upper()} … WITH (MODE='rebuild') AS SELECT ….",
        )
    changes: list[Change] = [SourceCreated(source=candidate, replaces=source)]
    query = catalog.queries.get(source.query_id or "")
    if query is not None:
        changes.append(QueryStopped(query=query))
        catalog = catalog.without_query(query.id)
    return AppliedChange(
        catalog=catalog.without_candidate(source.name).with_source(candidate),
        changes=tuple(changes),
        message=f"{source.kind.capitalize()} swapped: {source.name} is in the topic {candidate.topic} from now on",
    )


def check_rebuilding(catalog: SqlCatalog, applied: AppliedChange, statement: Statement) -> None:
    """Raises SqlError for a source that is being rebuilt: it stays as it is until it is swapped, or given up."""
    rebuilt = catalog.candidates.keys() & applied.catalog.candidates.keys()
    for change in applied.changes:
        match change:
            case QueryStarted(query=query) | ArchiveCreated(query=query):
                names = {*query.sources, *(() if query.fills_archive else (query.sink,))}
            case SourceCreated(source=source) | SourceDropped(source=source):
                names = {source.name}
            case _:
                continue
        for name in sorted(names & rebuilt):
            raise _is_being_rebuilt(catalog.candidates[name], statement)


def _is_being_rebuilt(candidate: SqlSource, statement: Statement) -> SqlError:
    kind, name, query_id = candidate.kind.upper(), candidate.name, candidate.query_id
    return SqlError(
        f"{name} is being rebuilt by {query_id}",
        statement.position,
        f"Wait, or write ALTER {kind} {name} SWAP, or TERMINATE {query_id}.",
    )


def altered(catalog: SqlCatalog, statement: AlterQuery) -> tuple[SqlSource, PersistentQuery]:
    """Returns the source and the query that a statement alters. SqlError where there is no query that could continue."""
    source = catalog.source(statement.name, statement.position)
    if source.kind != statement.kind:
        raise SqlError(f"{source.name} is a {source.kind}, not a {statement.kind}", statement.position)
    candidate = catalog.candidates.get(source.name)
    if candidate is not None:
        raise _is_being_rebuilt(candidate, statement)
    query = None if source.query_id is None else catalog.queries.get(source.query_id)
    if source.query_id is None:
        raise SqlError(
            f"no query makes {source.name}: it was made by CREATE {source.kind.upper()} with columns",
            statement.position,
            "Write ALTER … ADD COLUMN.",
        )
    if query is None:
        raise SqlError(
            f"the query {source.query_id} of {source.name} was terminated",
            statement.position,
            f"Write CREATE OR REPLACE {source.kind.upper()} … AS SELECT.",
        )
    if source.key_format.schema_id is not None or source.value_format.schema_id is not None:
        raise SqlError(
            f"ALTER cannot change the schema of {source.name}, which is in the registry",
            statement.position,
            f"Write CREATE OR REPLACE {source.kind.upper()} … AS SELECT, which keeps state and position.",
        )
    return source, query


def mode_of(statement: AlterQuery) -> UpgradeMode | None:
    """Returns the mode of a statement; None: the first possible one of keep and carry. SqlError."""
    properties = checked_with(statement, WITH, With.UPGRADE)
    mode = properties.choice_or_none("MODE", UpgradeMode)
    if properties.is_given("KAFKA_TOPIC") and mode is not UpgradeMode.REBUILD:
        raise SqlError("KAFKA_TOPIC is for MODE='rebuild': else the topic stays", statement.position)
    return mode


def with_mode(statement: AlterQuery, mode: UpgradeMode, topic: str | None = None) -> AlterQuery:
    """Returns the statement with the mode, and the topic of the rebuilt source, in its properties and its text."""
    properties: Properties = (("MODE", mode.value), *((("KAFKA_TOPIC", topic),) if topic is not None else ()))
    head = f"ALTER {statement.kind.upper()} {quoted(statement.name)}{with_clause(properties)}"
    text = f"{head} AS {statement.query_text}"
    return replace(statement, properties=properties, text=text)


def check_replacement(known: SqlSource, source: SqlSource, statement: Statement) -> None:
    """Raises SqlError unless the replacement only adds columns at the end."""
    if (known.topic, known.key_format.name, known.value_format.name) != (
        source.topic,
        source.key_format.name,
        source.value_format.name,
    ):
        raise SqlError(
            f"Cannot replace {known.kind} '{known.name}': topic and formats stay", statement.position
        )
    if known.key != source.key or known.window != source.window:
        raise SqlError(f"Cannot replace {known.kind} '{known.name}': key columns stay", statement.position)
    if known.value != source.value[: len(known.value)]:
        changed = next((column for column in known.value if column not in source.value), known.value[0])
        raise SqlError(
            f"Cannot replace {known.kind} '{known.name}': the column `{changed.name}` {changed.type} is removed or"
            " changed",
            statement.position,
            "Columns can be added at the end.",
        )
