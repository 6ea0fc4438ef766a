"""Frames over sockets and streams: whole ones, pieces, and a peer that leaves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from tests.kit.frames import framed, read_frame, receive_frame


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.settimeout(20)
    with near, far:
        yield near, far


def test_each_payload_has_its_size_in_front() -> None:
    assert framed(b"ab", b"") == b"\0\0\0\2ab\0\0\0\0"


def test_a_frame_that_comes_in_pieces_is_received_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    for byte in framed(b"payload", b"next"):
        far.send(bytes([byte]))
    assert [receive_frame(near), receive_frame(near)] == [b"payload", b"next"]


def test_a_peer_that_leaves_within_a_frame_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    far.sendall(framed(b"payload")[:-1])
    far.close()
    with pytest.raises(ConnectionError, match="closed after 6 of 7 bytes"):
        receive_frame(near)


async def test_a_stream_is_read_frame_by_frame_and_not_for_ever() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(framed(b"one", b"two"))
    assert [await read_frame(reader), await read_frame(reader)] == [b"one", b"two"]
    with pytest.raises(TimeoutError):
        await read_frame(reader, seconds=0)
    reader.feed_data(framed(b"three")[:-1])
    reader.feed_eof()
    with pytest.raises(asyncio.IncompleteReadError):
        await read_frame(reader)
