"""Reads and writes OpenTelemetry's metrics as clients push them (KIP-714): the protobuf message MetricsData.
https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto

Theory. A payload comes from a stranger, so the reader is ours: it walks the fields where they are, in steps
between which the event loop runs, and it makes nothing but the points that it returns. It visits `FIELDS_MAX`
fields at most, and returns `POINTS_MAX` points. Of a histogram or a summary it returns count and sum, as two
points. Unknown fields are skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from odradek.model.errors import OdradekError

FIELDS_MAX: Final = 200_000
POINTS_MAX: Final = 5_000
TEXT_BYTES_MAX: Final = 1_000
"""A name, key or value that is longer makes its point one that is left out."""
ATTRIBUTES_MAX: Final = 16
_STEP_POINTS: Final = 16
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1
_CUMULATIVE: Final = 2
_GAUGE_FIELD, _SUM_FIELD, _HISTOGRAM_FIELD, _EXPONENTIAL_FIELD, _SUMMARY_FIELD = 5, 7, 9, 10, 11
_OF_DISTRIBUTIONS: Final = {_HISTOGRAM_FIELD: 9, _EXPONENTIAL_FIELD: 1, _SUMMARY_FIELD: 7}
"""The kinds of metrics with count and sum, and the number of the field that has a point's attributes."""
_DOUBLE: Final = struct.Struct("<d")
_SIGNED: Final = struct.Struct("<q")
_UNSIGNED: Final = struct.Struct("<Q")

Attributes = tuple[tuple[str, str], ...]


class TelemetryFormatError(OdradekError):
    """A payload that is not OpenTelemetry's MetricsData, or is beyond the bounds."""


class PointKind(Enum):
    """The meaning of a value."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """It only grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpPoint:
    """One value of one series."""

    name: str
    kind: PointKind
    value: float
    is_delta: bool = False
    """The value is the change since the last point of this series."""
    attributes: Attributes = ()
    """Sorted by key."""


@dataclass(slots=True)
class PushedMetrics:
    """The content of a payload."""

    resource: Attributes = ()
    """The client's own labels."""
    points: list[OtlpPoint] = field(default_factory=list)
    left_out: int = 0
    """Points beyond the bounds, and values that are no numbers."""


def read_steps(payload: memoryview) -> Generator[None, None, PushedMetrics]:
    """Reads a payload; yields every few points. Raises TelemetryFormatError for what is malformed or too much."""
    reader = _Reader(payload)
    pushed = PushedMetrics()
    try:
        for number, wire, (start, end) in reader.messages(0, len(payload)):
            if number == 1 and wire == _LENGTH:
                yield from _resource_metrics(reader, start, end, pushed)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise TelemetryFormatError("the payload is no OpenTelemetry MetricsData") from None
    return pushed


Span = tuple[int, int]


