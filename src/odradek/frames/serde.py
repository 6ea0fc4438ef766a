"""Keys and values of frames, by the schemas that a registry has for a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from odradek.model.errors import ConfigError, OdradekError
from odradek.model.public import public
from odradek.values.arrow_types import CODECS, FRAMES, arrow_type
from odradek.values.errors import SqlError
from odradek.values.formats.registered_values import RegisteredValues
from odradek.values.schema_registry import SchemaRegistryTerms, registry_of
from odradek.values.types import SqlType, array_of, map_of, struct_of_fields

Part: TypeAlias = Literal["key", "value"]
"""The part of a record."""
PARTS: Final[tuple[Part, ...]] = ("key", "value")
_SHOWN_MAX: Final = 20
_COLUMNS: Final = ("headers", "timestamp", "partition")
"""Columns of `send_arrow` that pass through as they are."""


@public("odradek.frames")
class SerializationError(OdradekError):
    """A row that its schema does not have, or a record that cannot be read by its schema.

    `part`: key or value. `row`: the number of the row in the frame, None where the whole column is wrong.
    """

    def __init__(self, message: str, part: Part, row: int | None = None) -> None:
        super().__init__(message)
        self.part: Final = part
        self.row: Final = row


@public("odradek.frames")
def topic_name_strategy(topic: str, part: Part) -> str:
    """Returns the subject `<topic>-key` or `<topic>-value`, as Confluent's serializers do by default."""
    return f"{topic}-{part}"


@public("odradek.frames")
class FrameSerde:
    """Deserializes and serializes keys and values of frames, by Avro, JSON Schema or Protobuf.

    `registry`: its address, as `http://user:password@host:8081`. `subject`: the subject that has the schema of a topic's
    keys or values, by default `topic_name_strategy`; its latest version is asked for once, and decides the type of the column
    from then on. A part without a subject stays as it is.

    Calls block on the registry: an asynchronous program runs them with `asyncio.to_thread`. One thread at a time may use
    an instance.
    """

    def __init__(
        self,
        registry: str | SchemaRegistryTerms,
        *,
        subject: Callable[[str, Part], str] | None = None,
    ) -> None:
        terms = SchemaRegistryTerms.of(registry) if isinstance(registry, str) else registry
        self._registry = registry_of(terms)
        self._subject = subject or topic_name_strategy
        self._values: dict[tuple[str, Part], RegisteredValues | None] = {}

    def deserialize(
        self,
        rows: pa.RecordBatch | pa.Table,
        topic: str | None = None,
        *,
        parts: Sequence[Part] = PARTS,
        on_error: Literal["raise", "column"] = "raise",
    ) -> pa.RecordBatch | pa.Table:
        """Returns the rows of `poll_arrow` with the columns `key` and `value` decoded by their schemas:
        records become structs.

        Rows keep their number and order; a tombstone is null. A record of an older or newer schema is read by
        the names of its fields. `on_error`: "raise" stops at the first record that cannot be read; "column"
        leaves it null, and has the reason in a further column `key_error` or `value_error`, null for all
        others.

        `topic` is the topic of the rows by default. Rows without one (nothing was polled) are returned as
        they are.

        Raises SerializationError, and SchemaRegistryError when the registry does not answer.
        """
        if on_error not in ("raise", "column"):
            raise ConfigError(f"on_error is 'raise' or 'column', not {on_error!r:.80}")
        name = topic if topic is not None else _topic_of(rows)
        if name is None:
            return rows
        for part in parts:
            values = self._of(name, part)
            if values is not None and part in rows.schema.names:
                rows = _deserialized(rows, part, values, on_error == "column")
        return rows

    def serialize(
        self,
        frame: object,
        topic: str,
        *,
        key: str | Sequence[str] | None = None,
        value: str | Sequence[str] | None = None,
    ) -> pa.Table:
        """Returns what `send_arrow` takes: key and value in the framing of the registry, by the latest schema of each.

        `frame`: a pyarrow Table or RecordBatch, a polars or pandas DataFrame, or any object with `__arrow_c_stream__`.
        `key`, `value`: the column that is the key or the value, or several, which become the fields of a record; by
        default the columns `key` and `value`, where the frame has them. A field that the frame lacks has its schema's default.
        `headers`, `timestamp` and `partition` pass through.

        A row without a value is a tombstone. All rows are serialized before any is returned, so none is sent if one is wrong.

        Raises SerializationError for a column or a row that its schema does not have.
        """
        table = _table(frame)
        columns = {name: table.column(name) for name in _COLUMNS if name in table.schema.names}
        chosen: dict[Part, str | Sequence[str] | None] = {"key": key, "value": value}
        for part in PARTS:
            column = _chosen(table, part, chosen[part])
            if column is not None:
                columns[part] = self._serialized(column, topic, part)
        return pa.table(columns)

    def _of(self, topic: str, part: Part) -> RegisteredValues | None:
        """Returns None where the registry has no such subject."""
        slot = (topic, part)
        if slot not in self._values:
            subject = self._subject(topic, part)
            schema = self._registry.latest(subject)
            try:
                self._values[slot] = None if schema is None else RegisteredValues(self._registry, schema)
            except SqlError as error:
                raise SerializationError(f"the schema of {subject} is no column: {error}", part) from None
        return self._values[slot]

    def _serialized(self, column: pa.ChunkedArray, topic: str, part: Part) -> pa.ChunkedArray:
        values = self._of(topic, part)
        if values is None:
            if pa.types.is_nested(column.type):
                raise SerializationError(
                    f"the schema registry has no subject {self._subject(topic, part)!r} for the {part}s, which are"
                    f" {column.type!s:.200}: register a schema there first",
                    part,
                )
            return column
        unknown = _unknown_fields(values.type, column.type)
        if unknown:
            raise SerializationError(
                f"schema {values.schema.id} of the {part}s of {topic!r} has no field {', '.join(unknown[:_SHOWN_MAX])}",
                part,
            )
        try:
            kind = _present_type(values.type, column.type)
            fitting = column.cast(arrow_type(kind, FRAMES)).cast(arrow_type(kind, CODECS))
        except pa.ArrowException as error:
            raise SerializationError(
                f"the {part}s are {column.type!s:.200}, and schema {values.schema.id} of {topic!r} is"
                f" {values.type!s:.200}: {error!s:.200}",
                part,
            ) from None
        encoded: list[bytes | None] = []
        for row, member in enumerate(scalar.as_py() for scalar in fitting):
            try:
                encoded.append(None if member is None else values.encode(member))
            except ValueError as error:
                raise SerializationError(
                    f"row {row}: schema {values.schema.id} of the {part}s of {topic!r} has no such value: {error!s:.300}",
                    part,
                    row,
                ) from None
        return pa.chunked_array([pa.array(encoded, pa.binary())])


