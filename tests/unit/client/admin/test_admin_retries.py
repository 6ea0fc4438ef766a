"""Changes whose answers got lost, and partitions that are newer than what the client knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.consumer.subscription_state import LATEST
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.topics.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.topics.delete_topics import DeletableTopicResult, DeleteTopicsResponse

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}


def created(code: int) -> Callable[[Any], CreateTopicsResponse]:
    def answer(asked: Any) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=code, configs=[])
                for topic in asked.message.topics
            ]
        )

    return answer


async def test_a_topic_that_a_lost_request_created_is_created(
    broker: Any, within: Within, hang_up: object
) -> None:
    broker.once["CreateTopics"] = [lambda _: hang_up, created(ErrorCode.TOPIC_ALREADY_EXISTS)]
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        answers = await within(admin.create_topics(["a"]))
    assert list(answers) == ["a"]


async def test_a_topic_that_was_there_before_is_reported_when_every_request_was_answered(
    broker: Any, within: Within
) -> None:
    broker.once["CreateTopics"] = [
        created(ErrorCode.NOT_CONTROLLER),
        created(ErrorCode.TOPIC_ALREADY_EXISTS),
    ]
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        with pytest.raises(KafkaError) as refused:
            await within(admin.create_topics(["a"]))
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_topic_that_a_lost_request_deleted_is_deleted(
    broker: Any, within: Within, hang_up: object
) -> None:
    def gone(asked: Any) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="a", error_code=3)])

    broker.once["DeleteTopics"] = [lambda _: hang_up, gone]
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        await within(admin.delete_topics(["a"]))
    assert len(broker.requests("DeleteTopics")) == 2


async def test_offsets_of_a_partition_that_was_just_added_are_found(broker: Any, within: Within) -> None:
    def offsets(asked: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=7)
                        for partition in topic.partitions
                    ],
                )
                for topic in asked.message.topics
            ]
        )

    broker.on["ListOffsets"] = offsets
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    async with AsyncAdmin(broker.bootstrap, **QUICK) as admin:
        await within(admin.list_offsets({first: LATEST}))
        broker.topics["t"] = 2
        answers = await within(admin.list_offsets({first: LATEST, second: LATEST}))
        assert {tp: record.offset for tp, record in answers.items()} == {first: 7, second: 7}
        with pytest.raises(KafkaError, match="partitions 0 to 1"):
            await within(admin.list_offsets({TopicPartition("t", 9): LATEST}))
