"""A host whose storage is opened again and again until all its work is done: what every scenario of the storage goes through.

A life ends in a crash, in a restart because the disk failed, or well. Once one ended well, the power fails, and what the disk
holds is looked at. What a life does, and what is looked at, is the scenario's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final

from tests.simulation.disk_errors import is_disk_trouble, raise_unless_of_crash

from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.world import Host, HostLifetime

_LIVES_MAX: Final = 12
Live = Callable[[HostLifetime], Coroutine[Any, Any, None]]
Before = Callable[[int | None], Awaitable[None]]


async def _nothing(_: int | None) -> None: ...


class StorageTrial:
    """`lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, host: Host, rng: Random, lives: Sequence[Sequence[DiskFault]]) -> None:
        self._host = host
        self._rng = rng
        self._lives = lives

    async def run(self, serve: Live, inspect: Live, before: Before = _nothing) -> None:
        """`serve` is one life. `before` is called with the number of each, from 0, and with None before `inspect`.

        Raises `ViolationError` when no life ends well, and what `serve` and `inspect` raise.
        """
        for number in range(_LIVES_MAX):
            await before(number)
            faults = self._lives[number] if number < len(self._lives) else ()
            if await self._live(self._host.boot(faults=faults), serve):
                break
        else:
            raise ViolationError(f"the storage does not come up: {_LIVES_MAX} lives ended")
        self._host.crash(CrashKind.POWER_LOSS)
        await before(None)
        await self._host.spawn(inspect(self._host.boot()))

    async def _live(self, life: HostLifetime, serve: Live) -> bool:
        """One boot until all is done and closed cleanly; False when it crashed or had to be restarted."""
        task = self._host.spawn(serve(life), name=f"serve {life.name}")
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        medium = self._host.medium
        if is_disk_trouble(outcome) and (life.disk.failure_count or medium.capacity_bytes is not None):
            self._host.crash(CrashKind.PROCESS_KILL)  # the operator makes room and starts it again
            medium.capacity_bytes = None
        if life.crashed.done():
            while life.tasks:
                await asyncio.sleep(0)
            raise_unless_of_crash(outcome)
            return False
        if isinstance(outcome, BaseException):
            raise outcome
        return True

    def directory_failed(self, life: HostLifetime) -> None:
        """What an operator does: restart. Some pull the plug."""
        kind = self._rng.choice((CrashKind.PROCESS_KILL, CrashKind.POWER_LOSS))
        self._host.world.loop.call_later(self._rng.uniform(0.01, 0.2), life.crash, kind)
