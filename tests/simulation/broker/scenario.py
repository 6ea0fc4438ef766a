"""The production broker in a simulated world: clients, a bad network, crashes, and what must hold all the
same.

A run has three parts. While producers send and consumers read, a nemesis cuts links, resets connections, lets
the wall clock jump and ends lives of the broker; the disk adds the faults that the plan gives each life. Then
the faults stop, and everything must drain: each producer gets its acknowledgements in bounded virtual time.
At last all is read back through the protocol and compared, once with the broker that is running and once more
with one that starts after a clean stop and a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.broker.clients import (
    PORT,
    ClientContext,
    ConsumerClient,
    ProducerClient,
    create_topic,
    delete_records,
)
from tests.simulation.broker.keeper import BrokerKeeper
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.ledger import Ledger
from tests.simulation.record_source import RecordSource

from odradek.model.ids import TopicPartition
from odradek.testing.sim.disk_errors import is_disk_trouble
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.world import Host, World

_TOPIC: Final = "topic"
_DRAIN_S_MAX: Final = 300.0
"""After the faults stop, everything must be acknowledged within this long."""
_NEVER_REMOVED: Final = 1 << 62
_SETTINGS: Final = {
    "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
    "log.dirs": "/data",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "700",
}


@dataclass(slots=True, kw_only=True)
class BrokerPlan:
    """What a seed decided."""

    partition_count: int
    record_count: int
    padding_bytes: tuple[int, ...]
    topic: dict[str, str]
    disk_stall_s: float
    calm_after_s: float
    """How long the nemesis works."""
    crash_mean_s: float
    cuts_links: bool
    jumps_clock: bool
    deletes_records: bool

    @property
    def removes_segments(self) -> bool:
        return self.topic["retention.bytes"] != "-1"

    @classmethod
    def draw(cls, seed: int) -> BrokerPlan:
        rng = stream(seed, "broker plan")
        topic = {
            "segment.ms": rng.choice(("100", "2000", "604800000")),
            "segment.index.bytes": rng.choice(("48", "400", "10485760")),
            "index.interval.bytes": rng.choice(("1", "300", "4096")),
            "retention.bytes": rng.choice(("-1", "-1", "3000")),
            "file.delete.delay.ms": rng.choice(("0", "500")),
        }
        return cls(
            partition_count=rng.choice((1, 2)),
            record_count=rng.choice((30, 120)),
            padding_bytes=rng.choice(((0, 20, 300), (0, 100, 3000))),
            topic=topic,
            disk_stall_s=rng.choice((0.0, 0.0, 0.01)),
            calm_after_s=rng.uniform(1.0, 12.0),
            crash_mean_s=rng.choice((1.0, 4.0, 1000.0)),
            cuts_links=rng.random() < 0.6,
            jumps_clock=rng.random() < 0.3,
            deletes_records=rng.random() < 0.4,
        )


class BrokerScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._world = world
        self._rng = stream(seed, "scenario")
        self._lives = lives
        self._plan = BrokerPlan.draw(seed)
        self._host: Host = world.host("broker")
        self._clients: list[Host] = [world.host(f"client-{number}") for number in range(3)]
        self._host.disk_stall_s = self._plan.disk_stall_s
        world.excuse = self._is_excused
        self._keeper = BrokerKeeper(self._host, self._rng, _SETTINGS)
        self._producing = True
        self._context = ClientContext(
            broker="broker", rng=stream(seed, "clients"), now_ms=self._clients[0].clock.wall_ms
        )
        names = [TopicPartition(_TOPIC, number) for number in range(self._plan.partition_count)]
        self._ledgers = {name: Ledger(str(name)) for name in names}
        if self._plan.removes_segments:
            for ledger in self._ledgers.values():
                ledger.may_remove_below(_NEVER_REMOVED)
        self._sources = [
            (name, self._source(seed, number, name, is_idempotent))
            for number, (name, is_idempotent) in enumerate(
                (name, one) for name in names for one in (True, True, False)
            )
        ]

    def _source(self, seed: int, number: int, name: TopicPartition, is_idempotent: bool) -> RecordSource:
        return RecordSource(
            name=f"p{number}",
            is_idempotent=is_idempotent,
            ledger=self._ledgers[name],
            rng=stream(seed, f"producer {number}"),
            record_count=self._plan.record_count,
            padding_bytes=self._plan.padding_bytes,
        )

    def _is_excused(self, error: BaseException) -> bool:
        """A request that failed on a failing disk; the operator will restart the broker."""
        return is_disk_trouble(error) and any(life.disk.failure_count for life in self._world.lives)

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        for client in self._clients:
            client.boot()
        keeper = asyncio.create_task(self._keeper.keep(self._lives), name="keeper")
        await self._work(keeper)
        await self._stop_and_cut_power(keeper)
        keeper = asyncio.create_task(self._keeper.keep(()), name="last keeper")
        await self._check_all()
        self._keeper.stop.set()
        await keeper

    async def _work(self, keeper: asyncio.Task[None]) -> None:
        nemesis = asyncio.create_task(self._torment(), name="nemesis")
        work = asyncio.create_task(self._produce_and_consume(), name="work")
        outcomes = await asyncio.gather(nemesis, self._watched(work, keeper), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _watched(self, work: asyncio.Task[None], keeper: asyncio.Task[None]) -> None:
        """Wait for `work`, bounded from when the nemesis rests, and no longer than there is a broker."""
        keeper.add_done_callback(lambda _: work.cancel())
        try:
            async with asyncio.timeout(self._plan.calm_after_s + _DRAIN_S_MAX):
                await work
        except TimeoutError:
            undone = [source.name for _, source in self._sources if not source.is_done]
            raise ViolationError(f"{_DRAIN_S_MAX:.0f} s after the last fault, {undone} still wait") from None
        except asyncio.CancelledError:
            if keeper.done():
                keeper.result()
            raise

    async def _stop_and_cut_power(self, keeper: asyncio.Task[None]) -> None:
        self._keeper.stop.set()
        await keeper
        self._keeper.stop.clear()
        self._host.crash(CrashKind.POWER_LOSS)

    async def _produce_and_consume(self) -> None:
        context = self._context
        await self._anyone().spawn(
            create_topic(context, _TOPIC, self._plan.partition_count, self._plan.topic)
        )
        consumers = [
            self._anyone().spawn(ConsumerClient(context, name, ledger).follow(self._has_ended))
            for name, ledger in self._ledgers.items()
        ]
        if self._plan.deletes_records:
            consumers.append(self._anyone().spawn(self._delete_some()))
        await asyncio.gather(
            *(
                self._anyone().spawn(ProducerClient(context, name, source).run())
                for name, source in self._sources
            )
        )
        self._producing = False
        await asyncio.gather(*consumers)
        await self._check_all()

    def _has_ended(self) -> bool:
        return not self._producing

    def _anyone(self) -> Host:
        return self._rng.choice(self._clients)

    async def _check_all(self) -> None:
        for name, ledger in self._ledgers.items():
            await self._clients[0].spawn(ConsumerClient(self._context, name, ledger).read_all())

    async def _delete_some(self) -> None:
        while self._producing:
            await asyncio.sleep(self._rng.uniform(0.1, 2.0))
            name, ledger = self._rng.choice(list(self._ledgers.items()))
            offset = self._rng.randint(0, ledger.high_watermark)
            ledger.may_remove_below(offset)
            await delete_records(self._context, name, offset)

    # -- the nemesis -----------------------------------------------------------------------------------------

    async def _torment(self) -> None:
        start_s = self._world.loop.time()
        while (left_s := start_s + self._plan.calm_after_s - self._world.loop.time()) > 0 and self._producing:
            await asyncio.sleep(min(left_s, self._rng.uniform(0.05, 0.8)))
            await self._strike()
        self._world.network.heal()
        self._world.trace.note("calm")

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


def run_broker(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(BrokerScenario(world, seed, plan.faults(seed)).run)
