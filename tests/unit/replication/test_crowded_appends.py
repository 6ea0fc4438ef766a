"""Appends that wait for a descriptor: how long at most, whatever their clients ask for."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from odradek.model.errors import ErrorCode
from odradek.replication import crowded_appends
from odradek.replication.crowded_appends import append_with_room
from odradek.storage.log.health import CrowdedLogsError


class FullHouse:
    """A log that no flush ever gives a descriptor."""

    def when_room(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


def refused() -> NoReturn:
    raise CrowdedLogsError(ErrorCode.KAFKA_STORAGE_ERROR, "too many logs")


async def test_no_wait_is_longer_than_the_brokers_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer may send 2**31-1 ms; its records are in memory meanwhile, in the share of everyone's requests."""
    monkeypatch.setattr(crowded_appends, "ROOM_SECONDS_MAX", 0.02)
    log: Any = FullHouse()
    async with asyncio.timeout(20):
        with pytest.raises(CrowdedLogsError, match="too many logs"):
            await append_with_room(log, refused, (2**31 - 1) / 1000)
