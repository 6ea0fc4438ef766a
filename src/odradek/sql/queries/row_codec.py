"""Rows as bytes of a topic and as Python values, for what needs no Spark: INSERT VALUES, pull queries, PRINT.

A Python value of a column: int, float, str, bool, bytes, Decimal, list, dict. A DATE is the days since 1970, a TIME the
milliseconds since midnight, a TIMESTAMP the milliseconds since 1970: as in records. `shown` says how JSON shows them.

Source: ksqlDB's reference of serialization formats.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from odradek.sql.errors import SqlError
from odradek.sql.exact_numbers import BIGINT_BITS, INT_BITS, double, exact_decimal, rounded_decimal, whole
from odradek.sql.formats.delimited_format import fields_of
from odradek.sql.formats.java_text import double_text
from odradek.sql.formats.json_format import compact, encodable
from odradek.sql.formats.times import day, moment, moment_ms, moment_text
from odradek.sql.types import SqlType

_EPOCH: Final = date(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: Final = {"INTEGER": ">i", "BIGINT": ">q", "DOUBLE": ">d"}
FORMATS: Final = ("JSON", "DELIMITED", "KAFKA", "NONE")
"""Those that need no schema file."""
Columns = Sequence[tuple[str, SqlType]]


class UnreadableRecord(ValueError):
    """Bytes that are not what the format says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRowCodec:
    """Of the key or of the value of a source. `is_wrapped`: a single column is a field of an object all the same."""

    format: str
    columns: tuple[tuple[str, SqlType], ...]
    is_wrapped: bool = True
    delimiter: str = ","

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise SqlError(f"{self.format} records are read by queries that write to a topic only, not here")

    def decode(self, data: bytes | None) -> list[Any] | None:
        """Values in the order of the columns; None of a null. UnreadableRecord."""
        if data is None:
            return None
        if not self.columns:
            return []
        try:
            match self.format:
                case "NONE":
                    return []
                case "KAFKA":
                    return [_from_kafka(data, self.columns[0][1])]
                case "DELIMITED":
                    return self._from_delimited(data.decode())
            return self._from_json(json.loads(data, parse_float=Decimal))
        except (ValueError, struct.error, ArithmeticError, RecursionError) as error:
            raise UnreadableRecord(f"no {self.format}: {error}") from error

    def encode(self, values: Sequence[Any] | None) -> bytes | None:
        """SqlError for a value that the format cannot have."""
        if values is None or self.format == "NONE" or not self.columns:
            return None
        match self.format:
            case "KAFKA":
                return _to_kafka(values[0], self.columns[0][1])
            case "DELIMITED":
                return self._to_delimited(values)
        plain = [_json_value(value, kind) for value, (_, kind) in zip(values, self.columns, strict=True)]
        if not self.is_wrapped and len(plain) == 1:
            return _json_bytes(plain[0])
        return _json_bytes({name: value for (name, _), value in zip(self.columns, plain, strict=True)})

    # ---- formats

    def _from_json(self, value: Any) -> list[Any] | None:
        if not self.is_wrapped and len(self.columns) == 1:
            return [of_json(value, self.columns[0][1])]
        if value is None:
            return None
        if not isinstance(value, dict):
            raise UnreadableRecord(f"an object is expected, not {str(value)[:40]!r}")
        upper: dict[str, Any] | None = None
        values = []
        for name, kind in self.columns:
            if name in value:
                values.append(of_json(value[name], kind))
                continue
            if upper is None:
                upper = {member.upper(): content for member, content in value.items()}
            values.append(of_json(upper.get(name.upper()), kind))
        return values

    def _from_delimited(self, text: str) -> list[Any]:
        fields = fields_of(text, self.delimiter) if text else []
        if len(fields) != len(self.columns):
            raise UnreadableRecord(f"{len(self.columns)} fields are expected, not {len(fields)}")
        return [
            None if field == "" else of_text(field, kind)
            for field, (_, kind) in zip(fields, self.columns, strict=True)
        ]

    def _to_delimited(self, values: Sequence[Any]) -> bytes:
        line = io.StringIO()
        plain = [
            "" if value is None else _json_value(value, kind)
            for value, (_, kind) in zip(values, self.columns, strict=True)
        ]
        csv.writer(line, delimiter=self.delimiter, lineterminator="").writerow(
            [str(value).lower() if isinstance(value, bool) else value for value in plain]
        )
        return line.getvalue().encode()


