"""CREATE ARCHIVE and DROP ARCHIVE: what they change, and what is refused.

An archive follows one topic, the one of a stream or table, so that each of its rows has an offset that can be counted. An
archive of a query is two statements: CREATE STREAM or TABLE … AS SELECT, and CREATE ARCHIVE … FROM what that makes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from odradek.archive.row_columns import RowColumns, ValueFormat, row_columns
from odradek.archive.store.location import ArchiveLocation, archive_location
from odradek.archive.tables.port import TableFormat
from odradek.config.options import GivenOptions
from odradek.model.errors import ConfigError
from odradek.sql.changes import AppliedChange, ArchiveCreated, ArchiveDropped, Change, QueryStopped, unchanged
from odradek.sql.language.dialect import tokens_of
from odradek.sql.language.reading import StatementReader
from odradek.sql.language.rewriting import quoted, with_clause
from odradek.sql.language.statements import (
    CreateArchive,
    CreateAsSelect,
    DropArchive,
)
from odradek.sql.language.with_properties import (
    ARCHIVE_WITH,
    WITH,
    ArchivedValue,
    ArchiveWith,
    With,
    checked_with,
)
from odradek.sql.metastore.catalog import PersistentQuery, SqlArchive, SqlCatalog, SqlSource
from odradek.sql.metastore.query_ids import free_query_id
from odradek.sql.planning.plan import planned_kind
from odradek.values.errors import SqlError

_ARCHIVE_NAMES: Final = frozenset(option.key for option in ARCHIVE_WITH.options)
_QUERY_NAMES: Final = frozenset(option.key for option in WITH.of(With.SINK)) - _ARCHIVE_NAMES
"""The properties of CREATE ARCHIVE … AS SELECT that describe the query's topic."""
_EVERY_MS: Final = 600_000


def create_archive(catalog: SqlCatalog, statement: CreateArchive, number: int) -> AppliedChange:
    """Creates an archive of a stream or table. `number` is the command's; the query's id ends with it."""
    if statement.name in catalog.archives:
        if statement.if_not_exists:
            return unchanged(catalog, f"Cannot add archive `{statement.name}`: it already exists.")
        raise SqlError(
            f"Cannot add archive '{statement.name}': an archive with the same name already exists",
            statement.position,
            "DROP ARCHIVE keeps the files, unless you write DELETE FILES.",
        )
    assert statement.source is not None
    source = catalog.source(statement.source, statement.position)
    query_id = free_query_id(catalog.queries, f"ARCHIVE_{statement.name}", number)
    archive = _archive(statement, source, query_id)
    for other in catalog.archives.values():
        if _overlap(archive.location, other.location):
            where = "is" if archive.location == other.location else "is within, or around,"
            raise SqlError(
                f"{archive.location} {where} the place of archive {other.name}",
                statement.position,
                "Choose another PATH.",
            )
    query = PersistentQuery(
        id=query_id,
        sink=archive.name,
        sources=(source.name,),
        text=statement.text,
        creates_sink=True,
        fills_archive=True,
    )
    return AppliedChange(
        catalog=catalog.with_archive(archive).with_query(query),
        changes=(ArchiveCreated(archive=archive, query=query),),
        message=f"Created query with ID {query_id}",
    )


def _overlap(location: ArchiveLocation, other: ArchiveLocation) -> bool:
    if (location.is_s3, location.endpoint) != (other.is_s3, other.endpoint):
        return False
    short, long = sorted((f"{location.path}/", f"{other.path}/"), key=len)
    return long.startswith(short)


def drop_archive(catalog: SqlCatalog, statement: DropArchive) -> AppliedChange:
    if statement.if_exists and statement.name not in catalog.archives:
        return unchanged(catalog, f"Archive `{statement.name}` does not exist.")
    archive = catalog.archive(statement.name, statement.position)
    if statement.delete_files and archive.catalog is not None:
        raise SqlError(
            f"the files of {archive.name} belong to a table in the catalog {archive.catalog}",
            statement.position,
            "Write DROP ARCHIVE, and drop the table with the catalog's own tools.",
        )
    changes: list[Change] = []
    query = catalog.queries.get(archive.query_id)
    if query is not None:
        changes.append(QueryStopped(query=query))
        catalog = catalog.without_query(query.id)
    changes.append(ArchiveDropped(archive=archive, delete_files=statement.delete_files))
    fate = "were deleted" if statement.delete_files else "stay"
    return AppliedChange(
        catalog=catalog.without_archive(archive.name),
        changes=tuple(changes),
        message=f"Archive `{archive.name}` was dropped. Its files at {archive.location} {fate}.",
    )


