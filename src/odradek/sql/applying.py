"""Applies a statement: returns the next catalog, and the changes to carry out. All checks of ksqlDB are here."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from odradek.config.options import GivenOptions
from odradek.model.java_numbers import is_digits
from odradek.sql.archives import create_archive, drop_archive, query_archive
from odradek.sql.changes import (
    AppliedChange,
    Change,
    QueryPaused,
    QueryResumed,
    QueryStarted,
    QueryStopped,
    SourceCreated,
    SourceDropped,
    TypeCreated,
    TypeDropped,
    unchanged,
)
from odradek.sql.language.statements import (
    AlterQuery,
    AlterSource,
    AlterSwap,
    AssertSource,
    CreateArchive,
    CreateAsSelect,
    CreateFunction,
    CreateSource,
    CreateType,
    DropArchive,
    DropFunction,
    DropSource,
    DropType,
    InsertIntoSelect,
    QueryControl,
    SourceKind,
    Statement,
)
from odradek.sql.language.with_properties import WITH, With, checked_with
from odradek.sql.metastore.catalog import (
    PSEUDO_COLUMNS,
    PersistentQuery,
    SqlCatalog,
    SqlColumn,
    SqlSource,
    TimestampColumn,
)
from odradek.sql.metastore.declared import check_columns, declared_column
from odradek.sql.metastore.query_ids import free_query_id, query_id_in
from odradek.sql.planning.building import source_formats
from odradek.sql.planning.plan import (
    check_wrapping,
    formats_of,
    plan,
    topic_settings,
)
from odradek.sql.planning.timestamps import milliseconds
from odradek.sql.upgrades import alter_query, check_rebuilding, check_replacement, swap
from odradek.sql.user_functions import create_function, drop_function
from odradek.values.errors import SqlError, nearest
from odradek.values.formats import check_map_keys
from odradek.values.formats.format_info import FormatInfo, WindowInfo
from odradek.values.types import BIGINT_MAX, parse_type

_WINDOW_UNITS_MS: Final = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}


def apply(catalog: SqlCatalog, statement: Statement, number: int) -> AppliedChange:
    """Applies a statement. `number`: the command's number, for ids of queries. SqlError for a refusal, or no change."""
    applied = _applied(catalog, statement, number)
    check_rebuilding(catalog, applied, statement)
    return applied


def _applied(catalog: SqlCatalog, statement: Statement, number: int) -> AppliedChange:
    match statement:
        case CreateSource():
            return _create_source(catalog, statement)
        case CreateAsSelect():
            return _create_as(catalog, statement, number)
        case InsertIntoSelect():
            return _insert_into(catalog, statement, number)
        case DropSource():
            return _drop_source(catalog, statement)
        case AlterSource() | AlterQuery() | AlterSwap():
            return _alter(catalog, statement, number)
        case CreateArchive() | DropArchive():
            return _change_archive(catalog, statement, number)
        case CreateType():
            return _create_type(catalog, statement)
        case DropType():
            return _drop_type(catalog, statement)
        case CreateFunction():
            return create_function(catalog, statement)
        case DropFunction():
            return drop_function(catalog, statement)
        case QueryControl():
            return _control(catalog, statement)
    raise SqlError(
        f"{statement.text.split()[0].upper()} changes nothing that the catalog has", statement.position
    )


# ---- sources


def _create_source(catalog: SqlCatalog, statement: CreateSource) -> AppliedChange:
    known = catalog.sources.get(statement.name)
    if known is not None and statement.if_not_exists:
        return unchanged(catalog, f"Cannot add {statement.kind} `{statement.name}`: it already exists.")
    if statement.or_replace and statement.read_only:
        raise _not_replaceable(statement)
    _check_name_is_free(statement.name, known, statement.kind, statement, or_replace=statement.or_replace)
    source = _declared_source(catalog, statement)
    if known is not None:
        check_replacement(known, source, statement)
        if known.query_id is not None:
            raise SqlError(
                f"Cannot replace {known.kind} `{known.name}`: it is the result of query {known.query_id}",
                statement.position,
            )
    change = SourceCreated(source=source, replaces=known)
    word = "replaced" if known else "created"
    return AppliedChange(
        catalog=catalog.with_source(source),
        changes=(change,),
        message=f"{statement.kind.capitalize()} {word}",
    )


