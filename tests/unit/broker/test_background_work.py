"""What a broker does again and again."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker import background_work
from odradek.broker.background_work import Round, repeat


async def test_work_whose_interval_is_a_dynamic_setting_asks_for_it_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background_work, "INTERVAL_SECONDS_MIN", 0.0)
    stopping = asyncio.Event()
    interval_reads: list[float] = []

    def seconds() -> float:
        interval_reads.append(0.0)
        return 0.0

    async def work() -> None:
        if len(interval_reads) == 3:
            stopping.set()

    async with asyncio.timeout(10):
        await repeat(Round("work", seconds, work), stopping)
    assert len(interval_reads) >= 3
