"""Formats records as bytes: the formats that `odradek consume` prints. No I/O: records in, bytes out."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from odradek.cli.moments import time_text
from odradek.model.aliases import Json
from odradek.model.errors import ConfigError
from odradek.model.safe_text import safe_bytes, safe_json, safe_line

FORMATS: Final = ("line", "json", "raw", "hex", "base64")


class ReadRecord(Protocol):
    """The printed parts of a consumer's record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


Formatter = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of printed records. `line`, `hex` and `base64` print a record on one line: its requested parts in order."""

    format: str = "line"
    template: str | None = None
    separator: bytes = b"\t"
    with_timestamp: bool = False
    with_partition: bool = False
    with_headers: bool = False
    with_key: bool = False
    null: bytes = b""
    is_safe: bool = False
    """Whether the output is for a terminal: `line`, `raw` and templates escape what could control it (`model/safe_text.py`)."""


def formatter(layout: Layout) -> Formatter:
    """Returns the function from a record to the bytes to print. Raises ConfigError for an invalid template."""
    if layout.format == "json" and layout.template is None:
        return _json_line
    plain = _plain(layout, layout.format)
    if not layout.is_safe or (layout.template is None and layout.format in ("hex", "base64")):
        return plain
    if layout.format == "raw" and layout.template is None:
        return lambda record: safe_bytes(plain(record), keeping_lines=True)
    return lambda record: plain(_SafeRecord(record))


def _plain(layout: Layout, format_: str) -> Formatter:
    if layout.template is not None:
        return _from_template(layout.template, layout.null)
    if format_ == "raw":
        return lambda record: record.value if record.value is not None else layout.null
    return _line(layout, _ENCODERS[format_])


class _SafeRecord:
    """A record whose names and contents are safe for a terminal, each on one line."""

    def __init__(self, record: ReadRecord) -> None:
        self.topic = safe_line(record.topic)
        self.partition, self.offset, self.timestamp_ms = record.partition, record.offset, record.timestamp_ms
        self.key, self.value = _shown(record.key), _shown(record.value)
        self.headers = [(safe_line(name), _shown(value)) for name, value in record.headers]


def _shown(content: bytes | None) -> bytes | None:
    return None if content is None else safe_bytes(bytes(content))


def _identity(content: bytes) -> bytes:
    return content


def _hex(content: bytes) -> bytes:
    return content.hex().encode()


_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "line": _identity,
    "hex": _hex,
    "base64": base64.b64encode,
}


def _line(layout: Layout, encode: Callable[[bytes], bytes]) -> Formatter:
    def content(part: bytes | None) -> bytes:
        return layout.null if part is None else encode(bytes(part))

    # A name has no other form than text: where a record is on a line of digits, that stays one line.
    shown_name = safe_line if layout.format in ("hex", "base64") else str

    def format_record(record: ReadRecord) -> bytes:
        parts = []
        if layout.with_timestamp:
            parts.append(time_text(record.timestamp_ms).encode())
        if layout.with_partition:
            parts.append(b"%d:%d" % (record.partition, record.offset))
        if layout.with_headers:
            parts.append(_headers_text(record, content, shown_name))
        if layout.with_key:
            parts.append(content(record.key))
        parts.append(content(record.value))
        return layout.separator.join(parts) + b"\n"

    return format_record


def _headers_text(
    record: ReadRecord, content: Callable[[bytes | None], bytes], shown_name: Callable[[str], str]
) -> bytes:
    return b",".join(shown_name(name).encode() + b"=" + content(value) for name, value in record.headers)


def _json_line(record: ReadRecord) -> bytes:
    """Returns a line that `odradek produce --json` reads back as the same record, whatever bytes it holds."""
    fields: dict[str, Json] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    _put(fields, "key", record.key)
    _put(fields, "value", record.value)
    headers = []
    for name, value in record.headers:
        header: dict[str, Json] = {"name": name}
        _put(header, "value", value)
        headers.append(header)
    fields["headers"] = headers
    return safe_json(fields, separators=(",", ":")).encode() + b"\n"


def _put(fields: dict[str, Json], name: str, content: bytes | None) -> None:
    """Text where the bytes are UTF-8, base64 where they are not."""
    if content is None:
        fields[name] = None
        return
    try:
        fields[name] = bytes(content).decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(content).decode()


_TEMPLATE_PART = re.compile(
    r"\{(?P<field>[^{}]*)\}|\\(?P<escape>x[0-9a-fA-F]{2}|.)|(?P<doubled>\{\{|\}\})", re.S
)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\", "{": b"{", "}": b"}"}
_FIELDS: Final[dict[str, Callable[[Any, bytes], bytes]]] = {
    "topic": lambda record, null: record.topic.encode(),
    "partition": lambda record, null: b"%d" % record.partition,
    "offset": lambda record, null: b"%d" % record.offset,
    "timestamp": lambda record, null: b"%d" % record.timestamp_ms,
    "time": lambda record, null: time_text(record.timestamp_ms).encode(),
    "key": lambda record, null: null if record.key is None else record.key,
    "value": lambda record, null: null if record.value is None else record.value,
    "headers": lambda record, null: _headers_text(
        record, lambda value: null if value is None else bytes(value), str
    ),
    "key_bytes": lambda record, null: b"%d" % (-1 if record.key is None else len(record.key)),
    "value_bytes": lambda record, null: b"%d" % (-1 if record.value is None else len(record.value)),
}
TEMPLATE_FIELDS: Final = tuple(_FIELDS)


def _from_template(template: str, null: bytes) -> Formatter:
    """Fields in braces, `\\n \\t \\r \\0 \\xHH \\\\ \\{ \\}` as in C; everything else as it is. Nothing is added."""
    parts: list[bytes | Callable[[Any, bytes], bytes]] = []
    position = 0
    for match in _TEMPLATE_PART.finditer(template):
        parts.append(template[position : match.start()].encode())
        position = match.end()
        parts.append(_template_part(match))
    parts.append(template[position:].encode())
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record, null) for part in parts)


def _template_part(match: re.Match[str]) -> bytes | Callable[[Any, bytes], bytes]:
    field, escape = match["field"], match["escape"]
    if field is not None:
        if field not in _FIELDS:
            raise ConfigError(f"template: {{{field}}} is no field: expected one of {', '.join(_FIELDS)}")
        return _FIELDS[field]
    if escape is None:
        return match["doubled"][0].encode()
    if escape.startswith("x") and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape not in _ESCAPES:
        raise ConfigError(
            f"template: \\{escape} is no escape: expected one of \\{' '.join(_ESCAPES)} or \\xHH"
        )
    return _ESCAPES[escape]
