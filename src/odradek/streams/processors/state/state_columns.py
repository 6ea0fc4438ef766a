"""Dictionaries of state as columns: the open windows of a key, and the keys of a time in the calendar.

Such a dictionary has many entries of one shape. Value by value, each entry takes microseconds to write and to read; as columns
of whole numbers and of texts it takes a fraction of one. Dictionaries of other shapes are written value by value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate, chain, pairwise
from typing import Any, Final

ENTRIES_MIN: Final = 4
"""The fewest entries that are written as columns."""
WINDOWS: Final = b"W"
RECORDS: Final = b"K"
_HEAD: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
_INT_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_TEXTS: Final = b"s"
_NUMBERS: Final = b"i"
_TUPLES: Final = {tuple}
_INTS: Final = {int}
_STRS: Final = {str}
_PAIR: Final = {2}


def written(value: dict[Any, Any]) -> bytes | None:
    """Returns the bytes of a dictionary as columns, its tag first; None where its entries are not of such a shape."""
    kind = type(next(iter(value)))
    if kind is tuple:
        return _written_windows(value)
    return _written_records(value) if kind is str else None


def _written_windows(value: dict[Any, Any]) -> bytes | None:
    """Windows are {(start, end): (aggregate, time)}, where an aggregate is a number or a list of numbers."""
    helds = value.values()
    for pairs in (value, helds):
        if set(map(type, pairs)) != _TUPLES or set(map(len, pairs)) != _PAIR:
            return None
    aggregates, times = zip(*helds, strict=True)
    width = 0
    columns: list[tuple[Any, ...]] = [aggregates]
    if set(map(type, aggregates)) == {list}:
        widths = set(map(len, aggregates))
        width = len(aggregates[0])
        if len(widths) != 1 or not width:
            return None
        columns = list(zip(*aggregates, strict=True))
    numbers = _packed([*chain(*zip(*value, strict=True), times, *columns)])
    return None if numbers is None else WINDOWS + _HEAD.pack(len(value), width) + numbers


def _written_records(value: dict[Any, Any]) -> bytes | None:
    """Records are {text: {name: number or text}}, all of the same names."""
    records = list(value.values())
    if set(map(type, records)) != {dict}:
        return None
    names = tuple(records[0])
    if not names or set(map(type, names)) != _STRS or set(map(tuple, records)) != {names}:
        return None
    parts = [RECORDS, _HEAD.pack(len(value), len(names))]
    for column in (names, list(value), *([record[name] for record in records] for name in names)):
        kinds = set(map(type, column))
        content = _texts(column) if kinds == _STRS else _packed(column)
        if content is None:
            return None
        parts.append((_TEXTS if kinds == _STRS else _NUMBERS) + content)
    return b"".join(parts)


def _packed(numbers: Any) -> bytes | None:
    """Returns the bytes of whole numbers of 64 bits; None where some are others. A bool is none."""
    if set(map(type, numbers)) != _INTS:
        return None
    try:
        return struct.pack(f">{len(numbers)}q", *numbers)
    except struct.error:
        return None


def _texts(texts: Any) -> bytes:
    joined = "".join(texts)
    datas: Any = texts
    if joined.isascii():
        content = joined.encode()
    else:
        datas = [text.encode("utf-8", "surrogatepass") for text in texts]
        content = b"".join(datas)
    return struct.pack(f">{len(texts)}I", *map(len, datas)) + content


class StateColumnReader:
    """Reads dictionaries after their tag. ValueError for bytes that are none; `position` is the end of what was read."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def windows(self) -> dict[Any, Any]:
        count, width = _HEAD.unpack(self._bytes(_HEAD.size))
        columns = [self._numbers(count) for _ in range(3)]
        starts, ends, times = columns
        aggregates: Any = self._numbers(count)
        if width:
            rest = [self._numbers(count) for _ in range(width - 1)]
            aggregates = map(list, zip(aggregates, *rest, strict=True))
        return dict(zip(zip(starts, ends, strict=True), zip(aggregates, times, strict=True), strict=True))

    def records(self) -> dict[Any, Any]:
        count, width = _HEAD.unpack(self._bytes(_HEAD.size))
        names, texts = self._column(width), self._column(count)
        columns = [self._column(count) for _ in range(width)]
        rows = zip(*columns, strict=True)
        return {text: dict(zip(names, row, strict=True)) for text, row in zip(texts, rows, strict=True)}

    def _column(self, count: int) -> Any:
        tag = self._bytes(1)
        if tag == _TEXTS:
            return list(self._texts(count))
        if tag == _NUMBERS:
            return self._numbers(count)
        raise ValueError(f"there is no column {tag!r}")

    def _numbers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}q", self._bytes(count * _INT_BYTES))

    def _texts(self, count: int) -> Iterator[str]:
        lengths = struct.unpack(f">{count}I", self._bytes(count * _LENGTH_BYTES))
        data = self._bytes(sum(lengths))
        spans = pairwise(accumulate(lengths, initial=0))
        if data.isascii():
            text = data.decode()
            return (text[start:end] for start, end in spans)
        return (data[start:end].decode("utf-8", "surrogatepass") for start, end in spans)

    def _bytes(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self._data):
            raise ValueError("its end is missing")
        content = self._data[self.position : end]
        self.position = end
        return content
