"""A muted connection: what was asked before is answered, what comes later waits."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.kit.frames import framed
from tests.kit.wire import Wire

from odradek.net.connection import Connection
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.replies import Chunks, Reply
from odradek.net.server import Server
from odradek.runtime.real import real_runtime

LONG_SECONDS = 3600.0


class Handler:
    """Echoes; `mute` mutes the connection, `later` is answered when the test says so."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.mute_seconds = LONG_SECONDS
        self.connection: Connection | None = None
        self.later: asyncio.Future[Chunks | None] | None = None

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        payload = bytes(frame)
        self.handled.append(payload)
        self.connection = connection
        if payload == b"mute":
            connection.mute_for(self.mute_seconds)
        if payload == b"later":
            self.later = asyncio.get_running_loop().create_future()
            return self.later
        return [framed(payload)]


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
async def server(handler: Handler) -> AsyncIterator[Server]:
    made = Server(handler, ServerLimits(), now=real_runtime().clock.monotonic)
    made.pipeline_of = lambda _: 0  # requests overlap
    yield made
    await made.stop(drain_seconds=0)


@pytest.fixture
async def peer(server: Server) -> AsyncIterator[Wire]:
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    made = await Wire.connect(port)
    yield made
    await made.close()


async def test_the_request_that_mutes_is_answered_and_the_next_is_not_even_served(
    handler: Handler, peer: Wire
) -> None:
    peer.send(framed(b"mute", b"after"))
    assert await peer.receive() == b"mute"
    peer.send(framed(b"more"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert handler.handled == [b"mute"]


async def test_an_answer_that_was_under_way_is_sent_in_its_turn(handler: Handler, peer: Wire) -> None:
    peer.send(framed(b"later", b"mute", b"after"))
    while len(handler.handled) < 2:
        await asyncio.sleep(0.001)
    assert handler.later is not None
    handler.later.set_result([framed(b"done")])
    assert [await peer.receive(), await peer.receive()] == [b"done", b"mute"]
    assert handler.handled == [b"later", b"mute"]


async def test_what_waited_is_served_in_order_once_it_is_over(handler: Handler, peer: Wire) -> None:
    handler.mute_seconds = 0.01
    peer.send(framed(b"mute", b"1", b"2"))
    assert [await peer.receive() for _ in range(3)] == [b"mute", b"1", b"2"]
    peer.send(framed(b"3"))
    assert await peer.receive() == b"3"


async def test_a_shorter_mute_does_not_end_a_longer_one(handler: Handler, peer: Wire) -> None:
    peer.send(framed(b"mute", b"after"))
    assert await peer.receive() == b"mute"
    assert handler.connection is not None
    handler.connection.mute_for(0.0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert handler.handled == [b"mute"]


async def test_a_muted_connection_does_not_hold_up_a_stop(
    handler: Handler, server: Server, peer: Wire
) -> None:
    peer.send(framed(b"mute", b"after"))
    assert await peer.receive() == b"mute"
    await server.stop(drain_seconds=20)
    assert server.connection_count == 0
    assert handler.handled == [b"mute"]


async def test_new_connections_wait_or_are_closed_as_the_pace_says(handler: Handler, server: Server) -> None:
    server.pace = lambda host: (0.01, False)
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    patient = await Wire.connect(port)
    patient.send(framed(b"hello"))
    assert await patient.receive() == b"hello"
    server.pace = lambda host: (0.01, True)
    refused = await Wire.connect(port)
    refused.send(framed(b"hello"))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await refused.receive()
    assert handler.handled == [b"hello"]
    for client in (patient, refused):
        await client.close()
