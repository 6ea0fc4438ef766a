"""A proxy in front of a broker that understands frames: it records requests, and loses answers on demand.

Clients find their way back to it because the broker behind it advertises the proxy's address. With a lock it speaks TLS to both
sides, with the broker's certificate: logins pass through it as they are.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.interop.logins import Lock

STOP_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request frame, without its size prefix, and what its header starts with."""

    api_key: int
    api_version: int
    frame: bytes


class Proxy:
    """Use as a context manager; set `target` before clients connect."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._client_side = lock.server_context() if lock else None
        self._broker_side = lock.client_context() if lock else None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._open: set[asyncio.WriteTransport] = set()
        self._lose: Counter[int] = Counter()
        self.target: tuple[str, int] = ("127.0.0.1", 0)
        self.recorded: list[RecordedRequest] = []
        self.lost = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def lose_answers(self, api_key: int, count: int) -> None:
        """Drops the next `count` answers to `api_key`, and cuts the connection instead of each."""
        chosen = threading.Event()

        def choose() -> None:
            self._lose[api_key] = count
            self.lost = 0
            chosen.set()

        self._loop.call_soon_threadsafe(choose)
        assert chosen.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass_on, sock=self._listener, ssl=self._client_side)
        await self._stopping.wait()
        server.close()
        for transport in self._open:
            transport.abort()

    async def _pass_on(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection, until either side or a lost answer ends it."""
        try:
            broker, to_broker = await asyncio.open_connection(*self.target, ssl=self._broker_side)
        except OSError:
            to_client.transport.abort()
            return
        sides = (to_client.transport, to_broker.transport)
        self._open.update(sides)
        asked: dict[int, int] = {}
        directions = (
            asyncio.ensure_future(self._requests(client, to_broker, asked)),
            asyncio.ensure_future(self._answers(broker, to_client, asked)),
        )
        for direction in directions:
            direction.add_done_callback(lambda _: [side.close() for side in sides])
        with suppress(OSError):
            await asyncio.gather(*directions)
        self._open.difference_update(sides)

    async def _requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        async for frame in _frames(client):
            api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
            asked[correlation_id] = api_key
            self.recorded.append(RecordedRequest(api_key=api_key, api_version=api_version, frame=frame))
            await _send(to_broker, frame)

    async def _answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        async for frame in _frames(broker):
            (correlation_id,) = struct.unpack_from(">i", frame)
            api_key = asked.pop(correlation_id, -1)
            if self._lose[api_key] > 0:
                self._lose[api_key] -= 1
                self.lost += 1
                return
            await _send(to_client, frame)


async def _frames(source: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yields frames until the other side closes, or is cut off."""
    with suppress(asyncio.IncompleteReadError, OSError):
        while True:
            (size,) = struct.unpack(">i", await source.readexactly(4))
            yield await source.readexactly(size)


async def _send(sink: asyncio.StreamWriter, frame: bytes) -> None:
    sink.write(struct.pack(">i", len(frame)) + frame)
    await sink.drain()
