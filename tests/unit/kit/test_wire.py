"""Requests and responses of both wires, at a peer that answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.kit.frames import framed, read_frame
from tests.kit.wire import BlockingWire, Wire

from odradek.protocol import decode_request_header, encode
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataResponse

REQUEST, VERSION = MetadataRequest(topics=[]), 4
EMPTY = encode(MetadataResponse(), VERSION)


@pytest.fixture
async def answering() -> AsyncIterator[Callable[[int], Awaitable[int]]]:
    """Starts a peer whose responses have the ids of the requests, changed by so much. Returns its port."""
    servers: list[asyncio.Server] = []

    async def start(shift: int) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    header, _ = decode_request_header(memoryview(await read_frame(reader)))
                    writer.write(framed((header.correlation_id + shift).to_bytes(4, "big") + EMPTY))
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        return int(servers[0].sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


async def test_responses_are_those_of_the_requests_in_their_order(
    answering: Callable[[int], Awaitable[int]],
) -> None:
    port = await answering(0)
    wire = await Wire.connect(port)
    wire.ask_later(REQUEST, VERSION)
    wire.ask_later(REQUEST, VERSION)
    assert [(await wire.response()).topics, (await wire.response()).topics] == [[], []]
    assert not wire.has_arrived
    await wire.close()


async def test_a_response_to_another_request_is_an_error(answering: Callable[[int], Awaitable[int]]) -> None:
    port = await answering(6)
    wire = await Wire.connect(port)
    with pytest.raises(ConnectionError, match="answer 7 to request 1"):
        await wire.ask(REQUEST, VERSION)
    await wire.close()

    def ask_on_a_thread() -> None:
        with BlockingWire(("127.0.0.1", port)) as blocking:
            blocking.ask(REQUEST, VERSION)

    with pytest.raises(ConnectionError, match="answer 7 to request 1"):
        await asyncio.to_thread(ask_on_a_thread)
