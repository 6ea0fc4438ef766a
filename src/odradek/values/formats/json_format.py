"""JSON: fields as an object, or one bare value. Numbers are written as Java writes them; nulls are written.

Read leniently, as ksqlDB does: names in any case, numbers in texts as Java reads them, anything where a STRING is wanted.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from odradek.model.java_numbers import is_digits
from odradek.values.exact_numbers import BIGINT_BITS, INT_BITS, double, exact_decimal, whole
from odradek.values.formats.format_info import FormatColumn
from odradek.values.java_text import decimal_text, double_text
from odradek.values.rows import SqlValue
from odradek.values.times import day, day_number, moment, moment_ms
from odradek.values.types import SqlType


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_decode: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant).decode


class JsonFormat:
    """The format JSON.

    `wrapped` False: the only column, without an object around it.
    """

    def __init__(self, columns: tuple[FormatColumn, ...], *, wrapped: bool) -> None:
        self._columns = columns
        self._wrapped = wrapped

    def encode(self, values: Mapping[str, SqlValue]) -> bytes | None:
        if not self._wrapped:
            (column,) = self._columns
            value = values[column.column]
            return None if value is None else written(value, column.type).encode()
        fields = ",".join(
            f"{_text(column.name)}:{written(values[column.column], column.type)}" for column in self._columns
        )
        return f"{{{fields}}}".encode()

    def decode(self, data: bytes) -> dict[str, object] | None:
        value = parsed(data)
        if not self._wrapped:
            (column,) = self._columns
            return {column.column: read(value, column.type)}
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError("no JSON object")
        known = {name.upper(): part for name, part in value.items()}
        return {
            column.column: read(
                value[column.name] if column.name in value else known.get(column.name.upper()), column.type
            )
            for column in self._columns
        }


def parsed(data: bytes) -> object:
    """Parses a text in UTF-8, 16 or 32; numbers keep their digits. Raises ValueError for what is no JSON."""
    try:
        return _decode(str(data, json.detect_encoding(data), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def written(value: Any, kind: SqlType) -> str:
    """Returns a value as JSON."""
    if value is None:
        return "null"
    match kind.kind:
        case "BOOLEAN":
            return "true" if value else "false"
        case "INTEGER" | "BIGINT" | "TIME":
            return str(value)
        case "DOUBLE":
            text = double_text(value)
            return text if is_digits(text[-1]) else _text(text)
        case "DECIMAL":
            return decimal_text(value, kind.scale)
        case "BYTES":
            return _text(base64.b64encode(value).decode())
        case "DATE":
            return str(day_number(value))
        case "TIMESTAMP":
            return str(moment_ms(value))
        case "ARRAY":
            return f"[{','.join(written(part, kind.element) for part in value)}]"
        case "MAP":
            pairs = value.items() if isinstance(value, Mapping) else value
            return f"{{{','.join(f'{_key(name)}:{written(part, kind.element)}' for name, part in pairs)}}}"
        case "STRUCT":  # of a field that the value lacks, nothing is written
            present = [(name, part) for name, part in kind.fields if name in value]
            return f"{{{','.join(f'{_text(name)}:{written(value[name], part)}' for name, part in present)}}}"
    return _text(value)


def _key(name: object) -> str:
    return _text(name if isinstance(name, str) else written(name, SqlType(kind="BIGINT")))


def read(value: object, kind: SqlType) -> object:  # noqa: C901 - a case for each type
    """Reads a JSON value as one of this type. Raises ValueError where it cannot become one."""
    if value is None:
        return None
    match kind.kind:
        case "STRING":
            return _as_text(value)
        case "BOOLEAN" if isinstance(value, bool):
            return value
        case "INTEGER" | "TIME":
            return whole(value, INT_BITS)
        case "BIGINT":
            return whole(value, BIGINT_BITS)
        case "DATE":
            return day(whole(value, INT_BITS))
        case "TIMESTAMP":
            return moment(whole(value, BIGINT_BITS))
        case "DOUBLE" if isinstance(value, (int, Decimal, str)) and not isinstance(value, bool):
            return double(value)
        case "DECIMAL" if isinstance(value, (int, Decimal, str)) and not isinstance(value, bool):
            return exact_decimal(value, kind)
        case "BYTES" if isinstance(value, str):
            return _bytes(value)
        case "ARRAY" if isinstance(value, list):
            return [read(part, kind.element) for part in value]
        case "MAP" if isinstance(value, dict):
            return {map_key(name, kind.map_key): read(part, kind.element) for name, part in value.items()}
        case "STRUCT" if isinstance(value, dict):
            known = {name.upper(): part for name, part in value.items()}
            return {
                name: read(value[name] if name in value else known.get(name.upper()), part)
                for name, part in kind.fields
            }
    raise ValueError(f"{json.dumps(value, default=str):.80} is no {kind}")


def map_key(name: str, kind: SqlType) -> object:
    return encodable(name) if kind.kind == "STRING" else read(name, kind)


def encodable(text: str) -> str:
    """The text. ValueError for one with half a pair of surrogates, which no UTF-8 has."""
    if not text.isascii():
        text.encode()
    return text


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return str(value)
    return encodable(compact(value))


def compact(value: object) -> str:
    """JSON again of what was read as JSON, with all digits of its numbers."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{_text(name)}:{compact(part)}' for name, part in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(compact, value))}]"
    return str(value) if isinstance(value, Decimal) else _text(value)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r:.80} is no base64") from error
