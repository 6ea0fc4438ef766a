"""Stores around a task's store: what a batch changes of it, and what was read back of a changelog."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol
from zlib import crc32

from odradek.streams.processors.ports import ByteStore

_CHANGELOG: Final = b"\0changelog"
"""Where all that the store has is in a changelog, too: that topic's id."""
_PAGE_COUNT: Final = b"\0pages"
_PAGE: Final = b"\0page/"
_GONE: Final = b""
"""In place of a row that is in a page. No row has no bytes."""
ROWS_PER_PAGE: Final = 128
PAGES_READ_MAX: Final = 512
"""Pages that a batch keeps at hand."""


class IterableStore(ByteStore, Protocol):
    """A store that can tell all that it has."""

    def items(self) -> Iterator[tuple[bytes, bytes]]: ...


class RecordingStore:
    """Remembers what becomes of each name that is written: its new bytes, or None."""

    def __init__(self, store: ByteStore) -> None:
        self._store = store
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, name: bytes) -> bytes | None:
        return self._store.get(name)

    def put(self, name: bytes, data: bytes) -> None:
        self._store.put(name, data)
        self.changes[name] = data

    def delete(self, name: bytes) -> None:
        self._store.delete(name)
        self.changes[name] = None


class PagedStore:
    """A store whose older rows may lie in pages: `fill` writes a million rows as some thousand pages.

    A call of Spark's state costs the same for one row as for a page of them. Rows that are written later lie beside the
    pages, and go before them. A row's page is its name's CRC-32 modulo the number of pages.
    """

    def __init__(self, store: IterableStore) -> None:
        self._store = store
        count = store.get(_PAGE_COUNT)
        self._page_count = 0 if count is None else int(count)
        self._pages: dict[int, Mapping[bytes, bytes]] = {}

    def get(self, name: bytes) -> bytes | None:
        data = self._store.get(name)
        if data is None and self._page_count:
            data = self._page_of(name).get(name)
        return data or None

    def put(self, name: bytes, data: bytes) -> None:
        self._store.put(name, data)

    def delete(self, name: bytes) -> None:
        if self._page_count and name in self._page_of(name):
            self._store.put(name, _GONE)
        else:
            self._store.delete(name)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows, in no order."""
        beside: set[bytes] = set()
        for name, data in self._store.items():
            if not name.startswith(b"\0"):
                if self._page_count:
                    beside.add(name)
                if data != _GONE:
                    yield name, data
        for number in range(self._page_count):
            for name, data in self._page(number).items():
                if name not in beside:
                    yield name, data

    def fill(self, rows: Mapping[bytes, bytes], topic_id: str) -> None:
        """The rows of a changelog, for a store that is empty."""
        self._store.put(_CHANGELOG, topic_id.encode())
        if not rows:
            return
        count = max(1, len(rows) // ROWS_PER_PAGE)
        pages: list[dict[bytes, bytes]] = [{} for _ in range(count)]
        for name, data in rows.items():
            pages[crc32(name) % count][name] = data
        for number, page in enumerate(pages):
            self._store.put(_PAGE + b"%d" % number, pickle.dumps(page, protocol=5))
        self._store.put(_PAGE_COUNT, b"%d" % count)
        self._page_count = count

    def begin(self, topic_id: str | None) -> Iterator[tuple[bytes, bytes]]:
        """What a changelog does not have yet of this store: nothing, or all. None: from now on there is no changelog."""
        known = self._store.get(_CHANGELOG)
        if topic_id is None:
            if known is not None:
                self._store.delete(_CHANGELOG)
        elif known != topic_id.encode():
            yield from self.items()
            self._store.put(_CHANGELOG, topic_id.encode())

    def _page_of(self, name: bytes) -> Mapping[bytes, bytes]:
        return self._page(crc32(name) % self._page_count)

    def _page(self, number: int) -> Mapping[bytes, bytes]:
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= PAGES_READ_MAX:
                self._pages.pop(next(iter(self._pages)))
            data = self._store.get(_PAGE + b"%d" % number)
            page = self._pages[number] = {} if data is None else pickle.loads(data)
        return page


def latest_rows(parts: Iterable[tuple[list[bytes], list[bytes | None]]]) -> dict[bytes, bytes]:
    """The last bytes of each name: parts of a changelog in their order, as names and bytes."""
    rows: dict[bytes, bytes | None] = {}
    for names, datas in parts:
        rows.update(zip(names, datas, strict=True))
    return {name: data for name, data in rows.items() if data is not None}
