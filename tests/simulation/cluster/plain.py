"""Producers and consumers of a simulated cluster: plain records, and keyed ones of which the newest is kept."""

from __future__ import annotations

from typing import Final

from tests.simulation.broker.clients import SimulatedProducer, create_topic
from tests.simulation.cluster.keeper import gather_all
from tests.simulation.cluster.readers import ClusterConsumer, KeyedReader
from tests.simulation.cluster.work import Setting
from tests.simulation.record_source import RecordSource

from odradek.model.ids import TopicPartition

PLAIN: Final = "plain"
KEYED: Final = "keyed"
_NEVER_REMOVED: Final = 1 << 62
_KINDS: Final = ((True, -1), (True, -1), (False, -1), (False, 1))
"""Of the producers to a partition: whether they are idempotent, and their acks."""


class PlainWork:
    """On each partition: idempotent producers, one that is not, one with acks=1, and consumers of leaders and of anyone."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        plan = setting.plan
        self._names = [TopicPartition(PLAIN, index) for index in range(plan.partition_count)]
        self._ledgers = {name: setting.ledger(name) for name in self._names}
        self._producers = [
            (name, self._source(f"p{index}-{number}", name, is_idempotent, plan.record_count), acks)
            for index, name in enumerate(self._names)
            for number, (is_idempotent, acks) in enumerate(_KINDS)
        ]
        self._producing = True
        self._probes = 0

    def _source(self, name: str, partition: TopicPartition, is_idempotent: bool, count: int) -> RecordSource:
        return RecordSource(
            name=name,
            is_idempotent=is_idempotent,
            ledger=self._ledgers[partition],
            rng=self._setting.stream(f"producer {name}"),
            record_count=count,
            padding_bytes=self._setting.plan.padding_bytes,
        )

    async def prepare(self) -> None:
        plan = self._setting.plan
        await self._setting.somewhere(
            create_topic(
                self._setting.context,
                PLAIN,
                plan.partition_count,
                plan.topic(),
                replication=plan.replication,
            )
        )

    async def run(self) -> None:
        self._producing = True
        await gather_all(self._produce(), *(self._consume(name) for name in self._names))

    async def _produce(self) -> None:
        try:
            await gather_all(
                *(
                    self._setting.somewhere(
                        SimulatedProducer(
                            self._setting.context,
                            name,
                            source,
                            acks=acks,
                            start_s=1.0,
                            pause_s=self._setting.pause_s,
                            first_alone=True,
                        ).run()
                    )
                    for name, source, acks in self._producers
                )
            )
        finally:
            self._producing = False

    async def _consume(self, name: TopicPartition) -> None:
        context, ledger = self._setting.context, self._ledgers[name]
        kinds = (False, True) if self._setting.plan.follows_nearest else (False,)
        await gather_all(
            *(
                self._setting.somewhere(
                    ClusterConsumer(context, name, ledger, anywhere=anywhere).follow(
                        lambda: not self._producing
                    )
                )
                for anywhere in kinds
            )
        )

    def undone(self) -> list[str]:
        return [f"{named.name} to {name}" for name, named, _ in self._producers if not named.is_done]

    async def probe(self) -> None:
        """Every partition takes a record with acks=all."""
        context = self._setting.context
        self._probes += 1
        sources = [
            (name, self._source(f"probe{self._probes}-{name.partition}", name, True, 1))
            for name in self._names
        ]
        await gather_all(
            *(
                self._setting.somewhere(SimulatedProducer(context, name, source, start_s=0.0).run())
                for name, source in sources
            )
        )

    async def check(self) -> None:
        for name, ledger in self._ledgers.items():
            await self._setting.somewhere(ClusterConsumer(self._setting.context, name, ledger).read_all())


class KeyedWork:
    """Idempotent producers that go round their keys and delete some, and a cleaner that never rests.

    Tombstones outlast the run, whatever clocks do: a follower that is behind for longer than `delete.retention.ms` may miss one
    that its leader has removed, and keep what it deleted. So does Kafka's.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._name = TopicPartition(KEYED, 0)
        self._ledger = setting.ledger(self._name)
        self._ledger.may_remove_below(_NEVER_REMOVED)
        self._sources = [
            RecordSource(
                name=f"k{number}",
                is_idempotent=True,
                ledger=self._ledger,
                rng=setting.stream(f"keyed {number}"),
                record_count=setting.plan.record_count,
                padding_bytes=(0, 60),
                key_count=5,
                tombstone_every=4,
            )
            for number in range(2)
        ]
        self._producing = True

    async def prepare(self) -> None:
        configs = {
            "cleanup.policy": "compact",
            "segment.ms": "500",
            "min.cleanable.dirty.ratio": "0.01",
            "min.insync.replicas": str(self._setting.plan.min_insync),
        }
        context, replication = self._setting.context, self._setting.plan.replication
        await self._setting.somewhere(create_topic(context, KEYED, 1, configs, replication=replication))

    async def run(self) -> None:
        reader = KeyedReader(self._setting.context, self._name, self._ledger, self._sources)
        await gather_all(self._produce(), self._setting.somewhere(reader.follow(lambda: not self._producing)))

    async def _produce(self) -> None:
        context = self._setting.context
        try:
            await gather_all(
                *(
                    self._setting.somewhere(
                        SimulatedProducer(
                            context,
                            self._name,
                            source,
                            start_s=1.0,
                            pause_s=self._setting.pause_s,
                            first_alone=True,
                        ).run()
                    )
                    for source in self._sources
                )
            )
        finally:
            self._producing = False

    def undone(self) -> list[str]:
        return [f"{source.name} to {self._name}" for source in self._sources if not source.is_done]

    async def check(self) -> None:
        reader = KeyedReader(self._setting.context, self._name, self._ledger, self._sources)
        await self._setting.somewhere(reader.read_all())
