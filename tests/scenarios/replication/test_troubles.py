"""Replication under damage, lost connections, late requests, throttles, and roles that cannot be taken (`nodes.py`)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from tests.kit.waiting import until
from tests.scenarios.replication.nodes import (
    FIRST_ID,
    Controller,
    Node,
    content,
    led_by,
    nodes,
    unreachable,
)

from odradek.broker.replicas.roles import ReplicaRoles
from odradek.cluster.image import PartitionImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.records import split_batches
from odradek.replication.partition import Partition


@pytest.fixture
async def controller() -> Controller:
    return Controller()


def damage(node: Node, offset: int, index: int = 0) -> None:
    """Flip bits in the batch that begins with the offset."""
    before = sum(len(raw) for base, _, raw in content(node.partition(index)) if base <= offset)
    path = next((Path(node.config.storage.log_dirs[0]) / f"t-{index}").glob("*.log"))
    with path.open("r+b") as file:
        file.seek(before - 3)
        file.write(b"\x00\x01\x02")


async def test_a_damaged_batch_is_not_taken_what_is_before_it_is_and_others_go_on(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        out_of_sync = replace(led_by(0, 0, 1), isr=(BrokerId(0),))
        controller.has(out_of_sync, out_of_sync)
        await controller.tell(0)
        for _ in range(3):
            await a.append_acknowledged(5, 0)
        damage(a, 10)
        await controller.tell(1)
        await a.append_acknowledged(7, 1)
        await until(lambda: b.partition(1).log.end_offset == 7, "the sound one is copied")
        await until(lambda: b.partition(0).log.end_offset == 10, "and the other up to the damage")
        await until(lambda: a.replicas.health.damaged == {(FIRST_ID, 0)}, "the leader knows")
        assert b.partition(0).log.end_offset == 10


async def test_a_damaged_leader_gets_what_it_lost_from_the_next_one(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 3) as (a, b, c):
        controller.has(replace(led_by(0, 0, 1, 2), isr=(BrokerId(0), BrokerId(1))))
        await controller.tell(0, 1)
        for _ in range(4):
            await a.append_acknowledged(5)
        damage(a, 10)
        reports: list[frozenset[tuple[UUID, int]]] = []
        a.replicas.report_to(lambda: reports.append(a.replicas.health.damaged))
        await controller.tell(2)
        await until(lambda: bool(reports), "the leader reports")
        assert reports[0] == {(FIRST_ID, 0)}
        await controller.elect(1, isr=(1,))
        await until(lambda: controller.state().isr in ((1, 0, 2), (1, 2, 0)), "all are in sync")
        assert content(a.partition()) == content(b.partition()) == content(c.partition())
        assert a.partition().log.end_offset == 20
        assert a.replicas.health.damaged == frozenset()


async def test_a_follower_that_met_damage_is_cut_under_another_leader_epoch_and_has_no_hole(
    tmp_path: Path, controller: Controller
) -> None:
    """Under the one in which it fetches, its leader and what is under way would go on from where it ended before."""
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        for _ in range(4):
            await a.append_acknowledged(5)
        damage(b, 10)
        log = b.partition().log
        with pytest.raises(KafkaError):
            log.verify(log.read(10, 1 << 20, end_offset=20, at_least_one=True))
        assert b.replicas.health.damaged == {(FIRST_ID, 0)}
        controller.grants = False
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=8))
        await controller.tell()
        assert b.replicas.health.damaged == {(FIRST_ID, 0)}, "it goes on saying so"
        await a.append_acknowledged(5)
        await until(lambda: b.partition().log.flushed_offset == 25, "what is new is copied")
        controller.grants = True
        await controller.elect(0, isr=(0,))
        await until(lambda: controller.state().isr == (0, 1), "it is in sync again")
        assert content(a.partition()) == content(b.partition())
        assert b.replicas.health.damaged == frozenset()


async def test_a_leader_that_is_gone_holds_up_no_one_else(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 3) as (a, b, c):
        controller.has(led_by(0, 0, 2), led_by(1, 1, 2))
        await controller.tell()
        await a.append_acknowledged(1, 0)
        await b.append_acknowledged(1, 1)
        await a.stop()
        for _ in range(3):
            await b.append_acknowledged(1, 1)
        assert c.partition(1).log.flushed_offset == 4


async def test_a_follower_that_comes_back_goes_on_where_it_stopped(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.stop()
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=1))
        await controller.tell()
        await a.append_acknowledged(50)
        await b.start()
        await controller.tell()
        await until(lambda: controller.state().isr == (0, 1), "it is in sync again")
        await a.append_acknowledged(1)
        assert b.partition().log.flushed_offset == 56
        assert content(a.partition()) == content(b.partition())


@pytest.mark.parametrize("seed", range(4))
async def test_through_lost_connections_and_changes_of_leader_nothing_acknowledged_is_lost(
    tmp_path: Path, controller: Controller, seed: int
) -> None:
    rng = Random(seed)
    async with nodes(controller, tmp_path, 3) as every:
        controller.has(led_by(0, 0, 1, 2))
        await controller.tell()
        acknowledged: set[int] = set()
        leader = 0
        for _ in range(25):
            what = rng.choice(["append", "append", "append", "cut", "elect"])
            if what == "append":
                waiting = []
                for _ in range(rng.randint(1, 5)):
                    last = every[leader].append(rng.randint(1, 20))
                    waiting.append((last, every[leader].partition().leader().acknowledgement(last)))
                for last, future in waiting:
                    if future is not None:
                        await asyncio.wait_for(future, 20)
                    acknowledged.add(last)
            elif what == "cut":
                every[rng.randrange(3)].peers.forget(BrokerId(rng.randrange(3)))
            else:
                for _ in range(rng.randint(0, 2)):
                    every[leader].append(3)  # nothing waits for it
                await until(lambda: set(controller.state().isr) == {0, 1, 2}, "all are in sync")
                leader = rng.randrange(3)
                first = rng.sample(range(3), rng.randint(0, 2))
                await controller.elect(leader, *first, leader)
                await controller.tell()
        await every[leader].append_acknowledged()
        await until(
            lambda: (
                content(every[0].partition())
                == content(every[1].partition())
                == content(every[2].partition())
            ),
            "the logs are equal",
        )
        batches = [split_batches(raw)[0][0] for _, _, raw in content(every[0].partition())]
        assert acknowledged <= {header.last_offset for header in batches}


async def test_a_high_watermark_that_was_sent_under_an_epoch_that_ended_is_sent_again(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch ends while what was fetched is being flushed: what came with it of the high watermark counts no more, and
    nothing else happens in the partition. Another partition's flush holds up the next fetch until all that is over."""
    async with nodes(controller, tmp_path, 2) as (a, b):
        out_of_sync = replace(led_by(0, 0, 1), isr=(BrokerId(0),))
        controller.has(out_of_sync, out_of_sync)
        controller.grants = False
        await controller.tell(0)
        for index in (0, 1):
            await a.append_acknowledged(6, index)
        flush = b.replicas.flusher.request
        monkeypatch.setattr(b.replicas.flusher, "request", lambda partition: None)
        with monkeypatch.context() as no_answers:  # until both are followed: they have to come in one answer
            no_answers.setattr(b.peers, "send", unreachable)
            await controller.tell(1)
        first, second = b.partition(0), b.partition(1)
        await until(lambda: first.log.end_offset == second.log.end_offset == 6, "both are fetched")
        controller.has(out_of_sync, replace(out_of_sync, leader_epoch=LeaderEpoch(1), partition_epoch=1))
        await controller.tell()
        flush(second)
        await until(lambda: second.durable_offset == 6, "the second is durable")
        assert second.high_watermark == 0
        flush(first)
        await until(lambda: first.high_watermark == second.high_watermark == 6, "the marks")


