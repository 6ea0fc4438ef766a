"""The asynchronous view of a table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from odradek.client.network.own_loop import OwnLoop
from odradek.client.settings.options import ConsumerOptions
from odradek.model.errors import OdradekError
from odradek.runtime.ports import Clock, Entropy
from odradek.views.freshness import Freshness
from odradek.views.reads import ALL_KEYS, KeyRange, Page, RowCodec, TableRow
from odradek.views.rocksdb_store import RocksDBLimits
from odradek.views.view_core import ViewCore, WantedOffsets
from odradek.views.waiting import OffloadedReads


class AsyncTableView:
    """A table on this machine: what a compacted topic holds, key by key, followed as it changes.

        async with await AsyncTableView.open("127.0.0.1:9092", "totals", directory="views/totals") as view:
            print(await view.get("ann"))

    It reads all partitions, committed records only, and answers for all keys; so does every other view of the topic. In a
    `directory` of its own the rows outlive the process, and are continued; without one they are in memory. Ranges are in the
    order of keys: text by code point, numbers by size. Client settings are Kafka's, as keyword arguments.
    """

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        topic: str,
        *,
        key: str = "string",
        value: str = "json",
        windows: str | None = None,
        directory: str | Path | None = None,
        limits: RocksDBLimits | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        """Use `open`."""
        loop = self._loop = OwnLoop("odradek-view")
        self._closed = True
        try:
            self._core = ViewCore(
                bootstrap_servers,
                topic,
                key=key,
                value=value,
                windows=windows,
                directory=directory,
                limits=limits,
                clock=clock,
                entropy=entropy,
                settings=settings,
                post=loop.post,
            )
        except BaseException:
            # sync: loop.stop()
            raise
        self._reads = OffloadedReads()
        self._closed = False

    @classmethod
    async def open(
        cls,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        topic: str,
        *,
        key: str = "string",
        value: str = "json",
        windows: str | None = None,
        directory: str | Path | None = None,
        limits: RocksDBLimits | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> Self:
        """Returns a view that answers: everything that could be read when it was opened is in it. With `wait=False`, at once.

        `key`: string, bytes, short, int, long, float, double, json.
        `value`: json, string, bytes, short, int, long, float, double.
        `windows`: for windowed keys, as Kafka Streams writes them: the size of the windows, such as "10 minutes", or "session".
        `limits`: memory, descriptors and threads of RocksDB. UNKNOWN_TOPIC_OR_PARTITION when there is no such topic,
        KAFKA_STORAGE_ERROR when the directory cannot be used, REQUEST_TIMED_OUT after `timeout_s`.
        """
        view = cls(
            bootstrap_servers,
            topic,
            key=key,
            value=value,
            windows=windows,
            directory=directory,
            limits=limits,
            clock=clock,
            entropy=entropy,
            **settings,
        )
        try:
            await view._begin(wait, timeout_s)  # async
            # sync: view._begin(wait, timeout_s)
        except BaseException:
            await view.close()  # async
            # sync: view.close()
            raise
        return view

    async def _begin(self, wait: bool, timeout_s: float | None) -> None:
        self._loop.begin()  # async
        await self._core.open(wait=wait, timeout_s=timeout_s)

    async def close(self) -> None:
        """Write down how far it got, and end. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._core.close()
        finally:
            # sync: self._loop.stop()
            self._reads.close()

    # -- rows

    async def get(self, key: object, default: object = None) -> Any:
        """The value of a key, `default` where there is none. In windows, a key is (key, start) or (key, start, end), in ms."""
        if not self._core.reads.waits_for_disk:  # async
            return self._core.reads.get(key, default)  # async
        return await self._reads.run(self._core.reads.get, key, default)

    def range(self, start: object = None, end: object = None) -> AsyncIterator[TableRow]:
        """Rows from key `start` on, before `end`; None: without that bound. Up to 1,000 rows at a time are of one moment."""
        return self._rows(self._core.reads.codec.key_range(start, end))

    def prefix(self, prefix: object) -> AsyncIterator[TableRow]:
        """Returns the rows whose keys begin with `prefix`: of text or bytes; of JSON, strings, and arrays with these first
        items."""
        return self._rows(self._core.reads.codec.prefix_range(prefix))

    def windows(
        self, key: object, from_ms: int | None = None, to_ms: int | None = None
    ) -> AsyncIterator[TableRow]:
        """Windows of a key that start at or after `from_ms`, and before `to_ms` (milliseconds since 1970), by their starts."""
        return self._rows(self._core.reads.codec.window_range(key, from_ms, to_ms))

    async def page(self, keys: KeyRange = ALL_KEYS, row_count_max: int = 1_000) -> Page:
        """Returns the first rows of a range, and where the next page begins: for servers. `codec` makes ranges."""
        return await self._reads.run(self._core.reads.page, keys, row_count_max)

    @property
    def codec(self) -> RowCodec:
        """Makes ranges for `page`, and keys from text."""
        return self._core.reads.codec

    async def count(self) -> int:
        """Returns the number of keys. Counts them: about a second for a million."""
        return await self._reads.run(self._core.reads.count)

    def estimated_count(self) -> int:
        """Returns the approximate number of keys, without counting."""
        return self._core.reads.estimated_count()

    async def _rows(self, keys: KeyRange) -> AsyncIterator[TableRow]:
        start: bytes | None = keys.start
        while start is not None:
            page = await self._reads.run(self._core.reads.page, KeyRange(start, keys.end))
            for row in page.rows:  # async
                yield row  # async
            # sync: yield from page.rows
            start = page.next_start

    # -- how fresh

    def freshness(self) -> Freshness:
        """Returns the applied offset of each partition, and the end that it could reach."""
        return self._core.freshness()

    async def wait_until(self, offsets: WantedOffsets = "now", timeout_s: float | None = 30.0) -> None:
        """Waits until all records below these offsets (by partition) are in the view; "now": all that can be read now.

        Raises REQUEST_TIMED_OUT, whose message tells the position reached. To read what you wrote, give the next offset:
        `{0: delivery.offset + 1}`.
        """
        await self._core.wait_until(offsets, timeout_s)

    async def __aenter__(self) -> Self:
        if self._closed:
            raise OdradekError("the view is closed")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
