"""A leader may name a follower to read from (KIP-392): for how long it is read, and what ends that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.scripted_log import A, Log, Within, consumer_of, read

from odradek.client.consumer.subscription_state import Assignment
from odradek.client.network.metadata_snapshot import MetadataSnapshot, PartitionSnapshot, TopicSnapshot
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ConsumerSettings
from odradek.model.errors import ErrorCode

LEADER, FOLLOWER = 1, 2


@pytest.fixture
def log(broker: Any) -> Log:
    return Log(broker)


def image(*brokers: int) -> MetadataSnapshot:
    partition = PartitionSnapshot(partition=0, leader=LEADER, leader_epoch=3)
    return MetadataSnapshot(
        brokers={number: Address("a", number) for number in brokers},
        topics={"t": TopicSnapshot(name="t", partitions=(partition,))},
    )


def test_a_follower_is_read_until_its_time_is_over_or_it_is_gone(
    consumer_settings: Callable[..., ConsumerSettings],
) -> None:
    assignment = Assignment(consumer_settings())
    assignment.assign([A])
    assignment.seek(A, 0)
    assert list(assignment.plan(image(LEADER, FOLLOWER), 0).partition_fetches) == [LEADER]
    with assignment.lock:
        assignment.state_of(A).read_from(FOLLOWER, 100.0)
    assert list(assignment.plan(image(LEADER, FOLLOWER), 99).partition_fetches) == [FOLLOWER]
    assert list(assignment.plan(image(LEADER, FOLLOWER), 100).partition_fetches) == [LEADER]
    with assignment.lock:
        assignment.state_of(A).read_from(FOLLOWER, 100.0)
    assert list(assignment.plan(image(LEADER), 50).partition_fetches) == [LEADER]
    assert list(assignment.plan(image(LEADER, FOLLOWER), 51).partition_fetches) == [LEADER], (
        "it is asked again"
    )


def named(log: Log, replica: int) -> Callable[[Any], Any]:
    """Returns an answer that names a replica in place of records."""

    def answer(asked: Any) -> Any:
        response: Any = log.fetch(asked)
        for topic in response.responses:
            topic.partitions = [
                partition.replace(records=b"", preferred_read_replica=replica)
                for partition in topic.partitions
            ]
        return response

    return answer


def refused(log: Log, code: ErrorCode) -> Callable[[Any], Any]:
    def answer(asked: Any) -> Any:
        response: Any = log.fetch(asked)
        for topic in response.responses:
            topic.partitions = [
                partition.replace(records=b"", error_code=code) for partition in topic.partitions
            ]
        return response

    return answer


@pytest.mark.parametrize(
    "code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH]
)
async def test_what_a_follower_refuses_the_leader_decides(
    broker: Any, log: Log, within: Within, code: ErrorCode
) -> None:
    """The offset would be reset, had the leader refused it. For a while no follower is asked for. One broker plays both."""
    log.end = 20
    broker.once["Fetch"] = [named(log, LEADER), refused(log, code)]
    async with consumer_of(broker, client_rack="near") as consumer:
        await consumer.assign([A])
        consumer.seek(A, 7)
        assert (await within(read(consumer, 13, within)))[0] == 7
        racks = [fetch.rack_id for fetch in broker.requests("Fetch")]
    assert racks[:2] == ["near", "near"]
    assert set(racks[2:]) == {""}


async def test_a_follower_that_is_not_known_yet_is_asked_about(broker: Any, log: Log, within: Within) -> None:
    log.end = 20
    broker.once["Fetch"] = [named(log, 77)]
    async with consumer_of(broker, client_rack="near") as consumer:
        await consumer.assign([A])
        assert await within(read(consumer, 20, within)) == list(range(20))
    assert len(broker.requests("Metadata")) >= 2


async def test_a_follower_that_hangs_up_is_left(
    broker: Any, log: Log, within: Within, hang_up: object
) -> None:
    log.end = 20

    broker.once["Fetch"] = [named(log, LEADER), lambda _: hang_up]
    async with consumer_of(broker, client_rack="near") as consumer:
        await consumer.assign([A])
        assert await within(read(consumer, 20, within)) == list(range(20))
        assert broker.requests("Fetch")[2].rack_id == ""


async def test_a_follower_that_names_another_broker_is_left(broker: Any, log: Log, within: Within) -> None:
    """Two brokers that name each other would be asked in turn for ever."""
    log.end = 20
    broker.on["Fetch"] = lambda asked: (named(log, LEADER) if asked.message.rack_id else log.fetch)(asked)
    async with consumer_of(broker, client_rack="near") as consumer:
        await consumer.assign([A])
        assert await within(read(consumer, 20, within)) == list(range(20))
        assert [fetch.rack_id for fetch in broker.requests("Fetch")][:3] == ["near", "near", ""]
