"""Parses bytes into records to send: the formats that `odradek produce` reads. No I/O: lines in, records out."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.cli.moments import parse_timestamp
from odradek.model.errors import OdradekError

Headers = tuple[tuple[str, bytes | None], ...]

FORMATS: Final = ("line", "json", "raw", "hex", "base64")


class InputError(OdradekError):
    """A line of the input does not follow its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """A record to send; None where the producer decides, or where there is none."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFormat:
    """The format of the input, and the defaults of its records."""

    format: str = "line"
    key_separator: bytes | None = None
    """Splits a line into key and value at its first occurrence."""
    null: bytes | None = None
    """A key or value equal to this becomes null."""
    defaults: InputRecord = InputRecord()


def read_records(
    lines: Iterable[bytes], shape: InputFormat, *, now_ms: int
) -> Iterator[tuple[int, InputRecord]]:
    """Records, each with the number of its line, from lines with their ends, as a binary file yields them.

    InputError names the line and the error.
    """
    if shape.format == "raw":
        yield 1, _with_defaults(shape, None, b"".join(lines))
        return
    if shape.format == "json":
        for number, line in _lines(lines):
            if line.strip():
                yield number, _from_json(line, number, shape.defaults, now_ms)
        return
    decode = _DECODERS[shape.format]
    for number, line in _lines(lines):
        key, value = _split_key(line, number, shape)
        yield (
            number,
            _with_defaults(
                shape, _decoded(key, number, shape, decode), _decoded(value, number, shape, decode)
            ),
        )


def parse_headers(items: Iterable[str]) -> Headers:
    """Parses headers of the form `NAME=VALUE` (a bare `NAME` has no value)."""
    parsed = []
    for header in items:
        name, equals, value = header.partition("=")
        if not name:
            raise InputError(f"--header {header!r}: expected NAME=VALUE")
        parsed.append((name, value.encode() if equals else None))
    return tuple(parsed)


def _lines(raw: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines without their end (LF or CRLF), counted from 1. A last line needs no end."""
    for number, line in enumerate(raw, start=1):
        yield number, line[:-1].removesuffix(b"\r") if line.endswith(b"\n") else line


def _split_key(line: bytes, number: int, shape: InputFormat) -> tuple[bytes | None, bytes]:
    if shape.key_separator is None:
        return None, line
    key, separator, value = line.partition(shape.key_separator)
    if not separator:
        raise InputError(f"line {number} holds no key: {shape.key_separator.decode()!r} is not in it")
    return key, value


def _decoded(
    text: bytes | None, number: int, shape: InputFormat, decode: Callable[[bytes], bytes]
) -> bytes | None:
    if text is None or text == shape.null:
        return None
    try:
        return decode(text)
    except ValueError as error:
        raise InputError(f"line {number} is not {shape.format}: {error}") from None


def _with_defaults(shape: InputFormat, key: bytes | None, value: bytes | None) -> InputRecord:
    fixed = shape.defaults
    return InputRecord(
        key=fixed.key if key is None and shape.key_separator is None else key,
        value=value,
        headers=fixed.headers,
        partition=fixed.partition,
        timestamp_ms=fixed.timestamp_ms,
    )


def _identity(text: bytes) -> bytes:
    return text


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _from_hex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode("ascii", "replace"))


_DECODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "line": _identity,
    "hex": _from_hex,
    "base64": _from_base64,
}


# One JSON object on each line: what `odradek consume --json` prints can be sent as it is.


def _from_json(line: bytes, number: int, defaults: InputRecord, now_ms: int) -> InputRecord:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError(f"line {number} is not a JSON object with key, value, headers, partition, timestamp")
    try:
        key = _json_bytes(fields, "key")
        partition = fields.get("partition")
        if partition is not None and (
            not isinstance(partition, int) or isinstance(partition, bool) or partition < 0
        ):
            raise ValueError(f"partition {partition!r} is not a number from 0")
        return InputRecord(
            key=key if "key" in fields or "key_base64" in fields else defaults.key,
            value=_json_bytes(fields, "value"),
            headers=defaults.headers + _json_headers(fields.get("headers")),
            partition=defaults.partition if defaults.partition is not None else partition,
            timestamp_ms=_json_timestamp(fields.get("timestamp"), defaults, now_ms),
        )
    except (ValueError, OdradekError) as error:
        raise InputError(f"line {number}: {error}") from None


def _json_bytes(fields: Mapping[str, object], name: str) -> bytes | None:
    """Returns a string as UTF-8, `NAME_base64` decoded, null as null, anything else as compact JSON."""
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is not a string")
        return _from_base64(encoded.encode())
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _json_headers(value: object) -> Headers:
    """Parses headers from `{"name": "value"}`, or from a list of `{"name": ..., "value": ... | "value_base64": ...}` where
    names repeat."""
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((name, _json_bytes({"value": content}, "value")) for name, content in value.items())
    if not isinstance(value, list):
        raise ValueError("headers is neither an object nor a list")
    headers = []
    for header in value:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise ValueError(f"header {header!r} has no name")
        headers.append((header["name"], _json_bytes(header, "value")))
    return tuple(headers)


def _json_timestamp(value: object, defaults: InputRecord, now_ms: int) -> int | None:
    if defaults.timestamp_ms is not None or value is None:
        return defaults.timestamp_ms
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"timestamp {value!r} is neither a number nor a time")
    if isinstance(value, str):
        return parse_timestamp(value, now_ms=now_ms)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"timestamp {value} does not fit into 64 bits")
    return value
