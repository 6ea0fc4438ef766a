"""The format of a topic's keys or values, as `odradek.streams` takes it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from odradek.model.errors import OdradekError
from odradek.values.errors import SqlError, nearest
from odradek.values.formats.avro_format import AvroFormat
from odradek.values.formats.delimited_format import DelimitedFormat
from odradek.values.formats.format_info import FormatColumn, FormatInfo, WindowInfo
from odradek.values.formats.json_format import JsonFormat
from odradek.values.formats.json_sr_format import JsonSchemaFormat
from odradek.values.formats.kafka_format import KafkaFormat, NoneFormat
from odradek.values.formats.protobuf_format import ProtobufFormat
from odradek.values.formats.registered_schemas import is_bare
from odradek.values.rows import SqlValue
from odradek.values.types import SqlType, parse_type

FORMAT_NAMES: Final = ("AVRO", "DELIMITED", "JSON", "JSON_SR", "KAFKA", "NONE", "PROTOBUF", "PROTOBUF_NOSR")
NO_KEY: Final = "nothing"
"""The column of a format that has no columns: it is null."""
_BOUND: Final = struct.Struct(">q")
_TEXT_KEYS: Final = ("JSON", "JSON_SR", "PROTOBUF", "PROTOBUF_NOSR")
_COMPLEX: Final = ("ARRAY", "MAP", "STRUCT")
_WITHOUT_SCHEMAS: Final = ("DELIMITED", "JSON", "KAFKA", "NONE")
"""The formats that need no schema, and so no registry with a login."""
_TEXTS_MAX: Final = 1_000


class ValueCodec(Protocol):
    def encode(self, values: Mapping[str, SqlValue]) -> bytes | None: ...
    def decode(self, data: bytes) -> Mapping[str, object] | None: ...


class RecordFormat:
    """The serde of a topic's keys or values, a `SchemaFormat`: columns of Spark to bytes, and back.

    `window`: of a windowed key, whose bounds follow the key. `text`: the format as `format_of_text` reads it, for processes
    that get no object; None: it has a schema, or types that no text names.
    """

    is_record: Final = True

    def __init__(
        self,
        name: str,
        columns: tuple[FormatColumn, ...],
        codec: ValueCodec,
        window: WindowInfo | None,
        text: str | None = None,
    ) -> None:
        self.name = name
        self.text = text
        self.columns = columns
        self.window = window
        self._codec = codec
        fields = [f"`{column.column}` {column.type.ddl}" for column in columns] or [f"`{NO_KEY}` STRING"]
        bounds = [] if window is None else ["`window_start` BIGINT", "`window_end` BIGINT"]
        self.ddl = ", ".join([*fields, *bounds])

    def encode(self, value: Any) -> bytes | None:
        data = self._codec.encode(value)
        if self.window is None:
            return data
        if data is None:
            return None
        start, end = _BOUND.pack(value["window_start"]), _BOUND.pack(value["window_end"])
        return data + (end + start if self.window.kind == "session" else start)

    def decode(self, data: bytes) -> Mapping[str, object] | None:
        """Decodes a key or a value. Raises ValueError for bytes that are not in this format."""
        if self.window is None:
            return self._values(data)
        bounds = 2 if self.window.kind == "session" else 1
        inside = len(data) - bounds * _BOUND.size
        if inside < 0:
            raise ValueError("the key is too short for a windowed one")
        values = self._values(data[:inside])
        if values is None:
            return None
        if bounds == 2:
            end, start = (
                _BOUND.unpack_from(data, inside)[0],
                _BOUND.unpack_from(data, inside + _BOUND.size)[0],
            )
        else:
            (start,) = _BOUND.unpack_from(data, inside)
            end = start + (self.window.size_ms or 0)
        return {**values, "window_start": start, "window_end": end}

    def _values(self, data: bytes) -> Mapping[str, object] | None:
        try:
            return self._codec.decode(data)
        except SqlError as error:  # of the schema that the record names
            raise ValueError(str(error)) from None
        except (ValueError, OdradekError, OSError, MemoryError):
            raise  # a registry that does not answer is no matter of this record
        except Exception as error:  # noqa: BLE001 - foreign data: whatever a parser stumbles over is wrong data
            raise ValueError(f"{type(error).__name__}: {error!s:.200}") from None


def record_format(
    info: FormatInfo,
    columns: Iterable[tuple[str, str, Any]],
    *,
    is_key: bool,
    window: WindowInfo | None = None,
) -> RecordFormat:
    """Returns the codec of a format for these columns. `columns`: (name in records, column in Spark, type). Raises SqlError
    for a format that does not exist or cannot hold them."""
    known = tuple(FormatColumn(*column) for column in columns)
    check_format(info.name)
    if known and info.name == "NONE":
        named = ", ".join(f"`{column.name}` {column.type}" for column in known)
        raise SqlError(
            f"The 'NONE' format can only be used when no columns are defined. Got: [{named}]", hint="Use JSON"
        )
    codec: ValueCodec = _codec(info, known, is_key=is_key) if known else NoneFormat()
    return RecordFormat(info.name, known, codec, window, _text_of(info, known, is_key=is_key, window=window))


def _text_of(
    info: FormatInfo, columns: tuple[FormatColumn, ...], *, is_key: bool, window: WindowInfo | None
) -> str | None:
    if info.name not in _WITHOUT_SCHEMAS or not all(_has_text(column.type) for column in columns):
        return None
    return json.dumps(
        {
            "name": info.name,
            "wrapped": info.wrapped,
            "delimiter": info.delimiter,
            "columns": [[column.name, column.column, str(column.type)] for column in columns],
            "is_key": is_key,
            "window": None if window is None else [window.kind, window.size_ms],
        }
    )


def _has_text(kind: SqlType) -> bool:
    """Tells whether the text of a type is read as that type: some types only come from programs of Spark."""
    try:
        return parse_type(str(kind)) == kind
    except SqlError:
        return False


@lru_cache(maxsize=_TEXTS_MAX)
def format_of_text(text: str) -> RecordFormat:
    """Returns the format whose `text` this is. Raises ValueError for any other text."""
    try:
        document = json.loads(text)
        window = document["window"]
        form = record_format(
            FormatInfo(name=document["name"], wrapped=document["wrapped"], delimiter=document["delimiter"]),
            [(name, column, parse_type(kind)) for name, column, kind in document["columns"]],
            is_key=document["is_key"],
            window=None if window is None else WindowInfo(kind=window[0], size_ms=window[1]),
        )
    except (AttributeError, TypeError, KeyError, IndexError, RecursionError, SqlError) as error:
        raise ValueError(f"it is the text of no format: {error}") from error
    if form.text != text:
        raise ValueError("it is the text of no format")
    return form


def _codec(info: FormatInfo, columns: tuple[FormatColumn, ...], *, is_key: bool) -> ValueCodec:
    bare = is_bare(info, columns, is_key=is_key)
    match info.name:
        case "KAFKA":
            return KafkaFormat(columns)
        case "JSON":
            return JsonFormat(columns, wrapped=not bare)
        case "DELIMITED":
            for column in columns:
                if column.type.kind in _COMPLEX:
                    raise SqlError(
                        f"The 'DELIMITED' format does not support type '{column.type.kind}', column: `{column.name}`",
                        hint="Use JSON",
                    )
            return DelimitedFormat(columns, info.delimiter)
        case "AVRO":
            return AvroFormat(columns, info, wrapped=not bare)
        case "JSON_SR":
            return JsonSchemaFormat(columns, info, wrapped=not bare)
    return ProtobufFormat(columns, info)


def check_map_keys(form: RecordFormat) -> None:
    """Raises SqlError for a MAP whose entries the format cannot name: JSON and its relatives name them with texts."""
    for column in form.columns:
        if form.name in _TEXT_KEYS and has_other_keys(column.type):
            raise SqlError(
                f"{form.name} only supports MAP types with STRING keys, column: `{column.name}` {column.type}",
                hint="Write MAP<STRING, …>.",
            )


def has_other_keys(kind: SqlType) -> bool:
    """Tells whether a type is a MAP whose keys are no texts, or has one in it."""
    inner = [*kind.parts, *(field for _, field in kind.fields)]
    return (kind.kind == "MAP" and kind.map_key.kind != "STRING") or any(map(has_other_keys, inner))


def check_format(name: str) -> None:
    """Raises SqlError for a format that does not exist."""
    if name not in FORMAT_NAMES:
        hint = nearest(name, FORMAT_NAMES) or f"There are {', '.join(FORMAT_NAMES)}"
        raise SqlError(f"Unknown format: {name}", hint=hint)
