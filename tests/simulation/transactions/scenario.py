"""Transactions on a broker on trial: producers in both ways of speaking, zombies, and requests that come late.

After the faults stop, every transaction must end within bounded time; then all committed records are read and compared with
what the producers know, once with the broker that is running and once more after a clean stop and a power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.broker.clients import create_topic
from tests.simulation.broker.trial import BrokerTrial, Torment
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.transactions.clients import ClientHabits, Late, TransactionalProducer, deliver_late
from tests.simulation.transactions.history import TransactionHistory
from tests.simulation.transactions.offsets import OFFSETS, OffsetsReader
from tests.simulation.transactions.reader import CommittedReader

from odradek.model.ids import TopicPartition
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.world import HostLifetime, World

_TOPIC: Final = "topic"
_DRAIN_S_MAX: Final = 300.0
_ENDING_S_MAX: Final = 60.0
"""No transaction lasts longer than 20 s, and the broker looks for those every half second."""
_SETTINGS: Final = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

_CONFIGS: Final = {"message.timestamp.after.max.ms": str(1 << 50)}
"""Clocks are set far back and forth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """The plan of a run, which its seed decides."""

    partition_count: int
    id_count: int
    with_zombies: bool
    transaction_count: int
    torment: Torment
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
            torment=Torment(
                disk_stall_s=rng.choice((0.0, 0.0, 0.01)),
                calm_after_s=rng.uniform(2.0, 15.0),
                crash_mean_s=rng.choice((1.0, 4.0, 1000.0)),
                cuts_links=rng.random() < 0.6,
                jumps_clock=rng.random() < 0.3,
            ),
            delivers_late=rng.random() < 0.7,
            chases_ends=rng.random() < 0.4,
        )


class TransactionScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._world = world
        self._plan = TransactionPlan.draw(seed)
        self._trial = BrokerTrial(world, seed, self._plan.torment, _SETTINGS, lives)
        self._context = self._trial.context
        self._is_over = False
        self._history = TransactionHistory()
        self._late = Late()
        self._partitions = [TopicPartition(_TOPIC, number) for number in range(self._plan.partition_count)]
        self._producers = [
            self._producer(seed, number, incarnation)
            for number in range(self._plan.id_count)
            for incarnation in range(1 + self._plan.with_zombies)
        ]

    def _producer(self, seed: int, number: int, incarnation: int) -> TransactionalProducer:
        rng = stream(seed, f"producer {number} {incarnation}")
        return TransactionalProducer(
            self._context,
            self._history,
            self._late,
            ClientHabits(
                on_end=self._chase,
                is_resting=lambda: self._trial.is_calm,
                gives_up=0.6 if self._plan.chases_ends else 0.15,
            ),
            rng,
            name=f"p{number}.{incarnation}",
            transactional_id=f"id-{number}",
            partitions=self._partitions,
            count=self._plan.transaction_count,
            with_epochs=stream(seed, f"protocol {number}").random() < 0.6,
        )

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        await self._trial.run(self._work, self._check_all)

    async def _work(self) -> None:
        await self._trial.under_torment(
            self._run_transactions(),
            drain_s_max=_DRAIN_S_MAX,
            is_over=lambda: self._is_over,
            undone=lambda: "clients",
        )

    async def _run_transactions(self) -> None:
        await self._trial.anyone().spawn(
            create_topic(self._context, _TOPIC, self._plan.partition_count, _CONFIGS)
        )
        readers = [
            self._trial.anyone().spawn(
                CommittedReader(self._context, self._history, partition).follow(lambda: self._is_over)
            )
            for partition in self._partitions
        ]
        if self._plan.delivers_late:
            readers.append(self._trial.anyone().spawn(self._deliver_late()))
        await asyncio.gather(*(self._trial.anyone().spawn(producer.run()) for producer in self._producers))
        self._is_over = True
        await asyncio.gather(*readers)
        await self._check_all()

    async def _deliver_late(self) -> None:
        while not self._is_over:
            await asyncio.sleep(self._trial.rng.uniform(0.05, 1.0))
            if self._late.requests:
                await deliver_late(self._context, *self._trial.rng.choice(self._late.requests))

    async def _check_all(self) -> None:
        contents = {}
        for partition in self._partitions:
            reader = CommittedReader(self._context, self._history, partition)
            contents[partition] = await self._trial.hosts[0].spawn(reader.read_all(_ENDING_S_MAX))
        offsets = OffsetsReader(self._context, self._history.transactions, _TOPIC)
        contents[OFFSETS] = await self._trial.hosts[0].spawn(offsets.read_all(_ENDING_S_MAX))
        self._history.check(contents)

    def _chase(self) -> None:
        """An EndTxn is on its way: end the broker's life while it is dealt with."""
        if self._plan.chases_ends and not self._trial.is_calm and self._trial.rng.random() < 0.3:
            life = self._trial.host.life
            kind = self._trial.rng.choice(
                (CrashKind.POWER_LOSS, CrashKind.POWER_LOSS, CrashKind.PROCESS_KILL)
            )
            delay_s = self._trial.rng.choice((0.01, 0.05, 0.2)) * self._trial.rng.random()
            self._world.loop.call_later(delay_s, self._end_life, life, kind)

    @staticmethod
    def _end_life(life: HostLifetime, kind: CrashKind) -> None:
        if life.is_alive:
            life.crash(kind)


def run_transactions(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(TransactionScenario(world, seed, plan.faults(seed)).run)