async def test_a_fetch_that_comes_late_does_not_keep_a_replica_out_of_sync(
    tmp_path: Path, controller: Controller
) -> None:
    """It says how far the follower was before, and nothing is appended that would make it say more."""
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=10) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await until(lambda: b.partition().high_watermark == 5, "the follower knows everything")
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=7))
        controller.grants = False
        a.partition().leader().follower_fetched(BrokerId(1), b.epoch, 2, a.runtime.clock.monotonic())
        await controller.tell()
        controller.grants = True
        await until(lambda: controller.state().isr == (0, 1), "it is in sync again")
        assert content(b.partition()) == content(a.partition())


async def test_many_partitions_are_spread_over_the_fetchers_and_all_arrive(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, num_replica_fetchers=3) as (a, b):
        controller.has(*(led_by(number % 2, 0, 1) for number in range(40)))
        await controller.tell()
        await asyncio.gather(*((a, b)[number % 2].append_acknowledged(2, number) for number in range(40)))
        for number in range(40):
            assert content(a.partition(number)) == content(b.partition(number))
        names = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("fetching")]
        assert len(names) == 6
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("fetching")]


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_marked_replica_out_of_sync_is_copied_at_the_rate_and_others_at_full_speed(
    tmp_path: Path, controller: Controller, side: str
) -> None:
    async with nodes(
        controller, tmp_path, 2, replica_fetch_max_bytes=10_000, replica_fetch_wait_max_ms=20
    ) as (
        a,
        b,
    ):
        out_of_sync = replace(led_by(0, 0, 1), isr=(BrokerId(0),))
        marked = {f"{side}.replication.throttled.replicas": "0:0,0:1"}
        controller.has(out_of_sync, out_of_sync, configs=marked)
        slow = a if side == "leader" else b
        normal = slow.config
        slow.configure(
            replace(
                normal,
                replication=replace(
                    normal.replication,
                    leader_replication_throttled_rate=1000,
                    follower_replication_throttled_rate=1000,
                    replication_quota_window_num=1,
                ),
            )
        )
        controller.grants = False
        await controller.tell(0)
        for index in (0, 1):
            for _ in range(100):
                a.append(100, index)
        await controller.tell(1)
        end = a.partition().log.end_offset
        await until(lambda: b.partition(1).log.end_offset == end, "the other is copied")
        assert b.partition(0).log.end_offset < end  # perhaps 0: an answer that is given up counts, too
        slow.configure(normal)
        await until(lambda: b.partition(0).log.end_offset == end, "so is the marked one, at last")


