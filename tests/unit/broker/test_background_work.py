"""What a broker does again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.kit.waiting import PATIENCE_S, until

from odradek.broker import background_work
from odradek.broker.background_work import BackgroundWork, Round, repeat


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

    async with asyncio.timeout(PATIENCE_S):
        await repeat(Round("work", seconds, work), stopping)
    assert len(interval_reads) >= 3


async def test_free_memory_is_returned_once_for_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        def __init__(self) -> None:
            self.names: list[str] = []

        async def run(self, function: Callable[[], None]) -> None:
            self.names.append(function.__name__)

    monkeypatch.setattr(background_work, "_RETURN_AFTER_SECONDS", 0.01)
    offload = Counting()
    background = BackgroundWork(offload)  # type: ignore[arg-type]
    for calls in (1, 2):
        for _ in range(100):
            background.return_free_memory()
        await until(lambda calls=calls: len(offload.names) >= calls)
        await asyncio.sleep(0)
    background.return_free_memory()
    await background.stop()
    assert offload.names == ["return_free_memory"] * 2