def _check_name_is_free(
    name: str,
    known: SqlSource | None,
    kind: SourceKind,
    statement: CreateSource | CreateAsSelect,
    *,
    or_replace: bool,
) -> None:
    if known is None:
        return
    if not or_replace:
        article = "A stream" if known.kind == "stream" else "A table"
        raise SqlError(
            f"Cannot add {kind} '{name}': {article} with the same name already exists",
            statement.position,
            "Write CREATE OR REPLACE, or DROP it before.",
        )
    if known.kind != kind:
        raise SqlError(f"Cannot replace {known.kind} '{name}' with a {kind}", statement.position)
    if known.read_only:
        raise _not_replaceable(statement)


def _not_replaceable(statement: CreateSource | CreateAsSelect) -> SqlError:
    return SqlError(
        f"Cannot add {statement.kind} '{statement.name}': CREATE OR REPLACE is not supported on source {statement.kind}s.",
        statement.position,
        f"DROP {statement.kind.upper()} {statement.name}, and create it again.",
    )


def _declared_source(catalog: SqlCatalog, statement: CreateSource) -> SqlSource:
    properties = checked_with(statement, WITH, With.SOURCE)
    columns = tuple(declared_column(catalog, statement.kind, definition) for definition in statement.columns)
    if not columns:
        raise SqlError(
            f"The statement does not define any columns. {statement.name} needs columns", statement.position
        )
    check_columns(columns, statement)
    topic = properties.text("KAFKA_TOPIC")
    if topic is None:
        raise SqlError(
            'Missing required property "KAFKA_TOPIC" which has no default value', statement.position
        )
    if not properties.is_given("VALUE_FORMAT") and not properties.is_given("FORMAT"):
        raise SqlError(
            "Statement is missing the 'VALUE_FORMAT' property from the WITH clause", statement.position
        )
    has_key = any(column.role == "key" for column in columns)
    key_format, value_format = formats_of(
        properties,
        FormatInfo(name="KAFKA" if has_key else "NONE"),
        FormatInfo(name="NONE"),
        statement,
        has_key=has_key,
    )
    inherited = None
    if not has_key:
        inherited = None if key_format.name == "NONE" else key_format
        key_format = FormatInfo(name="NONE")
    values = sum(column.role == "value" for column in columns)
    check_wrapping(properties, value_format, values, statement)
    source = SqlSource(
        name=statement.name,
        kind=statement.kind,
        columns=columns,
        topic=topic,
        key_format=replace(key_format, registry=catalog.registry),
        value_format=replace(value_format, registry=catalog.registry),
        timestamp=_timestamp(properties, columns, statement),
        window=_window(properties, statement),
        partitions=properties.number_or_none("PARTITIONS"),
        replicas=properties.number_or_none("REPLICAS"),
        topic_settings=topic_settings(properties, statement),
        read_only=statement.read_only,
        text=statement.text,
        bad=properties.text("BAD"),
        inherited_key_format=inherited,
    )
    _check_formats(source, statement)
    return source


def _check_formats(source: SqlSource, statement: Statement) -> None:
    """Raises SqlError for columns that the formats cannot hold."""
    try:
        for form in source_formats(source):
            check_map_keys(form)
    except SqlError as error:
        raise error.at(statement.position) from None


def check_source(catalog: SqlCatalog, statement: AssertSource) -> str | None:
    """Returns how a source differs from an ASSERT STREAM or TABLE; None when it does not. SqlError: no such source.

    Only the columns and the properties that are written are compared.
    """
    source = catalog.source(statement.name, statement.position)
    shown = f"{source.kind.capitalize()} {source.name}"
    if source.kind != statement.kind:
        return f"Expected type does not match actual for source {source.name}. Expected {statement.kind}, got {source.kind}."
    wanted = tuple(declared_column(catalog, statement.kind, definition) for definition in statement.columns)
    actual = source.key + tuple(column for column in source.columns if column.role != "key")
    if wanted and sorted(wanted, key=lambda column: column.role != "key") != list(actual):
        written, there = (
            ", ".join(f"`{column.name}` {column.type}" for column in columns) for columns in (wanted, actual)
        )
        return f"{shown} has other columns. Expected {written}; got {there}."
    checked_with(statement, WITH, With.SOURCE)
    known = _properties_of(source)
    for name, value in statement.properties:
        if name not in known:
            raise SqlError(
                f"ASSERT compares no {name}", statement.position, f"It compares {', '.join(sorted(known))}."
            )
        if str(value).upper() != str(known[name]).upper():
            return f"{shown} has another {name}. Expected {value}; got {known[name]}."
    return None