class _Reader:
    """Walks protobuf fields. It never looks beyond the end of the message that encloses them."""

    def __init__(self, payload: memoryview) -> None:
        self.payload: Final = payload
        self._fields_left = FIELDS_MAX

    def messages(self, start: int, end: int) -> Iterator[tuple[int, int, Span]]:
        """Yields number, wire type and content of each field: where it starts and ends in the payload."""
        position = start
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise TelemetryFormatError(f"the payload has more than {FIELDS_MAX} fields")
            key, position = self.varint(position, end)
            wire = key & 7
            if wire == _LENGTH:
                length, position = self.varint(position, end)
            elif wire == _VARINT:
                _, after = self.varint(position, end)
                length = after - position
            elif wire in (_FIXED64, _FIXED32):
                length = 8 if wire == _FIXED64 else 4
            else:
                raise TelemetryFormatError(f"the payload has a field of the unknown type {wire}")
            if length > end - position:
                raise TelemetryFormatError("the payload is cut short")
            yield key >> 3, wire, (position, position + length)
            position += length

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """Returns the number at `position`, of 64 bits at most, and the position after it."""
        value = shift = 0
        while True:
            if position >= end or shift > 63:
                raise TelemetryFormatError("the payload has a number that does not end")
            byte = self.payload[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7

    def text(self, span: Span) -> str | None:
        """Returns a string; None for one that is too long."""
        start, end = span
        return None if end - start > TEXT_BYTES_MAX else str(self.payload[start:end], "utf-8")

    def number(self, layout: struct.Struct, span: Span) -> float:
        value: float = layout.unpack_from(self.payload, span[0])[0]
        return value


def _resource_metrics(
    reader: _Reader, start: int, end: int, pushed: PushedMetrics
) -> Generator[None, None, None]:
    for number, wire, span in reader.messages(start, end):
        if wire != _LENGTH:
            continue
        if number == 1:
            pushed.resource = _attributes(reader, span, 1) or pushed.resource
        elif number == 2:
            for scope_number, scope_wire, metric in reader.messages(*span):
                if scope_number == 2 and scope_wire == _LENGTH:
                    yield from _metric(reader, metric, pushed)


def _metric(reader: _Reader, span: Span, pushed: PushedMetrics) -> Generator[None, None, None]:
    name: str | None = ""
    data: tuple[int, Span] | None = None
    for number, wire, content in reader.messages(*span):
        if wire == _LENGTH and number == 1:
            name = reader.text(content)
        elif wire == _LENGTH and number in (_GAUGE_FIELD, _SUM_FIELD, *_OF_DISTRIBUTIONS):
            data = number, content
    if data is None:
        return
    kind, content = data
    temporality, is_monotonic = _of_sums(reader, content) if kind != _GAUGE_FIELD else (_CUMULATIVE, False)
    for count, (number, wire, point) in enumerate(reader.messages(*content)):
        if number != 1 or wire != _LENGTH:
            continue
        if count % _STEP_POINTS == 0:
            yield
        if not name or len(pushed.points) >= POINTS_MAX:
            pushed.left_out += 1
        elif kind in _OF_DISTRIBUTIONS:
            _add_distribution(reader, point, _OF_DISTRIBUTIONS[kind], name, temporality == _DELTA, pushed)
        else:
            kept = PointKind.COUNTER if is_monotonic else PointKind.GAUGE
            _add_number(reader, point, name, kept, temporality == _DELTA, pushed)


def _of_sums(reader: _Reader, span: Span) -> tuple[int, bool]:
    """Returns temporality, and whether the values only grow. A summary has neither: it counts from the start."""
    temporality, is_monotonic = _CUMULATIVE, False
    for number, wire, (start, end) in reader.messages(*span):
        if wire == _VARINT and number == 2:
            temporality, _ = reader.varint(start, end)
        elif wire == _VARINT and number == 3:
            is_monotonic = reader.varint(start, end)[0] != 0
    return temporality, is_monotonic


def _add_number(
    reader: _Reader, span: Span, name: str, kind: PointKind, is_delta: bool, pushed: PushedMetrics
) -> None:
    value = math.nan
    for number, wire, content in reader.messages(*span):
        if wire == _FIXED64 and number == 4:
            value = reader.number(_DOUBLE, content)
        elif wire == _FIXED64 and number == 6:
            value = reader.number(_SIGNED, content)
    _add(pushed, name, kind, value, is_delta, _attributes(reader, span, 7))


def _add_distribution(
    reader: _Reader, span: Span, attributes_field: int, name: str, is_delta: bool, pushed: PushedMetrics
) -> None:
    count = total = math.nan
    for number, wire, content in reader.messages(*span):
        if wire == _FIXED64 and number == 4:
            count = reader.number(_UNSIGNED, content)
        elif wire == _FIXED64 and number == 5:
            total = reader.number(_DOUBLE, content)
    attributes = _attributes(reader, span, attributes_field)
    _add(pushed, f"{name}.count", PointKind.COUNTER, count, is_delta, attributes)
    _add(pushed, f"{name}.sum", PointKind.COUNTER, total, is_delta, attributes)


def _add(
    pushed: PushedMetrics,
    name: str,
    kind: PointKind,
    value: float,
    is_delta: bool,
    attributes: Attributes | None,
) -> None:
    if attributes is None or not math.isfinite(value) or len(pushed.points) >= POINTS_MAX:
        pushed.left_out += 1
        return
    pushed.points.append(
        OtlpPoint(name=name, kind=kind, value=value, is_delta=is_delta, attributes=attributes)
    )


def _attributes(reader: _Reader, span: Span, field_number: int) -> Attributes | None:
    """Returns the KeyValue pairs in a message, by key; None for too many or too long ones."""
    pairs: dict[str, str] = {}
    for number, wire, content in reader.messages(*span):
        if number != field_number or wire != _LENGTH:
            continue
        key, value = "", None
        for part, part_wire, part_content in reader.messages(*content):
            if part == 1 and part_wire == _LENGTH:
                key = reader.text(part_content) or ""
            elif part == 2 and part_wire == _LENGTH:
                value = _scalar(reader, part_content)
        if not key or value is None or len(pairs) >= ATTRIBUTES_MAX:
            return None
        pairs[key] = value
    return tuple(sorted(pairs.items()))


def _scalar(reader: _Reader, span: Span) -> str | None:
    """Returns an AnyValue as text; an empty one is "". None for lists and maps, which labels cannot hold."""
    text: str | None = ""
    for number, wire, content in reader.messages(*span):
        if number == 1 and wire == _LENGTH:
            text = reader.text(content)
        elif number == 2 and wire == _VARINT:
            text = "true" if reader.varint(*content)[0] else "false"
        elif number == 3 and wire == _VARINT:
            value = reader.varint(*content)[0]
            text = str(value - (1 << 64) if value >= 1 << 63 else value)
        elif number == 4 and wire == _FIXED64:
            text = repr(reader.number(_DOUBLE, content))
        else:
            return None
    return text


def written_metrics(
    points: Iterable[OtlpPoint], *, resource: Attributes, start_ns: int, now_ns: int
) -> bytes:
    """Returns the payload of points, each of them a metric. Times are Unix times in nanoseconds."""
    times = _fixed(2, _UNSIGNED, start_ns) + _fixed(3, _UNSIGNED, now_ns)
    metrics = b"".join([_block(2, _written_metric(point, times)) for point in points])
    labels = _block(1, b"".join([_block(1, _pair(key, value)) for key, value in resource]))
    return _block(1, labels + _block(2, metrics))


def _written_metric(point: OtlpPoint, times: bytes) -> bytes:
    attributes = b"".join([_block(7, _pair(key, value)) for key, value in point.attributes])
    data = _block(1, attributes + times + _fixed(4, _DOUBLE, point.value))
    name = _block(1, point.name.encode())
    if point.kind is PointKind.GAUGE:
        return name + _block(_GAUGE_FIELD, data)
    temporality = _DELTA if point.is_delta else _CUMULATIVE
    return name + _block(_SUM_FIELD, data + _small(2, temporality) + _small(3, 1))


def _pair(key: str, value: str) -> bytes:
    return _block(1, key.encode()) + _block(2, _block(1, value.encode()))


def _block(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def _fixed(number: int, layout: struct.Struct, value: float) -> bytes:
    return _varint(number << 3 | _FIXED64) + layout.pack(value)


def _small(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
