"""Appends that wait while all descriptors for writing belong to logs with something that is not durable yet (decision 0032)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from odradek.storage.log.health import CrowdedLogsError
from odradek.storage.log.log import Log

ROOM_SECONDS: Final = 10.0
"""How long an append waits for a descriptor if nothing else limits it."""
ROOM_SECONDS_MAX: Final = 30.0
"""The longest wait: the append's records are in memory meanwhile, and take a share of that for all requests. A disk that hangs
must not bring producers of other disks to a stop, whatever time its own ones ask for."""

T = TypeVar("T")


async def append_with_room(log: Log, append: Callable[[], T], seconds_max: float = ROOM_SECONDS) -> T:
    """Returns what `append` returns. While that raises CrowdedLogsError it is called again when a flush has ended.

    `append` must check the leadership: that may end meanwhile. The CrowdedLogsError is raised if it is still refused when the
    time is up, at the latest after `ROOM_SECONDS_MAX`.
    """
    ends_at = asyncio.get_running_loop().time() + min(seconds_max, ROOM_SECONDS_MAX)
    while True:
        try:
            return append()
        except CrowdedLogsError as error:
            refusal = error.as_outcome()
        try:
            async with asyncio.timeout_at(ends_at):
                await log.when_room()
        except TimeoutError:
            raise refusal from None