def _properties_of(source: SqlSource) -> dict[str, object]:
    window = source.window
    return {
        "KAFKA_TOPIC": source.topic,
        "KEY_FORMAT": source.key_format.name,
        "VALUE_FORMAT": source.value_format.name,
        "FORMAT": source.value_format.name if source.key_format.name == source.value_format.name else None,
        "TIMESTAMP": None if source.timestamp is None else source.timestamp.name,
        "TIMESTAMP_FORMAT": None if source.timestamp is None else source.timestamp.format,
        "WINDOW_TYPE": None if window is None else window.kind,
        "WRAP_SINGLE_VALUE": source.value_format.wrapped,
    }


def _timestamp(
    properties: GivenOptions, columns: tuple[SqlColumn, ...], statement: Statement
) -> TimestampColumn | None:
    written = properties.text("TIMESTAMP")
    if written is None:
        return None
    name = written.strip("`") if written.startswith("`") else written.upper()
    column = next((column for column in columns if column.name == name), None)
    if column is None:
        raise SqlError(
            f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{name}'",
            statement.position,
            nearest(name, [column.name for column in columns]),
        )
    pattern = properties.text("TIMESTAMP_FORMAT")
    try:
        milliseconds("x", column.type, pattern)
    except SqlError as error:
        raise error.at(statement.position) from None
    return TimestampColumn(name=name, format=pattern)


def _window(properties: GivenOptions, statement: Statement) -> WindowInfo | None:
    kind = (properties.text("WINDOW_TYPE") or "").upper()
    if not kind:
        return None
    held_ms, size = properties.number_or_none("RETENTION_MS"), properties.text("WINDOW_SIZE")
    if kind == "SESSION":
        if size is not None:
            raise SqlError("'WINDOW_SIZE' should not be set for SESSION windows", statement.position)
        return WindowInfo(kind="session", size_ms=None, held_ms=held_ms)
    number, _, unit = (size or "").strip().upper().partition(" ")
    length = _WINDOW_UNITS_MS.get(unit.strip().removesuffix("S"))
    is_length = length is not None and is_digits(number) and 0 < int(number) * length <= BIGINT_MAX
    if kind not in ("TUMBLING", "HOPPING") or length is None or not is_length:
        raise SqlError(
            "WINDOW_TYPE is SESSION, TUMBLING or HOPPING; the last two need WINDOW_SIZE",
            statement.position,
            "Write WINDOW_SIZE='10 SECONDS'.",
        )
    return WindowInfo(
        kind="tumbling" if kind == "TUMBLING" else "hopping", size_ms=int(number) * length, held_ms=held_ms
    )


def _alter(
    catalog: SqlCatalog, statement: AlterSource | AlterQuery | AlterSwap, number: int
) -> AppliedChange:
    if isinstance(statement, AlterQuery):
        return alter_query(catalog, statement, number)
    if isinstance(statement, AlterSwap):
        return swap(catalog, statement)
    return _alter_source(catalog, statement)


