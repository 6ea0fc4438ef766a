"""ALTER STREAM or TABLE … AS SELECT: a running query gets another statement. What that changes; which modes are possible is
looked up by `server/upgrades.py`, once, before the statement is written to the command topic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from odradek.pipelines.upgrade import UpgradeMode
from odradek.sql.catalog import PersistentQuery, SqlCatalog, SqlSource
from odradek.sql.changes import AppliedChange, QueryStarted, SourceCreated
from odradek.sql.errors import SqlError, nearest
from odradek.sql.language.statements import AlterQuery, Statement
from odradek.sql.planning.plan import checked_properties, plan

_MODES: Final = tuple(mode.value for mode in UpgradeMode)


def alter_query(catalog: SqlCatalog, statement: AlterQuery, number: int) -> AppliedChange:
    """`number`: of the command; a new checkpoint is named after it."""
    source, query = altered(catalog, statement)
    mode = mode_of(statement) or UpgradeMode.KEEP
    if mode is UpgradeMode.REBUILD:
        raise SqlError(rebuild_refusal(source), statement.position)
    made = plan(catalog, statement)
    assert made.sink is not None
    if any(read.name == source.name for read in made.sources):
        raise SqlError(f"{source.name} cannot read itself", statement.position)
    check_replacement(source, made.sink, statement)
    sink = replace(made.sink, text=f"{source.text}; {statement.text}")
    if mode is UpgradeMode.CARRY:
        sink = replace(sink, carried_at=number)
    changed = replace(
        query,
        sources=tuple(dict.fromkeys(read.name for read in made.sources)),
        text=statement.text,
    )
    return AppliedChange(
        catalog=catalog.with_source(sink).with_query(changed),
        changes=(
            SourceCreated(source=sink, replaces=source),
            QueryStarted(query=changed, plan=replace(made, sink=sink), replaces=query.id),
        ),
        message=f"{source.kind.capitalize()} altered: {query.id} goes on by {mode}",
    )


def altered(catalog: SqlCatalog, statement: AlterQuery) -> tuple[SqlSource, PersistentQuery]:
    """What it is about. SqlError where there is no query that could go on."""
    source = catalog.source(statement.name, statement.position)
    if source.kind != statement.kind:
        raise SqlError(f"{source.name} is a {source.kind}, not a {statement.kind}", statement.position)
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
    """None: the first that is possible of keep and carry. SqlError."""
    mode = checked_properties(statement.properties, ("MODE",), statement).get("MODE")
    if mode is None:
        return None
    if str(mode).lower() not in _MODES:
        raise SqlError(
            f"MODE is one of {', '.join(_MODES)}, not {mode!r}",
            statement.position,
            nearest(str(mode), _MODES),
        )
    return UpgradeMode(str(mode).lower())


def with_mode(statement: AlterQuery, mode: UpgradeMode) -> AlterQuery:
    """Its text says all that it means."""
    name = statement.name.replace("`", "``")
    text = f"ALTER {statement.kind.upper()} `{name}` WITH (MODE='{mode}') AS {statement.query_text}"
    return replace(statement, properties=(("MODE", mode.value),), text=text)


def rebuild_refusal(source: SqlSource) -> str:
    kind, name = source.kind.upper(), source.name
    return (
        f"rebuild needs a topic of its own: write SET 'auto.offset.reset'='earliest'; CREATE {kind} {name}_V2 AS SELECT …, and"
        f" when it has caught up DROP {kind} {name}"
    )


def check_replacement(known: SqlSource, source: SqlSource, statement: Statement) -> None:
    """Columns may be added at the end; nothing else changes."""
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
