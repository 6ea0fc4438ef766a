"""A consumer in a group at a broker that lacks the consumer protocol, or has its preview: Kafka before 4.0, and others."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.client.consumer.aio import AsyncConsumer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol import APIS
from odradek.protocol.messages.groups.heartbeat import HeartbeatResponse
from odradek.protocol.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.groups.leave_group import LeaveGroupResponse
from odradek.protocol.messages.groups.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse
from odradek.protocol.messages.metadata.find_coordinator import Coordinator, FindCoordinatorResponse

QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "enable_auto_commit": False}
NEW_API = "ConsumerGroupHeartbeat"


class OldCoordinator:
    """Answers for a classic group whose only member is the consumer."""

    def __init__(self, broker: Any, silence: object, preview: bool) -> None:
        broker.versions = {
            api.name: (api.versions.min, api.versions.max)
            for api in APIS.values()
            if api.name not in (NEW_API, "GetTelemetrySubscriptions", "PushTelemetry")
        }
        if preview:
            broker.versions[NEW_API] = (0, 0)
        broker.on |= {
            "FindCoordinator": lambda asked: FindCoordinatorResponse(
                coordinators=[Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port) for key in
                              asked.message.coordinator_keys]
            ),
            "JoinGroup": self.join,
            "SyncGroup": lambda asked: SyncGroupResponse(assignment=asked.message.assignments[0].assignment),
            "Heartbeat": lambda asked: HeartbeatResponse(),
            "LeaveGroup": lambda asked: LeaveGroupResponse(),
            "OffsetFetch": self.committed,
            "Fetch": lambda asked: silence,
        }  # fmt: skip

    def join(self, asked: Any) -> JoinGroupResponse:
        [protocol, *_] = asked.message.protocols
        return JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader="me",
            member_id="me",
            members=[JoinGroupResponseMember(member_id="me", metadata=protocol.metadata)],
        )

    def committed(self, asked: Any) -> OffsetFetchResponse:
        [group] = asked.message.groups
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(partition_index=number, committed_offset=7, metadata="")
                    for number in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)])


@pytest.mark.parametrize("preview", [False, True], ids=["no-api", "preview"])
async def test_the_default_is_the_classic_protocol_there(broker: Any, silence: object, preview: bool) -> None:
    OldCoordinator(broker, silence, preview)
    only = TopicPartition("t", 0)
    async with AsyncConsumer(broker.bootstrap, group_id="g", **QUICK) as consumer:
        await consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(0.1)
        assert consumer.assignment() == (only,)
        assert await consumer.position(only) == 7
        assert (consumer.group_metadata().member_id, consumer.group_metadata().generation) == ("me", 1)
        assert broker.requests(NEW_API) == []
        await consumer.unsubscribe()
        assert len(broker.requests("LeaveGroup")) == 1
        await consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(0.1)
    assert len(broker.requests("JoinGroup")) == 2


async def test_a_user_who_wants_the_consumer_protocol_gets_one_error(broker: Any, silence: object) -> None:
    OldCoordinator(broker, silence, preview=False)
    async with AsyncConsumer(broker.bootstrap, group_id="g", group_protocol="consumer", **QUICK) as consumer:
        await consumer.subscribe(["t"])
        for _ in range(2):  # and again with the next poll
            with pytest.raises(KafkaError) as refused:
                await consumer.poll(20)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
            assert str(refused.value) == (
                f"UNSUPPORTED_VERSION: group 'g': the broker at {broker.bootstrap} does not offer ConsumerGroupHeartbeat:"
                " group.protocol=consumer needs brokers that serve KIP-848 (Kafka 4.0 and later): use auto or classic"
            )
    assert broker.requests("JoinGroup") == []
