"""Rows that INSERT VALUES and /inserts-stream write to the topic of a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.sql.language import statements as language
from odradek.sql.metastore.catalog import Source
from odradek.sql.queries.expressions import constant
from odradek.sql.queries.schema_rows import learn_all
from odradek.sql.queries.source_rows import codec_of
from odradek.sql.server.parts import ServerParts
from odradek.values.errors import SqlError, nearest
from odradek.values.formats.row_codec import UnreadableRecord, of_json
from odradek.values.types import BIGINT


class Inserts:
    """Writes rows as records, in the formats of the source."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts

    async def values(self, statement: language.InsertValues) -> None:
        """Writes the row of INSERT VALUES. SqlError."""
        source = self._parts.catalog.source(statement.target, statement.position)
        names = statement.columns or tuple(
            column.name for column in source.columns if column.role != "headers"
        )
        if len(names) != len(statement.values):
            raise SqlError(
                f"Expected a value for each column. Expected columns: {', '.join(names)}. Got {len(statement.values)} values",
                statement.position,
            )
        values: dict[str, object] = {}
        timestamp_ms: int | None = None
        for name, value in zip(names, statement.values, strict=True):
            if name == "ROWTIME":
                timestamp_ms = constant(value, BIGINT)
                continue
            column = source.column(name)
            if column is None:
                known = [column.name for column in source.columns]
                raise SqlError(
                    f"Column name `{name}` does not exist.", statement.position, nearest(name, known)
                )
            values[name] = constant(value, column.type)
        await self._write(source, values, timestamp_ms)

    async def json(self, target: str, row: Mapping[str, object]) -> None:
        """Writes a row of /inserts-stream. Raises SqlError."""
        quoted = target.startswith("`") and target.endswith("`")
        source = self._parts.catalog.source(target.strip("`") if quoted else target.upper())
        by_name = {column.name: column for column in source.columns}
        values: dict[str, Any] = {}
        for written, value in row.items():
            name = written.strip("`") if written.startswith("`") else written.upper()
            column = by_name.get(name) or by_name.get(written)
            if column is None:
                raise SqlError(f"Column name `{name}` does not exist.", hint=nearest(name, by_name))
            try:
                values[column.name] = of_json(value, column.type)
            except (UnreadableRecord, ValueError, ArithmeticError) as error:
                raise SqlError(
                    f"Can't coerce a field of type {type(value).__name__} into type {column.type}: {error}"
                ) from error
        await self._write(source, values, None)

    async def _write(self, source: Source, values: Mapping[str, Any], timestamp_ms: int | None) -> None:
        if source.read_only:
            raise SqlError(f"Cannot insert values into read-only {source.kind}: {source.name}")
        if source.window is not None:
            raise SqlError("Cannot insert values into windowed stream/table!")
        key_codec = codec_of(
            tuple((column.name, column.type) for column in source.key), source.key_format, is_key=True
        )
        value_codec = codec_of(
            tuple((column.name, column.type) for column in source.value), source.value_format, is_key=False
        )
        await learn_all((key_codec, value_codec), ((), ()))
        keys = [values.get(column.name) for column in source.key]
        if source.is_table and None in keys:
            raise SqlError(
                f"Failed to insert values into '{source.name}'. Value for primary key column(s) is required for tables"
            )
        content = [values.get(column.name) for column in source.value]
        stamp = source.timestamp
        if timestamp_ms is None and stamp is not None and isinstance(values.get(stamp.name), int):
            timestamp_ms = values[stamp.name]
        await self._parts.producer.send_and_wait(
            source.topic,
            value_codec.encode(content),
            key=None if keys in ([], [None]) else key_codec.encode(keys),
            timestamp_ms=timestamp_ms,
        )