def _alter_source(catalog: SqlCatalog, statement: AlterSource) -> AppliedChange:
    source = catalog.source(statement.name, statement.position)
    if source.kind != statement.kind:
        raise SqlError(f"{source.name} is a {source.kind}, not a {statement.kind}", statement.position)
    if source.query_id is not None:
        raise SqlError(
            f"ALTER command is not supported for CREATE … AS statements: {source.name} is made by {source.query_id}",
            statement.position,
            f"Write ALTER {source.kind.upper()} … AS SELECT.",
        )
    if source.read_only:
        raise SqlError(
            f"Cannot alter {source.kind} '{source.name}': ALTER operations are not supported on source {source.kind}s.",
            statement.position,
            f"DROP {source.kind.upper()} {source.name}, and create it again.",
        )
    added = tuple(declared_column(catalog, source.kind, definition) for definition in statement.columns)
    names = {column.name for column in source.columns}
    for column, definition in zip(added, statement.columns, strict=True):
        if column.name in PSEUDO_COLUMNS:
            raise SqlError(f"'{column.name}' is a reserved column name", definition.position)
        if column.name in names:
            raise SqlError(
                f"Cannot add column `{column.name}` to schema. It already exists", definition.position
            )
        names.add(column.name)
    _check_formats(replace(source, columns=source.columns + added), statement)
    changed = replace(source, columns=source.columns + added, text=f"{source.text}; {statement.text}")
    return AppliedChange(
        catalog=catalog.with_source(changed),
        changes=(SourceCreated(source=changed, replaces=source),),
        message=f"{source.kind.capitalize()} altered",
    )


def _drop_source(catalog: SqlCatalog, statement: DropSource) -> AppliedChange:
    source = catalog.sources.get(statement.name)
    if source is None and statement.if_exists:
        return unchanged(catalog, f"Source `{statement.name}` does not exist.")
    source = catalog.source(statement.name, statement.position)
    if source.kind != statement.kind:
        raise SqlError(
            f"Incompatible data source type is {source.kind.upper()}, but statement was DROP {statement.kind.upper()}",
            statement.position,
        )
    if statement.delete_topic:
        _check_topic_is_free(catalog, source, statement)
    used = [
        query_id
        for query_id in {*catalog.readers(source.name), *catalog.writers(source.name)}
        if query_id != source.query_id
    ]
    if used:
        raise SqlError(
            f"Cannot drop {source.name}. The following queries use it: {', '.join(sorted(used))}",
            statement.position,
            "You need to terminate them before dropping it.",
        )
    changes: list[Change] = []
    without = catalog
    if source.query_id is not None and source.query_id in catalog.queries:
        changes.append(QueryStopped(query=catalog.queries[source.query_id]))
        without = without.without_query(source.query_id)
    changes.append(SourceDropped(source=source, delete_topic=statement.delete_topic))
    return AppliedChange(
        catalog=without.without_source(source.name),
        changes=tuple(changes),
        message=f"Source `{source.name}` (topic: {source.topic}) was dropped.",
    )


def _check_topic_is_free(catalog: SqlCatalog, source: SqlSource, statement: DropSource) -> None:
    """Raises SqlError for a topic that is not the source's own, or that others use, too."""
    if source.read_only:
        raise SqlError(
            f"Cannot delete topic for read-only source: {source.name}",
            statement.position,
            "Leave out DELETE TOPIC.",
        )
    others = sorted(
        other.name
        for other in (*catalog.sources.values(), *catalog.candidates.values())
        if other.topic == source.topic and other.name != source.name
    )
    if others:
        raise SqlError(
            f"Refusing to delete topic. Found other data sources ({', '.join(others)}) using topic {source.topic}",
            statement.position,
            "Drop them before, or leave out DELETE TOPIC.",
        )


# ---- queries


def _create_as(catalog: SqlCatalog, statement: CreateAsSelect, number: int) -> AppliedChange:
    known = catalog.sources.get(statement.name)
    if known is not None and statement.if_not_exists:
        return unchanged(catalog, f"Cannot add {statement.kind} `{statement.name}`: it already exists.")
    _check_name_is_free(statement.name, known, statement.kind, statement, or_replace=statement.or_replace)
    planned = plan(catalog, statement)
    assert planned.sink is not None
    if any(source.name == statement.name for source in planned.sources):
        raise SqlError(f"{statement.name} cannot read itself", statement.position)
    prefix = "CSAS" if statement.kind == "stream" else "CTAS"
    query_id = free_query_id(catalog.queries, f"{prefix}_{statement.name}", number)
    changes: list[Change] = []
    if known is not None:
        check_replacement(known, planned.sink, statement)
        query_id = known.query_id or query_id
    sink = replace(planned.sink, query_id=query_id, carried_at=None if known is None else known.carried_at)
    query = PersistentQuery(
        id=query_id,
        sink=sink.name,
        sources=tuple(dict.fromkeys(source.name for source in planned.sources)),
        text=statement.text,
        creates_sink=True,
    )
    changes.append(SourceCreated(source=sink, replaces=known))
    changes.append(
        QueryStarted(
            query=query, plan=replace(planned, sink=sink), replaces=None if known is None else known.query_id
        )
    )
    return AppliedChange(
        catalog=catalog.with_source(sink).with_query(query),
        changes=tuple(changes),
        message=f"Created query with ID {query_id}",
    )