def _from_kafka(data: bytes, kind: SqlType) -> Any:
    if kind.kind in _NUMBERS:
        return struct.unpack(_NUMBERS[kind.kind], data)[0]
    return data if kind.kind == "BYTES" else data.decode()


def _to_kafka(value: Any, kind: SqlType) -> bytes | None:
    if value is None:
        return None
    if kind.kind in _NUMBERS:
        return struct.pack(_NUMBERS[kind.kind], value)
    if kind.kind == "BYTES":
        return bytes(value)
    if kind.kind == "STRING":
        return str(value).encode()
    raise SqlError(f"The 'KAFKA' format does not support type '{kind.kind}'")


# ---- JSON of records


def of_json(value: Any, kind: SqlType) -> Any:
    """A value of a type from what JSON has. UnreadableRecord, ValueError."""
    if value is None:
        return None
    match kind.kind:
        case "STRING":
            return encodable(value if isinstance(value, str) else compact(value))
        case "BOOLEAN":
            if not isinstance(value, bool):
                raise UnreadableRecord(f"{value!r} is no BOOLEAN")
            return value
        case "ARRAY":
            return [of_json(member, kind.element) for member in _expected(value, list, kind)]
        case "MAP":
            return {
                encodable(name): of_json(member, kind.element)
                for name, member in _expected(value, dict, kind).items()
            }
        case "STRUCT":
            members = {name.upper(): member for name, member in _expected(value, dict, kind).items()}
            return {
                name: of_json(value.get(name, members.get(name.upper())), part) for name, part in kind.fields
            }
    if isinstance(value, bool | list | dict):
        raise UnreadableRecord(f"{value!r} is no {kind}")
    if (
        kind.kind == "DECIMAL"
    ):  # DELIMITED rounds; JSON does not, for ksqlDB and for the queries that write to topics
        return exact_decimal(value.strip() if isinstance(value, str) else value, kind)
    return of_text(value, kind) if isinstance(value, str) else _number(value, kind)


def _expected(value: Any, expected: type, kind: SqlType) -> Any:
    if not isinstance(value, expected):
        raise UnreadableRecord(f"{str(value)[:40]!r} is no {kind.kind}")
    return value


def _number(value: Any, kind: SqlType) -> Any:
    """ValueError for what the queries that write to topics cannot read either."""
    match kind.kind:
        case "INTEGER" | "TIME":
            return whole(value, INT_BITS)
        case "BIGINT":
            return whole(value, BIGINT_BITS)
        case "DATE":
            number = whole(value, INT_BITS)
            day(number)
            return number
        case "TIMESTAMP":
            return moment_ms(moment(whole(value, BIGINT_BITS)))
        case "DOUBLE":
            return double(value)
        case "DECIMAL":
            return rounded_decimal(value, kind)
    raise UnreadableRecord(f"{value!r:.80} is no {kind}")


def of_text(text: str, kind: SqlType) -> Any:
    match kind.kind:
        case "STRING":
            return text
        case "BYTES":
            return base64.b64decode(text, validate=True)
        case "BOOLEAN":
            return text.strip().lower() == "true"
        case "DATE" if "-" in text[1:]:
            return (date.fromisoformat(text.strip()) - _EPOCH).days
        case "TIME" if ":" in text:
            parsed = time.fromisoformat(text.strip())
            since_midnight = timedelta(
                hours=parsed.hour,
                minutes=parsed.minute,
                seconds=parsed.second,
                microseconds=parsed.microsecond,
            )
            return since_midnight // timedelta(milliseconds=1)
        case "TIMESTAMP" if "-" in text[1:]:
            parsed_moment = datetime.fromisoformat(text.strip())
            if parsed_moment.tzinfo is None:
                parsed_moment = parsed_moment.replace(tzinfo=UTC)
            return (parsed_moment - _EPOCH_UTC) // timedelta(milliseconds=1)
    return _number(text.strip(), kind)


def _json_value(value: Any, kind: SqlType) -> Any:
    """As a record has it."""
    if value is None:
        return None
    match kind.kind:
        case "BYTES":
            return base64.b64encode(value).decode()
        case "ARRAY":
            return [_json_value(member, kind.element) for member in value]
        case "MAP":
            return {name: _json_value(member, kind.element) for name, member in value.items()}
        case "STRUCT":
            return {name: _json_value(value.get(name), part) for name, part in kind.fields}
    return value


def _json_bytes(value: Any) -> bytes:
    return exact_json(value).encode()


def exact_json(value: Any) -> str:
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
    """A value as the REST API's JSON has it. Takes what Spark gives, too: dates, moments, bytearrays, Rows as dicts."""
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
