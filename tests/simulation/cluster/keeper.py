"""Keeps one broker of a cluster running: boots it again after a crash, a start that failed, or a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

from odradek.broker.app import Broker
from odradek.config.broker import BrokerConfig
from odradek.config.loading import load_broker_config
from odradek.model.errors import OdradekError
from odradek.testing.sim.disk_faults import CrashKind
from odradek.testing.sim.failures import HostCrashed, ViolationError
from odradek.testing.sim.world import Host, HostLifetime

_LIVES_MAX: Final = 120
_LOOK_S: Final = 0.1
OpenBroker = Callable[[BrokerConfig, HostLifetime], Broker]


class ClusterKeeper:
    """`keep` runs until `stop` is set, then stops the broker cleanly."""

    def __init__(
        self, host: Host, broker_id: int, rng: Random, settings: Mapping[str, str], open_broker: OpenBroker
    ) -> None:
        self.host = host
        self.broker_id = broker_id
        self._rng = rng
        self._config, _ = load_broker_config(dict(settings))
        self._open_broker = open_broker
        self.broker: Broker | None = None
        """Once it has started, until it ends."""
        self.up_since_s = -1.0
        self.down_s: float | None = None
        """How long the broker stays away when it ends next; None for a while that is drawn."""
        self.come_back = asyncio.Event()
        """When set, a broker that is away stays away no longer."""
        self.stop = asyncio.Event()
        self._restart = False
        self.outcome: object = None
        """What the last life ended with, for people."""

    @property
    def is_up(self) -> bool:
        """It serves, as far as it knows."""
        return self.broker is not None and self.host.life.is_alive

    @property
    def life(self) -> HostLifetime | None:
        """Returns the life of the broker's process, started or not; None while there is none."""
        life = self.host.current
        return life if life is not None and life.is_alive else None

    def crash(self, kind: CrashKind, down_s: float | None = None) -> None:
        """Now, if it lives."""
        self.down_s = down_s
        if self.life is not None:
            self.life.crash(kind)

    def restart(self, down_s: float | None = None) -> None:
        """Cleanly, soon."""
        self.down_s = down_s
        self._restart = True

    async def keep(self) -> None:
        for _ in range(_LIVES_MAX):
            if self.stop.is_set():
                return
            life = self.host.boot()
            self._restart = False
            task = self.host.spawn(self._serve(life), name=f"serve {life.name}")
            (self.outcome,) = await asyncio.gather(task, return_exceptions=True)
            self.broker = None
            if not life.crashed.done():
                if self.outcome is None and self.stop.is_set():
                    return
                life.crash(CrashKind.PROCESS_KILL)  # the process ends
            self._raise_unless_excused(self.outcome)
            while life.tasks:
                await asyncio.sleep(0)
            down_s, self.down_s = self.down_s, None
            await self._stay_away(self._rng.uniform(0.01, 0.5) if down_s is None else down_s)
        raise ViolationError(f"{self.host.name} does not come up: {_LIVES_MAX} lives ended")

    async def _stay_away(self, seconds: float) -> None:
        self.come_back.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.come_back.wait()

    @staticmethod
    def _raise_unless_excused(outcome: Any) -> None:
        """A start may be refused (no registry, a bad disk): it says so, and someone starts it again."""
        if isinstance(outcome, BaseException) and not isinstance(
            outcome, HostCrashed | asyncio.CancelledError | OdradekError | OSError
        ):
            raise outcome

    async def _serve(self, life: HostLifetime) -> None:
        broker = self._open_broker(self._config, life)
        await broker.start()
        self.broker = broker
        self.up_since_s = self.host.world.loop.time()
        patience = self._rng.randint(1, 20)
        while not (self.stop.is_set() or self._restart or broker.fatal.is_set()) and patience:
            patience -= bool(life.disk.failure_count)
            await asyncio.sleep(_LOOK_S)
        await broker.stop()


async def gather_all(*work: Awaitable[object]) -> None:
    """Wait for all, also when one fails; then raise the first error."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
