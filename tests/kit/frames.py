"""Frames of Kafka's protocol: a size of four bytes, then so many bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

_PIECE_BYTES_MAX: Final = 1 << 20
_ANSWER_SECONDS: Final = 60.0


def framed(*payloads: bytes) -> bytes:
    """The payloads one after another, each with its size in front."""
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


async def read_frame(reader: asyncio.StreamReader, *, seconds: float = _ANSWER_SECONDS) -> bytes:
    """Returns the next frame without its size. Raises IncompleteReadError if the peer closes, TimeoutError if it is silent."""
    async with asyncio.timeout(seconds):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)


def receive_frame(connection: socket.socket) -> bytes:
    """Returns the next frame without its size. Raises ConnectionError if the peer closes; the socket's timeout holds."""
    return receive_exactly(connection, int.from_bytes(receive_exactly(connection, 4), "big"))


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(min(count - len(received), _PIECE_BYTES_MAX))
        if not piece:
            raise ConnectionError(f"closed after {len(received)} of {count} bytes")
        received += piece
    return bytes(received)
