"""Keeps a broker running in simulation: boots it again after each crash, and restarts one whose disk fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from tests.simulation.disk_errors import is_disk_trouble, raise_unless_of_crash

from odradek.broker.app import Broker
from odradek.config.loading import load_broker_config
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.world import Host, HostLifetime

_LIVES_MAX: Final = 80


class BrokerKeeper:
    """`keep` runs until `stop` is set, then stops the broker cleanly."""

    def __init__(self, host: Host, rng: Random, settings: Mapping[str, str]) -> None:
        self._host = host
        self._rng = rng
        self._config, _ = load_broker_config(dict(settings))
        self.stop = asyncio.Event()

    async def keep(self, lives: Sequence[Sequence[DiskFault]]) -> None:
        """`lives` gives the disk faults of each boot in turn; later boots have none."""
        for number in range(_LIVES_MAX):
            life = self._host.boot(faults=lives[number] if number < len(lives) else ())
            task = self._host.spawn(self._serve(life), name=f"serve {life.name}")
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if is_disk_trouble(outcome) and life.disk.failure_count:
                self._host.crash(CrashKind.PROCESS_KILL)
            if not life.crashed.done():
                if isinstance(outcome, BaseException):
                    raise outcome
                if self.stop.is_set():
                    return
                self._host.crash(CrashKind.PROCESS_KILL)  # it stopped for a restart: the process ends
            raise_unless_of_crash(outcome)
            while life.tasks:
                await asyncio.sleep(0)
            await asyncio.sleep(self._rng.uniform(0.01, 0.5))
        raise ViolationError(f"the broker does not come up: {_LIVES_MAX} lives ended")

    async def _serve(self, life: HostLifetime) -> None:
        """One life. After a disk error the operator restarts it, cleanly or not."""
        broker = Broker(self._config, life.runtime)
        await broker.start()
        patience = self._rng.randint(1, 6)
        while not self.stop.is_set() and patience:
            patience -= bool(life.disk.failure_count)
            await asyncio.sleep(0.25)
        if not self.stop.is_set() and self._rng.random() < 0.5:
            life.crash(self._rng.choice(list(CrashKind)))
        await broker.stop()
