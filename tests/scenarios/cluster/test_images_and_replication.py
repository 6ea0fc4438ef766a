"""What a broker hears of its cluster is applied, whatever its own partitions wait for: it may be what they wait for."""

import asyncio
from dataclasses import replace
from typing import Any

from odradek.model.ids import BrokerId
from odradek.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

OTHER = BrokerId(2)


async def commit(wire: Any, topic: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )
    response = await wire.ask(FindCoordinatorRequest(key="g"), 2)
    assert response.error_code == 0
    while (await wire.ask(request, 8)).topics[0].partitions[0].error_code != 0:
        await asyncio.sleep(0)


async def delete(wire: Any, topic: str) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000)
    response = await wire.ask(request, 6)
    return int(response.responses[0].error_code)


async def test_a_topic_is_deleted_while_committed_offsets_wait_for_a_dead_follower(scene: Any) -> None:
    """The news that takes the follower out of the ISR comes after the news of the deletion, and would never be heard."""
    await scene.start(offsets_topic_num_partitions="1")
    wire = await scene.connect()
    await wire.create("t")
    await commit(wire, "t")
    offsets = scene.broker.context.replicas.leader("__consumer_offsets", 0)
    shrunk = offsets.state
    waiting = replace(shrunk, replicas=(*shrunk.replicas, OTHER), isr=(*shrunk.isr, OTHER), partition_epoch=5)
    offsets.lead(waiting, {OTHER: 1}, asyncio.get_running_loop().time())
    assert await delete(wire, "t") == 0
    assert (await wire.create("u")).error_code == 0
    assert offsets.high_watermark < offsets.log.end_offset, "what was committed for t is being forgotten"
    offsets.lead(replace(shrunk, partition_epoch=6), {}, asyncio.get_running_loop().time())
