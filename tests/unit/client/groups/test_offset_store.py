"""A group's offsets at a coordinator that misbehaves on command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.network.errors import TimedOutError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.protocol.messages.groups.offset_commit import OffsetCommitResponse
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.metadata.find_coordinator import Coordinator, FindCoordinatorResponse

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}
A = TopicPartition("t", 0)


@pytest.fixture
async def consumer(broker: Any, silence: object) -> Any:
    broker.on["FindCoordinator"] = lambda asked: FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port)
            for key in asked.message.coordinator_keys
        ]
    )
    broker.on["OffsetFetch"] = committed
    broker.on["Fetch"] = lambda asked: silence
    async with AsyncConsumer(
        broker.bootstrap, group_id="g", auto_offset_reset="latest", enable_auto_commit=False, **QUICK
    ) as made:
        await made.assign([A])
        yield made


def committed(asked: Any, offset: int | None = 5) -> OffsetFetchResponse:
    """`offset` None: the answer leaves the topic out."""
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=number, committed_offset=offset, metadata="")
                for number in topic.partition_indexes
            ],
        )
        for topic in asked.message.groups[0].topics
        if offset is not None
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


async def test_a_partition_that_the_answer_leaves_out_is_asked_about_again_and_not_begun_elsewhere(
    broker: Any, consumer: AsyncConsumer, within: Within
) -> None:
    broker.once["OffsetFetch"] = [lambda asked: committed(asked, None)]
    assert await within(consumer.position(A)) == 5
    assert len(broker.requests("OffsetFetch")) == 2


async def test_a_commit_waits_no_longer_than_it_may_for_the_one_before_it(
    broker: Any, consumer: AsyncConsumer, within: Within
) -> None:
    arrived, answered = asyncio.Event(), asyncio.Event()

    async def answer(asked: Any) -> Any:
        arrived.set()
        await answered.wait()
        return OffsetCommitResponse()

    broker.on["OffsetCommit"] = answer
    first = asyncio.create_task(consumer.commit({A: 1}))
    await within(arrived.wait())
    with pytest.raises(TimedOutError, match="the commit before it has no answer yet"):
        await within(consumer.commit({A: 2}, 0.05))
    answered.set()
    await within(first)
    await within(consumer.commit({A: 3}))
    assert [
        request.topics[0].partitions[0].committed_offset for request in broker.requests("OffsetCommit")
    ] == [1, 3]


@pytest.mark.parametrize("named", [False, True])
async def test_an_admin_asks_for_offsets_by_the_ids_that_topics_have_now(
    broker: Any, consumer: AsyncConsumer, within: Within, named: bool
) -> None:
    """A coordinator that is asked by name answers with what was committed for a topic that was deleted."""

    def answer(asked: Any) -> OffsetFetchResponse:
        group = asked.message.groups[0]
        if group.topics is None:
            group = group.replace(topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
        by_name = all(topic.topic_id == ZERO_UUID for topic in group.topics)
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=0, committed_offset=5 if by_name else -1, metadata=""
                    )
                ],
            )
            for topic in group.topics
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    broker.on["OffsetFetch"] = answer
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        committed = await within(admin.list_group_offsets("g", [A] if named else None))
    assert committed == ({A: None} if named else {})
