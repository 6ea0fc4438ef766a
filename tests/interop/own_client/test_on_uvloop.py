"""The asynchronous clients on uvloop, which servers such as uvicorn run their applications on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.interop import logins

from odradek import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer, NewTopic

uvloop = pytest.importorskip("uvloop", reason="absent: uvloop is not for this platform")
SECONDS = 20.0
LARGE = b"x" * 900_000
"""More than a socket takes at once."""


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
