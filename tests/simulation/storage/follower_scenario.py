"""A follower's log under torment: it copies from a leader that changes, is cut, restarts, and meets crashes and disk errors.

The log is the real one in its real directories. What it may be after each crash is in `follower_history.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from tests.simulation.fault_plan import FaultPlan
from tests.simulation.storage.follower_history import Copied, LeaderHistory, Version, check_log
from tests.simulation.storage.store import check_lookups, read_all
from tests.simulation.storage.trial import StorageTrial

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import check_crc, split_batches
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.durability import FlushJob
from odradek.storage.log.log import Log
from odradek.testing.sim.disk_faults import CrashKind, DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.offload import OffloadDelays
from odradek.testing.sim.world import Host, HostLifetime, World

_RETRY_S: Final = 0.05
_NAME: Final = TopicPartition("topic", 0)
_TOPIC_ID: Final = UUID(int=1)
_SIZES: Final = ((600, (0, 10, 60)), (1300, (10, 100, 250)), (20_000, (100, 700, 2500)), (1 << 20, (0, 700)))


@dataclass(slots=True, kw_only=True)
class FollowerPlan:
    """What a seed decided."""

    config: LogConfig
    padding_bytes: tuple[int, ...]
    leaves_gaps: bool
    loses_committed: bool
    """Elections may be unclean: what was below the high watermark may go."""
    deletes_records: bool
    batch_count: int
    disk_step_s: float
    thread_start_s: float
    """How long a flush may wait for a thread: another may overtake it."""
    plug_pulls: int
    """How often the power is cut right behind a flush."""

    @classmethod
    def draw(cls, seed: int) -> FollowerPlan:
        rng = stream(seed, "plan")
        segment_bytes, padding_bytes = rng.choice(_SIZES)
        config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=rng.choice((1, 200, 4096)),
            retention_bytes=rng.choice((-1, -1, 2000, 5000)),
            retention_ms=-1,
            file_delete_delay_ms=rng.choice((0, 20)),
        )
        return cls(
            config=config,
            padding_bytes=padding_bytes,
            leaves_gaps=rng.random() < 0.3,
            loses_committed=rng.random() < 0.3,
            deletes_records=rng.random() < 0.4,
            batch_count=rng.choice((30, 60)),
            disk_step_s=rng.choice((0.001, 0.01, 0.03)),
            thread_start_s=rng.choice((0.001, 0.001, 0.1)),
            plug_pulls=rng.choice((0, 6)),
        )


class FollowerScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(self, world: World, seed: int, lives: Sequence[Sequence[DiskFault]] = ()) -> None:
        self._rng = stream(seed, "scenario")
        self._noting = stream(seed, "noting")
        self._plan = FollowerPlan.draw(seed)
        self._host: Host = world.host("broker")
        self._trial = StorageTrial(self._host, self._rng, lives)
        self._host.offload_delays = OffloadDelays(
            start_s=(0.0, self._plan.thread_start_s), step_s=(0.0, self._plan.disk_step_s)
        )
        self._plug_pulls = self._plan.plug_pulls
        self._is_checkpointed = False
        self._leader = LeaderHistory(
            rng=stream(seed, "leader"),
            padding_bytes=self._plan.padding_bytes,
            leaves_gaps=self._plan.leaves_gaps,
        )
        self._now = Version((), 0, 0, 0)
        self._before: list[Version] = []
        """What the log may be as well, as long as its files may not have followed a truncation."""
        self._removable_below = 0
        self._truncations = 0
        self._flushes: dict[asyncio.Task[None], None] = {}

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        await self._trial.run(self._serve, self._inspect)

    async def _inspect(self, life: HostLifetime) -> None:
        _, log = await self._open(life)
        mine, theirs = (
            [
                batch
                for batch in batches
                if batch.next_offset > max(log.start_offset, self._leader.start_offset)
            ]
            for batches in (self._batches(log), self._leader.batches)
        )
        if mine != theirs:
            shown = [[(batch.base_offset, batch.epoch) for batch in batches] for batches in (mine, theirs)]
            raise ViolationError(f"the replica has {shown[0]}, its leader {shown[1]}")

    async def _open(self, life: HostLifetime) -> tuple[LogManager, Log]:
        directories = LogManager.open(life.runtime, ["/data"], node_id=1)
        directories.on_failure(lambda path, error: self._trial.directory_failed(life))
        log = await directories.open_log(_NAME, _TOPIC_ID, self._plan.config)
        batches = self._batches(log)
        versions = [
            version for version in (self._now, *self._before) if version.holds(batches, log.end_offset)
        ]
        if not versions:
            shown = [(copied.base_offset, copied.epoch) for copied in batches]
            raise ViolationError(
                f"it ends at {log.end_offset} with {shown}, not {self._now} or {self._before}"
            )
        kept = tuple(batch for batch in versions[0].batches if batch.next_offset <= log.end_offset)
        highest = max(version.high_watermark for version in versions)
        self._now = Version(kept, versions[0].begin_offset, log.flushed_offset, min(highest, log.end_offset))
        self._before = []
        self._check(log)
        mark = directories.checkpointed_high_watermark(_NAME)
        if mark is not None and mark > max(highest, log.start_offset):
            raise ViolationError(f"the high watermark is {mark}, it never was above {highest}")
        if directories.damaged:
            raise ViolationError(f"damaged: {directories.damaged}")
        return directories, log

    @staticmethod
    def _batches(log: Log) -> list[Copied]:
        results: list[Copied] = []
        offset = log.start_offset
        while offset < log.end_offset:
            read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
            for _, batch in split_batches(read.records):
                check_crc(batch)
                results.append(Copied.of(bytes(batch)))
            offset = read.next_offset
        return results

    def _check(self, log: Log) -> None:
        if log.start_offset > max(self._removable_below, self._now.begin_offset):
            raise ViolationError(f"it begins at {log.start_offset}, beyond {self._removable_below}")
        if log.end_offset < log.start_offset:
            return  # it waits for the batch in whose middle it begins
        batches = self._batches(log)
        check_log(log, batches, self._now)
        check_lookups(log, read_all(log), self._rng)

    # -- copying ---------------------------------------------------------------------------------------------

    async def _serve(self, life: HostLifetime) -> None:
        self._flushes.clear()
        directories, log = await self._open(life)
        while not self._is_done(log):
            await asyncio.sleep(self._rng.uniform(0, 0.01))
            if self._rng.random() < 0.03 and log.failed is None:
                await self._close(life, directories, log)
                directories, log = await self._open(life)
            try:
                await self._step(life, directories, log)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR or not life.disk.failure_count:
                    raise ViolationError(f"the log refused: {error}") from error
                await asyncio.sleep(_RETRY_S)
                for failed_log in directories.failed_logs():
                    await directories.repair(failed_log)
        await self._close(life, directories, log)

    async def _close(self, life: HostLifetime, directories: LogManager, log: Log) -> None:
        await asyncio.gather(*self._flushes)
        if not self._before:
            self._check(log)
        await directories.write_checkpoints({_NAME: self._now.high_watermark})
        failures = life.disk.failure_count
        is_sound = log.failed is None
        await directories.close_logs()
        directories.close()
        if not is_sound or life.disk.failure_count != failures:
            raise OSError("the log was not closed cleanly")
        self._now, self._before = self._durable(log.end_offset), []

    def _is_done(self, log: Log) -> bool:
        leader = self._leader
        is_same = log.end_offset == leader.end_offset and (
            not leader.batches or log.latest_epoch == leader.batches[-1].epoch
        )
        return is_same and leader.count >= self._plan.batch_count

    async def _step(self, life: HostLifetime, directories: LogManager, log: Log) -> None:
        if self._leader.count < self._plan.batch_count:
            for _ in range(self._rng.randint(0, 3)):
                self._leader.append()
            self._change_leader(log)
        match self._rng.randrange(12):
            case 0:
                await self._retain(directories, log)
            case 1 | 4:
                self._flush(life, directories, log)
                await asyncio.gather(*self._flushes)
                await directories.write_checkpoints({_NAME: self._now.high_watermark})
                self._is_checkpointed = True
            case 2 if log.end_offset > self._now.high_watermark:
                self._truncate(log, self._rng.randint(self._now.high_watermark, log.end_offset))
            case 3 if not self._before:
                self._check(log)
            case _ if log.awaits_truncation:
                self._append_too_early(life, log)
            case _:
                self._fetch(life, log)
        self._flush(life, directories, log)
        if self._noting.random() < 0.3:
            await directories.write_extents()
        if self._rng.random() < 0.7:
            await asyncio.gather(*self._flushes)

    def _change_leader(self, log: Log) -> None:
        chance = self._rng.random()
        if chance < 0.08:
            leader = self._leader
            lowest = leader.start_offset if self._plan.loses_committed else self._now.high_watermark
            leader.change(self._rng.randint(min(lowest, leader.end_offset), leader.end_offset))
        elif chance < 0.12 and self._plan.deletes_records:
            offset = self._rng.randint(self._leader.start_offset, self._leader.end_offset)
            self._leader.begin_at(offset)
            self._removable_below = max(self._removable_below, offset)

    def _fetch(self, life: HostLifetime, log: Log) -> None:
        """As a follower does: find out where the logs part, then copy."""
        leader = self._leader
        if log.end_offset < log.start_offset:
            self._take_first(life, log)
            return
        if log.end_offset < leader.start_offset or log.start_offset > leader.end_offset:
            self._begin(log, leader.start_offset)
            return
        if log.latest_epoch >= 0:
            epoch, end = leader.end_of(log.latest_epoch)
            if epoch < 0:
                self._begin(log, leader.start_offset)
                return
            if epoch != log.latest_epoch or end < log.end_offset:
                own = log.epoch_end_offset(epoch).end_offset
                self._truncate(log, min(end, own if own >= 0 else end))
                return
        elif log.end_offset > leader.end_offset:
            self._begin(log, leader.start_offset)
            return
        batches = leader.fetch(log.end_offset)
        if batches and not self._makes_room(log, batches[0]):
            self._append(life, log, batches)
        self._learn(min(log.flushed_offset, leader.end_offset))

    def _append_too_early(self, life: HostLifetime, log: Log) -> None:
        """The files have not followed a truncation: the log refuses, and waits for no disk."""
        batches = self._leader.fetch(log.end_offset)
        if not batches or log.failed is not None:
            return
        try:
            log.append_as_follower([batch.to_send() for batch in batches], now_ms=life.clock.wall_ms())
        except KafkaError:
            return
        raise ViolationError(f"appended at {log.end_offset}, though the files have not followed a truncation")

    def _learn(self, high_watermark: int) -> None:
        self._now = replace(self._now, high_watermark=max(self._now.high_watermark, high_watermark))

    def _makes_room(self, log: Log, first: Copied) -> bool:
        """Whether the batch begins before an empty log does, so that its files have something to follow."""
        header = first.to_send()[0]
        if not log.starts_inside_batch(header):
            return False
        begin_offset = first.base_offset
        version = replace(self._now, begin_offset=begin_offset, durable_offset=begin_offset)
        self._change(version, lambda _: log.begin_with(header), begin_offset)
        return True

    def _take_first(self, life: HostLifetime, log: Log) -> None:
        """The files made room for a batch in whose middle the log begins. The leader may have another by now."""
        batches = self._leader.fetch(log.start_offset) if log.start_offset < self._leader.end_offset else []
        if batches and batches[0].base_offset == log.end_offset:
            self._append(life, log, batches)
        else:
            self._begin(log, log.start_offset)

    def _append(self, life: HostLifetime, log: Log, batches: list[Copied]) -> None:
        before, old_end = self._now, log.end_offset
        self._now = replace(self._now, batches=(*self._now.batches, *batches))
        try:
            log.append_as_follower([batch.to_send() for batch in batches], now_ms=life.clock.wall_ms())
        except KafkaError:
            there = tuple(batch for batch in self._now.batches if batch.next_offset <= log.end_offset)
            self._now = replace(self._now, batches=there) if log.end_offset != old_end else before
            raise
        if log.end_offset != batches[-1].next_offset:
            raise ViolationError(f"up to {batches[-1].next_offset} was appended: {log.end_offset}")
        if self._is_checkpointed:
            self._is_checkpointed = False
            self._pull_plug(life, 0.8)

    def _truncate(self, log: Log, offset: int) -> None:
        if offset <= log.start_offset:
            self._begin(log, offset)
            return
        if offset >= log.end_offset:
            log.truncate_to(offset)
            return
        kept = tuple(batch for batch in self._now.batches if batch.next_offset <= offset)
        end = kept[-1].next_offset if kept else self._now.begin_offset
        if end <= log.start_offset:
            version = Version((), log.start_offset, log.start_offset, log.start_offset)
        else:
            durable, mark = min(self._now.durable_offset, end), min(self._now.high_watermark, end)
            version = Version(kept, self._now.begin_offset, durable, mark)
        self._change(version, log.truncate_to, offset)
        if log.end_offset != max(end, log.start_offset):
            raise ViolationError(f"cut at {offset}, the log ends at {log.end_offset}, not {end}")

    def _begin(self, log: Log, offset: int) -> None:
        self._change(Version((), offset, offset, offset), log.restart_at, offset)

    def _change(self, version: Version, change: Callable[[int], None], offset: int) -> None:
        """Until the files followed the log may be what it was."""
        self._truncations += 1
        self._now, self._before = version, [*self._before, self._now]
        try:
            change(offset)
        except KafkaError:
            self._now = self._before.pop()
            raise

    def _durable(self, offset: int) -> Version:
        return replace(self._now, durable_offset=offset)

    # -- durability ------------------------------------------------------------------------------------------

    async def _retain(self, directories: LogManager, log: Log) -> None:
        if self._plan.config.retention_bytes >= 0:
            self._removable_below = max(self._removable_below, self._now.high_watermark)
        now_ms = self._host.clock.wall_ms()
        await directories.apply_retention(log, now_ms, below=self._now.high_watermark)

    def _flush(self, life: HostLifetime, directories: LogManager, log: Log) -> None:
        """A job of its own, which may end when the log was cut meanwhile."""
        if self._rng.random() < 0.3 or (job := log.flush_job()) is None:
            return
        task = asyncio.ensure_future(self._run(life, directories, log, job, self._truncations))
        self._flushes[task] = None
        task.add_done_callback(lambda done: self._flushes.pop(done, None))

    async def _run(
        self, life: HostLifetime, directories: LogManager, log: Log, job: FlushJob, truncations: int
    ) -> None:
        try:
            await life.runtime.offload.run(job.run)
        except OSError as error:
            if not life.disk.failure_count:
                raise ViolationError(f"a flush failed, though the disk did not: {error}") from error
            directories.fail(log, error)
            return
        log.flushed(job)
        if truncations != self._truncations:
            return
        if job.truncation is None or job.truncation.finished:
            self._before = []
        if log.flushed_offset > log.end_offset:
            raise ViolationError(f"{log.flushed_offset} is flushed, the log ends at {log.end_offset}")
        self._now = self._durable(max(self._now.durable_offset, log.flushed_offset))
        self._pull_plug(life, 0.3 if job.truncation is not None else 0.05)

    def _pull_plug(self, life: HostLifetime, chance: float) -> None:
        if self._plug_pulls and self._rng.random() < chance:
            self._plug_pulls -= 1
            life.crash(CrashKind.POWER_LOSS)


def run_follower(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(FollowerScenario(world, seed, plan.faults(seed)).run)
