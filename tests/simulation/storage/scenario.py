"""Storage under torment: producers, readers, retention and checkpoints on a few logs, lives ended by crashes.

The plan of a run is drawn from its seed; the lives it is given say which disk faults each boot meets. After
every boot, and once more at the end after the power was cut behind a clean close, the ledgers compare what
the logs hold with what producers and readers know.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.simulation.fault_plan import FaultPlan
from tests.simulation.ledger import Ledger
from tests.simulation.record_source import Batch, RecordSource
from tests.simulation.storage.store import Store, check_lookups, read_all, read_found
from tests.simulation.storage.thefts import steal
from tests.simulation.storage.trial import StorageTrial
from tests.simulation.transactions.source import (
    TransactionSource,
    check_at_rest,
    check_committed,
    read_committed,
)

from odradek.cluster.image import PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.records import split_batches
from odradek.replication.partition import Partition
from odradek.storage.files import naming
from odradek.storage.files.damage import LostRecordsError
from odradek.storage.producers.verification import UNVERIFIED
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.offload import OffloadDelays
from odradek.testing.sim.world import Host, HostLifetime, World

Source = RecordSource | TransactionSource
_ME: Final = BrokerId(0)
_RETRY_S: Final = 0.05
_IN_FLIGHT_MAX: Final = 5
_SIZES: Final = (
    (600, (0, 10, 60)),
    (1300, (0, 10, 100, 250)),
    (3000, (0, 10, 100, 250)),
    (20_000, (100, 700, 2500, 4000)),
    (20_000, (100, 700, 2500, 4000)),
    (1 << 20, (0, 700, 2500, 5000)),
)
"""`segment.bytes`, and the padding of values that go with it."""


@dataclass(slots=True, kw_only=True)
class StoragePlan:
    """What a seed decided."""

    paths: tuple[str, ...]
    """Data directories."""
    partition_count: int
    records_per_producer: int
    padding_bytes: tuple[int, ...]
    config: LogConfig
    deletes_records: bool
    rots_indexes: bool
    """Index files are damaged while the host is down."""
    disk_step_s: float
    """The longest that an operation of the disk takes on a thread."""
    disk_stall_s: float
    """And on the event loop."""
    is_full_for_s: float | None
    """When set, the disk is full for this long, a while after the start."""

    @classmethod
    def draw(cls, seed: int) -> StoragePlan:
        rng = stream(seed, "plan")
        segment_bytes, padding_bytes = rng.choice(_SIZES)
        config = LogConfig(
            segment_bytes=segment_bytes,
            segment_index_bytes=rng.choice((96, 1 << 20)),
            index_interval_bytes=rng.choice((1, 200, 4096)),
            retention_bytes=rng.choice((-1, 2000, 5000)),
            retention_ms=-1,
            file_delete_delay_ms=rng.choice((0, 20)),
        )
        return cls(
            paths=rng.choice((("/data",), ("/data", "/more/data"))),
            partition_count=rng.choice((1, 2)),
            padding_bytes=padding_bytes,
            records_per_producer=rng.choice((8, 14)),
            config=config,
            deletes_records=rng.random() < 0.5,
            rots_indexes=rng.random() < 0.4,
            disk_step_s=rng.choice((0.002, 0.02, 0.05)),
            disk_stall_s=rng.choice((0.0, 0.0, 0.003)),
            is_full_for_s=rng.choice((None, None, 0.2)),
        )


class StorageScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._world = world
        self._rng = stream(seed, "scenario")
        self._plan = StoragePlan.draw(seed)
        self._thefts = stream(seed, "thefts")
        self._noting = stream(seed, "noting")
        self._noted: dict[TopicPartition, int] = {}
        """Up to where each log was written down as durable."""
        self._host: Host = world.host("broker")
        self._trial = StorageTrial(self._host, self._rng, lives)
        self._host.offload_delays = OffloadDelays(step_s=(0.0, self._plan.disk_step_s))
        self._host.disk_stall_s = self._plan.disk_stall_s
        names = [TopicPartition("topic", number) for number in range(self._plan.partition_count)]
        self._names = names
        self._ledgers = {name: Ledger(str(name)) for name in names}
        self._sources: dict[TopicPartition, list[RecordSource]] = {name: [] for name in names}
        for number, (name, producer_id) in enumerate((name, i) for name in names for i in (7, 8, -1)):
            source = RecordSource(
                name=f"p{number}",
                is_idempotent=producer_id >= 0,
                ledger=self._ledgers[name],
                rng=stream(seed, f"producer {number}"),
                record_count=self._plan.records_per_producer,
                padding_bytes=self._plan.padding_bytes,
                producer_id=producer_id,
            )
            self._sources[name].append(source)
        self._transactional = {name: self._transaction_sources(seed, name) for name in names}

    def _transaction_sources(self, seed: int, name: TopicPartition) -> list[TransactionSource]:
        rng = stream(seed, f"transactions {name}")
        return [
            TransactionSource(
                name=f"t{name.partition}{number}",
                producer_id=20 + number,
                version=rng.choice((1, 2)),
                transaction_count=rng.choice((2, 3)),
                ledger=self._ledgers[name],
                rng=stream(seed, f"transactions {name} {number}"),
                padding_bytes=self._plan.padding_bytes,
            )
            for number in range(rng.choice((1, 1, 2)))
        ]

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        await self._trial.run(self._serve, self._inspect, self._before)

    async def _before(self, life: int | None) -> None:
        self._rot_indexes()
        await self._steal(1.0 if life is None else 0.4)

    def _rot_indexes(self) -> None:
        if not self._plan.rots_indexes:
            return
        for path, inode in self._host.medium.root.files(""):
            if path.endswith((naming.OFFSET_INDEX, naming.TIME_INDEX)) and self._rng.random() < 0.4:
                inode.overwrite(_rotten(bytes(inode.cache), self._rng))
                self._world.trace.note("rot", path)

    async def _steal(self, chance: float) -> None:
        """Perhaps the disk loses what it must not, and this is noticed; then it is put back."""
        name = self._thefts.choice(self._names)
        if name not in self._noted or self._thefts.random() >= chance:
            return
        theft = steal(
            self._host.medium,
            self._plan.paths,
            name,
            self._thefts,
            noted=self._noted[name],
            removable_below=self._ledgers[name].removable_below,
        )
        if theft is None:
            return
        self._world.trace.note("theft", theft.what)
        life = self._host.boot()
        (outcome,) = await asyncio.gather(self._host.spawn(self._open(life)), return_exceptions=True)
        self._host.crash(CrashKind.PROCESS_KILL)
        theft.put_back()
        if not isinstance(outcome, LostRecordsError):
            raise ViolationError(f"{name}: {theft.what}, and no one noticed: {outcome!r}")

    async def _open(self, life: HostLifetime) -> Store:
        store = Store(life.runtime, self._plan.paths, lambda: None)
        await store.open(self._names, self._plan.config)
        return store

    async def _inspect(self, life: HostLifetime) -> None:
        self._check(await self._open(life))

    def _check(self, store: Store) -> None:
        for partition in store.partitions:
            log, ledger = partition.log, self._ledgers[partition.name]
            results = read_all(log, self._rng.choice((1, 300, 1 << 20)))
            ledger.check(results, start_offset=log.start_offset, end_offset=log.end_offset)
            committed = [record for record in results if record.offset < partition.high_watermark]
            ledger.observe(committed, partition.high_watermark)
            check_lookups(log, results, self._rng)
            check_at_rest(partition, self._transactional[partition.name], self._rng)

    async def _serve(self, life: HostLifetime) -> None:
        store = Store(life.runtime, self._plan.paths, lambda: self._trial.directory_failed(life))
        await store.open(self._names, self._plan.config)
        self._check(store)
        writers = [
            self._write(life, partition, source)
            for partition in store.partitions
            for source in self._sources[partition.name]
        ]
        writers += [
            self._transact(life, partition, source)
            for partition in store.partitions
            for source in self._transactional[partition.name]
        ]
        others = [self._keep(store), self._note(store), self._read(life, store), self._fill_disk()]
        await asyncio.gather(*writers, *others)
        self._host.medium.capacity_bytes = None
        await store.repair()
        self._check(store)
        ends = {partition.name: partition.log.end_offset for partition in store.partitions}
        await store.close()
        self._noted.update(ends)

    # -- those who write -------------------------------------------------------------------------------------

    async def _write(self, life: HostLifetime, partition: Partition, source: RecordSource) -> None:
        """Send until all is acknowledged."""
        for batch in source.to_send_again():
            offset = await self._append(life, partition, source, batch)
            await self._acknowledge(partition, source, batch, offset)
        in_flight: deque[tuple[Batch, int]] = deque()
        while in_flight or not source.is_done:
            while len(in_flight) < self._rng.randint(1, _IN_FLIGHT_MAX) and not source.is_drained:
                batch = source.next_batch()
                in_flight.append((batch, await self._append(life, partition, source, batch)))
            batch, offset = in_flight.popleft()
            await self._acknowledge(partition, source, batch, offset)
            if self._rng.random() < 0.5:
                await asyncio.sleep(self._rng.uniform(0, 0.02))

    async def _transact(self, life: HostLifetime, partition: Partition, source: TransactionSource) -> None:
        """One transaction after another, each until its marker is acknowledged."""
        while not source.is_done:
            transaction = source.current()
            appended = []
            for batch in list(transaction.in_doubt):
                offset = await self._append(life, partition, source, batch)
                if batch is transaction.batches[0]:
                    transaction.first_offset = offset
                appended.append((batch, offset))
                await asyncio.sleep(self._rng.uniform(0, 0.005))
            for batch, offset in appended:
                await self._acknowledge(partition, source, batch, offset)
            self._mark_as_a_zombie(life, partition, source)
            offset = await self._mark(life, partition, source)
            await self._wait_for(partition, offset)
            source.ended(offset)
            self._send_late(life, partition, source)
            await asyncio.sleep(self._rng.uniform(0, 0.01))

    async def _mark(self, life: HostLifetime, partition: Partition, source: TransactionSource) -> int:
        """The offset of the marker, once the log takes it."""
        while True:
            source.marks(partition.log.end_offset)
            try:
                offset = self._append_marker(life, partition, source, source.coordinator_epoch)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    raise ViolationError(f"{partition.name}: {source.name}'s marker: {error}") from error
                await asyncio.sleep(_RETRY_S)
            else:
                source.transactions[-1].reported_offset = offset
                return offset

    def _append_marker(
        self, life: HostLifetime, partition: Partition, source: TransactionSource, coordinator_epoch: int
    ) -> int:
        return (
            partition.leader()
            .append_marker(
                source.producer_id,
                source.marker_epoch,
                is_commit=source.transactions[-1].commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=source.version,
                now_ms=life.clock.wall_ms(),
            )
            .first_offset
        )

    def _mark_as_a_zombie(self, life: HostLifetime, partition: Partition, source: TransactionSource) -> None:
        """A coordinator that was replaced must end nothing: the log has seen a marker of the newer one."""
        if not source.has_newer_marker or self._rng.random() < 0.5:
            return
        try:
            self._append_marker(life, partition, source, source.coordinator_epoch - 1)
        except KafkaError as error:
            if error.code in (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.KAFKA_STORAGE_ERROR):
                return
            raise ViolationError(f"{partition.name}: a zombie's marker: {error}") from error
        raise ViolationError(f"{partition.name}: the marker of an older coordinator was taken")

    def _send_late(self, life: HostLifetime, partition: Partition, source: TransactionSource) -> None:
        """A batch that comes when its transaction is over must not begin another one, which no one would end."""
        if source.is_done or self._rng.random() < 0.5:
            return
        now_ms = life.clock.wall_ms()
        try:
            batches = split_batches(source.build_late(now_ms))
            partition.leader().append(batches, now_ms=now_ms, guard=UNVERIFIED)
        except KafkaError as error:
            if error.code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.KAFKA_STORAGE_ERROR):
                return
            raise ViolationError(f"{partition.name}: a late batch: {error}") from error
        raise ViolationError(f"{partition.name}: a batch began a transaction that no one ends")

    async def _append(self, life: HostLifetime, partition: Partition, source: Source, batch: Batch) -> int:
        """The offset that the batch got, once the log takes it."""
        while True:
            now_ms = life.clock.wall_ms()
            try:
                appended = partition.leader().append(
                    split_batches(source.build(batch, now_ms)), now_ms=now_ms
                )
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    raise ViolationError(f"{partition.name}: {source.name} was refused: {error}") from error
                await asyncio.sleep(_RETRY_S)  # a full disk, or an operator who is on his way
                continue
            if appended.last_offset - appended.first_offset != len(batch.values) - 1:
                raise ViolationError(f"{partition.name}: {len(batch.values)} records became {appended}")
            return appended.first_offset

    async def _acknowledge(self, partition: Partition, source: Source, batch: Batch, offset: int) -> None:
        await self._wait_for(partition, offset + len(batch.values) - 1)
        source.acknowledged(batch, offset)

    async def _wait_for(self, partition: Partition, last_offset: int) -> None:
        while True:
            try:
                waiting = partition.leader().acknowledgement(last_offset)
                if waiting is not None:
                    await waiting
                return
            except KafkaError:
                if partition.retired is not None:  # it went offline: what was sent stays in doubt
                    await asyncio.get_running_loop().create_future()
                # another leader epoch began, and the records are still there

    # -- those who keep and read -----------------------------------------------------------------------------

    async def _keep(self, store: Store) -> None:
        """Retention, delete-records, new epochs, checkpoints, and repair after a full disk."""
        while not self._all_sent():
            await asyncio.sleep(self._rng.uniform(0.001, 0.02))
            partition = self._rng.choice(store.partitions)
            if partition.retired is not None:
                return
            await store.repair()
            action = self._rng.choice(self._actions())
            try:
                await action(store, partition)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    raise

    async def _note(self, store: Store) -> None:
        """Write down what became durable, now and then."""
        while not self._all_sent():
            await asyncio.sleep(self._noting.uniform(0.001, 0.05))
            if any(partition.retired is not None for partition in store.partitions):
                return
            durable = {partition.name: partition.log.flushed_offset for partition in store.partitions}
            if not await store.write_extents():
                return  # a disk that failed meanwhile takes no notes
            if not any(directory.has_unwritten_extents for directory in store.directories.all()):
                self._noted.update(durable)

    def _actions(self) -> list[Callable[[Store, Partition], Awaitable[None]]]:
        if self._plan.deletes_records:
            return [self._retain, self._delete_records, self._checkpoint, self._new_epoch]
        return [self._retain, self._checkpoint, self._new_epoch]

    async def _retain(self, store: Store, partition: Partition) -> None:
        if self._plan.config.retention_bytes >= 0:
            self._ledgers[partition.name].may_remove_below(partition.high_watermark)
        await store.apply_retention(partition)

    async def _delete_records(self, store: Store, partition: Partition) -> None:
        """Up to anywhere below the high watermark; half the time with what retention then has to remove."""
        if partition.start_offset > partition.high_watermark:
            raise ViolationError(
                f"{partition.name} begins above its high watermark {partition.high_watermark}"
            )
        offset = self._rng.randint(partition.start_offset, partition.high_watermark)
        self._ledgers[partition.name].may_remove_below(offset)
        partition.log.delete_records(offset)
        if self._rng.random() < 0.5:
            await self._retain(store, partition)

    async def _checkpoint(self, store: Store, partition: Partition) -> None:
        await store.write_checkpoints()

    async def _new_epoch(self, store: Store, partition: Partition) -> None:
        epoch = LeaderEpoch(partition.leader_epoch + 1)
        state = PartitionImage(
            leader=_ME, leader_epoch=epoch, isr=(_ME,), partition_epoch=epoch, replicas=(_ME,)
        )
        partition.lead(state, {}, 0.0)

    async def _read(self, life: HostLifetime, store: Store) -> None:
        """Read at random below the high watermark: what is asked for comes first."""
        while not self._all_sent():
            await asyncio.sleep(self._rng.uniform(0.001, 0.01))
            partition = self._rng.choice(store.partitions)
            if partition.retired is not None:
                return
            high_watermark = partition.high_watermark
            if partition.start_offset < high_watermark:
                offset = self._rng.randrange(partition.start_offset, high_watermark)
                max_bytes = self._rng.choice((1, 500, 1 << 20))
                try:
                    records = read_found(partition.log, offset, high_watermark, max_bytes)
                except KafkaError as error:
                    if error.code is ErrorCode.KAFKA_STORAGE_ERROR and life.disk.failure_count:
                        return
                    raise
                if not records or records[0].offset != offset:
                    raise ViolationError(f"{partition.name}: a read at {offset} returned {records[:1]}")
                self._ledgers[partition.name].observe(records, high_watermark)
                self._read_committed(life, partition)

    def _read_committed(self, life: HostLifetime, partition: Partition) -> None:
        """The same for a reader that must see nothing but what is committed."""
        stable = partition.last_stable_offset
        if partition.start_offset >= stable:
            return
        offset = self._rng.randrange(partition.start_offset, stable)
        try:
            committed, _ = read_committed(partition.log, offset, stable, self._rng.choice((1, 500, 1 << 20)))
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR and life.disk.failure_count:
                return
            raise
        check_committed(partition, self._transactional[partition.name], committed)

    def _all_sent(self) -> bool:
        sources = (record_source for of_partition in self._sources.values() for record_source in of_partition)
        transactional = (source for of_partition in self._transactional.values() for source in of_partition)
        return all(source.is_done for source in sources) and all(source.is_done for source in transactional)

    async def _fill_disk(self) -> None:
        medium, seconds = self._host.medium, self._plan.is_full_for_s
        if seconds is None:
            return
        await asyncio.sleep(self._rng.uniform(0.01, 0.1))
        medium.capacity_bytes = medium.used_bytes() + self._rng.randint(0, 300)
        await asyncio.sleep(seconds)
        medium.capacity_bytes = None


def _rotten(content: bytes, rng: Random) -> bytes:
    """The content with a bit flipped, cut short, zeroed, or with something behind it."""
    changed = bytearray(content)
    if not changed:
        return rng.randbytes(rng.randint(0, 30))
    at = rng.randrange(len(changed))
    match rng.randrange(4):
        case 0:
            changed[at] ^= 1 << rng.randrange(8)
        case 1:
            del changed[at:]
        case 2:
            changed[at:] = bytes(len(changed) - at)
        case _:
            changed += rng.randbytes(rng.randint(1, 30))
    return bytes(changed)


def run_storage(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(StorageScenario(world, seed, plan.faults(seed)).run)
