"""A coordinator that moves between two brokers, in any order of events: what was acknowledged is never lost nor overtaken.

The log is a model of replication: a leader's record is acknowledged once every member of the ISR has it, a broker that is
elected has everything acknowledged, and the old leader goes on believing that it leads until it hears the news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.groups.group_bench import BenchTopics

from odradek.groups.classic.kind import CLASSIC
from odradek.groups.offsets.committing import Commit, CommitRequest, commit
from odradek.groups.offsets.fetching import fetch
from odradek.groups.offsets.kind import OFFSETS
from odradek.groups.shard.formats import OffsetCommitValue, read
from odradek.groups.shard.kinds import Committer
from odradek.groups.shard.machine import GroupDependencies, GroupMachine
from odradek.groups.shard.settings import GroupSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import assign, decode_batch, read_header, split_batches
from odradek.shards import Shards
from odradek.testing.sim.loop import SimLoop

GROUP = "g"
A, B = 0, 1
GONE = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "others lead")


class Disk:
    """One broker's copy: (leader epoch, first offset, bytes) of each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []
        self.high_watermark = 0

    @property
    def end_offset(self) -> int:
        if not self.batches:
            return 0
        _, first, data = self.batches[-1]
        return first + read_header(data).last_offset_delta + 1


class Leadership:
    """A `ShardLog` for as long as a broker believes that it leads."""

    name = "log-0"
    start_offset = 0
    batch_bytes_max = 100_000

    def __init__(self, disk: Disk, epoch: int, in_sync: Callable[[], None]) -> None:
        self._disk = disk
        self.leader_epoch = epoch
        self._in_sync = in_sync
        self._over = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def end_offset(self) -> int:
        return self._disk.end_offset

    def check_writable(self) -> None:
        if self._over:
            raise GONE

    def call_after_flush(self, call: Callable[[], None]) -> bool:
        return False

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        self.check_writable()
        first = self._disk.end_offset
        assign(memoryview(batch), first, self.leader_epoch)
        self._disk.batches.append((self.leader_epoch, first, bytes(batch)))
        self._in_sync()
        return self._disk.end_offset - 1

    def append_marker(self, producer_id: int, producer_epoch: int, **end: Any) -> int:
        raise AssertionError("there are no transactions here")

    def age_ms(self, offset: int) -> int | None:
        return None

    def committed(self, last_offset: int) -> asyncio.Future[None] | None:
        self.check_writable()
        if self._disk.high_watermark > last_offset:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((last_offset, future))
        return future

    async def bring(self, offset: int, max_bytes: int) -> None:
        """All of it is in memory."""

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        for _, first, batch in self._disk.batches:
            if first >= offset:
                return batch, first + read_header(batch).last_offset_delta + 1
        return b"", offset

    def advanced(self) -> None:
        for last_offset, future in self._waiting:
            if last_offset < self._disk.high_watermark and not future.done():
                future.set_result(None)

    def end(self) -> None:
        self._over = True
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(GONE)
                future.exception()


class Clock:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)


def machine(_: int) -> GroupMachine:
    dependencies = GroupDependencies(
        settings=GroupSettings,
        topics=BenchTopics({"t": 1}),
        new_uuid=lambda: UUID(int=1),
        batch_bytes_max=lambda: 100_000,
    )
    return GroupMachine(dependencies, (CLASSIC, OFFSETS))


