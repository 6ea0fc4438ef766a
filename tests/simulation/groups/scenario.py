"""A classic group in a simulated world: members that doze, leave and come back, a bad network, and a broker that dies at any
point of what it writes.

After the faults stop, the group must settle within bounded time: one generation, every partition owned once. What was committed
is then compared with what the members know, once with the broker that is running and once more after a clean stop and a power
cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tests.simulation.broker.clients import PORT, ClientContext, RefusedError, create_topic
from tests.simulation.broker.keeper import BrokerKeeper
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.members import (
    GroupMember,
    check_offset,
    commit_alone,
    find_coordinator,
)

from odradek.testing.sim.disk_errors import is_disk_trouble
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.offload import OffloadDelays
from odradek.testing.sim.world import Host, World

TOPIC: Final = "topic"
_SETTLING_S_MAX: Final = 120.0
"""Within this long after the last fault, the group is stable."""
_SETTINGS: Final = {
    "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
    "log.dirs": "/data",
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "offsets.topic.num.partitions": "2",
    "offsets.retention.check.interval.ms": "2000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """What a seed decided."""

    partition_count: int
    member_count: int
    static_count: int
    one_retires: bool
    disk_stall_s: float
    sync_s: float
    """The longest that each step of making a write durable takes."""
    calm_after_s: float
    crash_mean_s: float
    cuts_links: bool
    jumps_clock: bool

    @classmethod
    def draw(cls, seed: int) -> GroupPlan:
        rng = stream(seed, "group plan")
        member_count = rng.choice((2, 3, 4))
        return cls(
            partition_count=rng.choice((1, 3, 5)),
            member_count=member_count,
            static_count=rng.choice((0, 0, 1, member_count)),
            one_retires=rng.random() < 0.4,
            disk_stall_s=rng.choice((0.0, 0.0, 0.01)),
            sync_s=rng.choice((0.002, 0.05, 0.2)),
            calm_after_s=rng.uniform(5.0, 30.0),
            crash_mean_s=rng.choice((2.0, 8.0, 1000.0)),
            cuts_links=rng.random() < 0.6,
            jumps_clock=rng.random() < 0.3,
        )


class SimulatedMember(Protocol):
    """What the scenario needs of a member, whatever protocol it speaks."""

    name: str
    is_gone: bool
    generation: int
    owned: list[int] | None

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None: ...


class GroupScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._world = world
        self._rng = stream(seed, "scenario")
        self._lives = lives
        self._plan = GroupPlan.draw(seed)
        self._host: Host = world.host("broker")
        self._clients = [world.host(f"client-{number}") for number in range(3)]
        self._host.disk_stall_s = self._plan.disk_stall_s
        self._host.offload_delays = OffloadDelays(
            start_s=(0.0, self._plan.sync_s), step_s=(0.0, self._plan.sync_s)
        )
        world.excuse = self._is_excused
        self._keeper = BrokerKeeper(self._host, self._rng, self._settings())
        self._is_calm = False
        self._is_over = False
        self._history = self._new_history()
        self._context = ClientContext(
            broker="broker", rng=stream(seed, "clients"), now_ms=self._clients[0].clock.wall_ms
        )
        self._members = [self._member(seed, number) for number in range(self._plan.member_count)]

    def _new_history(self) -> GroupHistory:
        return GroupHistory()

    def _settings(self) -> dict[str, str]:
        return dict(_SETTINGS)

    def _member(self, seed: int, number: int) -> SimulatedMember:
        return GroupMember(
            self._context,
            self._history,
            stream(seed, f"member {number}"),
            name=f"m{number}",
            topic=TOPIC,
            partition_count=self._plan.partition_count,
            is_static=number < self._plan.static_count,
            retires=self._plan.one_retires and number == self._plan.member_count - 1,
        )

    def _is_excused(self, error: BaseException) -> bool:
        """A request that failed on a failing disk; the operator will restart the broker."""
        return is_disk_trouble(error) and any(life.disk.failure_count for life in self._world.lives)

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        for client in self._clients:
            client.boot()
        keeping = asyncio.create_task(self._keeper.keep(self._lives), name="keeper")
        await self._work(keeping)
        self._keeper.stop.set()
        await keeping
        self._keeper.stop.clear()
        self._host.crash(CrashKind.POWER_LOSS)
        keeping = asyncio.create_task(self._keeper.keep(()), name="last keeper")
        await self._clients[0].spawn(self._check_offsets())
        self._keeper.stop.set()
        await keeping

    async def _work(self, keeping: asyncio.Task[None]) -> None:
        work = asyncio.create_task(self._live_and_settle(), name="work")
        keeping.add_done_callback(lambda _: work.cancel())
        try:
            await work
        except asyncio.CancelledError:
            if keeping.done():
                keeping.result()
            raise

    async def _live_and_settle(self) -> None:
        creating = create_topic(self._context, TOPIC, self._plan.partition_count, {})
        await self._anyone().spawn(creating)
        await self._anyone().spawn(commit_alone(self._context, self._history, TOPIC))
        running = [
            self._anyone().spawn(one.run(lambda: self._is_calm, lambda: self._is_over))
            for one in self._members
        ]
        for one in running:
            one.add_done_callback(self._member_ended)
        await self._torment()
        await self._settle(running)
        self._is_over = True
        await asyncio.gather(*running)
        await self._clients[0].spawn(self._check_offsets())

    def _member_ended(self, member: asyncio.Task[None]) -> None:
        """One that saw a promise broken ends the run."""
        if not member.cancelled() and member.exception() is not None:
            self._is_calm = True

    async def _settle(self, running: Sequence[asyncio.Task[None]]) -> None:
        deadline_s = self._world.loop.time() + _SETTLING_S_MAX
        while not self._is_settled():
            for one in running:
                if one.done():
                    one.result()
            if self._world.loop.time() > deadline_s:
                seen = [(one.name, one.generation, one.owned) for one in self._members]
                raise ViolationError(f"{_SETTLING_S_MAX:.0f} s after the last fault: {seen}")
            await asyncio.sleep(0.5)

    def _is_settled(self) -> bool:
        alive = [one for one in self._members if not one.is_gone]
        generations = {one.generation for one in alive}
        owned = sorted(partition for one in alive for partition in one.owned or ())
        is_complete = all(one.owned is not None for one in alive)
        return is_complete and len(generations) == 1 and owned == list(range(self._plan.partition_count))

    async def _check_offsets(self) -> None:
        """Each partition's, until the broker answers."""
        partition = 0
        while partition < self._plan.partition_count:
            try:
                client = await self._context.connect()
                try:
                    await find_coordinator(client)
                    await check_offset(client, self._history, TOPIC, partition)
                    partition += 1
                finally:
                    client.close()
            except (OSError, RefusedError):
                await self._context.pause()

    def _anyone(self) -> Host:
        return self._rng.choice(self._clients)

    # -- the nemesis

    async def _torment(self) -> None:
        start_s = self._world.loop.time()
        while (
            left_s := start_s + self._plan.calm_after_s - self._world.loop.time()
        ) > 0 and not self._is_calm:
            await asyncio.sleep(min(left_s, self._rng.uniform(0.05, 0.8)))
            self._strike()
        self._world.network.heal()
        self._is_calm = True
        self._world.trace.note("calm")

    def _strike(self) -> None:
        rng, network, life = self._rng, self._world.network, self._host.life
        if life.is_alive and rng.random() < 0.4 / self._plan.crash_mean_s:
            life.crash(rng.choice(list(CrashKind)))
        if self._plan.jumps_clock and rng.random() < 0.3:
            self._host.clock.jump_wall(rng.randint(-1_000_000, 1_000_000))
        if not self._plan.cuts_links:
            return
        client = self._anyone().name
        match rng.randrange(4):
            case 0:
                network.block("broker", client)
            case 1:
                network.block(client, "broker")
            case 2:
                network.heal()
            case _:
                network.reset_connections(life.interface)


def run_groups(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(GroupScenario(world, seed, plan.faults(seed)).run)
