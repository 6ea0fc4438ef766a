"""A view's reads: rows by key, in ranges, by prefix, in windows. Keys and values are decoded here. Called on any thread."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.views.key_formats import KeyFormat, ViewValueFormat
from odradek.views.store import SCAN_BYTES_MAX, SCAN_ROWS_MAX, Row, ViewStore
from odradek.views.tail import Tail
from odradek.views.windows import WindowedKeys

_WRONG_KEY: Final = (ValueError, TypeError, struct.error)
_WRONG_VALUE: Final = (ValueError, struct.error, RecursionError)


class TableRow(NamedTuple):
    """A key, or a key in a window (`WindowedKey`), and its value."""

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Stored keys from `start` on, before `end`; without an end if that is None."""

    start: bytes = b""
    end: bytes | None = None

    def contains(self, stored: bytes) -> bool:
        return stored >= self.start and (self.end is None or stored < self.end)


ALL_KEYS: Final = KeyRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows of one moment, in the order of keys."""

    rows: tuple[TableRow, ...]
    next_start: bytes | None
    """The stored key at which the next page begins; None for the last page."""


class RowCodec:
    """Keys and values of one view, between Python and what is stored.

    INVALID_REQUEST for a key that the format cannot take, INVALID_RECORD for bytes that it cannot read.
    """

    def __init__(self, keys: KeyFormat, values: ViewValueFormat) -> None:
        self.keys: Final = keys
        self.values: Final = values

    def encoded(self, key: object) -> bytes:
        try:
            return self.keys.encode(key)
        except _WRONG_KEY as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def parsed(self, text: str) -> Any:
        """Returns a key from text; of a windowed table, without its window."""
        try:
            return self.keys.parse(text)
        except _WRONG_KEY as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{text!r} is not a key of format {self.keys.name}: {error}"
            ) from None

    def row(self, row: Row) -> TableRow:
        return TableRow(self.key(row[0]), self.value(*row))

    def key(self, stored: bytes) -> Any:
        try:
            return self.keys.decode(stored)
        except _WRONG_KEY as error:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the key {stored[:80]!r} is not {self.keys.name} ({error}): open the view with another key format",
            ) from None

    def value(self, stored: bytes, value: bytes) -> Any:
        try:
            return self.values.decode(value)
        except _WRONG_VALUE as error:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the value of key {self.key(stored)!r} is not {self.values.name} ({error}):"
                " open the view with another value format",
            ) from None

    # -- ranges

    def key_range(self, start: object = None, end: object = None) -> KeyRange:
        """Returns the keys from `start` on, before `end`; None: without that bound."""
        return KeyRange(
            b"" if start is None else self._bound(start), None if end is None else self._bound(end)
        )

    def prefix_range(self, prefix: object) -> KeyRange:
        """Returns the keys that begin with `prefix`."""
        try:
            start = self.keys.prefix(prefix)
        except _WRONG_KEY as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
        return KeyRange(start, _behind_prefix(start))

    def window_range(self, key: object, from_ms: int | None = None, to_ms: int | None = None) -> KeyRange:
        """Windows of a key whose start is at or after `from_ms`, and before `to_ms`."""
        if not isinstance(self.keys, WindowedKeys):
            raise ConfigError(
                "this view has no windows: open it with windows='10 minutes' (their size), or 'session'"
            )
        try:
            return KeyRange(*self.keys.bounds(key, from_ms, to_ms))
        except _WRONG_KEY as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def range_of_text(self, text: str) -> KeyRange:
        """Returns the range of the key that the text spells, with all its windows if there are any."""
        key = self.parsed(text)
        if self.is_windowed:
            return self.window_range(key)
        stored = self.encoded(key)
        return KeyRange(stored, stored + b"\0")

    @property
    def is_windowed(self) -> bool:
        return isinstance(self.keys, WindowedKeys)

    def _bound(self, key: object) -> bytes:
        if isinstance(self.keys, WindowedKeys) and not isinstance(key, tuple):
            return self.window_range(key).start
        return self.encoded(key)


class ViewReads:
    """Reads one view. Raises `RowCodec`'s errors, COORDINATOR_LOAD_IN_PROGRESS while the view is being restored, and
    KAFKA_STORAGE_ERROR."""

    def __init__(self, tail: Tail, store: ViewStore, codec: RowCodec) -> None:
        self._tail = tail
        self._store = store
        self.codec: Final = codec
        self.waits_for_disk: Final = store.waits_for_disk
        """Whether `get` may take longer than a look into memory."""

    def get(self, key: object, default: object = None) -> Any:
        """Returns the value of a key, or `default`."""
        stored = self.codec.encoded(key)
        before = self._tail.check_answers()
        value = self._store.get(stored)
        self._check_still(before)
        return default if value is None else self.codec.value(stored, value)

    def page(self, keys: KeyRange, row_count_max: int = SCAN_ROWS_MAX) -> Page:
        """Returns the first rows of a range: at most this many, and of bounded size."""
        before = self._tail.check_answers()
        limit = max(1, min(row_count_max, SCAN_ROWS_MAX))
        rows = self._store.scan(keys.start, keys.end, limit)
        self._check_still(before)
        is_cut = len(rows) == limit or sum(len(key) + len(value) for key, value in rows) >= SCAN_BYTES_MAX
        return Page(
            rows=tuple(map(self.codec.row, rows)), next_start=rows[-1][0] + b"\0" if rows and is_cut else None
        )

    def count(self) -> int:
        """Returns the number of rows. Counts them."""
        before = self._tail.check_answers()
        count = self._store.count()
        self._check_still(before)
        return count

    def estimated_count(self) -> int:
        """Returns the approximate number of rows, without counting, in any state."""
        return self._store.estimated_count()

    def _check_still(self, before: int) -> None:
        """The rows may have been thrown away while they were read."""
        if self._tail.rebuild_count != before:
            self._tail.check_answers()
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the view was built again meanwhile: ask again"
            )


def _behind_prefix(prefix: bytes) -> bytes | None:
    """Returns the first bytes that sort after all that begin with `prefix`; None where there are none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None