def query_archive(catalog: SqlCatalog, statement: CreateArchive) -> tuple[CreateAsSelect, CreateArchive]:
    """Returns the two statements that a CREATE ARCHIVE … AS SELECT abbreviates. Their texts are complete.

    SqlError for a query that cannot be planned.
    """
    query = statement.query
    assert query is not None
    known_source = catalog.sources.get(statement.name)
    if known_source is not None and not statement.if_not_exists:
        raise SqlError(
            f"CREATE ARCHIVE … AS SELECT makes {statement.name}, and there is a {known_source.kind} of this name",
            statement.position,
            f"Write CREATE ARCHIVE … FROM {statement.name}, or choose another name.",
        )
    of_archive = tuple(entry for entry in statement.properties if entry[0] in _ARCHIVE_NAMES)
    of_stream = tuple(entry for entry in statement.properties if entry[0] not in _ARCHIVE_NAMES)
    checked_with(replace(statement, properties=of_archive), ARCHIVE_WITH, ArchiveWith.ARCHIVE)
    checked_with(replace(statement, properties=of_stream), WITH, With.SINK, known_elsewhere=_ARCHIVE_NAMES)
    kind = planned_kind(catalog, query, statement.name)
    condition = "IF NOT EXISTS " if statement.if_not_exists else ""
    name = quoted(statement.name)
    stream = CreateAsSelect(
        kind=kind,
        name=statement.name,
        properties=of_stream,
        query=query,
        if_not_exists=statement.if_not_exists,
        text=f"CREATE {kind.upper()} {condition}{name}{with_clause(of_stream)} AS {statement.query_text}",
        position=statement.position,
    )
    archive = CreateArchive(
        name=statement.name,
        source=statement.name,
        properties=of_archive,
        if_not_exists=statement.if_not_exists,
        text=f"CREATE ARCHIVE {condition}{name} FROM {name}{with_clause(of_archive)}",
        position=statement.position,
    )
    return stream, archive


def _archive(statement: CreateArchive, source: SqlSource, query_id: str) -> SqlArchive:
    of_query = any(name in _QUERY_NAMES for name, _ in statement.properties)
    hint = "It is for CREATE ARCHIVE … AS SELECT, which makes a topic." if of_query else None
    properties = checked_with(statement, ARCHIVE_WITH, ArchiveWith.ARCHIVE, hint=hint)
    value, catalog = properties.choice("VALUE", ArchivedValue), properties.text("CATALOG")
    table_format = properties.choice_or_none("FORMAT", TableFormat)
    try:
        if catalog is not None and table_format not in (None, TableFormat.ICEBERG):
            raise ConfigError(f"CATALOG is of use with FORMAT='iceberg', not with {table_format}")
        archive = SqlArchive(
            name=statement.name,
            source=source,
            location=_location(properties),
            query_id=query_id,
            text=statement.text,
            table_format=table_format,
            catalog=catalog,
            with_columns=value is ArchivedValue.COLUMNS,
            columns=_columns(value, properties.text("PARTITION_BY") or ""),
            every_ms=_every_ms(properties.text("EVERY")),
            file_bytes=properties.number("FILE_BYTES"),
            skips_lost=properties.flag("SKIP_LOST"),
        )
    except SqlError as error:
        raise error.at(statement.position) from None
    except ConfigError as error:
        raise SqlError(str(error), statement.position) from None
    if archive.with_columns:
        _check_names(source, statement)
    return archive


def _location(properties: GivenOptions) -> ArchiveLocation:
    path = properties.text("PATH")
    if path is None:
        raise SqlError("CREATE ARCHIVE needs a PATH", hint="Write WITH (PATH='/data/lake/orders').")
    if not path.startswith("/") and "://" not in path:
        raise SqlError(
            f"PATH is absolute, not {path!r}",
            hint="Write PATH='/data/lake/orders', or PATH='s3://bucket/orders'.",
        )
    return archive_location(path, endpoint=properties.text("ENDPOINT"), region=properties.text("REGION"))


def _columns(value: ArchivedValue, partition_by: str) -> RowColumns:
    return row_columns(
        value=ValueFormat.STRING if value is ArchivedValue.STRING else ValueFormat.RAW,
        value_schema=None,
        key_as_string=value is ArchivedValue.STRING,
        partition_by=[part.strip() for part in partition_by.split(";") if part.strip()],
    )


def _every_ms(written: str | None) -> int:
    if written is None:
        return _EVERY_MS
    try:
        reader = StatementReader(tokens_of(written), written)
        every_ms = reader.duration_ms()
        reader.end()
    except (SqlError, IndexError):
        every_ms = 0
    if every_ms < 1:
        raise SqlError(f"EVERY is a length of time, not {written!r}", hint="Write EVERY='10 MINUTES'.")
    return every_ms


def _check_names(source: SqlSource, statement: CreateArchive) -> None:
    """Readers of tables do not tell upper case from lower case."""
    for columns in (source.key, source.value):
        counted = Counter(column.name.upper() for column in columns)
        twice = next((name for name, count in counted.items() if count > 1), None)
        if twice is not None:
            raise SqlError(
                f"two columns of {source.name} are called {twice}, in upper case or lower case: a table cannot have both",
                statement.position,
                "Write VALUE='RAW'.",
            )
