"""Messages of Protobuf as documents to look at and to search: what their JSON has, with fields by their own names.

The documents follow Protobuf's own JSON mapping, with one difference: integers of 64 bits are numbers, where that mapping has
texts for the sake of JavaScript. A message of `google.protobuf`, such as a Timestamp, has the form that the mapping gives it.
How the fields of a message are read is decided once for its type, so a search through many records pays for it once.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.values.formats.framing import FIRST_MESSAGE, after_message_head
from odradek.values.formats.protobuf_schemas import ProtoFile, message_class

if TYPE_CHECKING:
    from google.protobuf import json_format
    from google.protobuf import message as protobuf_message
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
else:
    json_format = lazy("google.protobuf.json_format")
    protobuf_message = lazy("google.protobuf.message")

_TYPES_KNOWN: Final = 256
_OWN_PACKAGE: Final = "google.protobuf."
_FLOAT: Final = struct.Struct("<f")
_FLOAT_DIGITS: Final = range(6, 10)
_Convert = Callable[[Any], Any]


def proto_documents(file: ProtoFile) -> Callable[[bytes], Any]:
    """Returns a function that reads a message after its indexes as a value that JSON can hold; it raises ValueError for other
    data."""
    failures = (protobuf_message.DecodeError, json_format.Error, TypeError, RecursionError)
    first = message_class(file.message_at(FIRST_MESSAGE))

    def document(data: bytes) -> Any:
        if data[:1] == b"\0":  # as nearly all are
            kind, body = first, data[1:]
        else:
            indexes, body = after_message_head(data)
            kind = message_class(file.message_at(indexes))
        message = kind()
        try:
            message.ParseFromString(body)
            return message_document(message)
        except failures as error:
            raise ValueError(str(error) or "not a message") from None

    return document


def message_document(message: protobuf_message.Message) -> Any:
    """Returns a message as a value that JSON can hold. Raises TypeError and the errors of `json_format`."""
    converters = _converters(message.DESCRIPTOR)
    if converters is None:
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    document = {}
    for field, value in message.ListFields():
        name, convert = converters[field.number]
        document[name] = value if convert is None else convert(value)
    return document


@lru_cache(maxsize=_TYPES_KNOWN)
def _converters(descriptor: Descriptor) -> Mapping[int, tuple[str, _Convert | None]] | None:
    """Returns the name of each field, and how its value is read, by number; None for a message with a form of its own."""
    if descriptor.full_name.startswith(_OWN_PACKAGE) or descriptor.is_extendable:
        return None
    return {field.number: (field.name, _field(field)) for field in descriptor.fields}


def _field(field: FieldDescriptor) -> _Convert | None:
    """Returns how the value of a field is read; None for a value that stays as it is."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, content = field.message_type.fields
        read = _single(content) or _same
        name = _flag if key.type == key.TYPE_BOOL else str
        return lambda entries: {name(key): read(entries[key]) for key in entries}
    convert = _single(field)
    if not field.is_repeated:
        return convert
    return list if convert is None else lambda values: list(map(convert, values))


def _single(field: FieldDescriptor) -> _Convert | None:
    if field.message_type is not None:
        return message_document
    if field.type == field.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode()
    if field.type == field.TYPE_FLOAT:
        return _short_float
    if field.type == field.TYPE_DOUBLE:
        return _double
    if field.enum_type is not None:
        if field.enum_type.full_name == "google.protobuf.NullValue":
            return lambda _: None
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: names.get(number, number)
    return None


def _same(value: object) -> object:
    return value


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _double(value: float) -> float | str:
    """Returns a number; the names that Protobuf has for what JSON has no number for."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _short_float(value: float) -> float | str:
    """Returns the number of 32 bits with the fewest digits that name it."""
    if not math.isfinite(value):
        return _double(value)
    stored = _FLOAT.pack(value)
    for digits in _FLOAT_DIGITS:
        short = float(f"{value:.{digits}g}")
        try:
            if _FLOAT.pack(short) == stored:
                return short
        except OverflowError:
            continue
    return value
