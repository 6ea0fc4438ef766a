"""What a produce request keeps in memory while it waits for its acknowledgement: nothing of its frame."""

from __future__ import annotations

import asyncio
import gzip
import random
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop import wire
from tests.kit.waiting import eventually

from odradek.protocol import framing
from odradek.replication.leader_role import LeaderRole
from odradek.testing import LocalBroker

VALUE_BYTES = 3 << 20
FRAMES = 4


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """The memory of every large frame that is received."""
    made: list[weakref.ref[object]] = []
    real = framing.new_mapping

    def mapping(size: int) -> object:
        memory = real(size)
        assert memory is not None
        made.append(weakref.ref(memory))
        return memory

    monkeypatch.setattr(framing, "new_mapping", mapping)
    return made


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Future[None]]:
    """Acknowledgements that never come by themselves."""
    made: list[asyncio.Future[None]] = []

    def acknowledgement(self: LeaderRole, last_offset: int) -> asyncio.Future[None]:
        made.append(asyncio.get_running_loop().create_future())
        return made[-1]

    monkeypatch.setattr(LeaderRole, "acknowledgement", acknowledgement)
    return made


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    with LocalBroker({"message.max.bytes": "20000000"}, data=tmp_path) as broker:
        host, port = broker.address.rsplit(":", 1)
        yield host, int(port)


@pytest.mark.parametrize("codec", [0, 1], ids=["as it is", "decompressed on another thread"])
def test_records_that_were_appended_are_not_kept_until_they_are_acknowledged(
    frames: list[weakref.ref[object]],
    waiting: list[asyncio.Future[None]],
    address: tuple[str, int],
    codec: int,
) -> None:
    content = wire.records(random.Random(1).randbytes(VALUE_BYTES))
    batch = wire.batch(gzip.compress(content) if codec else content, 1, codec=codec)
    with wire.connections(address, FRAMES) as peers:
        peers[0].call(wire.CREATE_TOPICS, 2, wire.create_topics_body("t"))
        for peer in peers:
            peer.send(wire.PRODUCE, 7, wire.produce_body("t", batch, timeout_ms=600_000))
        eventually(
            lambda: len(waiting) >= FRAMES and not any(frame() is not None for frame in frames),
            lambda: [frame() for frame in frames],
        )
        assert len(frames) == FRAMES
        for future in waiting:
            future.get_loop().call_soon_threadsafe(future.set_result, None)
        for peer in peers:
            assert peer.receive()[0]
