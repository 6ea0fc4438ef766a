"""One life of each kind of thing that comes and goes in a broker: it is made over the wire, used, and taken away again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from tests.kit.requests import batch_of, fetch_request
from tests.kit.waiting import PATIENCE_S
from tests.kit.wire import Wire
from tests.scenarios.groups.test_classic_groups import Member as ClassicMember
from tests.scenarios.one_broker import Scene
from tests.scenarios.transactions.transactional_producer import EPOCHS, TransactionalProducer

from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.data.fetch import FetchRequest
from odradek.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.share.share_fetch import FetchPartition as SharePartition
from odradek.protocol.messages.share.share_fetch import FetchTopic as ShareTopic
from odradek.protocol.messages.share.share_fetch import ShareFetchRequest
from odradek.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

Life = Callable[[Scene, Wire, int], Awaitable[None]]
SMALL: Final = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "0",
    "auto_create_topics_enable": "false",
}
"""A broker whose coordinators have one partition each."""
_LEAVE: Final = -1


@asynccontextmanager
async def _connection(scene: Scene) -> AsyncIterator[Wire]:
    wire = await scene.connect()
    try:
        yield wire
    finally:
        await wire.close()
        scene.forget(wire)


async def connection(scene: Scene, wire: Wire, number: int) -> None:
    """It asks for metadata, produces, fetches, and leaves."""
    async with _connection(scene) as own:
        await own.ask(MetadataRequest(topics=None), 12)
        await own.produce("t", [b"v"])
        await own.fetch("t", 0)


async def broken_connection(scene: Scene, wire: Wire, number: int) -> None:
    """It leaves while its fetch waits."""
    own = await scene.connect()
    own.ask_later(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=1 << 20, partition_max_bytes=1), 11)
    await wire.fetch("t", 0)
    own.abandon()
    scene.forget(own)


async def fetch_session(scene: Scene, wire: Wire, number: int) -> None:
    async with _connection(scene) as own:
        request = fetch_request("t", 0, min_bytes=0, partition_max_bytes=100, session_epoch=0)
        opened = await own.ask(request, 11)
        assert opened.session_id
        more = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=opened.session_id, session_epoch=1)
        assert (await own.ask(more, 11)).error_code == 0
        await own.ask(more.replace(session_epoch=-1), 11)


async def topic(scene: Scene, wire: Wire, number: int) -> None:
    name = f"passing-{number}"
    assert (await wire.create(name, 2)).error_code == 0
    assert (await wire.produce(name, [b"v"], partition=1)).error_code == 0
    assert (await wire.fetch(name, 0, partition=1)).error_code == 0
    await delete(wire, name)


async def delete(wire: Wire, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=10_000)
    assert (await wire.ask(request, 6)).responses[0].error_code == 0


async def classic_group(scene: Scene, wire: Wire, number: int) -> None:
    async with _connection(scene) as own:
        member = ClassicMember(own, group=f"classic-{number}")
        assert (await member.join()).error_code == 0
        assert (await member.sync({member.member_id: b"x"})).error_code == 0
        assert (await own.ask(_commit(member.group, member.member_id, 1), 8)).topics
        await member.leave()
    await _delete_group(wire, member.group)


def _commit(group: str, member_id: str, generation: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


async def _delete_group(wire: Wire, group: str) -> None:
    response = await wire.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    assert response.results[0].error_code == 0


async def consumer_group(scene: Scene, wire: Wire, number: int) -> None:
    """A member joins a group of the consumer protocol (KIP-848), commits and leaves; the group is deleted."""
    group = f"consumer-{number}"
    async with _connection(scene) as own:
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        response = await own.ask(beat, 1)
        assert response.error_code == 0
        assert (await own.ask(_commit(group, "m", response.member_epoch), 9)).topics
        left = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=_LEAVE)
        assert (await own.ask(left, 1)).error_code == 0
    await _delete_group(wire, group)


async def share_group(scene: Scene, wire: Wire, number: int) -> None:
    group, member_id = f"share-{number}", "AAAAAAAAAAAAAAAAAAAAAQ"
    metadata = await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    async with _connection(scene) as own:
        beat = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=0, subscribed_topic_names=["t"]
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                response = await own.ask(beat, 1)
                assert response.error_code == 0
                if response.assignment is not None and response.assignment.topic_partitions:
                    break
                beat = beat.replace(member_epoch=response.member_epoch)
                await asyncio.sleep(0.01)
        fetch = ShareFetchRequest(
            group_id=group,
            member_id=member_id,
            share_session_epoch=0,
            max_wait_ms=10,
            min_bytes=1,
            max_records=10,
            batch_size=10,
            topics=[
                ShareTopic(
                    topic_id=metadata.topics[0].topic_id, partitions=[SharePartition(partition_index=0)]
                )
            ],
        )
        assert (await own.ask(fetch, 2)).error_code == 0
        closing = fetch.replace(share_session_epoch=-1, topics=[])
        assert (await own.ask(closing, 2)).error_code == 0
        left = beat.replace(member_epoch=_LEAVE)
        assert (await own.ask(left, 1)).error_code == 0
    await _delete_group(wire, group)


async def producer(scene: Scene, wire: Wire, number: int) -> None:
    """An idempotent producer in a topic of its own: with the topic go its producer ids."""
    name = f"written-{number}"
    await wire.create(name)
    assert (
        await wire.produce(name, [b"v"], producer_id=number + 1, producer_epoch=0, base_sequence=0)
    ).error_code == 0
    await delete(wire, name)


async def transaction(scene: Scene, wire: Wire, number: int) -> None:
    """The same producer, another transaction."""
    await wire.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
    transactional = TransactionalProducer(wire, batch_of, "tx", EPOCHS)
    await transactional.init()
    await transactional.write(b"v", [0], topic="t")
    await transactional.end(commit=bool(number % 2))
    await transactional.settled()


async def refusals(scene: Scene, wire: Wire, number: int) -> None:
    """Names and groups that do not exist, each another one."""
    async with _connection(scene) as own:
        unknown = f"unknown-{number}"
        assert (await own.produce(unknown, [b"v"])).error_code
        assert (await own.fetch(unknown, 0)).error_code
        assert (await own.ask(_commit(unknown, "m", 7), 8)).topics[0].partitions[0].error_code
        response = await own.ask(DeleteGroupsRequest(groups_names=[unknown]), 2)
        assert response.results[0].error_code


LIVES: Final[dict[str, Life]] = {
    life.__name__: life
    for life in (
        connection,
        broken_connection,
        fetch_session,
        topic,
        classic_group,
        consumer_group,
        share_group,
        producer,
        transaction,
        refusals,
    )
}
