"""A consumer of several topics, one of which is in trouble: the others are read, and `poll` takes no longer than it may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from tests.unit.client.scripted_log import A, Log, Within, consumer_of

from odradek.client.consumer.aio import AsyncConsumer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol import APIS
from odradek.protocol.messages.data.fetch import FetchableTopicResponse, FetchResponse
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

SICK: Final = TopicPartition("sick", 0)
POLL_S: Final = 0.1
POLL_SECONDS_MAX: Final = 15.0
"""Less than the time-outs of requests and calls, and much more than a poll takes on a busy machine."""
_LAST_FETCH_WITH_NAMES: Final = 12

Break = Callable[[Any, Log], None]


@pytest.fixture
def log(broker: Any) -> Log:
    broker.topics = {"t": 1, "sick": 1}
    return Log(broker)


def described(change: Callable[[Any], Any]) -> Break:
    """The cluster's description of the topic is changed."""

    def broken(broker: Any, log: Log) -> None:
        def answer(asked: Any) -> Any:
            response = broker.answer_Metadata(asked)
            topics = [change(topic) if topic.name == "sick" else topic for topic in response.topics]
            return response.replace(topics=topics)

        broker.on["Metadata"] = answer

    return broken


def without_leader(topic: Any) -> Any:
    code = ErrorCode.LEADER_NOT_AVAILABLE
    partitions = [partition.replace(leader_id=-1, error_code=code) for partition in topic.partitions]
    return topic.replace(partitions=partitions)


def as_error(code: ErrorCode) -> Callable[[Any], Any]:
    return lambda topic: topic.replace(error_code=code, partitions=[])


def fetch_refused(code: ErrorCode) -> Break:
    def broken(broker: Any, log: Log) -> None:
        broker.versions = {api.name: (api.versions.min, api.versions.max) for api in APIS.values()}
        broker.versions["Fetch"] = (4, _LAST_FETCH_WITH_NAMES)

        def answer(asked: Any) -> FetchResponse:
            topics = [
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        log.refuse(partition, code) if topic.topic == "sick" else log.partition(partition)
                        for partition in topic.partitions
                    ],
                )
                for topic in asked.message.topics
            ]
            return FetchResponse(responses=topics)

        broker.on["Fetch"] = answer

    return broken


def lookup_refused(code: ErrorCode) -> Break:
    def broken(broker: Any, log: Log) -> None:
        def offset(asked: Any, topic: str, question: Any) -> ListOffsetsPartitionResponse:
            if topic == "sick":
                return ListOffsetsPartitionResponse(partition_index=question.partition_index, error_code=code)
            return log.offset(asked, question)

        def answer(asked: Any) -> ListOffsetsResponse:
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[offset(asked, topic.name, question) for question in topic.partitions],
                    )
                    for topic in asked.message.topics
                ]
            )

        broker.on["ListOffsets"] = answer

    return broken


def _cases() -> Iterable[tuple[str, Break]]:
    yield "without a leader", described(without_leader)
    yield "deleted", described(as_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    yield "being made", described(as_error(ErrorCode.LEADER_NOT_AVAILABLE))
    yield "not to be described", described(as_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    for code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ):
        yield f"fetch: {code.name}", fetch_refused(code)
        yield f"lookup: {code.name}", lookup_refused(code)


CASES: Final = dict(_cases())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [[SICK, A], [A, SICK]], ids=["first", "last"])
async def test_a_poll_returns_what_other_topics_have(
    broker: Any, log: Log, within: Within, case: str, order: list[TopicPartition]
) -> None:
    log.end = 9
    CASES[case](broker, log)
    async with consumer_of(broker) as consumer:
        await consumer.assign(order)
        assert await within(_read(consumer, 9)) == list(range(9))


@pytest.mark.parametrize("case", CASES)
async def test_a_poll_that_is_cancelled_beside_a_topic_in_trouble_leaves_the_others_readable(
    broker: Any, log: Log, within: Within, case: str
) -> None:
    CASES[case](broker, log)
    async with consumer_of(broker) as consumer:
        await consumer.assign([SICK, A])
        polling = asyncio.create_task(consumer.poll(60))
        await asyncio.sleep(0)
        polling.cancel()
        await within(asyncio.wait([polling]))
        log.end = 3
        assert await within(_read(consumer, 3)) == [0, 1, 2]


async def _read(consumer: AsyncConsumer, count: int) -> list[int]:
    """Offsets of the next records of the topic that is well. An error of `poll` names the other one."""
    offsets: list[int] = []
    while len(offsets) < count:
        began = time.monotonic()
        try:
            records = await consumer.poll(POLL_S)
        except KafkaError as error:
            assert "sick" in error.message  # noqa: PT017
        else:
            assert {record.topic for record in records} <= {"t"}
            offsets += [record.offset for record in records]
        assert time.monotonic() - began < POLL_SECONDS_MAX, "a poll waited for the topic in trouble"
    return offsets
