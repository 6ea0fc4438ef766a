"""Columns as CREATE STREAM, CREATE TABLE and ALTER declare them."""

from __future__ import annotations

from odradek.sql.language.statements import ColumnDefinition, CreateSource, SourceKind
from odradek.sql.metastore.catalog import PSEUDO_COLUMNS, SqlCatalog, SqlColumn
from odradek.values.errors import SqlError
from odradek.values.types import parse_type


def declared_column(catalog: SqlCatalog, kind: SourceKind, definition: ColumnDefinition) -> SqlColumn:
    """Raises SqlError for a type that does not exist, or a role that it cannot have."""
    try:
        column_type = parse_type(definition.type, catalog.types)
    except SqlError as error:
        raise error.at(definition.position) from None
    if definition.role == "primary key" and kind == "stream":
        raise SqlError(
            f"Column `{definition.name}` is a 'PRIMARY KEY' column: please use 'KEY' for streams",
            definition.position,
            "Tables have PRIMARY KEYs, which are unique and not null. Streams have KEYs.",
        )
    if definition.role == "key" and kind == "table":
        raise SqlError(
            f"Column `{definition.name}` is a 'KEY' column: please use 'PRIMARY KEY' for tables",
            definition.position,
        )
    if definition.role in ("key", "primary key"):
        if column_type.holds_map:
            raise SqlError(
                "Map keys, including types that contain maps, are not supported", definition.position
            )
        return SqlColumn(name=definition.name, type=column_type, role="key")
    if definition.role == "headers":
        wanted = "BYTES" if definition.header is not None else "ARRAY<STRUCT<key STRING, value BYTES>>"
        if column_type != parse_type(wanted):
            raise SqlError(f"A HEADERS column `{definition.name}` has the type {wanted}", definition.position)
        return SqlColumn(name=definition.name, type=column_type, role="headers", header=definition.header)
    return SqlColumn(name=definition.name, type=column_type)


def check_columns(columns: tuple[SqlColumn, ...], statement: CreateSource) -> None:
    """Raises SqlError for names that are reserved or used twice, and for a table without a key."""
    seen: set[str] = set()
    for column, definition in zip(columns, statement.columns, strict=True):
        if column.name in PSEUDO_COLUMNS:
            raise SqlError(f"'{column.name}' is a reserved column name", definition.position)
        if column.name in seen:
            raise SqlError(f"Duplicate column names: `{column.name}`", definition.position)
        seen.add(column.name)
    _check_headers(columns, statement)
    if statement.kind == "table" and not any(column.role == "key" for column in columns):
        raise SqlError(
            "Tables require a PRIMARY KEY. Please define the PRIMARY KEY",
            statement.position,
            "Write ID BIGINT PRIMARY KEY.",
        )


def _check_headers(columns: tuple[SqlColumn, ...], statement: CreateSource) -> None:
    """Checks that one column has all headers, or that each header has one of its own, by name."""
    known: set[str | None] = set()
    for column, definition in zip(columns, statement.columns, strict=True):
        if column.role != "headers":
            continue
        if known and (column.header in known or None in (column.header, *known)):
            shown = "HEADERS" if None in known else f"HEADER('{next(iter(known))}')"
            raise SqlError(f"Schema already contains a {shown} column", definition.position)
        known.add(column.header)