def _table(frame: object) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, type) or not hasattr(frame, "__arrow_c_stream__"):
        hint = ": collect() it first" if callable(getattr(frame, "collect", None)) else ""
        raise TypeError(
            "rows come from a pyarrow Table or RecordBatch, a polars or pandas DataFrame,"
            f" or another object with __arrow_c_stream__, not from {type(frame).__name__}{hint}"
        )
    return pa.RecordBatchReader.from_stream(frame).read_all()


def _topic_of(rows: pa.RecordBatch | pa.Table) -> str | None:
    if not rows.num_rows:
        return None
    if "topic" not in rows.schema.names:
        raise ConfigError("the rows have no column 'topic': name their topic")
    topics = rows.column("topic").unique().to_pylist()
    if len(topics) != 1:
        raise ConfigError(f"the rows are of {len(topics)} topics: deserialize one topic's rows at a time")
    return str(topics[0])


def _chosen(table: pa.Table, part: str, chosen: str | Sequence[str] | None) -> pa.ChunkedArray | None:
    if chosen is None:
        return table.column(part) if part in table.schema.names else None
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    missing = [name for name in names if table.schema.names.count(name) != 1]
    if missing or not names:
        raise ConfigError(
            f"the {part} is made of columns of the frame: it has no single {', '.join(missing) or 'column'},"
            f" but {', '.join(table.schema.names[:_SHOWN_MAX])}"
        )
    if isinstance(chosen, str):
        return table.column(chosen)
    return pa.chunked_array(
        [batch.to_struct_array() for batch in table.select(names).to_batches()],
        pa.struct([table.schema.field(name) for name in names]),
    )


def _deserialized(
    rows: pa.RecordBatch | pa.Table, part: Part, values: RegisteredValues, in_column: bool
) -> pa.RecordBatch | pa.Table:
    decoded: list[object] = []
    errors: list[str | None] = []
    raw = (scalar.as_py() for scalar in rows.column(part))
    for row, member in enumerate(values.decoded(raw)):
        if isinstance(member, ValueError) and not in_column:
            raise SerializationError(_unreadable(rows, part, row, member), part, row)
        is_wrong = isinstance(member, ValueError)
        decoded.append(None if is_wrong else member)
        errors.append(str(member) if is_wrong else None)
    column = pa.array(decoded, arrow_type(values.type, CODECS)).cast(arrow_type(values.type, FRAMES))
    index = rows.schema.get_field_index(part)
    rows = rows.set_column(index, pa.field(part, column.type), column)
    return rows.append_column(f"{part}_error", pa.array(errors, pa.string())) if in_column else rows


def _unreadable(rows: pa.RecordBatch | pa.Table, part: Part, row: int, error: ValueError) -> str:
    names = ("topic", "partition", "offset")
    if all(name in rows.schema.names for name in names):
        topic, partition, offset = (rows.column(name)[row].as_py() for name in names)
        return f"the {part} at offset {offset} of {topic}-{partition} cannot be read: {error!s:.300}"
    return f"the {part} in row {row} cannot be read: {error!s:.300}"


def _unknown_fields(kind: SqlType, column: pa.DataType, path: str = "") -> list[str]:
    """Returns the fields of a column that its schema does not have: a cast drops them in silence."""
    unknown: list[str] = []
    if kind.kind == "STRUCT" and pa.types.is_struct(column):
        known = dict(kind.fields)
        for index in range(column.num_fields):
            field = column.field(index)
            part = known.get(field.name)
            inside = f"{path}{field.name}"
            unknown += [inside] if part is None else _unknown_fields(part, field.type, f"{inside}.")
    elif kind.kind == "ARRAY" and (pa.types.is_list(column) or pa.types.is_large_list(column)):
        unknown += _unknown_fields(kind.element, column.value_type, path)
    elif kind.kind == "MAP" and pa.types.is_map(column):
        unknown += _unknown_fields(kind.element, column.item_type, path)
    return unknown


def _present_type(kind: SqlType, column: pa.DataType) -> SqlType:
    """Returns the type without the fields that a column lacks: they have the default of their schema, which is no null."""
    if kind.kind == "STRUCT" and pa.types.is_struct(column):
        own = {column.field(index).name: column.field(index).type for index in range(column.num_fields)}
        return struct_of_fields(
            [(name, _present_type(part, own[name])) for name, part in kind.fields if name in own]
        )
    if kind.kind == "ARRAY" and (pa.types.is_list(column) or pa.types.is_large_list(column)):
        return array_of(_present_type(kind.element, column.value_type))
    if kind.kind == "MAP" and pa.types.is_map(column):
        return map_of(kind.map_key, _present_type(kind.element, column.item_type))
    return kind
