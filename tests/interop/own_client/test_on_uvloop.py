"""The asynchronous clients on uvloop, which servers such as uvicorn run their applications on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.interop import logins

from odradek import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer, NewTopic
from odradek.client.network.connection import BrokerConnection
from odradek.client.network.errors import BrokerUnreachableError
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.net.peer_connection import PeerConnection, PeerUnreachable
from odradek.runtime.real_clock import SystemClock

uvloop = pytest.importorskip("uvloop", reason="absent: uvloop is not for this platform")
SECONDS = 20.0
LARGE = b"x" * 900_000
"""More than a socket takes at once."""


class _Counted(asyncio.Protocol):
    """Notes each connection."""

    def __init__(self, accepted: list[object]) -> None:
        accepted.append(self)


def on_uvloop(main: Callable[[], Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def test_records_groups_and_transactions(bootstrap: str, topic: Callable[..., str]) -> None:
    name = topic()

    async def main() -> list[Any]:
        async with AsyncProducer(**logins.ours(bootstrap), transactional_id=f"on uvloop {name}") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                for value in (b"a", LARGE, b"b"):
                    await producer.send(name, value)
        records: list[Any] = []
        async with AsyncConsumer(
            **logins.ours(bootstrap),
            group_id=f"on uvloop {name}",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            await consumer.subscribe([name])
            while len(records) < 3:
                records += await consumer.poll(SECONDS)
            await consumer.commit()
        async with AsyncAdmin(**logins.ours(bootstrap)) as admin:
            offsets = await admin.list_group_offsets(f"on uvloop {name}")
        return [
            *(record.value for record in records),
            *(position for position in offsets.values() if position is not None),
        ]

    values = on_uvloop(main)
    assert sorted(values[:3]) == sorted([b"a", LARGE, b"b"])
    assert values[3:]


def test_a_share_group(bootstrap: str, topic: Callable[..., str]) -> None:
    name = topic()

    async def main() -> list[bytes | None]:
        async with AsyncProducer(**logins.ours(bootstrap)) as producer:
            await producer.send(name, b"before the group begins")
        async with AsyncShareConsumer(**logins.ours(bootstrap), group_id=f"shared {name}") as consumer:
            await consumer.subscribe([name])
            for _ in range(20):  # a share group begins at the latest record
                await consumer.poll(0.5)
                async with AsyncProducer(**logins.ours(bootstrap)) as producer:
                    await producer.send(name, LARGE)
                records = await consumer.poll(1.0)
                if records:
                    return [record.value for record in records]
        return []

    assert on_uvloop(main)[0] == LARGE


def test_a_topic_is_made(bootstrap: str) -> None:
    async def main() -> set[str]:
        async with AsyncAdmin(**logins.ours(bootstrap)) as admin:
            await admin.create_topics([NewTopic("made-on-uvloop", 1)])
            try:
                return set(await admin.list_topics())
            finally:
                await admin.delete_topics(["made-on-uvloop"])

    assert "made-on-uvloop" in on_uvloop(main)


def test_a_port_beyond_the_last_is_no_other_port() -> None:
    """uvloop takes a port modulo 65536: an address of a broker's metadata must not lead to another service."""

    async def main() -> list[object]:
        accepted: list[object] = []
        server = await asyncio.get_running_loop().create_server(lambda: _Counted(accepted), "127.0.0.1", 0)
        wrong = server.sockets[0].getsockname()[1] + 65536
        async with server:
            with pytest.raises(BrokerUnreachableError, match="port"):
                await BrokerConnection.open(
                    Address("127.0.0.1", wrong), ClientSettings.of("127.0.0.1:1", {}), SystemClock()
                )
            with pytest.raises(PeerUnreachable, match="port"):
                await PeerConnection.open(
                    "a broker",
                    ("127.0.0.1", wrong),
                    client_id="test",
                    now=time.monotonic,
                    timeout_s=5.0,
                    on_lost=lambda: None,
                )
            await asyncio.sleep(0.05)
        return accepted

    assert on_uvloop(main) == []
