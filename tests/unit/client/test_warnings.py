"""What goes on being tried again shows once in the log, and again only after it has ended."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kit.waiting import until
from tests.unit.client.scripted_log import QUICK, A, Log, Within, consumer_of, read

from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.producer.aio import AsyncProducer
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.groups.offset_commit import OffsetCommitResponse
from odradek.protocol.messages.metadata.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.runtime.real_clock import SystemClock


class AdvancedClock(SystemClock):
    """The machine's clock, set forward by a test."""

    __slots__ = ("ahead_s",)

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
def log(broker: Any) -> Log:
    return Log(broker)


def warnings_of(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [message for message in caplog.messages if message.split()[0] == event]


async def more_metadata(broker: Any, count: int = 3) -> None:
    """Wait until the client has heard `count` more answers about the cluster, and has acted on all but the last."""
    seen = len(broker.requests("Metadata"))
    await until(lambda: len(broker.requests("Metadata")) >= seen + count)


async def test_records_that_wait_for_a_leader_are_warned_of_once_until_there_is_one(
    broker: Any, within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    def refused_without_leader(asked: Any) -> Any:
        return broker.produced(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER if broker.leader < 0 else 0)

    clock = AdvancedClock()
    async with AsyncProducer(broker.bootstrap, clock=clock, linger_ms=0, **QUICK) as producer:
        for outage in (1, 2):
            broker.leader = -1
            if outage == 2:  # it hears of it by a refusal; a retry may come before the metadata
                broker.on["Produce"] = refused_without_leader
            delivery = await producer.send("t", b"v")
            await more_metadata(broker)
            assert len(warnings_of(caplog, "partition_has_no_leader")) == outage - 1
            clock.ahead_s += 3.1
            await more_metadata(broker)
            lines = warnings_of(caplog, "partition_has_no_leader")
            assert len(lines) == outage
            assert "t-0" in lines[-1]
            assert "120000 ms" in lines[-1]
            broker.leader, broker.leader_epoch = 1, broker.leader_epoch + 1
            await within(delivery)


async def test_a_partition_to_read_that_has_no_leader_is_warned_of_once(
    broker: Any, log: Log, within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    log.end = 3
    broker.leader = -1
    clock = AdvancedClock()
    async with consumer_of(broker, clock=clock) as consumer:
        await consumer.assign([A])
        await more_metadata(broker)
        clock.ahead_s += 3.1
        await more_metadata(broker)
        assert len(warnings_of(caplog, "partition_has_no_leader")) == 1
        broker.leader = 1
        assert await read(consumer, 3, within) == [0, 1, 2]


@pytest.mark.parametrize("what", ["one partition", "the whole request", "its beginning"])
async def test_a_fetch_that_is_refused_again_and_again_is_warned_of_once_until_it_has_succeeded(
    broker: Any, log: Log, within: Within, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    code = ErrorCode.KAFKA_STORAGE_ERROR
    log.end = 3

    def refuse(asked: Any) -> Any:
        if what == "one partition":
            response = log.fetch(asked)
            for topic in response.responses:
                topic.partitions = [
                    log.refuse(asked_of, code) for asked_of in asked.message.topics[0].partitions
                ]
            return response
        if what == "the whole request":
            return log.fetch(asked).replace(error_code=code, responses=[])
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index, error_code=code
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in asked.message.topics
            ]
        )

    api = "ListOffsets" if what == "its beginning" else "Fetch"
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        for outage in (1, 2):
            broker.once[api] = [refuse] * 9
            consumer.seek_to_beginning([A])
            assert await read(consumer, 3, within) == [0, 1, 2]
            assert not broker.once[api]
            lines = warnings_of(caplog, "fetch_is_retried")
            assert len(lines) == outage
            assert "t-0" in lines[-1]
            assert code.name in lines[-1]


async def test_a_fetch_that_is_refused_once_is_no_warning(
    broker: Any, log: Log, within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    log.end = 3
    broker.once["Fetch"] = [lambda asked: log.fetch(asked).replace(error_code=ErrorCode.KAFKA_STORAGE_ERROR)]
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        assert await read(consumer, 3, within) == [0, 1, 2]
    assert warnings_of(caplog, "fetch_is_retried") == []


@pytest.mark.parametrize("refusals", [1, 9])
async def test_a_request_that_is_tried_again_and_again_is_warned_of_once(
    broker: Any, within: Within, caplog: pytest.LogCaptureFixture, refusals: int
) -> None:
    """A commit whose coordinator is not there."""
    broker.on["FindCoordinator"] = lambda asked: FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if refusals_left.pop()
            else Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port)
            for key in asked.message.coordinator_keys
        ]
    )
    refusals_left = [False] * 9 + [True] * refusals
    broker.on["OffsetCommit"] = lambda asked: OffsetCommitResponse()
    async with AsyncConsumer(broker.bootstrap, group_id="g", enable_auto_commit=False, **QUICK) as consumer:
        await within(consumer.commit({A: 1}))
    lines = warnings_of(caplog, "request_is_retried")
    assert len(lines) == (refusals == 9)
    if lines:
        assert "committing offsets" in lines[0]
        assert "COORDINATOR_NOT_AVAILABLE" in lines[0]
