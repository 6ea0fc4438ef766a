"""The embedded registry, several handles in one process: to the journal each is a process of its own, with its own lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from odradek.registry import EmbeddedRegistry, Registry
from odradek.registry.journal import line_of
from odradek.registry.shared_journal import SharedJournal
from odradek.runtime.real import real_runtime

T = TypeVar("T")


class EmbeddedStore:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runtime = real_runtime()
        self._opened: list[EmbeddedRegistry] = []

    def run(self, scenario: Callable[[], Awaitable[T]]) -> T:
        async def main() -> T:
            try:
                return await asyncio.wait_for(scenario(), 60)
            finally:
                for registry in self._opened:
                    await registry.close()
                self._opened.clear()

        return asyncio.run(main())

    async def open(self) -> Registry:
        registry = EmbeddedRegistry.open(self._runtime, str(self._directory))
        self._opened.append(registry)
        return registry

    async def expire(self, registry: Registry) -> None:
        """As the others would if the process were silent: it is another session that ends it."""
        assert isinstance(registry, EmbeddedRegistry)
        await self.open()  # the one that does it
        journal = SharedJournal(self._runtime.disk, str(self._directory))
        while True:
            try:
                lock = journal.lock()
                break
            except BlockingIOError:
                await asyncio.sleep(0.001)
        journal.accept(journal.settle())
        session = registry.session_id
        owned = [(path, None) for path in journal.state.tree.owned_by(session)]
        journal.append(line_of(owned, ended=[session]))
        lock.release()
        journal.close()

    async def lose_connection(self, registry: Registry) -> None:
        """There is none."""


@contextmanager
def stores(directory: Path) -> Iterator[EmbeddedStore]:
    yield EmbeddedStore(directory)
