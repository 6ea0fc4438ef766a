"""Replicas follow their leader, and each other leader after it; what a topic left behind is not shown again (`nodes.py`)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.kit.waiting import until
from tests.scenarios.replication.nodes import (
    FIRST_ID,
    TOPIC,
    Controller,
    content,
    led_by,
    nodes,
)

from odradek.cluster.image import NO_LEADER
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition


@pytest.fixture
async def controller() -> Controller:
    return Controller()


async def test_an_acknowledged_record_is_durable_on_every_replica(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 3) as (a, b, c):
        controller.has(led_by(0, 0, 1, 2))
        await controller.tell()
        for _ in range(5):
            last = await a.append_acknowledged(3)
            for follower in (b, c):
                assert follower.partition().log.flushed_offset > last
        await until(lambda: b.partition().high_watermark == c.partition().high_watermark == 15, "the mark")
        assert content(a.partition()) == content(b.partition()) == content(c.partition())
        assert (a.led, a.lost, b.led, c.led) == ([("t-0", 0)], [], [], [])


async def test_a_replica_of_others_is_not_opened(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 2) as (_a, b):
        controller.has(led_by(0, 0), led_by(1, 1), led_by(0, 0, 1))
        await controller.tell()
        assert [TopicPartition(TOPIC, 1) in b.replicas.partitions, (tmp_path / "1" / "t-0").exists()] == [
            True,
            False,
        ]
        with pytest.raises(KafkaError) as refused:
            b.replicas.replica(TOPIC, 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            b.replicas.leader(TOPIC, 2)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            b.replicas.leader(TOPIC, 3)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_another_leader_is_followed_at_once_and_what_it_lacks_is_cut(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(2)
        controller.grants = False
        await controller.elect(1, 1)  # the old leader does not know yet
        a.append(3)
        b.append(4)
        b.append(4)
        assert a.partition().is_leader
        await controller.tell(0)
        await until(lambda: content(a.partition()) == content(b.partition()), "the logs are equal")
        assert a.partition().log.end_offset == 10
        assert (a.led, a.lost) == ([("t-0", 0)], ["t-0"])
        assert (b.led, b.lost) == ([("t-0", 1)], [])
        await b.append_acknowledged()


async def test_a_leader_elected_again_was_lost_in_between(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        controller.has(led_by(0, 0))
        await controller.tell()
        await controller.tell()
        await controller.elect(0)
        assert (a.led, a.lost) == ([("t-0", 0), ("t-0", 1)], ["t-0"])


async def test_without_a_leader_no_one_is_followed_and_the_replica_stays(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(2)
        await controller.elect(NO_LEADER)
        assert b.partition().log.end_offset == 2
        for node in (a, b):
            with pytest.raises(KafkaError, match="no broker leads it") as refused:
                node.replicas.leader(TOPIC, 0)
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await controller.elect(1)
        await b.append_acknowledged(1)
        assert a.partition().log.flushed_offset == 3


async def test_what_is_new_is_followed_at_once_in_the_session_that_there_is(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged()
        connections = {id(connection) for connection in a.server.connections}
        sessions = a.sessions.by_id()
        assert len(sessions) == 1
        (session,) = sessions.values()

        def waits() -> bool:
            return session.resting is not None and session.resting.waiting is not None

        for count in range(2, 8):
            await until(waits, "it waits")
            await asyncio.sleep(0.05)  # longer than the leader takes to tell of a high watermark
            await until(waits, "it waits again")
            controller.has(*[led_by(0, 0, 1)] * count)
            await controller.tell()
            await a.append_acknowledged(index=count - 1)
        assert {id(connection) for connection in a.server.connections} == connections
        assert a.sessions.by_id() == sessions
        assert b.partition(6).log.end_offset == 1


async def test_a_follower_far_behind_begins_where_the_leader_does(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.stop()
        controller.has(replace(controller.state(), isr=(BrokerId(0),), partition_epoch=1))
        await controller.tell()
        await a.append_acknowledged(5)
        await a.append_acknowledged(5)
        a.partition().leader().delete_records(12)
        await b.start()
        await controller.tell()
        await until(lambda: b.partition().log.end_offset == 15, "it caught up")
        await until(lambda: b.partition().start_offset == 12, "it begins where the leader does")
        await until(lambda: controller.state().isr == (0, 1), "it is in sync")


async def test_a_replica_that_forgot_where_its_log_begins_hears_it_before_it_counts(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2, replica_fetch_wait_max_ms=60_000) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(15)
        a.partition().leader().delete_records(12)
        await a.append_acknowledged(1)
        await until(lambda: b.partition().start_offset == 12 and b.partition().is_durable, "all is deleted")
        await b.stop()
        rotten = [tmp_path / "1" / "t-0" / "log-start-offset", tmp_path / "1" / "log-start-offset-checkpoint"]
        for path in rotten:
            path.write_bytes(b"")
        await b.start()
        assert b.replicas.health.damaged == {(FIRST_ID, 0)}, "its first report"
        await controller.elect(0, isr=(0,))
        assert b.replicas.health.damaged == frozenset(), "it follows"
        await until(lambda: b.partition().start_offset == 12, "it begins where the leader does")
        await until(lambda: controller.state().isr == (0, 1), "it is in sync")
        await until(lambda: not b.partition().log.start_is_doubted, "it knows")
        assert content(b.partition()) == content(a.partition())


async def test_a_leader_that_forgot_where_its_log_begins_says_so(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, _b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(15)
        a.partition().leader().delete_records(12)
        await a.append_acknowledged(1)
        await a.stop()
        (tmp_path / "0" / "t-0" / "log-start-offset").write_bytes(b"")
        (tmp_path / "0" / "log-start-offset-checkpoint").write_bytes(b"")
        await a.start()
        await controller.tell(0)
        assert a.partition().is_leader
        assert a.replicas.health.damaged == {(FIRST_ID, 0)}
        await controller.elect(1, isr=(1,))
        await until(lambda: a.partition().start_offset == 12, "it follows, and hears of it")
        assert a.replicas.health.damaged == frozenset()


async def test_a_topic_made_again_never_shows_what_the_old_one_had(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        controller.has(led_by(1, 0, 1), topic_id=UUID(int=2))
        await controller.tell()
        for node in (a, b):
            assert node.partition().topic_id == UUID(int=2)
            assert node.partition().log.end_offset == 0
        await b.append_acknowledged(1)
        assert content(a.partition()) == content(b.partition())
        assert (a.led, a.lost, b.led) == ([("t-0", 0)], ["t-0"], [("t-0", 0)])


async def test_a_topic_made_again_while_a_broker_was_away_does_not_show_it_either(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        await b.stop()
        controller.has(replace(led_by(0, 0, 1), isr=(BrokerId(0),)), topic_id=UUID(int=2))
        await controller.tell()
        await a.append_acknowledged(2)
        await b.start()
        await controller.tell()
        await until(lambda: b.partition().log.end_offset == 2, "it has the new topic's records")
        assert content(a.partition()) == content(b.partition())


async def test_a_replica_taken_away_is_deleted(tmp_path: Path, controller: Controller) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(0, 0, 1))
        await controller.tell()
        await a.append_acknowledged(5)
        controller.has(replace(led_by(0, 0), partition_epoch=1))
        await controller.tell()
        with pytest.raises(KafkaError, match="has none"):
            b.partition()
        assert not (tmp_path / "1" / "t-0").exists()
        await a.append_acknowledged(1)
