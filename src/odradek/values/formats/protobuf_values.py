"""Values of columns as messages of Protobuf have them, and back. Fields find their columns by name, in any case."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.values.exact_numbers import (
    BIGINT_BITS,
    INT_BITS,
    decimal_of_bytes,
    exact_decimal,
    unscaled_bytes,
    whole,
)
from odradek.values.formats.protobuf_schemas import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    WRAPPED,
    is_map,
)
from odradek.values.rows import SqlValue
from odradek.values.times import moment, moment_ms, moment_us, precise_moment
from odradek.values.types import SqlType

if TYPE_CHECKING:
    from google.protobuf import json_format
    from google.protobuf import message as protobuf_message
    from google.protobuf.descriptor import FieldDescriptor
else:
    json_format = lazy("google.protobuf.json_format")
    protobuf_message = lazy("google.protobuf.message")

_MESSAGES_KNOWN: Final = 256
_FITTING: Final[dict[str, tuple[type, ...]]] = {
    "BOOLEAN": (bool,),
    "INTEGER": (int,),
    "BIGINT": (int,),
    "DOUBLE": (float, int),
    "FLOAT": (float, int),
    "STRING": (str,),
    "BYTES": (bytes,),
}


def encoded_message(
    message_type: type[protobuf_message.Message], kind: SqlType, value: Mapping[str, SqlValue]
) -> bytes:
    """Encodes a struct of type `kind` as a message. Raises ValueError for a value that the message does not have."""
    message = message_type()
    try:
        _fill(message, kind, value)
    except (TypeError, AttributeError, KeyError, OverflowError, ArithmeticError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return bytes(message.SerializeToString(deterministic=True))


def decoded_message(
    message_type: type[protobuf_message.Message], kind: SqlType, data: bytes
) -> dict[str, object]:
    """Decodes a message into a struct of type `kind`. Raises ValueError for data that is no such message."""
    message = message_type()
    try:
        message.ParseFromString(data)
    except protobuf_message.DecodeError as error:
        raise ValueError(str(error) or "not a message") from None
    return _struct(message, kind)


@lru_cache(maxsize=_MESSAGES_KNOWN)
def _parts(message: protobuf_message.Message) -> dict[str, object]:
    """The fields of a descriptor, by their names as they are and in upper case."""
    return {part.name.upper(): part for part in message.fields} | {part.name: part for part in message.fields}


def _part(message: protobuf_message.Message, name: str) -> object:
    parts = _parts(message)
    return parts.get(name) or parts.get(name.upper())


# ---- writing


def _fill(message: protobuf_message.Message, kind: SqlType, value: Mapping[str, SqlValue]) -> None:
    strange = set(value) - {name for name, _ in kind.fields}
    if strange:
        raise ValueError(f"{message.DESCRIPTOR.full_name} has no field {', '.join(sorted(strange))}")
    for name, part_kind in kind.fields:
        part, member = _part(message.DESCRIPTOR, name), value.get(name)
        if member is not None and part is not None:
            _fill_part(message, part, part_kind, member)


def _fill_part(message: protobuf_message.Message, part: FieldDescriptor, kind: SqlType, value: Any) -> None:
    if kind.kind == "MAP":
        _fill_map(getattr(message, part.name), part, kind, value)
    elif kind.kind == "ARRAY":
        for element in value:
            _append(getattr(message, part.name), part, kind.element, element)
    elif part.message_type is not None:
        _set_message(getattr(message, part.name), kind, value)
    else:
        setattr(message, part.name, _scalar(part, kind, value))


def _fill_map(entries: Any, part: FieldDescriptor, kind: SqlType, value: Any) -> None:
    pairs = value.items() if isinstance(value, Mapping) else value
    key_part, value_part = part.message_type.fields
    for name, content in pairs:
        if not part.message_type.GetOptions().map_entry:
            entry = entries.add()
            for entry_part, entry_kind, member in (
                (key_part, kind.map_key, name),
                (value_part, kind.element, content),
            ):
                if member is not None:
                    _fill_part(entry, entry_part, entry_kind, member)
        elif value_part.message_type is not None:
            _set_message(entries[_scalar(key_part, kind.map_key, name)], kind.element, content)
        else:
            entries[_scalar(key_part, kind.map_key, name)] = _scalar(value_part, kind.element, content)


def _append(elements: Any, part: FieldDescriptor, kind: SqlType, value: Any) -> None:
    if value is None:
        raise ValueError("PROTOBUF has no null in an ARRAY")
    if part.message_type is None:
        elements.append(_scalar(part, kind, value))
    else:
        _set_message(elements.add(), kind, value)


def _scalar(part: FieldDescriptor, kind: SqlType, value: Any) -> object:
    if value is None:
        raise ValueError("PROTOBUF has no null in a MAP")
    if part.enum_type is not None:
        if value not in part.enum_type.values_by_name:
            raise ValueError(f"{part.enum_type.full_name} has no value {value}")
        return part.enum_type.values_by_name[value].number
    match kind.kind:
        case "BYTES":
            return bytes(value)
        case "DECIMAL":  # of an unsigned number
            return int(exact_decimal(value, kind))
    return value


def _set_message(message: protobuf_message.Message, kind: SqlType, value: Any) -> None:
    message.SetInParent()
    match message.DESCRIPTOR.full_name:
        case _ if kind.kind == "STRUCT":
            _fill(message, kind, value)
        case name if name in WRAPPED:
            message.value = value
        case name if name == TIMESTAMP and kind.kind == "TIMESTAMP":
            message.FromMilliseconds(moment_ms(value))
        case name if name == TIMESTAMP and kind.kind == "TIMESTAMP_LTZ":
            message.FromMicroseconds(moment_us(value))
        case name if name == DATE and kind.kind == "DATE":
            message.year, message.month, message.day = value.year, value.month, value.day
        case name if name == TIME and kind.kind == "TIME":
            seconds, milliseconds = divmod(value, 1000)
            message.hours, rest = divmod(seconds, 3600)
            message.minutes, message.seconds = divmod(rest, 60)
            message.nanos = milliseconds * 1_000_000
        case name if name == DECIMAL and kind.kind == "DECIMAL":
            message.value = unscaled_bytes(exact_decimal(Decimal(value), kind), kind)
            message.precision, message.scale = kind.precision, kind.scale
        case name:
            raise ValueError(f"a {kind} is no {name}")


# ---- reading


def _struct(message: protobuf_message.Message, kind: SqlType) -> dict[str, object]:
    return {name: _read(message, _part(message.DESCRIPTOR, name), part) for name, part in kind.fields}


def _read(message: protobuf_message.Message, part: FieldDescriptor, kind: SqlType) -> object:
    if part is None:
        return None
    value = getattr(message, part.name)
    if kind.kind == "MAP" and is_map(part):
        key_part, value_part = part.message_type.fields
        if part.message_type.GetOptions().map_entry:
            return {
                _plain(name, key_part, kind.map_key): _plain(content, value_part, kind.element)
                for name, content in value.items()
            }
        return {
            _plain(entry.key, key_part, kind.map_key): _read(entry, value_part, kind.element)
            for entry in value
        }
    if part.is_repeated:
        if kind.kind != "ARRAY":
            raise ValueError(f"{part.name} is repeated, and no {kind}")
        return [_plain(element, part, kind.element) for element in value]
    if part.has_presence and not message.HasField(part.name):
        return None
    return _plain(value, part, kind)


def _plain(value: Any, part: FieldDescriptor, kind: SqlType) -> object:
    if part.enum_type is not None:
        named = part.enum_type.values_by_number.get(value)
        return _checked(str(value) if named is None else named.name, kind)
    if part.message_type is None:
        return _checked(value, kind)
    name = part.message_type.full_name
    match kind.kind:
        case "STRUCT":
            return _struct(value, kind)
        case "TIMESTAMP" if name == TIMESTAMP:
            return moment(value.ToNanoseconds() // 1_000_000)
        case "TIMESTAMP_LTZ" if name == TIMESTAMP:
            return precise_moment(value.ToNanoseconds() // 1_000)
        case "DATE" if name == DATE:
            return date(value.year, value.month, value.day)
        case "TIME" if name == TIME:
            seconds = (value.hours * 60 + value.minutes) * 60 + value.seconds
            return whole(seconds * 1000 + value.nanos // 1_000_000, INT_BITS)
        case "DECIMAL" if name == DECIMAL:
            return decimal_of_bytes(value.value, value.scale, kind)
        case _ if name in WRAPPED:
            return _checked(value.value, kind)
    raise ValueError(f"{name} is no {kind}")


def _checked(value: object, kind: SqlType) -> object:
    """The value of a scalar field. Raises ValueError for one that is not of the type."""
    if kind.kind == "DECIMAL" and isinstance(value, int) and not isinstance(value, bool):
        return exact_decimal(value, kind)  # an unsigned number of 64 bits
    if not isinstance(value, _FITTING.get(kind.kind, ())):
        raise ValueError(f"{value!r:.80} is no {kind}")
    match kind.kind:
        case "DOUBLE" | "FLOAT" if isinstance(value, float | int):
            return float(value)
        case "INTEGER" | "BIGINT":
            return whole(value, BIGINT_BITS if kind.kind == "BIGINT" else INT_BITS)
    return value