class Cluster:
    def __init__(self) -> None:
        self.disks = [Disk(), Disk()]
        self.shards = [Shards("log", lambda: 1, machine, Clock()) for _ in (A, B)]
        self.believed: list[Leadership | None] = [None, None]
        self.leader, self.epoch = B, 0
        self.isr = {A, B}
        self.elect()
        self.tell()
        self.issued = 0
        self.acknowledged: list[tuple[int, frozenset[int]]] = []
        """(Offset, those acknowledged before it was sent.)"""
        self.refused: set[ErrorCode] = set()
        self._clients: list[asyncio.Task[None]] = []

    # -- the controller

    def elect(self) -> None:
        """The other broker, if it has everything acknowledged, and only it learns that it leads."""
        other = 1 - self.leader
        if other not in self.isr:
            return
        self.leader, self.epoch = other, self.epoch + 1
        leadership = Leadership(self.disks[other], self.epoch, self._advance)
        if self.believed[other] is not None:
            self.tell(other)
        self.believed[other] = leadership
        self.shards[other].elected(0, leadership)

    def tell(self, broker: int | None = None) -> None:
        """The broker that does not lead any more learns of it."""
        old = 1 - self.leader if broker is None else broker
        leadership, self.believed[old] = self.believed[old], None
        if leadership is not None:
            leadership.end()
            self.shards[old].resigned(0)

    def shrink(self) -> None:
        self.isr = {self.leader}
        self._advance()

    # -- replication

    def replicate(self) -> None:
        """The follower, if it knows that it is one, cuts what the leader does not have, and copies what it lacks."""
        follower = 1 - self.leader
        if self.believed[follower] is not None:
            return
        self.disks[follower].batches = list(self.disks[self.leader].batches)
        self.isr = {A, B}
        self._advance()

    def _advance(self) -> None:
        disk, other = self.disks[self.leader], self.disks[1 - self.leader]
        reached = disk.end_offset
        if len(self.isr) > 1:
            reached = 0
            for mine, theirs in zip(disk.batches, other.batches, strict=False):
                if mine != theirs:
                    break
                reached = mine[1] + read_header(mine[2]).last_offset_delta + 1
        disk.high_watermark = max(disk.high_watermark, reached)
        for broker, leadership in enumerate(self.believed):
            if leadership is not None and broker == self.leader:
                leadership.advanced()

    # -- clients

    def commit(self, broker: int) -> None:
        self.issued += 1
        loop = asyncio.get_running_loop()
        self._clients.append(loop.create_task(self._commit(broker, self.issued)))

    async def _commit(self, broker: int, offset: int) -> None:
        before = frozenset(committed_offset for committed_offset, _ in self.acknowledged)
        request = CommitRequest(
            group_id=GROUP,
            committer=Committer(),
            commits=[Commit(topic="t", partition=0, offset=offset, topic_id=UUID(int=1))],
        )
        try:
            reply: Awaitable[Any] = (
                self.shards[broker].for_key(GROUP).execute(partial(commit, request=request))
            )
            assert list((await reply).values()) == [ErrorCode.NONE]
        except KafkaError as error:
            self.refused.add(error.code)
        else:
            self.acknowledged.append((offset, before))

    async def finish(self) -> tuple[list[int], int]:
        """Everything heals; the offsets in the log in order, and the one that a consumer gets."""
        self.tell()
        for _ in range(5):
            self.replicate()
            await asyncio.sleep(5)
        await asyncio.gather(*self._clients)
        self.commit(self.leader)
        while not (self.acknowledged and self.acknowledged[-1][0] == self.issued):
            self.replicate()
            await asyncio.sleep(0.1)
        wanted = partial(
            fetch, group_id=GROUP, member_id=None, member_epoch=-1, wanted=None, require_stable=True
        )
        fetched_offsets = await self.shards[self.leader].for_key(GROUP).execute(wanted)
        for shards in self.shards:
            shards.close()
        return self._written(), fetched_offsets["t", 0].offset

    def _written(self) -> list[int]:
        return [
            read(OffsetCommitValue, record.value).offset
            for _, _, data in self.disks[self.leader].batches
            for header, batch in split_batches(memoryview(bytearray(data)))
            for record in decode_batch(batch, header)
            if record.value is not None
        ]


async def run(steps: list[str], turns: int) -> Cluster:
    cluster = Cluster()
    actions: dict[str, Callable[[], None]] = {
        "commit at A": lambda: cluster.commit(A),
        "commit at B": lambda: cluster.commit(B),
        "elect": cluster.elect,
        "tell": cluster.tell,
        "replicate": cluster.replicate,
        "shrink": cluster.shrink,
    }
    for step in steps:
        if step == "wait":
            await asyncio.sleep(2)
        else:
            actions[step]()
            for _ in range(turns):
                await asyncio.sleep(0)
    written, final_offset = await cluster.finish()
    position = {offset: place for place, offset in enumerate(written)}
    for offset, before in cluster.acknowledged:
        assert offset in position, f"the acknowledged commit {offset} is lost"
        assert all(position[earlier_offset] < position[offset] for earlier_offset in before), (
            f"{offset} was overtaken"
        )
    assert final_offset == written[-1]
    return cluster


def simulate(steps: list[str], turns: int = 3) -> Cluster:
    """`turns` of the event loop from step to step: a commit takes two until it is in the log."""
    loop = SimLoop(Random(1))
    try:
        return loop.run_until_complete(run(steps, turns))
    finally:
        loop.close()


STEPS = ["commit at A", "commit at B", "elect", "tell", "replicate", "shrink", "wait"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=25), st.integers(0, 3))
def test_no_acknowledged_commit_is_lost_or_overtaken_however_the_coordinator_moves(
    steps: list[str], turns: int
) -> None:
    simulate(steps, turns)


def test_a_commit_at_the_old_coordinator_after_a_move_is_refused() -> None:
    steps = ["replicate", "wait", "elect", "wait", "commit at A", "wait", "tell", "commit at A", "wait"]
    cluster = simulate(steps)
    assert cluster.refused == {ErrorCode.NOT_COORDINATOR}
    assert [offset for offset, _ in cluster.acknowledged] == [3]


def test_a_commit_under_way_while_the_coordinator_moves_is_refused_and_may_count_all_the_same() -> None:
    cluster = simulate(["wait", "commit at A", "replicate", "commit at A", "elect", "tell", "wait"])
    assert cluster.refused == {ErrorCode.NOT_COORDINATOR}
    assert [offset for offset, _ in cluster.acknowledged] == [1, 3]


def test_the_successor_answers_only_when_what_it_found_is_safe() -> None:
    cluster = simulate(["wait", "commit at A", "replicate", "elect", "commit at B", "wait", "commit at B"])
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in cluster.refused
