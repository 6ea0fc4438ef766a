"""PROTOBUF in Confluent's framing, and PROTOBUF_NOSR, which is the same without it.

A simple column that is null is written as the default of its type, unless NULLABLE_REPRESENTATION says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.values.exact_numbers import BIGINT_BITS, INT_BITS, WIDE, exact_decimal, whole
from odradek.values.formats.format_info import FormatColumn, FormatInfo
from odradek.values.formats.framed import SchemaIds
from odradek.values.formats.framing import read_varint, varint
from odradek.values.formats.protobuf_schemas import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    WRAPPED,
    ProtoFile,
    is_map,
    message_class,
    proto_file,
    proto_text,
)
from odradek.values.schema_registry import RegisteredSchema
from odradek.values.times import moment, moment_ms
from odradek.values.types import SqlType

if TYPE_CHECKING:
    from google.protobuf import message as protobuf_message
else:
    protobuf_message = lazy("google.protobuf.message")

_FIRST: Final[tuple[int, ...]] = (0,)
_DECIMAL_BYTES_MAX: Final = 31
"""Of the number without its point: more than any DECIMAL has."""


class ProtobufFormat:
    """Data of any schema of the registry is read: fields find their columns by name."""

    def __init__(self, columns: tuple[FormatColumn, ...], info: FormatInfo) -> None:
        text = proto_text(columns, info.schema_name, info.nullable)
        self._columns = columns
        self._message_name = info.schema_name
        self._own = RegisteredSchema(id=0, type="PROTOBUF", text=text)
        self._ids = SchemaIds(info, "PROTOBUF", text) if info.name == "PROTOBUF" else None
        self._ready: dict[int, ProtoFile] = {}

    def __getstate__(self) -> Any:
        return {**vars(self), "_ready": {}}  # tasks parse them again

    def _file(self, schema_id: int) -> ProtoFile:
        known = self._ready.get(schema_id)
        if known is None:
            schema = self._own if self._ids is None else self._ids.schema(schema_id)
            known = self._ready[schema_id] = proto_file(schema)
        return known

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """ValueError for a value that the schema does not have."""
        head, schema_id, place = b"", 0, _FIRST
        if self._ids is not None:
            head, schema_id = self._ids.head()
        file = self._file(schema_id)
        if self._ids is not None:
            place = file.place_of(self._message_name)
            head += b"\0" if place == _FIRST else b"".join(map(varint, (len(place), *place)))
        made = message_class(file.message_at(place))()
        try:
            _fill(made, [(column.name, column.type, values[column.column]) for column in self._columns])
        except (TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return head + bytes(made.SerializeToString(deterministic=True))

    def decode(self, data: bytes) -> dict[str, Any]:
        """ValueError for data that is not of its schema."""
        schema_id, place, body = 0, _FIRST, data
        if self._ids is not None:
            schema_id, body = self._ids.body(data)
            place, body = _after_place(body)
        made = message_class(self._file(schema_id).message_at(place))()
        try:
            made.ParseFromString(body)
        except protobuf_message.DecodeError as error:
            raise ValueError(f"no message of schema {schema_id}: {error}") from None
        parts = {part.name.upper(): part for part in made.DESCRIPTOR.fields}
        return {
            column.column: _read(made, parts.get(column.name.upper()), column.type)
            for column in self._columns
        }


def _after_place(data: bytes) -> tuple[tuple[int, ...], bytes]:
    view = memoryview(data)
    count, end = read_varint(view, 0)
    if not 0 <= count <= len(data):
        raise ValueError(f"{count} indexes of a message in {len(data)} bytes")
    place = []
    for _ in range(count):
        number, end = read_varint(view, end)
        if number < 0:
            raise ValueError(f"the index of a message is {number}")
        place.append(number)
    return tuple(place) or _FIRST, data[end:]


# ---- writing


def _fill(made: Any, values: list[tuple[str, SqlType, Any]]) -> None:
    parts = {part.name.upper(): part for part in made.DESCRIPTOR.fields}
    for name, kind, value in values:
        part = parts.get(name.upper())
        if value is None or part is None:
            continue
        if kind.kind == "MAP":
            _fill_map(getattr(made, part.name), part, kind, value)
        elif kind.kind == "ARRAY":
            for element in value:
                _append(getattr(made, part.name), part, kind.element, element)
        elif part.message_type is not None:
            _set_message(getattr(made, part.name), kind, value)
        else:
            setattr(made, part.name, _scalar(part, kind, value))


def _fill_map(place: Any, part: Any, kind: SqlType, value: Any) -> None:
    pairs = value.items() if isinstance(value, Mapping) else value
    key_part, value_part = part.message_type.fields
    for name, content in pairs:
        if not part.message_type.GetOptions().map_entry:
            _fill(place.add(), [("key", kind.map_key, name), ("value", kind.element, content)])
        elif value_part.message_type is not None:
            _set_message(place[_scalar(key_part, kind.map_key, name)], kind.element, content)
        else:
            place[_scalar(key_part, kind.map_key, name)] = _scalar(value_part, kind.element, content)


def _append(place: Any, part: Any, kind: SqlType, value: Any) -> None:
    if value is None:
        raise ValueError("PROTOBUF has no null in an ARRAY")
    if part.message_type is None:
        place.append(_scalar(part, kind, value))
    else:
        _set_message(place.add(), kind, value)


def _scalar(part: Any, kind: SqlType, value: Any) -> Any:
    if part.enum_type is not None:
        if value not in part.enum_type.values_by_name:
            raise ValueError(f"{part.enum_type.full_name} has no value {value}")
        return part.enum_type.values_by_name[value].number
    return bytes(value) if kind.kind == "BYTES" else value


def _set_message(place: Any, kind: SqlType, value: Any) -> None:
    place.SetInParent()
    match place.DESCRIPTOR.full_name:
        case name if name in WRAPPED:
            place.value = value
        case name if name == TIMESTAMP:
            place.FromMilliseconds(moment_ms(value))
        case name if name == DATE:
            place.year, place.month, place.day = value.year, value.month, value.day
        case name if name == TIME:
            seconds, milliseconds = divmod(value, 1000)
            place.hours, rest = divmod(seconds, 3600)
            place.minutes, place.seconds = divmod(rest, 60)
            place.nanos = milliseconds * 1_000_000
        case name if name == DECIMAL:
            unscaled = int(Decimal(value).scaleb(kind.scale, WIDE).to_integral_value())
            size = unscaled.bit_length() // 8 + 1
            place.value = unscaled.to_bytes(size, "big", signed=True)
            place.precision, place.scale = kind.precision, kind.scale
        case _:
            _fill(place, [(name, part, value[name]) for name, part in kind.fields])


# ---- reading


def _read(made: Any, part: Any, kind: SqlType) -> Any:
    if part is None:
        return None
    value = getattr(made, part.name)
    if is_map(part) and kind.kind == "MAP":
        key_part, value_part = part.message_type.fields
        if part.message_type.GetOptions().map_entry:
            return {key: _plain(content, value_part, kind.element) for key, content in value.items()}
        return {
            _plain(entry.key, key_part, kind.map_key): _read(entry, value_part, kind.element)
            for entry in value
        }
    if part.is_repeated:
        if kind.kind != "ARRAY":
            raise ValueError(f"{part.name} is repeated, and no {kind}")
        return [_plain(element, part, kind.element) for element in value]
    if part.has_presence and not made.HasField(part.name):
        return None
    return _plain(value, part, kind)


def _plain(value: Any, part: Any, kind: SqlType) -> Any:
    if part.enum_type is not None:
        named = part.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if part.message_type is None:
        return _checked(value, kind)
    match part.message_type.full_name:
        case name if name in WRAPPED:
            return _checked(value.value, kind)
        case name if name == TIMESTAMP and kind.kind == "TIMESTAMP":
            return moment(value.ToMilliseconds())
        case name if name == DATE and kind.kind == "DATE":
            return date(value.year, value.month, value.day)
        case name if name == TIME and kind.kind == "TIME":
            seconds = (value.hours * 60 + value.minutes) * 60 + value.seconds
            return whole(seconds * 1000 + value.nanos // 1_000_000, INT_BITS)
        case name if name == DECIMAL and kind.kind == "DECIMAL":
            return _decimal(value, kind)
    if kind.kind != "STRUCT":
        raise ValueError(f"{part.message_type.full_name} is no {kind}")
    parts = {inner.name.upper(): inner for inner in value.DESCRIPTOR.fields}
    return {name: _read(value, parts.get(name.upper()), inner) for name, inner in kind.fields}


def _decimal(value: Any, kind: SqlType) -> Decimal:
    """ValueError for one that does not fit."""
    if len(value.value) > _DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {len(value.value)} bytes does not fit into {kind}")
    unscaled = Decimal(int.from_bytes(value.value, "big", signed=True))
    try:
        return exact_decimal(unscaled.scaleb(-value.scale, WIDE), kind)
    except ArithmeticError:
        raise ValueError(f"a decimal with the scale {value.scale} does not fit into {kind}") from None


def _checked(value: Any, kind: SqlType) -> Any:
    fits = {
        "BOOLEAN": bool,
        "INTEGER": int,
        "BIGINT": int,
        "DOUBLE": float | int,
        "STRING": str,
        "BYTES": bytes,
    }.get(kind.kind)
    if fits is None or not isinstance(value, fits):
        raise ValueError(f"{value!r:.80} is no {kind}")
    match kind.kind:
        case "DOUBLE":
            return float(value)
        case "INTEGER" | "BIGINT":
            return whole(value, BIGINT_BITS if kind.kind == "BIGINT" else INT_BITS)
    return value
