"""Why bytes could not be decoded, in words: asked only about the few that were not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from odradek.model.exception_text import class_name, text_of
from odradek.spark.options.option_table import Decoding
from odradek.values.arrow_types import declared_name

SCHEMA_MISMATCH: Final = "odradek.spark.SchemaMismatch"
"""The name in place of an exception's class: the value is JSON, but not of the declared type."""
_SHOWN_MAX: Final = 80
_INTEGER_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The exception and the message that a dead letter states for a value that does not fit its schema."""

    exception: str
    message: str


def is_plainly_wrong(data: bytes, kind: pa.DataType) -> bool:
    """Tells whether `data` is surely not one JSON object that fits. False where this cannot tell."""
    try:
        document = json.loads(data)
    except json.JSONDecodeError:
        return True
    except (ValueError, RecursionError):
        return False
    if document is None:
        return False
    return not isinstance(document, dict) or _first_misfit(document, kind, "") is not None


def why_not(data: bytes, decoding: Decoding, kind: pa.DataType) -> Mismatch:
    """Returns what is wrong with `data`, which could not be decoded to `kind`."""
    try:
        text = data.decode("utf-8")
        if decoding is Decoding.UTF8:
            return Mismatch(exception=class_name(UnicodeDecodeError), message="not UTF-8")
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Mismatch(exception=class_name(type(error)), message=text_of(error))
    if not isinstance(document, dict):
        return Mismatch(
            exception=SCHEMA_MISMATCH, message=f"the value is {_shown(document)}, not one JSON object"
        )
    misfit = _first_misfit(document, kind, "")
    return Mismatch(
        exception=SCHEMA_MISMATCH, message=misfit or f"{_shown(document)} does not fit the declared fields"
    )


def _first_misfit(value: object, kind: pa.DataType, path: str) -> str | None:
    """Returns the first field that does not fit; None where this cannot tell."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return _misfit(value, kind, path)
        inner = ((value.get(field.name), field.type, f"{path}.{field.name}") for field in kind)
    elif pa.types.is_list(kind):
        if not isinstance(value, list):
            return _misfit(value, kind, path)
        inner = ((element, kind.value_type, f"{path}[{number}]") for number, element in enumerate(value))
    else:
        return None if _fits(value, kind) else _misfit(value, kind, path)
    return next(filter(None, (_first_misfit(*arguments) for arguments in inner)), None)


def _fits(value: object, kind: pa.DataType) -> bool:
    name = str(kind)
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
        return isinstance(value, str)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if name in _INTEGER_BITS:
        bound = 1 << (_INTEGER_BITS[name] - 1)
        return isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
    if pa.types.is_floating(kind):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return True  # decimals: Arrow raises its own error for those that do not fit


def _misfit(value: object, kind: pa.DataType, path: str) -> str:
    return f"field {path.lstrip('.') or 'value'} is {_shown(value)}, not {_type_name(kind)}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _type_name(kind: pa.DataType) -> str:
    names = {"string": "a string", "bool": "a boolean"}
    if pa.types.is_struct(kind):
        return "an object of the declared fields"
    if pa.types.is_list(kind):
        return "an array"
    if pa.types.is_timestamp(kind):
        return "a timestamp (ISO 8601)"
    declared = declared_name(kind)
    return names.get(str(kind), f"{'an' if declared == 'INT' else 'a'} {declared}")
