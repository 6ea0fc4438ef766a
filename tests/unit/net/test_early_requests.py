"""Requests that come before the answer to an earlier one: received, within one buffer, and served in their turn."""

import asyncio

from tests.kit.frames import framed
from tests.kit.waiting import PATIENCE_S, until

from odradek.net.connection import Connection
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.replies import Chunks, Reply
from odradek.net.server import Server
from odradek.protocol.framing import RECEIVE_BYTES_MAX
from odradek.runtime.real import real_runtime

FRAME_BYTES = 1000


class Slow:
    """Answers the first request when `first` is set, and later ones at once; no requests overlap."""

    def __init__(self) -> None:
        self.first: asyncio.Future[Chunks | None] = asyncio.get_running_loop().create_future()
        self.connection: Connection | None = None
        self.handled = 0

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        self.connection = connection
        self.handled += 1
        return self.first if self.handled == 1 else [framed(b"done")]


async def until_steady(figure: object) -> int:
    """Returns a count that has not changed for a while."""
    before, steady = -1, 0
    async with asyncio.timeout(PATIENCE_S):
        while steady < 10:
            await asyncio.sleep(0.01)
            now: int = figure()  # type: ignore[operator]
            steady = steady + 1 if now == before else 0
            before = now
    return before


async def test_behind_a_request_that_waits_no_more_than_a_buffer_is_received_and_all_is_served_in_the_end() -> (
    None
):
    slow = Slow()
    server = Server(slow, ServerLimits(), now=real_runtime().clock.monotonic)
    server.pipeline_of = lambda _: None
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 10_000
    try:
        writer.write(framed(b"first"))
        while slow.connection is None:
            await asyncio.sleep(0)
        connection = slow.connection
        writer.write(framed(b"x" * FRAME_BYTES) * count)
        waiting = await until_steady(lambda: connection.load.waiting_count)
        assert 0 < waiting <= RECEIVE_BYTES_MAX // FRAME_BYTES
        assert slow.handled == 1
        slow.first.set_result([framed(b"done")])
        async with asyncio.timeout(30):
            for _ in range(count + 1):
                assert await reader.readexactly(8) == framed(b"done")
    finally:
        writer.close()
        await server.stop(drain_seconds=0)


async def test_a_client_that_leaves_while_its_request_waits_is_noticed_at_once() -> None:
    """It is read from all the time, so no search for peers that hung up is needed."""
    slow = Slow()
    server = Server(slow, ServerLimits(), now=real_runtime().clock.monotonic)
    server.pipeline_of = lambda _: None
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(framed(b"first"))
        while slow.connection is None:
            await asyncio.sleep(0)
        assert not server.hangups.any_paused
        writer.close()
        await until(lambda: slow.connection.peer_finished)
    finally:
        await server.stop(drain_seconds=0)
