"""Rows as bytes of a topic and as Python values, for what needs no Spark: INSERT VALUES, pull queries, PRINT.

A Python value of a column: int, float, str, bool, bytes, Decimal, list, dict. A DATE is the days since 1970, a TIME the
milliseconds since midnight, a TIMESTAMP the milliseconds since 1970: as in records. `shown` converts them for JSON.

Source: ksqlDB's reference of serialization formats.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from odradek.values.errors import SqlError
from odradek.values.formats import RecordFormat, record_format
from odradek.values.formats.format_info import FormatInfo
from odradek.values.formats.json_format import map_key, read
from odradek.values.java_text import double_text
from odradek.values.rows import SqlValue
from odradek.values.times import day, day_number, moment, moment_ms, moment_text, time_of_text
from odradek.values.types import SqlType

_EPOCH: Final = date(1970, 1, 1)
FORMATS: Final = ("JSON", "DELIMITED", "KAFKA", "NONE")
"""The formats that need no schema file."""


class UnreadableRecord(ValueError):
    """Bytes that do not have the declared format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRowCodec:
    """Reads and writes the key or the value of a source. `is_wrapped`: even a single column is a field of an object.

    It uses the formats that queries in Spark use: a record means the same to both.
    """

    format: str
    columns: tuple[tuple[str, SqlType], ...]
    is_wrapped: bool = True
    delimiter: str = ","
    _form: RecordFormat = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise SqlError(f"{self.format} records are read by queries that write to a topic only, not here")
        info = FormatInfo(name=self.format, wrapped=self.is_wrapped, delimiter=self.delimiter)
        named = [(name, name, kind) for name, kind in self.columns]
        object.__setattr__(self, "_form", record_format(info, named, is_key=False))

    def decode(self, data: bytes | None) -> list[Any] | None:
        """Returns values in the order of the columns, and None for a null. Raises UnreadableRecord."""
        if data is None:
            return None
        if not self.columns or self.format == "NONE":
            return []
        return decoded_row(self._form, self.columns, data)

    def encode(self, values: Sequence[SqlValue] | None) -> bytes | None:
        """Raises SqlError for a value that the format cannot have."""
        if values is None or not self.columns:
            return None
        return encoded_row(self._form, self.columns, values)


def decoded_row(
    form: RecordFormat, columns: Sequence[tuple[str, SqlType]], data: bytes
) -> list[object] | None:
    """Returns values in the order of the columns. Raises UnreadableRecord."""
    try:
        row = form.decode(data)
    except (ValueError, SqlError) as error:
        raise UnreadableRecord(f"no {form.name}: {error}") from error
    return None if row is None else [_plain(row[name], kind) for name, kind in columns]


def encoded_row(
    form: RecordFormat, columns: Sequence[tuple[str, SqlType]], values: Sequence[SqlValue]
) -> bytes | None:
    """Raises SqlError for a value that the format cannot have."""
    try:
        row = {name: _as_spark(value, kind) for value, (name, kind) in zip(values, columns, strict=True)}
        return form.encode(row)
    except (ValueError, TypeError, struct.error) as error:
        raise SqlError(f"these values are no {form.name}: {error}") from error


def _plain(value: Any, kind: SqlType) -> object:
    """Replaces dates and moments by days and milliseconds."""
    if value is None:
        return None
    match kind.kind:
        case "DATE" if isinstance(value, date):
            return day_number(value)
        case "TIMESTAMP" if isinstance(value, datetime):
            return moment_ms(value)
        case "ARRAY":
            return [_plain(part, kind.element) for part in value]
        case "MAP":
            pairs = value.items() if isinstance(value, Mapping) else value
            return {name: _plain(part, kind.element) for name, part in pairs}
        case "STRUCT":
            return {name: _plain(value[name], part) for name, part in kind.fields}
    return value


def _as_spark(value: Any, kind: SqlType) -> object:
    if value is None:
        return None
    match kind.kind:
        case "DATE":
            return day(value)
        case "TIMESTAMP":
            return moment(value)
        case "ARRAY":
            return [_as_spark(part, kind.element) for part in value]
        case "MAP":
            return {name: _as_spark(part, kind.element) for name, part in value.items()}
        case "STRUCT":
            return {name: _as_spark(value.get(name), part) for name, part in kind.fields}
    return value


# ---- values that clients write


def of_json(value: object, kind: SqlType) -> object:
    """Returns a value of /inserts-stream as one of a column: as in a record, and times may be texts. Raises ValueError."""
    if value is None:
        return None
    match kind.kind:
        case "DATE" | "TIME" | "TIMESTAMP" if isinstance(value, str):
            return time_of_text(value, kind)
        case "ARRAY" if isinstance(value, list):
            return [of_json(member, kind.element) for member in value]
        case "MAP" if isinstance(value, dict):
            return {
                map_key(name, kind.map_key): of_json(member, kind.element) for name, member in value.items()
            }
        case "STRUCT" if isinstance(value, dict):
            members = {name.upper(): member for name, member in value.items()}
            return {
                name: of_json(value.get(name, members.get(name.upper())), part) for name, part in kind.fields
            }
    return _plain(read(value, kind), kind)


def exact_json(value: object) -> str:
    """JSON text in which a Decimal is a number, digit by digit, and NaN and Infinity are texts, as ksqlDB writes them."""
    if isinstance(value, dict):
        members = (
            f"{json.dumps(str(name), ensure_ascii=False)}:{exact_json(member)}"
            for name, member in value.items()
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(exact_json, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{double_text(value)}"'
    return json.dumps(value, ensure_ascii=False)


# ---- what clients see


def shown(value: Any, kind: SqlType) -> Any:
    """Returns a value as the REST API's JSON has it. Takes what Spark gives, too: dates, moments, bytearrays, Rows as dicts."""
    if value is None:
        return None
    match kind.kind:
        case "BYTES":
            return base64.b64encode(bytes(value)).decode()
        case "DECIMAL":
            number = Decimal(value)
            return int(number) if kind.scale == 0 else number
        case "DATE":
            return (_EPOCH + timedelta(days=value) if isinstance(value, int) else value).isoformat()
        case "TIME":
            return _time_text(value)
        case "TIMESTAMP":
            return _moment_text(value)
        case "ARRAY":
            return [shown(member, kind.element) for member in value]
        case "MAP":
            members = value.items() if isinstance(value, dict) else value
            return {name: shown(member, kind.element) for name, member in members}
        case "STRUCT":
            return {name: shown(value.get(name), part) for name, part in kind.fields}
        case "DOUBLE":
            return float(value)
    return value


def _time_text(value: Any) -> str:
    """HH:mm, with seconds and milliseconds where there are some: as Java's LocalTime."""
    if isinstance(value, time):
        return value.isoformat()
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=value)
    if moment.microsecond:
        return moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    return moment.strftime("%H:%M:%S" if moment.second else "%H:%M")


def _moment_text(value: Any) -> str:
    return moment_text(value if isinstance(value, int) else moment_ms(value))
