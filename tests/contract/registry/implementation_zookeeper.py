"""A real ZooKeeper, one for all the tests of a process; each store has a path of its own in it."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from odradek.config.loading import load_broker_config
from odradek.registry import Registry
from odradek.runtime.real import ThreadOffload, real_runtime
from odradek.testing.zookeeper import ZooKeeperServer, absent, expire_session

if TYPE_CHECKING:
    from odradek.registry.zookeeper import ZooKeeperRegistry

MARKS = [pytest.mark.skipif(absent() is not None, reason=f"absent: {absent()}")]

T = TypeVar("T")
_numbers = itertools.count()


@cache
def _server() -> ZooKeeperServer:
    directory = tempfile.mkdtemp(prefix="odradek-zookeeper-")
    server = ZooKeeperServer(Path(directory), durable=False).start()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(server.kill)
    return server


class ZooKeeperStore:
    def __init__(self) -> None:
        connect = f"{_server().address}/store-{next(_numbers)}"
        self._config, _ = load_broker_config(
            {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "5000"}
        )
        self._runtime = real_runtime(threads=1)
        self._opened: list[ZooKeeperRegistry] = []

    def run(self, scenario: Callable[[], Awaitable[T]]) -> T:
        async def main() -> T:
            try:
                return await scenario()
            finally:
                for registry in self._opened:
                    await registry.close()
                self._opened.clear()

        return asyncio.run(main())

    async def open(self) -> Registry:
        from odradek.registry.zookeeper import ZooKeeperRegistry

        registry = await ZooKeeperRegistry.open(self._config.zookeeper, self._runtime)
        self._opened.append(registry)
        return registry

    async def expire(self, registry: ZooKeeperRegistry) -> None:
        await asyncio.to_thread(expire_session, _server().address, registry.session_id, registry.password)

    async def lose_connection(self, registry: ZooKeeperRegistry) -> None:
        with suppress(OSError, AttributeError):  # it is lost already
            registry._session._client._connection._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        assert isinstance(self._runtime.offload, ThreadOffload)
        self._runtime.offload.close()


@contextmanager
def stores(directory: Path) -> Iterator[ZooKeeperStore]:
    store = ZooKeeperStore()
    try:
        yield store
    finally:
        store.close()
