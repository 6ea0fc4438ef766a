"""A log that takes long to open or to delete holds up its own partition, and no other; and what the image says meanwhile is
done afterwards (`nodes.py`)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.kit.waiting import until
from tests.scenarios.replication.nodes import FIRST_ID, TOPIC, Controller, Node, led_by, nodes

from odradek.cluster.image import TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

OTHER = "slow"
SLOW_ID, NEXT_ID = UUID(int=7), UUID(int=8)
SLOW = TopicPartition(OTHER, 0)


@pytest.fixture
def controller() -> Controller:
    return Controller()


class Gate:
    """Holds back one kind of work of a node's directories, for one partition, as a slow disk does."""

    def __init__(self, node: Node, work: str, name: TopicPartition = SLOW) -> None:
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self.passed: list[UUID | None] = []
        real: Callable[..., Awaitable[Any]] = getattr(node.directories, work)

        async def gated(asked: TopicPartition, *rest: Any, **how: Any) -> Any:
            if asked == name:
                self.reached.set()
                await self.opened.wait()
                self.passed.append(rest[0] if rest else None)
            return await real(asked, *rest, **how)

        setattr(node.directories, work, gated)


def also_has(controller: Controller, topic_id: UUID = SLOW_ID, leader: int = 0) -> None:
    controller.topics[OTHER] = TopicImage(
        name=OTHER, topic_id=topic_id, partitions=(led_by(leader, 0, 1),), configs={}
    )


async def apply(node: Node, controller: Controller) -> "asyncio.Future[None] | None":
    controller.version += 1
    image = controller.image()
    before, node.cluster.image = node.cluster.image, image
    return await asyncio.wait_for(node.replicas.apply(before, image, node.config), 20)


async def test_a_leader_changes_while_another_partition_is_still_being_opened(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        controller.has(led_by(1, 0, 1))
        await controller.tell()
        await b.append_acknowledged(3)
        gate = Gate(a, "open_log")
        also_has(controller)
        pending = await apply(a, controller)
        assert pending is not None
        await gate.reached.wait()
        assert a.replicas.health.opening == {(SLOW_ID, 0)}
        state = controller.state()
        controller.has(replace(state, leader=0, leader_epoch=1, partition_epoch=state.partition_epoch + 1))
        assert await apply(a, controller) is None, "nothing of this image is to be opened"
        assert a.partition().is_leader
        a.append(1)
        with pytest.raises(KafkaError) as refused:
            a.replicas.leader(OTHER, 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER, "clients ask again"
        assert not pending.done()
        gate.opened.set()
        await pending
        assert a.replicas.leader(OTHER, 0).is_leader
        assert a.replicas.health.opening == frozenset()


async def test_a_topic_is_made_while_another_is_still_being_opened(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        gate = Gate(a, "open_log")
        also_has(controller)
        slow = await apply(a, controller)
        await gate.reached.wait()
        controller.has(led_by(0, 0))
        made = await apply(a, controller)
        assert made is not None
        await asyncio.wait_for(made, 20)
        await a.append_acknowledged(1)
        assert slow is not None
        assert not slow.done()
        gate.opened.set()
        await slow


async def test_the_role_is_that_of_the_newest_image_when_the_log_is_open(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 2) as (a, b):
        gate = Gate(a, "open_log")
        also_has(controller, leader=1)
        await apply(b, controller)
        pending = await apply(a, controller)
        await gate.reached.wait()
        topic = controller.topics[OTHER]
        later = replace(topic.partitions[0], leader=0, leader_epoch=3, partition_epoch=3)
        controller.topics[OTHER] = replace(
            topic, partitions=(later,), configs={"retention.ms": "86400000", "max.message.bytes": "2000"}
        )
        await apply(a, controller)
        gate.opened.set()
        assert pending is not None
        await pending
        assert a.led == [(str(SLOW), 3)]
        assert a.replicas.leader(OTHER, 0).config.max_message_bytes == 2000


async def test_a_topic_that_is_deleted_while_it_is_being_opened_leaves_nothing(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        gate = Gate(a, "open_log")
        also_has(controller)
        pending = await apply(a, controller)
        await gate.reached.wait()
        del controller.topics[OTHER]
        await apply(a, controller)
        gate.opened.set()
        assert pending is not None
        await pending
        await until(lambda: a.directories.log_directory_of(SLOW) is None, "its log is deleted")
        assert a.led == []
        with pytest.raises(KafkaError) as refused:
            a.replicas.replica(OTHER, 0)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_made_again_under_its_name_is_opened_when_the_older_one_is_deleted(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        gate = Gate(a, "open_log")
        also_has(controller)
        await apply(a, controller)
        await gate.reached.wait()
        del controller.topics[OTHER]
        await apply(a, controller)
        also_has(controller, NEXT_ID)
        await apply(a, controller)
        gate.opened.set()
        await until(lambda: a.replicas.health.opening == frozenset(), "all is done")
        assert gate.passed == [SLOW_ID, NEXT_ID], "one after the other"
        assert a.replicas.leader(OTHER, 0).topic_id == NEXT_ID
        assert a.led == [(str(SLOW), 0)]
        assert a.replicas.health.offline == frozenset()


async def test_a_deleted_topic_is_gone_at_once_though_its_files_are_not(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        also_has(controller)
        controller.has(led_by(0, 0))
        await controller.tell()
        gate = Gate(a, "delete_log")
        del controller.topics[OTHER]
        pending = await apply(a, controller)
        assert a.lost == [str(SLOW)]
        with pytest.raises(KafkaError) as refused:
            a.replicas.replica(OTHER, 0)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        also_has(controller, NEXT_ID)
        await apply(a, controller)
        with pytest.raises(KafkaError) as refused:
            a.replicas.leader(OTHER, 0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await a.append_acknowledged(1)
        gate.opened.set()
        assert pending is not None
        await pending
        await until(lambda: a.replicas.health.opening == frozenset(), "the new one is open")
        assert a.replicas.leader(OTHER, 0).topic_id == NEXT_ID


async def test_a_stop_waits_for_what_is_being_opened_and_opens_nothing_more(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        controller.has(led_by(0, 0))
        await controller.tell()
        gate = Gate(a, "open_log")
        also_has(controller)
        pending = await apply(a, controller)
        await gate.reached.wait()
        also_has(controller, NEXT_ID)
        await apply(a, controller)
        closing = asyncio.ensure_future(a.stop())
        await asyncio.sleep(0)
        assert not closing.done()
        gate.opened.set()
        await asyncio.wait_for(closing, 20)
        assert pending is not None
        assert pending.done()
        assert gate.passed == [SLOW_ID]
        assert (tmp_path / "0" / ".kafka_cleanshutdown").exists()
        assert FIRST_ID != NEXT_ID
        await a.start()
        await controller.tell()
        assert a.replicas.leader(OTHER, 0).topic_id == NEXT_ID
        assert a.replicas.leader(TOPIC, 0).topic_id == FIRST_ID


async def test_what_fails_unexpectedly_takes_its_own_partition_offline(
    tmp_path: Path, controller: Controller
) -> None:
    async with nodes(controller, tmp_path, 1) as (a,):
        real = a.directories.open_log

        async def fails(name: TopicPartition, *rest: Any, **how: Any) -> Any:
            if name == SLOW:
                raise ValueError("a fault of ours")
            return await real(name, *rest, **how)

        a.directories.open_log = fails  # type: ignore[method-assign]
        also_has(controller)
        controller.has(led_by(0, 0))
        await controller.tell()
        await a.append_acknowledged(1)
        assert a.replicas.health.offline == {(SLOW_ID, 0)}
