"""Answers larger than a socket's buffer arrive whole, in order, and without being copied by asyncio."""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator

import pytest

from odradek.net.outgoing import Outgoing


class Writing(asyncio.Protocol):
    """Writes through an `Outgoing`; notes the most that asyncio's own buffer ever held."""

    def __init__(self) -> None:
        self.outgoing: Outgoing
        self.transport: asyncio.Transport
        self.paused = False
        self.lost = asyncio.Event()
        self.buffered_most = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.outgoing = Outgoing(transport)

    def pause_writing(self) -> None:
        self.paused = True
        self.buffered_most = max(self.buffered_most, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.paused = False
        self.outgoing.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.outgoing.drop()
        self.lost.set()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Writing, socket.socket]]:
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    far.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(Writing, sock=near)
    yield protocol, far
    transport.abort()
    far.close()
    await protocol.lost.wait()


async def received(far: socket.socket, size: int) -> bytes:
    loop, taken = asyncio.get_running_loop(), bytearray()
    async with asyncio.timeout(30):
        while len(taken) < size and (piece := await loop.sock_recv(far, 100_000)):
            taken += piece
    return bytes(taken)


async def test_large_and_small_pieces_arrive_in_order(pair: tuple[Writing, socket.socket]) -> None:
    protocol, far = pair
    pieces = [os.urandom(size) for size in (3_000_000, 5, 200_000, 70_000, 1, 1_000_000)]
    for piece in pieces:
        chunks = [b"head", memoryview(piece), b""]
        protocol.outgoing.write(chunks, sum(map(len, chunks)))
    expected = b"".join(b"head" + piece for piece in pieces)
    assert protocol.paused
    assert protocol.outgoing.size_bytes > 3_000_000
    got = await received(far, len(expected))
    assert hashlib.sha256(got).digest() == hashlib.sha256(expected).digest()
    assert protocol.outgoing.size_bytes == 0
    assert not protocol.paused


async def test_asyncio_buffers_a_small_piece_at_most(pair: tuple[Writing, socket.socket]) -> None:
    protocol, far = pair
    protocol.outgoing.write([bytes(5_000_000)], 5_000_000)
    await received(far, 5_000_000)
    assert 0 < protocol.buffered_most <= 64 * 1024


async def test_closing_waits_until_everything_is_sent(pair: tuple[Writing, socket.socket]) -> None:
    protocol, far = pair
    protocol.outgoing.write([bytes(1_000_000)], 1_000_000)
    protocol.outgoing.close()
    assert len(await received(far, 2_000_000)) == 1_000_000
    await protocol.lost.wait()


async def test_a_peer_that_left_ends_the_connection_and_frees_what_waited(
    pair: tuple[Writing, socket.socket],
) -> None:
    protocol, far = pair
    protocol.outgoing.write([bytes(1_000_000)], 1_000_000)
    far.close()
    async with asyncio.timeout(30):
        await protocol.lost.wait()
    assert protocol.outgoing.size_bytes == 0


async def test_a_peer_that_left_is_noticed_by_the_next_large_write(
    pair: tuple[Writing, socket.socket],
) -> None:
    protocol, far = pair
    far.close()
    protocol.outgoing.write([bytes(1_000_000)], 1_000_000)
    async with asyncio.timeout(30):
        await protocol.lost.wait()
