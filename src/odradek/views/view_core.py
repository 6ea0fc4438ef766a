"""The core of a materialized view: the asynchronous and the synchronous view share the tail, the store, and their lifetimes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from odradek.client.network.errors import ClientClosedError
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock, Entropy
from odradek.runtime.real_offload import ThreadOffload
from odradek.views.changelog import Changelog
from odradek.views.freshness import Freshness
from odradek.views.key_formats import key_format, value_format
from odradek.views.memory_store import InMemoryViewStore
from odradek.views.reads import RowCodec, ViewReads
from odradek.views.rocksdb_store import DEFAULT_LIMITS, RocksDBLimits, RocksDBStore
from odradek.views.store import ViewStore
from odradek.views.tail import Tail
from odradek.views.windows import windowed

WantedOffsets = Mapping[int, int] | Mapping[TopicPartition, int] | str
"""Offsets of the next records, by partition; or "now": the ends of what can be read now."""


class ViewCore:
    """The state of a materialized view, without its way to wait. It may be made on any thread; `open`, `close` and
    `wait_until` run on the event loop that `post` leads to."""

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        topic: str,
        *,
        key: str,
        value: str,
        windows: str | None,
        directory: str | Path | None,
        limits: RocksDBLimits | None,
        clock: Clock | None,
        entropy: Entropy | None,
        settings: ClientSettings,
        post: Callable[[Callable[[], object]], None],
    ) -> None:
        """Raises ConfigError for what cannot be; StoreError when the directory cannot be used."""
        keys = windowed(key_format(key), windows)
        values = value_format(value)
        self._changelog: Final = Changelog(
            bootstrap_servers, topic, settings=settings, clock=clock, entropy=entropy, post=post
        )
        store: ViewStore = (
            InMemoryViewStore()
            if directory is None
            else RocksDBStore(Path(directory), topic=topic, limits=limits or DEFAULT_LIMITS)
        )
        self._store = store
        self._offload: Final = ThreadOffload(threads=1)
        self._tail: Final = Tail(
            self._changelog, store, keys, self._offload, with_timestamps=values.has_timestamps
        )
        self.reads: Final = ViewReads(self._tail, store, RowCodec(keys, values))
        self._following: asyncio.Task[None] | None = None

    async def open(self, *, wait: bool, timeout_s: float | None) -> None:
        """Begin to follow; with `wait`, return when everything that can be read now is applied."""
        self._changelog.start()
        await self._tail.begin()
        self._following = asyncio.get_running_loop().create_task(self._tail.run(), name="odradek-view")
        if wait:
            await self._tail.wait_until(None, timeout_s)

    async def close(self) -> None:
        """Write down what was applied, and end. Idempotent if awaited once at a time."""
        self._tail.close(ClientClosedError("view"))
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._changelog.close()
        try:
            await self._offload.run(self._store.close)  # after a write that is under way
        finally:
            self._offload.close()

    async def wait_until(self, offsets: WantedOffsets, timeout_s: float | None) -> None:
        if isinstance(offsets, str):
            if offsets != "now":
                raise ConfigError(f"wait_until({offsets!r}): give offsets by partition, or 'now'")
            await self._tail.wait_until(None, timeout_s)
            return
        wanted = {
            partition.partition if isinstance(partition, TopicPartition) else partition: offset
            for partition, offset in offsets.items()
        }
        await self._tail.wait_until(wanted, timeout_s)

    def freshness(self) -> Freshness:
        return self._tail.freshness()
