"""Transactions in a simulated world: producers in both ways of speaking, zombies, requests that come late, a bad network, and a
broker that dies at any point of what it writes.

After the faults stop, every transaction must end within bounded time; then all committed records are read and compared with
what the producers know, once with the broker that is running and once more after a clean stop and a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.broker.clients import PORT, ClientContext, create_topic
from tests.simulation.broker.keeper import BrokerKeeper
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.transactions.clients import (
    Conduct,
    Late,
    TransactionalClient,
    deliver_late,
)
from tests.simulation.transactions.history import TransactionHistory
from tests.simulation.transactions.offsets import OFFSETS, OffsetsReader
from tests.simulation.transactions.reader import CommittedReader

from odradek.model.ids import TopicPartition
from odradek.testing.sim.disk_errors import is_disk_trouble
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.world import Host, HostLifetime, World

_TOPIC: Final = "topic"
_DRAIN_S_MAX: Final = 300.0
_ENDING_S_MAX: Final = 60.0
"""No transaction lasts longer than 20 s, and the broker looks for those every half second."""
_SETTINGS: Final = {
    "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
    "log.dirs": "/data",
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

_CONFIGS: Final = {"message.timestamp.after.max.ms": str(1 << 50)}
"""Clocks are set far back and forth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """What a seed decided."""

    partition_count: int
    id_count: int
    with_zombies: bool
    transaction_count: int
    disk_stall_s: float
    calm_after_s: float
    crash_mean_s: float
    cuts_links: bool
    jumps_clock: bool
    delivers_late: bool
    chases_ends: bool
    """Whether the broker dies when a transaction has just been ended, which is when most is at stake."""

    @classmethod
    def draw(cls, seed: int) -> TransactionPlan:
        rng = stream(seed, "transaction plan")
        return cls(
            partition_count=rng.choice((2, 3)),
            id_count=rng.choice((1, 2, 3)),
            with_zombies=rng.random() < 0.5,
            transaction_count=rng.choice((5, 12)),
            disk_stall_s=rng.choice((0.0, 0.0, 0.01)),
            calm_after_s=rng.uniform(2.0, 15.0),
            crash_mean_s=rng.choice((1.0, 4.0, 1000.0)),
            cuts_links=rng.random() < 0.6,
            jumps_clock=rng.random() < 0.3,
            delivers_late=rng.random() < 0.7,
            chases_ends=rng.random() < 0.4,
        )


class TransactionScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._world = world
        self._rng = stream(seed, "scenario")
        self._lives = lives
        self._plan = TransactionPlan.draw(seed)
        self._host: Host = world.host("broker")
        self._clients = [world.host(f"client-{number}") for number in range(3)]
        self._host.disk_stall_s = self._plan.disk_stall_s
        world.excuse = self._is_excused
        self._keeper = BrokerKeeper(self._host, self._rng, _SETTINGS)
        self._is_calm = False
        self._is_over = False
        self._history = TransactionHistory()
        self._late = Late()
        self._context = ClientContext(
            broker="broker", rng=stream(seed, "clients"), now_ms=self._clients[0].clock.wall_ms
        )
        self._partitions = [TopicPartition(_TOPIC, number) for number in range(self._plan.partition_count)]
        self._producers = [
            self._producer(seed, number, incarnation)
            for number in range(self._plan.id_count)
            for incarnation in range(1 + self._plan.with_zombies)
        ]

    def _producer(self, seed: int, number: int, incarnation: int) -> TransactionalClient:
        rng = stream(seed, f"producer {number} {incarnation}")
        return TransactionalClient(
            self._context,
            self._history,
            self._late,
            Conduct(
                on_end=self._chase,
                is_resting=lambda: self._is_calm,
                gives_up=0.6 if self._plan.chases_ends else 0.15,
            ),
            rng,
            name=f"p{number}.{incarnation}",
            transactional_id=f"id-{number}",
            partitions=self._partitions,
            count=self._plan.transaction_count,
            with_epochs=stream(seed, f"protocol {number}").random() < 0.6,
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
        await self._check_all()
        self._keeper.stop.set()
        await keeping

    async def _work(self, keeping: asyncio.Task[None]) -> None:
        nemesis = asyncio.create_task(self._torment(), name="nemesis")
        work = asyncio.create_task(self._run_transactions(), name="work")
        outcomes = await asyncio.gather(nemesis, self._watched(work, keeping), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _watched(self, work: asyncio.Task[None], keeping: asyncio.Task[None]) -> None:
        """Wait for `work`, bounded from when the nemesis rests, and no longer than there is a broker."""
        keeping.add_done_callback(lambda _: work.cancel())
        try:
            async with asyncio.timeout(self._plan.calm_after_s + _DRAIN_S_MAX):
                await work
        except TimeoutError:
            raise ViolationError(
                f"stuck: {_DRAIN_S_MAX:.0f} s after the last fault clients still wait"
            ) from None
        except asyncio.CancelledError:
            if keeping.done():
                keeping.result()
            raise

    async def _run_transactions(self) -> None:
        await self._anyone().spawn(create_topic(self._context, _TOPIC, self._plan.partition_count, _CONFIGS))
        readers = [
            self._anyone().spawn(
                CommittedReader(self._context, self._history, one).follow(lambda: self._is_over)
            )
            for one in self._partitions
        ]
        if self._plan.delivers_late:
            readers.append(self._anyone().spawn(self._deliver_late()))
        await asyncio.gather(*(self._anyone().spawn(one.run()) for one in self._producers))
        self._is_over = True
        await asyncio.gather(*readers)
        await self._check_all()

    async def _deliver_late(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self._rng.uniform(0.05, 1.0))
            if self._late.requests:
                await deliver_late(self._context, *self._rng.choice(self._late.requests))

    async def _check_all(self) -> None:
        contents = {}
        for one in self._partitions:
            reader = CommittedReader(self._context, self._history, one)
            contents[one] = await self._clients[0].spawn(reader.read_all(_ENDING_S_MAX))
        offsets = OffsetsReader(self._context, self._history.transactions, _TOPIC)
        contents[OFFSETS] = await self._clients[0].spawn(offsets.read_all(_ENDING_S_MAX))
        self._history.check(contents)

    def _anyone(self) -> Host:
        return self._rng.choice(self._clients)

    # -- the nemesis

    async def _torment(self) -> None:
        start_s = self._world.loop.time()
        while (
            left_s := start_s + self._plan.calm_after_s - self._world.loop.time()
        ) > 0 and not self._is_over:
            await asyncio.sleep(min(left_s, self._rng.uniform(0.05, 0.8)))
            await self._strike()
        self._world.network.heal()
        self._is_calm = True
        self._world.trace.note("calm")

    def _chase(self) -> None:
        """An EndTxn is on its way: end the broker's life while it is dealt with."""
        if self._plan.chases_ends and not self._is_calm and self._rng.random() < 0.3:
            life = self._host.life
            kind = self._rng.choice((CrashKind.POWER_LOSS, CrashKind.POWER_LOSS, CrashKind.PROCESS_KILL))
            delay_s = self._rng.choice((0.01, 0.05, 0.2)) * self._rng.random()
            self._world.loop.call_later(delay_s, self._end_life, life, kind)

    @staticmethod
    def _end_life(life: HostLifetime, kind: CrashKind) -> None:
        if life.is_alive:
            life.crash(kind)

    async def _strike(self) -> None:
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


def run_transactions(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(TransactionScenario(world, seed, plan.faults(seed)).run)
