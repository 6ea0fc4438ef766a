"""What a broker does again and again."""

import asyncio

from odradek.broker import app


async def test_work_whose_interval_is_a_dynamic_setting_asks_for_it_each_time(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(app, "INTERVAL_SECONDS_MIN", 0.0)
    stopping = asyncio.Event()
    asked: list[float] = []

    def seconds() -> float:
        asked.append(0.0)
        return 0.0

    async def work() -> None:
        if len(asked) == 3:
            stopping.set()

    async with asyncio.timeout(10):
        await app.repeat("work", seconds, work, stopping)
    assert len(asked) >= 3
