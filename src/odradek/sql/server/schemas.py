"""Schema inference of statements: columns that a schema registry knows, and ids for what statements write.

They become part of the statement's text before it is written to the command topic, so that a start of another server, and the
engine, read the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from odradek.sql.changes import AppliedChange, SourceCreated
from odradek.sql.language.parsing import parse_one
from odradek.sql.language.rewriting import with_columns, with_properties
from odradek.sql.language.statements import AlterSource, CreateAsSelect, CreateSource, Statement
from odradek.sql.language.with_properties import WITH, property_value
from odradek.sql.metastore.catalog import Source
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatColumn
from odradek.values.formats.registered_schemas import SCHEMA_TYPES, columns_of, schema_text
from odradek.values.schema_registry import (
    RegisteredSchema,
    SchemaRegistry,
    SchemaRegistryError,
    SchemaRegistryTerms,
    registry_of,
)
from odradek.values.types import SqlType

T = TypeVar("T")
_ROW_KEY: Final = "ROWKEY"


class StatementSchemas:
    """Schemas of a registry, for statements.

    `terms`: None: there is no registry.
    """

    def __init__(self, terms: SchemaRegistryTerms | None) -> None:
        self._terms = terms

    def _registry(self, format_name: str, statement: Statement) -> SchemaRegistry:
        if self._terms is None:
            raise SqlError(
                f"{format_name} needs a schema registry, and this server has none",
                statement.position,
                "Start it with --schema-registry http://host:8081, or use JSON.",
            )
        return registry_of(self._terms)

    # ---- columns

    async def with_columns(self, statement: Statement) -> Statement:
        """Returns a CREATE STREAM or TABLE with the registry's columns, where the statement has none. SqlError."""
        if not isinstance(statement, CreateSource):
            return statement
        properties = dict(statement.properties)
        both = properties.get("FORMAT")
        formats = {
            "key": str(properties.get("KEY_FORMAT", both or "KAFKA")).upper(),
            "value": str(properties.get("VALUE_FORMAT", both or "")).upper(),
        }
        roles = {
            "key" if column.role in ("key", "primary key") else column.role for column in statement.columns
        }
        text = statement.text
        columns: list[str] = []
        ids: dict[str, int] = {}
        for part in ("key", "value"):
            written = properties.get(name := f"{part.upper()}_SCHEMA_ID")
            named = None if written is None else property_value(WITH, name, written, statement.position)
            if part in roles and named is not None:
                raise SqlError(
                    f"Table elements and {part.upper()}_SCHEMA_ID cannot both exist for create statement.",
                    statement.position,
                    "Leave the columns out, or the id.",
                )
            if part in roles or formats[part] not in SCHEMA_TYPES or "KAFKA_TOPIC" not in properties:
                continue
            subject = f"{properties['KAFKA_TOPIC']}-{part}"
            registry = self._registry(formats[part], statement)
            schema = await self._request(
                statement,
                lambda registry=registry, subject=subject, named=named: (  # type: ignore[misc]
                    registry.latest(subject) if named is None else registry.by_id(named)
                ),
            )
            if schema is None:
                if part == "key":
                    continue
                raise SqlError(
                    f"Schema for message values on topic '{properties['KAFKA_TOPIC']}' does not exist in the Schema Registry."
                    f" Subject: {subject}",
                    statement.position,
                    "Write the columns, or register a schema.",
                )
            columns += self._columns(schema, part, formats[part], statement, properties)
            if named is None:
                ids[f"{part.upper()}_SCHEMA_ID"] = schema.id
        if not columns:
            return statement
        return parse_one(with_properties(with_columns(text, columns), ids))

    def _columns(
        self,
        schema: RegisteredSchema,
        part: str,
        format_name: str,
        statement: CreateSource,
        properties: Mapping[str, object],
    ) -> list[str]:
        if schema.type != SCHEMA_TYPES[format_name]:
            raise SqlError(f"schema {schema.id} is {schema.type}, not {format_name}", statement.position)
        full_name = properties.get(f"{part.upper()}_SCHEMA_FULL_NAME")
        try:
            columns = columns_of(schema, None if full_name is None else str(full_name))
        except SqlError as error:
            raise error.at(statement.position) from None
        if part == "value":
            if isinstance(columns, SqlType):
                columns = [("ROWVAL", columns)]
            return [f"`{name}` {kind}" for name, kind in columns]
        if isinstance(columns, SqlType):
            columns = [(_ROW_KEY, columns)]
        role = "KEY" if statement.kind == "stream" else "PRIMARY KEY"
        return [f"`{name}` {kind} {role}" for name, kind in columns]

    # ---- ids

    async def with_ids(self, statement: Statement, applied: AppliedChange) -> Statement:
        """Returns the statement with the ids of the schemas that it registers. Raises SqlError where there is no registry,
        or it refuses."""
        created = next(
            (change.source for change in applied.changes if isinstance(change, SourceCreated)), None
        )
        if created is None:
            return statement
        if isinstance(statement, AlterSource):
            if {created.key_format.name, created.value_format.name} & SCHEMA_TYPES.keys():
                raise SqlError(
                    f"ALTER cannot change the schema of {created.name}, which is in the registry",
                    statement.position,
                    "Write CREATE OR REPLACE with all columns.",
                )
            return statement
        if not isinstance(statement, CreateSource | CreateAsSelect):
            return statement
        ids = {}
        for part, info, columns in (
            ("key", created.key_format, created.key),
            ("value", created.value_format, created.value),
        ):
            if info.name not in SCHEMA_TYPES or info.schema_id is not None or not columns:
                continue
            text = schema_text(info, _format_columns(created, part), is_key=part == "key")
            registry = self._registry(info.name, statement)
            ids[f"{part.upper()}_SCHEMA_ID"] = await self._request(
                statement,
                lambda registry=registry, info=info, part=part, text=text: registry.register(  # type: ignore[misc]
                    f"{created.topic}-{part}", SCHEMA_TYPES[info.name], text
                ),
            )
        return statement if not ids else parse_one(with_properties(statement.text, ids))

    async def forget(self, source: Source) -> None:
        """Deletes the subjects of a source whose topic DELETE TOPIC deletes. Idempotent."""
        if self._terms is None:
            return
        registry = registry_of(self._terms)
        for part, info in (("key", source.key_format), ("value", source.value_format)):
            if info.name in SCHEMA_TYPES:
                await asyncio.to_thread(registry.delete, f"{source.topic}-{part}")

    async def is_registered(self, subject: str | None, schema_id: int | None, statement: Statement) -> bool:
        """Tells whether a schema is registered, for ASSERT SCHEMA. SqlError."""
        registry = self._registry("ASSERT SCHEMA", statement)
        return await self._request(statement, lambda: registry.is_registered(subject, schema_id))

    async def _request(self, statement: Statement, request: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(request)
        except (SchemaRegistryError, ValueError) as error:
            raise SqlError(str(error), statement.position) from error


def _format_columns(source: Source, part: str) -> tuple[FormatColumn, ...]:
    columns = source.key if part == "key" else source.value
    return tuple(FormatColumn(column.name, column.name, column.type) for column in columns)
