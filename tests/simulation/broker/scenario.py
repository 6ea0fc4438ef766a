"""The production broker on trial: producers send, consumers read, an admin deletes, and what was acknowledged is there.

After the faults stop, everything must drain: each producer gets its acknowledgements in bounded virtual time. All is read back
through the protocol and compared, once with the broker that is running and once more after the power cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulation.broker.clients import SimulatedConsumer, SimulatedProducer, create_topic, delete_records
from tests.simulation.broker.trial import BrokerTrial, Torment
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.ledger import Ledger
from tests.simulation.record_source import RecordSource

from odradek.model.ids import TopicPartition
from odradek.testing.sim.disk_faults import DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.world import World

_TOPIC: Final = "topic"
_DRAIN_S_MAX: Final = 300.0
"""After the faults stop, everything must be acknowledged within this long."""
_NEVER_REMOVED: Final = 1 << 62
_SETTINGS: Final = {"log.retention.check.interval.ms": "300"}


@dataclass(slots=True, kw_only=True)
class BrokerPlan:
    """The plan of a run, which its seed decides."""

    partition_count: int
    record_count: int
    padding_bytes: tuple[int, ...]
    topic: dict[str, str]
    torment: Torment
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
            torment=Torment(
                disk_stall_s=rng.choice((0.0, 0.0, 0.01)),
                calm_after_s=rng.uniform(1.0, 12.0),
                crash_mean_s=rng.choice((1.0, 4.0, 1000.0)),
                cuts_links=rng.random() < 0.6,
                jumps_clock=rng.random() < 0.3,
            ),
            deletes_records=rng.random() < 0.4,
        )


class BrokerScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._plan = BrokerPlan.draw(seed)
        self._trial = BrokerTrial(world, seed, self._plan.torment, _SETTINGS, lives)
        self._context = self._trial.context
        self._producing = True
        names = [TopicPartition(_TOPIC, number) for number in range(self._plan.partition_count)]
        self._ledgers = {name: Ledger(str(name)) for name in names}
        if self._plan.removes_segments:
            for ledger in self._ledgers.values():
                ledger.may_remove_below(_NEVER_REMOVED)
        self._sources = [
            (name, self._source(seed, number, name, is_idempotent))
            for number, (name, is_idempotent) in enumerate(
                (name, with_id) for name in names for with_id in (True, True, False)
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

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        await self._trial.run(self._work, self._check_all)

    async def _work(self) -> None:
        await self._trial.under_torment(
            self._produce_and_consume(),
            drain_s_max=_DRAIN_S_MAX,
            is_over=self._has_ended,
            undone=lambda: [source.name for _, source in self._sources if not source.is_done],
        )

    async def _produce_and_consume(self) -> None:
        context = self._context
        await self._trial.anyone().spawn(
            create_topic(context, _TOPIC, self._plan.partition_count, self._plan.topic)
        )
        consumers = [
            self._trial.anyone().spawn(SimulatedConsumer(context, name, ledger).follow(self._has_ended))
            for name, ledger in self._ledgers.items()
        ]
        if self._plan.deletes_records:
            consumers.append(self._trial.anyone().spawn(self._delete_some()))
        await asyncio.gather(
            *(
                self._trial.anyone().spawn(SimulatedProducer(context, name, source).run())
                for name, source in self._sources
            )
        )
        self._producing = False
        await asyncio.gather(*consumers)
        await self._check_all()

    def _has_ended(self) -> bool:
        return not self._producing

    async def _check_all(self) -> None:
        for name, ledger in self._ledgers.items():
            await self._trial.hosts[0].spawn(SimulatedConsumer(self._context, name, ledger).read_all())

    async def _delete_some(self) -> None:
        while self._producing:
            await asyncio.sleep(self._trial.rng.uniform(0.1, 2.0))
            name, ledger = self._trial.rng.choice(list(self._ledgers.items()))
            offset = self._trial.rng.randint(0, ledger.high_watermark)
            ledger.may_remove_below(offset)
            await delete_records(self._context, name, offset)


def run_broker(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(BrokerScenario(world, seed, plan.faults(seed)).run)