async def test_a_replica_that_cannot_take_its_role_keeps_no_other_from_its_own(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is offline, and reported as such, so that another broker leads."""
    async with nodes(controller, tmp_path, 1) as (a,):
        controller.has(led_by(0, 0), led_by(-1, 0), led_by(0, 0))
        await controller.tell()

        def refuse(epoch: int) -> None:
            raise OSError(5, "no disk")

        monkeypatch.setattr(a.partition(0).log, "begin_epoch", refuse)
        controller.has(led_by(0, 0, epoch=1), led_by(0, 0, epoch=1), led_by(0, 0, epoch=1))
        await controller.tell()
        assert [a.partition(index).leader_epoch for index in (1, 2)] == [1, 1]
        assert a.replicas.health.offline == {(FIRST_ID, 0)}
        with pytest.raises(KafkaError) as refused:
            a.partition(0)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_new_replica_that_cannot_take_its_role_keeps_no_other_from_being_opened(
    tmp_path: Path, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        assume = ReplicaRoles.assume

        def refuse(self: ReplicaRoles, partition: Partition, state: PartitionImage) -> None:
            if partition.name.partition < 10:
                raise OSError(5, "no disk")
            assume(self, partition, state)

        monkeypatch.setattr(ReplicaRoles, "assume", refuse)
        controller.has(*(led_by(0, 0) for _ in range(20)))
        await controller.tell()
        assert a.replicas.health.offline == {(FIRST_ID, index) for index in range(10)}
        assert all(a.partition(index).is_leader for index in range(10, 20))


async def test_a_replica_that_is_in_sync_again_lacks_nothing_however_far_its_log_once_reached(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5, 0)
        log = b.partition(0).log
        log.lacks(100, "it ends at 5, below what was durable")
        first = controller.state()
        controller.has(replace(first, isr=(BrokerId(0),), leader_epoch=LeaderEpoch(7), partition_epoch=7))
        await controller.tell(1)
        assert log.damage is not None
        controller.has(replace(first, leader_epoch=LeaderEpoch(7), partition_epoch=8))
        await controller.tell(1)
        assert log.damage is None
        assert not b.replicas.health.damaged
