"""A follower that keeps up with one partition asks again in short rounds, and what it asks is what it has on its disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import until
from tests.scenarios.replication.nodes import Controller, Node, content, led_by, nodes

from odradek.broker.fetch import delayed_fetch
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.follower_fetch import FollowerFetch, encode_follower_fetch
from odradek.replication import lone_rounds
from odradek.replication.lone_rounds import LoneRounds
from odradek.replication.partition import Partition
from odradek.replication.replica_fetchers import ReplicaFetchers


class Rounds:
    """The short rounds of all nodes: requests by the follower's id, and answers that a general round had to apply."""

    def __init__(self) -> None:
        self.asked: dict[int, list[FollowerFetch]] = {}
        self.left_count = 0


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    rounds, receive = Rounds(), LoneRounds.receive

    def encode(fetch: FollowerFetch) -> bytes:
        rounds.asked.setdefault(fetch.replica_id, []).append(fetch)
        return encode_follower_fetch(fetch)

    def noted(self: LoneRounds, frame: memoryview, future: Any) -> bool:
        is_applied = receive(self, frame, future)
        rounds.left_count += not is_applied
        return is_applied

    monkeypatch.setattr(lone_rounds, "encode_follower_fetch", encode)
    monkeypatch.setattr(LoneRounds, "receive", noted)
    return rounds


@pytest.fixture
async def controller() -> Controller:
    return Controller()


async def test_what_a_short_round_asks_is_what_the_disk_has(
    tmp_path: Path, controller: Controller, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(controller, tmp_path, 3, replica_fetch_wait_max_ms=60_000) as (a, b, c):
        controller.has(led_by(0, 0, 1, 2))
        await controller.tell()
        await a.append_acknowledged()
        by_id = {1: b, 2: c}
        flushed: list[bool] = []

        def encode(fetch: FollowerFetch) -> bytes:
            log = by_id[fetch.replica_id].partition().log
            flushed.append(fetch.fetch_offset == log.flushed_offset == log.end_offset)
            rounds.asked.setdefault(fetch.replica_id, []).append(fetch)
            return encode_follower_fetch(fetch)

        monkeypatch.setattr(lone_rounds, "encode_follower_fetch", encode)
        for _ in range(10):
            await a.append_acknowledged(3)
        assert all(flushed)
        assert all(len(asked) >= 5 for asked in rounds.asked.values())
        assert set(rounds.asked) == {1, 2}
        assert content(a.partition()) == content(b.partition()) == content(c.partition())


async def test_partitions_that_take_turns_are_followed(
    tmp_path: Path, controller: Controller, rounds: Rounds
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1), led_by(0, 0, 1))
        await controller.tell()
        for index in (0, 0, 0, 1, 1, 1, 0, 1, 0, 0):
            await a.append_acknowledged(2, index)
        a.append(2, 0)
        await a.append_acknowledged(2, 1)
        await until(lambda: content(b.partition()) == content(a.partition()), "the first follows")
        assert content(a.partition(1)) == content(b.partition(1))
        assert {fetch.partition for fetch in rounds.asked[1]} == {0, 1}


async def test_another_leader_ends_the_rounds(tmp_path: Path, controller: Controller, rounds: Rounds) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as made:
        a, b = made
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        for leader, other in ((a, b), (b, a), (a, b)):
            await _elected(controller, leader)
            for _ in range(4):
                await leader.append_acknowledged()
            assert content(leader.partition()) == content(other.partition())
        assert set(rounds.asked) == {0, 1}
        epochs = [fetch.current_leader_epoch for fetch in rounds.asked[1]]
        assert epochs == sorted(epochs)
        assert len(set(epochs)) > 1


async def _elected(controller: Controller, leader: Node) -> None:
    if controller.state().leader != leader.me:
        await controller.elect(leader.me)


async def test_an_answer_that_is_no_records_is_left_to_a_general_round(
    tmp_path: Path, controller: Controller, rounds: Rounds
) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=20) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged()
        before = rounds.left_count
        await until(lambda: rounds.left_count > before + 1, "polls without records")
        await until(lambda: b.partition().high_watermark == 1, "the mark")
        await a.append_acknowledged()
        assert content(a.partition()) == content(b.partition())


class FailingReader:
    """A consumer's fetch at a follower. It meets a disk error when records become readable, which takes the replica offline."""

    def __init__(self, fetchers: ReplicaFetchers) -> None:
        self._fetchers = fetchers

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        partition.unwatch(self)
        self._fetchers.unfollow(partition)
        partition.retire(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken"))

    def ended(self, partition: Partition) -> None:
        """Does nothing: it watches no more."""


async def test_a_replica_that_goes_offline_while_it_appends_ends_the_rounds(
    tmp_path: Path, controller: Controller, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_fetch, "MARK_DELAY_S", 600.0)  # high watermarks come with records only
    fetchers: list[ReplicaFetchers] = []
    follow = ReplicaFetchers.follow

    def noted(self: ReplicaFetchers, partition: Partition, leader: BrokerId) -> None:
        fetchers.append(self)
        follow(self, partition, leader)

    monkeypatch.setattr(ReplicaFetchers, "follow", noted)
    troubles: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        for _ in range(3):
            await a.append_acknowledged()
        partition, left_count = b.partition(), rounds.left_count
        partition.watch(FailingReader(fetchers[-1]))
        a.append()
        await until(lambda: partition.retired is not None, "the replica goes offline")
        assert rounds.left_count == left_count, "it did so in a short round"
        assert not troubles
