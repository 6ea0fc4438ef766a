"""Answers that no one reads: those from mapped files cost no one anything, those in memory cost their own client."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop import wire

from odradek.testing import LocalBroker

LIMIT_BYTES = 16 << 20
LARGE_BYTES = 8_000_000
"""More than sockets take, and three of them more than the limit."""
SMALL_BYTES = 160_000
"""Too small to be mapped."""
FILL_BYTES = 32 << 20


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    settings = {"queued.max.response.bytes": str(LIMIT_BYTES), "message.max.bytes": "10000000"}
    with LocalBroker(settings, data=tmp_path) as broker:
        host, port = broker.address.rsplit(":", 1)
        yield host, int(port)


def fill(address: tuple[str, int], *, partitions: int, batch_bytes: int) -> None:
    with wire.Connection(address) as peer:
        peer.call(wire.CREATE_TOPICS, 2, wire.create_topics_body("t", partitions=partitions))
        batch = wire.batch(wire.records(random.Random(1).randbytes(batch_bytes)), 1)
        for number in range(FILL_BYTES // batch_bytes):
            assert wire.produce(peer, "t", batch, partition=number % partitions).error_code == 0


def has_begun(peer: wire.Connection) -> bool:
    return bool(peer.socket.recv(1, socket.MSG_PEEK))


def test_those_who_read_find_their_records_whatever_others_leave_unread(address: tuple[str, int]) -> None:
    fill(address, partitions=1, batch_bytes=LARGE_BYTES)
    with wire.connections(address, 6, receive_buffer_bytes=4096) as selfish:
        for peer in selfish:
            peer.send(wire.FETCH, 4, wire.fetch_body("t", 0, max_bytes=LARGE_BYTES + 1000))
            assert has_begun(peer)
        with wire.Connection(address) as other:
            for offset in range(3):
                fetched = wire.fetch(other, "t", offset, max_bytes=LARGE_BYTES + 1000)
                assert len(fetched.records) >= LARGE_BYTES


def test_answers_in_memory_that_are_left_unread_leave_others_some_room(address: tuple[str, int]) -> None:
    fill(address, partitions=100, batch_bytes=SMALL_BYTES)
    partitions = [wire.int32(number) + wire.int64(0) + wire.int32(1 << 20) for number in range(100)]
    head = wire.int32(-1) + wire.int32(0) + wire.int32(1) + wire.int32(50 << 20) + wire.int8(0)
    body = head + wire.array([wire.string("t") + wire.array(partitions)])
    with wire.connections(address, 12, receive_buffer_bytes=4096) as selfish:
        for peer in selfish:
            peer.send(wire.FETCH, 4, body)
        assert all(has_begun(peer) for peer in selfish)
        with wire.Connection(address) as other:
            for _ in range(3):
                fetched = wire.fetch(other, "t", 0, max_bytes=1 << 20, wait_ms=10_000, partition=3)
                while not fetched.records:  # as consumers do
                    fetched = wire.fetch(other, "t", 0, max_bytes=1 << 20, wait_ms=100, partition=3)