def _change_archive(
    catalog: SqlCatalog, statement: CreateArchive | DropArchive, number: int
) -> AppliedChange:
    if isinstance(statement, DropArchive):
        return drop_archive(catalog, statement)
    if statement.query is None or statement.name in catalog.archives:
        return create_archive(catalog, statement, number)
    changes: list[Change] = []
    messages = []
    for part in query_archive(catalog, statement):
        applied = apply(catalog, part, number)
        catalog = applied.catalog
        changes += applied.changes
        messages.append(applied.message)
    return AppliedChange(catalog=catalog, changes=tuple(changes), message="\n".join(messages))


def _insert_into(catalog: SqlCatalog, statement: InsertIntoSelect, number: int) -> AppliedChange:
    planned = plan(catalog, statement)
    assert planned.sink is not None
    if planned.sink.read_only:
        raise SqlError(
            f"Cannot insert into read-only {planned.sink.kind}: {planned.sink.name}", statement.position
        )
    query_id = query_id_in(statement) or free_query_id(catalog.queries, "INSERTQUERY", number)
    if query_id in catalog.queries:
        raise SqlError(f"Query ID '{query_id}' already exists", statement.position)
    query = PersistentQuery(
        id=query_id,
        sink=planned.sink.name,
        sources=tuple(dict.fromkeys(source.name for source in planned.sources)),
        text=statement.text,
        creates_sink=False,
    )
    return AppliedChange(
        catalog=catalog.with_query(query),
        changes=(QueryStarted(query=query, plan=planned),),
        message=f"Created query with ID {query_id}",
    )


def _control(catalog: SqlCatalog, statement: QueryControl) -> AppliedChange:
    if statement.query_id is None:
        queries = list(catalog.queries.values())
    elif statement.if_exists and statement.query_id not in catalog.queries:
        queries = []
    else:
        queries = [catalog.query(statement.query_id, statement.position)]
    changes: list[Change] = []
    for query in queries:
        if statement.action == "terminate":
            changes.append(QueryStopped(query=query))
            catalog = catalog.without_query(query.id)
        else:
            paused = statement.action == "pause"
            query = replace(query, state="paused" if paused else "running")
            changes.append(QueryPaused(query=query) if paused else QueryResumed(query=query))
            catalog = catalog.with_query(query)
    word = {"terminate": "terminated", "pause": "paused", "resume": "resumed"}[statement.action]
    return AppliedChange(catalog=catalog, changes=tuple(changes), message=f"Query {word}.")


# ---- types


def _create_type(catalog: SqlCatalog, statement: CreateType) -> AppliedChange:
    if statement.name in catalog.types:
        if statement.if_not_exists:
            return unchanged(catalog, f"{statement.name} is already registered.")
        raise SqlError(
            f"Cannot register custom type '{statement.name}' since it is already registered",
            statement.position,
        )
    try:
        kind = parse_type(statement.type, catalog.types)
    except SqlError as error:
        raise error.at(statement.position) from None
    return AppliedChange(
        catalog=catalog.with_type(statement.name, kind),
        changes=(TypeCreated(name=statement.name, type=kind),),
        message=f"Registered custom type with name '{statement.name}' and SQL type {kind}",
    )


def _drop_type(catalog: SqlCatalog, statement: DropType) -> AppliedChange:
    if statement.name not in catalog.types:
        if statement.if_exists:
            return unchanged(catalog, f"Type '{statement.name}' does not exist.")
        raise SqlError(
            f"Type {statement.name} does not exist",
            statement.position,
            nearest(statement.name, catalog.types),
        )
    return AppliedChange(
        catalog=catalog.without_type(statement.name),
        changes=(TypeDropped(name=statement.name),),
        message=f"Dropped type '{statement.name}'",
    )
