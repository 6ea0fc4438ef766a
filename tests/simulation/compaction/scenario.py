"""Compaction under torment: producers, transactions, readers, retention and the cleaner on a few logs, and crashes.

Segments are small and compaction never rests, so lives end at every step of it. After every boot, and at the end behind a
power cut, the histories say whether each log is one that they allow; what is left at the very end must be compact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from random import Random
from typing import Final

from tests.simulation.compaction.history import CompactionHistory
from tests.simulation.compaction.writers import IdempotentWriter, TransactionalWriter
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.storage.store import Store
from tests.simulation.storage.trial import StorageTrial

from odradek.config.broker import BrokerConfig
from odradek.config.server import CleanerConfig
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import decode_batch, split_batches
from odradek.replication.partition import Partition
from odradek.storage.files import naming
from odradek.storage.log_cleaner import LogCleaner
from odradek.testing.sim.disk_faults import CrashAt, CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.offload import OffloadDelays
from odradek.testing.sim.world import Host, HostLifetime, World

_ANY_OFFSET: Final = 1 << 62
_COMPACT: Final = frozenset({"compact"})
_BOTH: Final = frozenset({"compact", "delete"})


@dataclass(slots=True, kw_only=True)
class CompactionPlan:
    """What a seed decided."""

    partition_count: int
    batch_count: int
    transaction_count: int
    padding_bytes: tuple[int, ...]
    config: LogConfig
    broker: BrokerConfig
    deletes_records: bool
    loses_snapshots: bool
    """Producer snapshots are lost while the host is down."""
    disk_step_s: float
    is_full_for_s: float | None

    @classmethod
    def draw(cls, seed: int) -> CompactionPlan:
        rng = stream(seed, "plan")
        config = LogConfig(
            cleanup_policy=rng.choice((_COMPACT, _COMPACT, _BOTH)),
            segment_bytes=rng.choice((900, 1300, 3000)),
            index_interval_bytes=rng.choice((1, 200, 4096)),
            retention_bytes=rng.choice((2000, 5000)),
            retention_ms=-1,
            file_delete_delay_ms=rng.choice((0, 20)),
            min_cleanable_dirty_ratio=rng.choice((0.0, 0.0, 0.5)),
            delete_retention_ms=rng.choice((20, 200, 100_000)),
            max_compaction_lag_ms=rng.choice((30, 1 << 62)),
        )
        broker = BrokerConfig(
            cleaner=CleanerConfig(
                threads=rng.choice((1, 2)),
                dedupe_buffer_size=rng.choice((1, 24 * 60, 1 << 20)),
                io_buffer_size=rng.choice((1, 1 << 20)),
                io_max_bytes_per_second=rng.choice((50_000.0, 1e300)),
            )
        )
        return cls(
            partition_count=rng.choice((1, 2)),
            batch_count=rng.choice((12, 25)),
            transaction_count=rng.choice((0, 4, 8)),
            padding_bytes=rng.choice(((0, 10, 60), (0, 10, 150))),
            config=config,
            broker=broker,
            deletes_records=rng.random() < 0.3,
            loses_snapshots=rng.random() < 0.5,
            disk_step_s=rng.choice((0.0005, 0.002, 0.01)),
            is_full_for_s=rng.choice((None, None, 0.2)),
        )


class CompactionScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._world = world
        self._rng = stream(seed, "scenario")
        self._plan = plan = CompactionPlan.draw(seed)
        self._host: Host = world.host("broker")
        self._host.offload_delays = OffloadDelays(step_s=(0.0, plan.disk_step_s))
        self._names = [TopicPartition("keyed", number) for number in range(plan.partition_count)]
        self._histories = {
            name: CompactionHistory(str(name), plan.config.delete_retention_ms) for name in self._names
        }
        self._writers = {name: self._make_writers(seed, name) for name in self._names}
        power_cuts = self._draw_power_cuts(seed) if lives else []
        self._trial = StorageTrial(
            self._host,
            self._rng,
            [[*planned, *cuts] for planned, cuts in zip_longest(lives, power_cuts, fillvalue=())],
        )

    def _make_writers(self, seed: int, name: TopicPartition) -> list[IdempotentWriter | TransactionalWriter]:
        plan, history = self._plan, self._histories[name]

        def rng(number: int) -> Random:
            return stream(seed, f"writer {name} {number}")

        writers: list[IdempotentWriter | TransactionalWriter] = [
            IdempotentWriter(
                f"p{n}", 10 + n, history, rng(n), plan.padding_bytes, batch_count=plan.batch_count
            )
            for n in range(2)
        ]
        if plan.transaction_count:
            writers += [
                TransactionalWriter(
                    f"t{n}",
                    20 + n,
                    history,
                    rng(20 + n),
                    plan.padding_bytes,
                    transaction_count=plan.transaction_count,
                )
                for n in range(2)
            ]
        return writers

    @staticmethod
    def _draw_power_cuts(seed: int) -> list[list[DiskFault]]:
        """Beside what is planned: some lives end where files take the place of others, which a plan seldom meets."""
        rng = stream(seed, "power cuts")
        return [
            [
                CrashAt(
                    number=rng.randint(1, 800),
                    kind=CrashKind.POWER_LOSS,
                    rng=stream(seed, f"power cut {number}"),
                    operations=frozenset({"rename"}),
                    suffix=naming.LOG + naming.SWAP,
                )
            ]
            for number in range(rng.choice((0, 1, 3)))
        ]

    # -- lives -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        await self._trial.run(self._serve, self._inspect, self._before)

    async def _before(self, life: int | None) -> None:
        self._host.medium.capacity_bytes = None
        if life != 0:
            self._lose_snapshots()

    def _lose_snapshots(self) -> None:
        if self._plan.loses_snapshots and self._rng.random() < 0.5:
            for path, _ in list(self._host.medium.root.files("")):
                if path.endswith(naming.SNAPSHOT):
                    folder, _, file_name = path.rpartition("/")
                    self._host.medium.folder(folder).unlink(file_name)
                    self._host.medium.folder(folder).sync()

    async def _open(self, life: HostLifetime) -> Store:
        store = Store(life.runtime, ("/data",), lambda: self._trial.directory_failed(life))
        await store.open(self._names, self._plan.config)
        self._check(store, life)
        for partition in store.partitions:
            history = self._histories[partition.name]
            history.offered_below = min(history.offered_below, partition.log.end_offset)
        return store

    def _check(self, store: Store, life: HostLifetime) -> None:
        for partition in store.partitions:
            history = self._histories[partition.name]
            history.check(partition.log, partition.last_stable_offset, life.clock.wall_ms())

    async def _serve(self, life: HostLifetime) -> None:
        store = await self._open(life)
        cleaner = LogCleaner(life.runtime, store.directories)
        writers = [
            writer.run(partition, life.clock)
            for partition in store.partitions
            for writer in self._writers[partition.name]
        ]
        keepers = [self._keep(life, store), self._clean(store, cleaner), self._read(life, store)]
        await asyncio.gather(*writers, *keepers, self._fill_disk())
        await store.repair()
        self._check(store, life)
        await self._compact_all(life, store, cleaner)
        await store.close()

    def _all_sent(self) -> bool:
        return all(writer.is_done for writers in self._writers.values() for writer in writers)

    async def _inspect(self, life: HostLifetime) -> None:
        store = await self._open(life)
        for partition in store.partitions:
            for writer in self._writers[partition.name]:
                if isinstance(writer, IdempotentWriter):
                    await writer.repeat_last(partition, life.clock)

    # -- those who keep and read -----------------------------------------------------------------------------

    async def _clean(self, store: Store, cleaner: LogCleaner) -> None:
        while not self._all_sent():
            await asyncio.sleep(self._rng.uniform(0, 0.03))
            if any(partition.retired is not None for partition in store.partitions):
                return
            await self._round(store, cleaner, self._plan.broker)

    async def _round(self, store: Store, cleaner: LogCleaner, broker: BrokerConfig) -> None:
        histories = [self._histories[partition.name] for partition in store.partitions]
        before = [history.offered_below for history in histories]
        for history in histories:
            history.offered_below = (
                _ANY_OFFSET  # what is sealed while the round runs may be compacted in it, too
            )
        await cleaner.run_round(store.partitions, broker)
        for partition, history, offered in zip(store.partitions, histories, before, strict=True):
            sealed = [0, *(view.end_offset for view in partition.log.cleaning.sealed())]
            history.offered_below = max(offered, sealed[-1])
            reason = partition.log.cleaning.uncleanable
            if reason:
                raise ViolationError(f"{partition.name} cannot be compacted: {reason}")

    async def _keep(self, life: HostLifetime, store: Store) -> None:
        """Retention, delete-records, checkpoints, and repair after a full disk."""
        while not self._all_sent():
            await asyncio.sleep(self._rng.uniform(0.001, 0.03))
            partition = self._rng.choice(store.partitions)
            if partition.retired is not None:
                return
            await store.repair()
            try:
                await self._act(store, partition)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    raise

    async def _act(self, store: Store, partition: Partition) -> None:
        history = self._histories[partition.name]
        match self._rng.randrange(3):
            case 0:
                if "delete" in self._plan.config.cleanup_policy:
                    history.removable_below = max(history.removable_below, partition.high_watermark)
                await store.apply_retention(partition)
            case 1 if self._plan.deletes_records:
                offset = self._rng.randint(partition.start_offset, partition.high_watermark)
                history.removable_below = max(history.removable_below, offset)
                partition.log.delete_records(offset)
            case _:
                await store.write_checkpoints()

    async def _read(self, life: HostLifetime, store: Store) -> None:
        """At random below the high watermark: what was there stays what it was."""
        while not self._all_sent():
            await asyncio.sleep(self._rng.uniform(0.001, 0.01))
            partition = self._rng.choice(store.partitions)
            if partition.retired is not None:
                return
            end = partition.high_watermark
            if partition.start_offset < end:
                offset = self._rng.randrange(partition.start_offset, end)
                try:
                    read = partition.log.read(offset, 600, end_offset=end, at_least_one=True)
                except KafkaError as error:
                    if error.code is ErrorCode.KAFKA_STORAGE_ERROR and life.disk.failure_count:
                        return
                    raise
                if read.next_offset <= offset:
                    raise ViolationError(f"{partition.name}: a reader is stuck at {offset}")
                records = [
                    record
                    for header, batch in split_batches(read.records)
                    if not header.is_control
                    for record in decode_batch(batch, header, from_offset=offset)
                ]
                self._histories[partition.name].observe(records, end)

    async def _fill_disk(self) -> None:
        medium, seconds = self._host.medium, self._plan.is_full_for_s
        if seconds is None:
            return
        await asyncio.sleep(self._rng.uniform(0.01, 0.3))
        medium.capacity_bytes = medium.used_bytes() + self._rng.randint(0, 2000)
        await asyncio.sleep(seconds)
        medium.capacity_bytes = None

    async def _compact_all(self, life: HostLifetime, store: Store, cleaner: LogCleaner) -> None:
        """Twice, with all the memory and time that it needs: what is left is compact."""
        broker = BrokerConfig(cleaner=replace(self._plan.broker.cleaner, dedupe_buffer_size=1 << 20))
        for _ in range(2):
            for partition in store.partitions:
                eager = replace(self._plan.config, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
                partition.reconfigure(eager)
                store.directories.note_cleaned(partition.log, partition.log.start_offset)
            await asyncio.sleep(1)
            await self._round(store, cleaner, broker)
            self._check(store, life)
        for partition in store.partitions:
            cleaned = store.directories.cleaned_offset(partition.name) or 0
            if partition.retired is None and not partition.log.cleaning.in_work:
                self._histories[partition.name].check_clean(partition.log, cleaned)


def run_compaction(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(CompactionScenario(world, seed, plan.faults(seed)).run)
