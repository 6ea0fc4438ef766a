"""State stores: around a task's store, what a batch changes of it, and rows in pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol
from zlib import crc32

from odradek.streams.processors.ports import ByteStore, TaskStore
from odradek.streams.processors.state.state_bytes import page_bytes, page_rows

_CHANGELOG: Final = b"\0changelog"
"""The id of the changelog topic, where the changelog has everything that the store has."""
_DIRECTORY: Final = b"\0directory"
"""The directory of the pages: their number, and roughly how many rows and bytes they have."""
_PAGE: Final = b"\0rows/"
_APART: Final = b"\0apart/"
_IS_APART: Final = b""
"""Replaces, in a page, a row that is too large for one. No row is empty."""
_BESIDE_PAGES: Final = (b"\0pages", b"\0page/")
"""Names of earlier versions, in which rows were outside the pages. Such rows are moved into pages at once."""
_OWNED: Final = b"owner"
ROWS_PER_PAGE: Final = 128
PAGE_BYTES: Final = 16 << 10
ROW_BYTES_MAX: Final = 4 << 10
"""The largest row in a page."""
HELD_BYTES_MAX: Final = 32 << 20
"""The most bytes of pages that each store has in memory, some four times of that as Python's objects: beyond that, changed
pages are written.
"""
SMALL_PAGES_MAX: Final = 2_048
"""A store with this number of pages lets them grow by LARGE_PAGE instead of their number, unless batches touch few of them."""
LARGE_PAGE: Final = 8
SPARSE: Final = 8
"""A batch that touches less than this part of the pages is sparse: it would write large pages for the sake of few rows."""


class IterableStore(ByteStore, Protocol):
    """A store that can list all its rows."""

    def items(self) -> Iterator[tuple[bytes, bytes]]: ...


class RecordingStore:
    """Remembers each name that is written: its new bytes, or None."""

    def __init__(self, store: TaskStore) -> None:
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

    def get_all(self, names: Iterable[bytes]) -> list[bytes | None]:
        return self._store.get_all(names)

    def put_all(self, rows: Mapping[bytes, bytes | None]) -> None:
        self._store.put_all(rows)
        self.changes.update(rows)

    @property
    def exceeds_memory(self) -> bool:
        return self._store.exceeds_memory

    def in_page_order(self, names: Iterable[bytes]) -> list[bytes]:
        return self._store.in_page_order(names)


class PagedStore:
    """A state store whose rows are in pages: a call of Spark's state costs the same for one row as for a page of them.

    A row's page is its name's CRC-32 modulo the number of pages, which is a power of two. It grows when pages have become twice
    as large as they should be. Nothing is written for good before `flush`.

    Memory holds a part of a large store. A batch that touches more visits pages in their order (`in_page_order`), once to read
    and once to write, and calls cost most of that: so pages of a large store may be larger. A sparse batch has them split.
    """

    def __init__(self, store: IterableStore) -> None:
        self._store = store
        self._pages: dict[int, dict[bytes, bytes]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        """Rows and bytes of each page in memory, as they are in the store."""
        self._held_bytes = 0
        self._changed: set[int] = set()
        self._touched: set[int] = set()
        """All pages that the batch has read or changed, including those that are not in memory any more."""
        self._has_written = False
        """Pages were written after the directory was."""
        directory = store.get(_DIRECTORY)
        self._known = directory is not None
        self._page_count, self._row_count, self._byte_count = (
            (1, 0, 0) if directory is None else (int(number) for number in directory.split())
        )
        if directory is None and (store.get(_OWNED) is not None or store.get(_BESIDE_PAGES[0]) is not None):
            self._gather()

    def get(self, name: bytes) -> bytes | None:
        data = self._page_of(name).get(name)
        return self._store.get(_APART + name) if data == _IS_APART else data

    def put(self, name: bytes, data: bytes) -> None:
        number = crc32(name) & (self._page_count - 1)
        page = self._page(number)
        if len(data) > ROW_BYTES_MAX:
            self._store.put(_APART + name, data)
            if page.get(name) == _IS_APART:
                return
            data = _IS_APART
        elif page.get(name) == _IS_APART:
            self._store.delete(_APART + name)
        page[name] = data
        self._change(number)

    def delete(self, name: bytes) -> None:
        number = crc32(name) & (self._page_count - 1)
        data = self._page(number).pop(name, None)
        if data is None:
            return
        if data == _IS_APART:
            self._store.delete(_APART + name)
        self._change(number)

    def get_all(self, names: Iterable[bytes]) -> list[bytes | None]:
        """Returns the data of many names, as `get` does, without four calls for each."""
        pages, touch, last = self._pages, self._touched.add, self._page_count - 1
        datas: list[bytes | None] = []
        for name in names:
            number = crc32(name) & last
            touch(number)
            page = pages.get(number)
            data = (self._page(number) if page is None else page).get(name)
            datas.append(self._store.get(_APART + name) if data == _IS_APART else data)
        return datas

    def put_all(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Puts rows, and deletes those that are None, as `put` and `delete` do, without four calls for each."""
        pages, last = self._pages, self._page_count - 1
        changed, touched = self._changed.add, self._touched.add
        for name, data in rows.items():
            number = crc32(name) & last
            page = pages.get(number)
            if page is None:
                page = self._page(number)
            if data is None or len(data) > ROW_BYTES_MAX or page.get(name) == _IS_APART:
                self._put_slowly(name, data)
                continue
            page[name] = data
            changed(number)
            touched(number)

    def _put_slowly(self, name: bytes, data: bytes | None) -> None:
        """Puts a row that is null, or not in its page: before, or from now on."""
        if data is None:
            self.delete(name)
        else:
            self.put(name, data)

    def _change(self, number: int) -> None:
        self._changed.add(number)
        self._touched.add(number)

    @property
    def exceeds_memory(self) -> bool:
        return self._byte_count > HELD_BYTES_MAX

    def in_page_order(self, names: Iterable[bytes]) -> list[bytes]:
        """Returns names page by page, with pages in memory first. If memory holds all pages, the order stays."""
        if not self.exceeds_memory:
            return list(names)
        count, pages = self._page_count, self._pages

        def turn(name: bytes) -> int:
            number = crc32(name) & (count - 1)
            return number if number in pages else count + number

        return sorted(names, key=turn)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields all rows, in no order."""
        for number in range(self._page_count):
            for name, data in list(self._page(number).items()):
                yield name, self._store.get(_APART + name) or b"" if data == _IS_APART else data

    def flush(self) -> None:
        """Writes what has changed."""
        if not self._changed and not self._has_written:
            return
        rows = self._row_count + sum(
            len(self._pages[number]) - self._sizes.get(number, (0, 0))[0] for number in self._changed
        )
        is_sparse = 0 < SPARSE * len(self._touched) < self._page_count
        count = _page_count(rows / 2, self._byte_count / 2, at_least=self._page_count, is_sparse=is_sparse)
        if count > self._page_count:
            self._grow(count)
        for number in sorted(self._changed):
            self._write(number)
        self._changed.clear()
        self._touched.clear()
        self._store.put(_DIRECTORY, b"%d %d %d" % (self._page_count, self._row_count, self._byte_count))
        self._known, self._has_written = True, False

    def fill(self, rows: Mapping[bytes, bytes], topic_id: str) -> None:
        """The rows of a changelog, for a store that is empty."""
        self._store.put(_CHANGELOG, topic_id.encode())
        self._fill(rows)
        self.flush()

    def begin(self, topic_id: str | None) -> Iterator[tuple[bytes, bytes]]:
        """Yields the rows that the changelog lacks: none, or all. `topic_id` None: there is no changelog from now on."""
        known = self._store.get(_CHANGELOG)
        if topic_id is None:
            if known is not None:
                self._store.delete(_CHANGELOG)
        elif known != topic_id.encode():
            yield from self.items()
            self._store.put(_CHANGELOG, topic_id.encode())

    def _fill(self, rows: Mapping[bytes, bytes]) -> None:
        """Puts rows into new pages, as many as there should be."""
        size = sum(map(len, rows.values())) + sum(map(len, rows))
        self._page_count = _page_count(len(rows), size, at_least=1, is_sparse=False)
        last = self._page_count - 1
        pages: list[dict[bytes, bytes]] = [{} for _ in range(self._page_count)]
        for name, data in rows.items():
            if len(data) > ROW_BYTES_MAX:
                self._store.put(_APART + name, data)
                data = _IS_APART
            pages[crc32(name) & last][name] = data
        for number, page in enumerate(pages):
            if page:
                self._pages[number] = page
                self._write(number)
                self._drop(number)

    def _gather(self) -> None:
        """Rows of an earlier version into pages."""
        rows: dict[bytes, bytes] = {}
        beside: dict[bytes, bytes] = {}
        gone: list[bytes] = []
        for name, data in self._store.items():
            if name.startswith(_BESIDE_PAGES[1]):
                rows.update(page_rows(data))
            elif not name.startswith(b"\0"):
                beside[name] = data
            if name != _CHANGELOG:
                gone.append(name)
        rows.update(beside)
        for name in gone:
            self._store.delete(name)
        self._fill({name: data for name, data in rows.items() if data})
        self.flush()

    def _grow(self, count: int) -> None:
        """Makes `count` pages, a multiple: rows of a page move to those with the same number modulo the old count."""
        old_count = self._page_count
        for number in range(old_count):
            parts: dict[int, dict[bytes, bytes]] = {number: {}}
            for name, data in self._page(number).items():
                parts.setdefault(crc32(name) & (count - 1), {})[name] = data
            self._pages.pop(number)
            for target, part in parts.items():
                self._pages[target] = part
                self._write(target)
                if target != number:
                    self._drop(target)
            self._changed.discard(number)
        self._page_count = count

    def _write(self, number: int) -> None:
        page = self._pages[number]
        rows_before, bytes_before = self._sizes.get(number, (0, 0))
        self._has_written = True
        if page:
            data = page_bytes(page)
            self._store.put(_PAGE + b"%d" % number, data)
            self._sizes[number] = (len(page), len(data))
        else:
            self._store.delete(_PAGE + b"%d" % number)
            self._sizes[number] = (0, 0)
        rows, size = self._sizes[number]
        self._row_count += rows - rows_before
        self._byte_count += size - bytes_before
        self._held_bytes += size - bytes_before

    def _page_of(self, name: bytes) -> dict[bytes, bytes]:
        number = crc32(name) & (self._page_count - 1)
        self._touched.add(number)
        return self._page(number)

    def _page(self, number: int) -> dict[bytes, bytes]:
        page = self._pages.get(number)
        if page is None:
            while self._pages and self._held_bytes >= HELD_BYTES_MAX:
                self._let_go()
            data = self._store.get(_PAGE + b"%d" % number) if self._known or self._row_count else None
            page = self._pages[number] = {} if data is None else page_rows(data)
            self._sizes[number] = (len(page), 0 if data is None else len(data))
            self._held_bytes += self._sizes[number][1]
        return page

    def _let_go(self) -> None:
        """Drops the page that has been in memory the longest."""
        number = next(iter(self._pages))
        if number in self._changed:
            self._write(number)
            self._changed.discard(number)
        self._drop(number)

    def _drop(self, number: int) -> None:
        del self._pages[number]
        self._held_bytes -= self._sizes.pop(number)[1]


def _page_count(rows: float, size: float, *, at_least: int, is_sparse: bool) -> int:
    """Returns the number of pages for this number of rows and bytes: a power of two times `at_least`."""
    count = at_least
    while True:
        scale = 1 if is_sparse or count < SMALL_PAGES_MAX else LARGE_PAGE
        if rows <= ROWS_PER_PAGE * scale * count and size <= PAGE_BYTES * scale * count:
            return count
        count *= 2


def latest_rows(parts: Iterable[tuple[list[bytes], list[bytes | None]]]) -> dict[bytes, bytes]:
    """Returns the last bytes of each name: parts of a changelog in their order, as names and bytes."""
    rows: dict[bytes, bytes | None] = {}
    for names, datas in parts:
        rows.update(zip(names, datas, strict=True))
    return {name: data for name, data in rows.items() if data is not None}
