"""A real ZooKeeper for the session, registries in it, and a relay that can be cut. Skipped where there is no ZooKeeper."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from odradek.config.loading import load_broker_config
from odradek.runtime.real import ThreadOffload, real_runtime
from odradek.testing.zookeeper import ZooKeeperServer, absent

if TYPE_CHECKING:
    from odradek.registry.zookeeper import ZooKeeperRegistry

SESSION_MS = 1500
_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def _present() -> None:
    if reason := absent():
        pytest.skip(f"absent: {reason}")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Shared by all tests that do it no harm."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), durable=False) as server:
        yield server


@pytest.fixture
def own_zookeeper(tmp_path) -> Iterator[ZooKeeperServer]:
    """Yields a ZooKeeper for tests that stop it, or kill it."""
    with ZooKeeperServer(tmp_path / "zookeeper", durable=False) as server:
        yield server


@pytest.fixture
def chroot() -> str:
    return f"/test-{next(_numbers)}"


@pytest_asyncio.fixture
async def open_registry() -> AsyncIterator[Callable[..., Awaitable[ZooKeeperRegistry]]]:
    """`await open_registry("HOST:PORT/path", **{"zookeeper.set.acl": "true"})`; closed after the test."""
    from odradek.registry.zookeeper import ZooKeeperRegistry

    runtime = real_runtime(threads=1)
    opened = []

    async def made(connect: str, **settings: str) -> ZooKeeperRegistry:
        broker_settings = {
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            **settings,
        }
        config, warnings = load_broker_config(broker_settings)
        assert warnings == []
        opened.append(await ZooKeeperRegistry.open(config.zookeeper, runtime))
        return opened[-1]

    yield made
    for registry in opened:
        await registry.close()
    assert isinstance(runtime.offload, ThreadOffload)
    runtime.offload.close()


class Relay:
    """A relay between a client and a server; `cut` and it is as if the cable were."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = host, int(port)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def heal(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            theirs, ours = await asyncio.open_connection(*self._target)
            try:
                await asyncio.gather(_pump(reader, ours), _pump(theirs, writer))
            finally:
                ours.close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._pumps.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError


@pytest_asyncio.fixture
async def relay() -> AsyncIterator[Callable[[str], Awaitable[Relay]]]:
    made: list[Relay] = []

    async def start(target: str) -> Relay:
        made.append(Relay(target))
        await made[-1].heal()
        return made[-1]

    yield start
    for client in made:
        with suppress(OSError):
            await client.cut()
