"""One broker, three clients and a nemesis in a simulated world: what every scenario with one broker goes through.

A trial has three parts. While the scenario works, the nemesis cuts links, resets connections, lets the wall clock jump and ends
lives of the broker; the disk adds the faults that the plan gives each life. Then the faults stop, the broker stops cleanly, and
the power fails. At last a broker that starts again is compared with what is known. The scenario says what works and what is
compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.broker.clients import PORT, ClientContext
from tests.simulation.broker.keeper import BrokerKeeper
from tests.simulation.disk_errors import is_disk_trouble

from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.world import Host, World

_CLIENT_COUNT: Final = 3
_SETTINGS: Final = {
    "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
    "log.dirs": "/data",
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "700",
}
Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Torment:
    """What a seed decided of the nemesis, and of a slow disk."""

    calm_after_s: float
    """How long the nemesis works."""
    crash_mean_s: float
    cuts_links: bool
    jumps_clock: bool
    disk_stall_s: float


class BrokerTrial:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(
        self,
        world: World,
        seed: int,
        torment: Torment,
        settings: Mapping[str, str],
        lives: Sequence[Sequence[DiskFault]] = (),
    ) -> None:
        self.world = world
        self.rng = stream(seed, "scenario")
        self.host: Host = world.host("broker")
        self.hosts: list[Host] = [world.host(f"client-{number}") for number in range(_CLIENT_COUNT)]
        """Where clients run."""
        self.host.disk_stall_s = torment.disk_stall_s
        self.context = ClientContext(
            broker="broker", rng=stream(seed, "clients"), now_ms=self.hosts[0].clock.wall_ms
        )
        self.is_calm = False
        """The last fault has ended."""
        self._torment = torment
        self._lives = lives
        self._keeper = BrokerKeeper(self.host, self.rng, {**_SETTINGS, **settings})
        world.excuse = self._is_excused

    def _is_excused(self, error: BaseException) -> bool:
        """A request that failed on a failing disk; the operator will restart the broker."""
        return is_disk_trouble(error) and any(life.disk.failure_count for life in self.world.lives)

    def anyone(self) -> Host:
        return self.rng.choice(self.hosts)

    async def run(self, work: Work, check: Work) -> None:
        """`work` is done while a broker is kept; `check` after a clean stop, a power cut and another start.

        Raises `ViolationError` when a promise was broken.
        """
        for client in self.hosts:
            client.boot()
        keeper = asyncio.create_task(self._keeper.keep(self._lives), name="keeper")
        await _as_long_as(keeper, work())
        await self._stop(keeper)
        self.host.crash(CrashKind.POWER_LOSS)
        keeper = asyncio.create_task(self._keeper.keep(()), name="last keeper")
        await check()
        await self._stop(keeper)

    async def _stop(self, keeper: asyncio.Task[None]) -> None:
        self._keeper.stop.set()
        await keeper
        self._keeper.stop.clear()

    async def under_torment(
        self,
        work: Coroutine[Any, Any, None],
        *,
        drain_s_max: float,
        is_over: Callable[[], bool],
        undone: Callable[[], object],
    ) -> None:
        """Do it while the nemesis works, and within `drain_s_max` after the last fault.

        The nemesis rests early once `is_over`. `undone` says what still waits, for people.
        """
        nemesis = asyncio.create_task(self.torment(is_over), name="nemesis")
        bounded = asyncio.create_task(self._bounded(work, drain_s_max, undone), name="work")
        for outcome in await asyncio.gather(nemesis, bounded, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def torment_while(self, running: Sequence[asyncio.Task[None]]) -> None:
        """Strike until it is time for calm, or one of the clients saw a promise broken."""
        await self.torment(lambda: any(_has_failed(task) for task in running))

    async def settle(
        self,
        is_settled: Callable[[], bool],
        running: Sequence[asyncio.Task[None]],
        *,
        seconds_max: float,
        seen: Callable[[], object],
    ) -> None:
        """Wait, bounded, for what must come true after the last fault; raise at once what a client raised.

        `seen` says how far it came, for people.
        """
        deadline_s = self.world.loop.time() + seconds_max
        while not is_settled():
            for task in running:
                if task.done():
                    task.result()
            if self.world.loop.time() > deadline_s:
                raise ViolationError(f"not settled {seconds_max:.0f} s after the last fault: {seen()}")
            await asyncio.sleep(0.5)

    async def _bounded(
        self, work: Coroutine[Any, Any, None], drain_s_max: float, undone: Callable[[], object]
    ) -> None:
        try:
            async with asyncio.timeout(self._torment.calm_after_s + drain_s_max):
                await work
        except TimeoutError:
            raise ViolationError(
                f"stuck: {drain_s_max:.0f} s after the last fault, {undone()} still wait"
            ) from None

    # -- the nemesis

    async def torment(self, is_over: Callable[[], bool]) -> None:
        """Strike until it is time for calm, or all is over before."""
        start_s = self.world.loop.time()
        while (left_s := start_s + self._torment.calm_after_s - self.world.loop.time()) > 0 and not is_over():
            await asyncio.sleep(min(left_s, self.rng.uniform(0.05, 0.8)))
            self._strike()
        self.world.network.heal()
        self.is_calm = True
        self.world.trace.note("calm")

    def _strike(self) -> None:
        rng, network, life = self.rng, self.world.network, self.host.life
        if life.is_alive and rng.random() < 0.4 / self._torment.crash_mean_s:
            life.crash(rng.choice(list(CrashKind)))
        if self._torment.jumps_clock and rng.random() < 0.3:
            self.host.clock.jump_wall(rng.randint(-1_000_000, 1_000_000))
        if not self._torment.cuts_links:
            return
        client = self.anyone().name
        match rng.randrange(4):
            case 0:
                network.block("broker", client)
            case 1:
                network.block(client, "broker")
            case 2:
                network.heal()
            case _:
                network.reset_connections(life.interface)


async def _as_long_as(keeper: asyncio.Task[None], work: Awaitable[None]) -> None:
    """Do it, no longer than there is a broker."""
    task = asyncio.ensure_future(work)
    keeper.add_done_callback(lambda _: task.cancel())
    try:
        await task
    except asyncio.CancelledError:
        if keeper.done():
            keeper.result()
        raise


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
