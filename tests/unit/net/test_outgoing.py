"""Answers larger than a socket's buffer arrive whole, in order, and without being copied by asyncio."""

import asyncio
import hashlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.net.outgoing import Outgoing
from odradek.runtime.real_disk import PosixDisk


class Writing(asyncio.Protocol):
    """Writes through an `Outgoing`."""

    def __init__(self) -> None:
        self.outgoing: Outgoing
        self.transport: asyncio.Transport
        self.paused = False
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.outgoing = Outgoing(transport, on_full=self.full, on_room=self.room)

    def full(self) -> None:
        self.paused = True

    def room(self) -> None:
        self.paused = False

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


async def test_asyncio_buffers_nothing(pair: tuple[Writing, socket.socket]) -> None:
    protocol, far = pair
    for size in (1, 5_000_000, 1):
        protocol.outgoing.write([bytes(size)], size)
        assert protocol.transport.get_write_buffer_size() == 0
    await received(far, 5_000_002)


async def test_a_range_of_a_file_that_is_no_longer_there_ends_the_connection_and_not_the_process(
    pair: tuple[Writing, socket.socket], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    protocol, _ = pair
    file = PosixDisk().open(str(tmp_path / "log"), create=True)
    file.pwrite(bytes(1_000_000), 0)
    view = file.map(900_000, 50_000)
    assert view is not None
    file.truncate(0)
    protocol.outgoing.write([b"head", view], 900_004)
    async with asyncio.timeout(30):
        await protocol.lost.wait()
    assert "answer_unreadable" in caplog.text
    assert file.map(10, 0) is None  # from now on it is read, and reading raises what is wrong
    file.close()


async def test_a_mapped_range_is_sent_as_it_is(pair: tuple[Writing, socket.socket], tmp_path: Path) -> None:
    protocol, far = pair
    content = os.urandom(1_000_000)
    file = PosixDisk().open(str(tmp_path / "log"), create=True)
    file.pwrite(content, 0)
    view = file.map(900_000, 50_001)
    assert view is not None
    file.close()
    protocol.outgoing.write([view], len(view))
    assert await received(far, 900_000) == content[50_001:950_001]


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
