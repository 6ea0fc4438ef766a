"""Rows in memory: for tests and small tables. What it holds ends with the process."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from itertools import chain
from typing import Final

from odradek.views.store import SCAN_BYTES_MAX, Row, StoreError, ViewState

_NEW_KEYS: Final = 1_000


class InMemoryViewStore:
    """A dictionary, and its keys in order. The order is made when a scan needs it.

    Keys are in tuples: the garbage collector does not look into a dictionary or a tuple of bytes, but into each list again, and
    a list of a million keys holds the process for 30 to 60 ms.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._rows: dict[bytes, bytes] = {}
        self._keys: tuple[bytes, ...] = ()
        self._new_keys: list[bytes] = []
        """Less than `_NEW_KEYS` at rest; those before are in `_more_keys`."""
        self._more_keys: list[tuple[bytes, ...]] = []
        self._has_gone = False
        """Some of `_keys` are no rows any more."""
        self._state: ViewState | None = None
        self._closed = False

    waits_for_disk: Final = False

    def state(self) -> ViewState | None:
        return self._state

    def apply(self, changes: Mapping[bytes, bytes | None], state: ViewState) -> None:
        with self._lock:
            self._check_open()
            for key, value in changes.items():
                if value is None:
                    self._has_gone |= self._rows.pop(key, None) is not None
                else:
                    if key not in self._rows and not self._has_gone:
                        self._new_keys.append(key)
                    self._rows[key] = value
            if len(self._new_keys) >= _NEW_KEYS:
                self._more_keys.append(tuple(self._new_keys))
                self._new_keys.clear()
            self._state = state

    def clear(self, state: ViewState) -> None:
        with self._lock:
            self._check_open()
            self._rows, self._keys, self._has_gone = {}, (), False
            self._forget_new_keys()
            self._state = state

    def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._rows.get(key)

    def scan(self, start: bytes, end: bytes | None, row_count_max: int) -> list[Row]:
        with self._lock:
            self._check_open()
            keys = self._ordered_keys()
            rows: list[Row] = []
            size_bytes = 0
            for index in range(bisect_left(keys, start), len(keys)):
                key = keys[index]
                if (
                    len(rows) >= row_count_max
                    or size_bytes >= SCAN_BYTES_MAX
                    or (end is not None and key >= end)
                ):
                    break
                rows.append((key, self._rows[key]))
                size_bytes += len(key) + len(rows[-1][1])
            return rows

    def count(self) -> int:
        self._check_open()
        return len(self._rows)

    def estimated_count(self) -> int:
        return self.count()

    def flush(self) -> None:
        """Does nothing: nothing here outlives the process."""

    def close(self) -> None:
        self._closed = True

    def _ordered_keys(self) -> tuple[bytes, ...]:
        """Sorting what is nearly sorted is quick."""
        if self._has_gone:
            self._keys = tuple(sorted(self._rows))
        elif self._new_keys or self._more_keys:
            self._keys = tuple(sorted(chain(self._keys, *self._more_keys, self._new_keys)))
        self._has_gone = False
        self._forget_new_keys()
        return self._keys

    def _forget_new_keys(self) -> None:
        self._new_keys, self._more_keys = [], []

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the view is closed")
