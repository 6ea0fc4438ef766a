"""DELIMITED: the columns of a record with a sign between them, quoted where it is needed, as Commons CSV does. No names."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatColumn
from odradek.values.formats.json_format import read
from odradek.values.java_text import decimal_text, double_text
from odradek.values.rows import SqlValue
from odradek.values.times import day_number, moment_ms
from odradek.values.types import SqlType

_NAMES: Final = {"SPACE": " ", "TAB": "\t"}


class DelimitedFormat:
    def __init__(self, columns: tuple[FormatColumn, ...], delimiter: str) -> None:
        self._columns = columns
        self._delimiter = _NAMES.get(delimiter.upper(), delimiter)
        if len(self._delimiter) != 1:
            raise SqlError(f"VALUE_DELIMITER is one character, or SPACE or TAB, not {delimiter!r}")

    def encode(self, values: Mapping[str, SqlValue]) -> bytes:
        texts = [
            _quoted(_written(values[column.column], column.type), self._delimiter, is_first=index == 0)
            for index, column in enumerate(self._columns)
        ]
        return self._delimiter.join(texts).encode()

    def decode(self, data: bytes) -> dict[str, object] | None:
        text = data.decode(errors="replace")  # as Java does: a byte that is no UTF-8 becomes U+FFFD
        if not text:
            raise ValueError("no record")
        parts = fields_of(text, self._delimiter)
        if len(parts) != len(self._columns):
            raise ValueError(f"{len(parts)} columns in place of {len(self._columns)}")
        return {
            column.column: _read(part, column.type) for part, column in zip(parts, self._columns, strict=True)
        }


def _written(value: Any, kind: SqlType) -> str | None:
    if value is None:
        return None
    match kind.kind:
        case "BOOLEAN":
            return "true" if value else "false"
        case "DOUBLE":
            return double_text(value)
        case "DECIMAL":
            return decimal_text(value, kind.scale)
        case "BYTES":
            return base64.b64encode(value).decode()
        case "DATE":
            return str(day_number(value))
        case "TIMESTAMP":
            return str(moment_ms(value))
    return str(value)


def _quoted(text: str | None, delimiter: str, *, is_first: bool) -> str:
    """The rules of Commons CSV 1.4, which ksqlDB uses, for QuoteMode.MINIMAL.

    A first field that begins with neither a digit nor an ASCII letter is quoted: -1, _x and é, too.
    """
    if text is None:
        return ""
    if not text:
        return '""' if is_first else ""
    first, last = text[0], text[-1]
    odd_start = is_first and not (first.isascii() and first.isalnum())
    if odd_start or first <= "#" or last <= " " or any(sign in text for sign in ("\r", "\n", '"', delimiter)):
        return '"' + text.replace('"', '""') + '"'
    return text


def fields_of(text: str, delimiter: str) -> list[str]:
    """The fields of the first line, of any length. ValueError for a quote that is not closed, and for text after one.

    A quote inside a field that does not begin with one is a sign like any other.
    """
    if text[:1] in ("\r", "\n"):
        return []
    after = re.compile(f"[{re.escape(delimiter)}\r\n]")
    fields, index = [], 0
    while True:
        if text.startswith('"', index):
            field, index = _unquoted(text, index + 1)
            if index < len(text) and not after.match(text, index):
                raise ValueError(f"{text[index]!r} follows a closing quote, in place of {delimiter!r}")
        else:
            end = after.search(text, index)
            start, index = index, len(text) if end is None else end.start()
            field = text[start:index]
        fields.append(field)
        if not text.startswith(delimiter, index):
            return fields
        index += 1


def _unquoted(text: str, start: int) -> tuple[str, int]:
    """Returns the text between quotes, from `start` on, and where the rest begins. Two quotes are one."""
    pieces: list[str] = []
    while (end := text.find('"', start)) >= 0:
        pieces.append(text[start:end])
        if not text.startswith('"', end + 1):
            return '"'.join(pieces), end + 1
        start = end + 2
    raise ValueError("a quote is not closed")


def _read(text: str, kind: SqlType) -> object:
    if text == "":
        return None
    match kind.kind:
        case "STRING":
            return text
        case "BOOLEAN":
            return text.lower() == "true"  # as Java's parseBoolean: any other text is false
    return read(text, kind)
