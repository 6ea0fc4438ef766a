"""The embedded registry, several handles in one process: to the journal each is a process of its own, with its own lock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from odradek.registry import EmbeddedRegistry, Registry
from odradek.registry.journal import line_of
from odradek.registry.shared_journal import SharedJournal
from odradek.runtime.ports import DirectoryLock
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
        await asyncio.to_thread(self._end, registry.session_id)

    def _end(self, session: int) -> None:
        """What another process does. Blocks, so it is not for the loop."""
        journal = SharedJournal(self._runtime.disk, str(self._directory))
        try:
            lock = _locked(journal)
            try:
                journal.accept(journal.settle())
                owned = [(path, None) for path in journal.state.tree.owned_by(session)]
                journal.append(line_of(owned, ended=[session]))
            finally:
                lock.release()
        finally:
            journal.close()

    async def lose_connection(self, registry: Registry) -> None:
        """There is none."""


def _locked(journal: SharedJournal) -> DirectoryLock:
    while True:
        try:
            return journal.lock()
        except BlockingIOError:
            time.sleep(0.001)


@contextmanager
def stores(directory: Path) -> Iterator[EmbeddedStore]:
    yield EmbeddedStore(directory)
