"""A share consumer and a scripted broker: sessions, acknowledgements, refusals, and connections that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from odradek.client.network.errors import (
    ClientClosedError,
    ConcurrentUseError,
    IllegalStateError,
    PartialFailureError,
)
from odradek.client.share.aio import AsyncShareConsumer
from odradek.client.share.share_record import ShareRecord
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.protocol.messages.metadata.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.share.share_acknowledge import (
    PartitionData as AcknowledgedPartition,
)
from odradek.protocol.messages.share.share_acknowledge import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from odradek.protocol.messages.share.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from odradek.protocol.messages.share.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.records import BatchBuilder, assign

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "reconnect_backoff_ms": 1,
    "fetch_max_wait_ms": 20,
    "enable_metrics_push": False,
}
Within = Callable[[Awaitable[Any]], Awaitable[Any]]
Open = Callable[..., AsyncShareConsumer]


class Queue:
    """One partition of a share group at the scripted broker: available offsets, and everything that was acknowledged."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.available: list[tuple[int, int]] = []
        """Offset and delivery count."""
        self.decided: list[tuple[int, int, list[int]]] = []
        self.epochs: list[int] = []
        """The session epochs of requests, in order."""
        self.arrived = asyncio.Event()
        self.partitions = [0]
        self.acknowledge_code = 0
        broker.on["FindCoordinator"] = self.find
        broker.on["ShareGroupHeartbeat"] = self.heartbeat
        broker.on["ShareFetch"] = self.fetch
        broker.on["ShareAcknowledge"] = self.acknowledge

    def add(self, *offsets: int, count: int = 1) -> None:
        self.available += [(offset, count) for offset in offsets]
        self.arrived.set()

    def find(self, asked: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key="g", node_id=1, host="127.0.0.1", port=self.broker.port)]
        )

    def heartbeat(self, asked: Any) -> ShareGroupHeartbeatResponse:
        part = TopicPartitions(topic_id=self.broker.topic_id, partitions=self.partitions)
        return ShareGroupHeartbeatResponse(
            member_epoch=1, heartbeat_interval_ms=5_000, assignment=Assignment(topic_partitions=[part])
        )

    async def fetch(self, asked: Any) -> ShareFetchResponse:
        request = asked.message
        self.epochs.append(request.share_session_epoch)
        batches = [
            batch
            for topic in request.topics
            for partition in topic.partitions
            for batch in partition.acknowledgement_batches
        ]
        self.note(batches)
        if not self.available:
            self.arrived.clear()
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self.arrived.wait()
            except TimeoutError:
                pass
        chosen = self.available[: request.max_records]
        self.available = self.available[request.max_records :]
        partition = PartitionData(
            partition_index=0,
            acknowledge_error_code=self.acknowledge_code if batches else 0,
            records=b"".join(_batch(offset) for offset, _ in chosen),
            acquired_records=[
                AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=count)
                for offset, count in chosen
            ],
        )
        topic = ShareFetchableTopicResponse(topic_id=self.broker.topic_id, partitions=[partition])
        return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=[topic])

    def acknowledge(self, asked: Any) -> ShareAcknowledgeResponse:
        self.epochs.append(asked.message.share_session_epoch)
        for topic in asked.message.topics:
            for partition in topic.partitions:
                self.note(partition.acknowledgement_batches)
        partition = AcknowledgedPartition(partition_index=0, error_code=self.acknowledge_code)
        topic = ShareAcknowledgeTopicResponse(topic_id=self.broker.topic_id, partitions=[partition])
        return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=30_000, responses=[topic])

    def note(self, batches: list[Any]) -> None:
        self.decided += [
            (batch.first_offset, batch.last_offset, list(batch.acknowledge_types)) for batch in batches
        ]


def _batch(offset: int) -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, None, b"%d" % offset, ())
    built = bytearray(builder.build())
    assign(built, offset, 3)
    return bytes(built)


@pytest.fixture
def queue(broker: Any) -> Queue:
    return Queue(broker)


@pytest.fixture
async def consumers(broker: Any) -> AsyncIterator[Open]:
    """Makes consumers that are closed in the end."""
    opened: list[AsyncShareConsumer] = []

    def make(**settings: Any) -> AsyncShareConsumer:
        consumer = AsyncShareConsumer(broker.bootstrap, group_id="g", **{**QUICK, **settings})
        opened.append(consumer)
        return consumer

    yield make
    for consumer in opened:
        await consumer.close()


async def polled(consumer: AsyncShareConsumer[Any, Any], count: int) -> list[ShareRecord[Any, Any]]:
    records: list[ShareRecord[Any, Any]] = []
    while len(records) < count:
        records += await consumer.poll(5.0)
    return records


def offsets(records: list[ShareRecord[Any, Any]]) -> list[tuple[int, int]]:
    return [(record.offset, record.delivery_count) for record in records]


async def test_the_next_poll_carries_what_the_last_one_accepted(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0, 1, 2)
    consumer = consumers()
    await consumer.subscribe("t")
    assert offsets(await within(polled(consumer, 3))) == [(0, 1), (1, 1), (2, 1)]
    assert queue.decided == []
    queue.add(3)
    assert offsets(await within(polled(consumer, 1))) == [(3, 1)]
    assert queue.decided == [(0, 2, [1])]
    assert queue.epochs == [0, 1]
    assert not [asked for asked in queue.broker.asked if asked.name == "ShareAcknowledge"]


async def test_nothing_is_fetched_ahead_while_no_poll_waits(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0)
    consumer = consumers()
    await consumer.subscribe("t")
    await within(polled(consumer, 1))
    queue.add(1)
    await within(consumer.commit())
    await within(consumer.commit())
    assert queue.available == [(1, 1)]
    assert queue.decided == [(0, 0, [1])]


async def test_an_iteration_acknowledges_record_by_record_without_another_poll(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0, 1, 2)
    consumer = consumers()
    await consumer.subscribe("t")

    async def two() -> list[int]:
        values = []
        async for record in consumer:
            values.append(record.offset)
            if len(values) == 2:
                break
        while not queue.decided:
            await asyncio.sleep(0.01)
        return values

    assert await within(two()) == [0, 1]
    assert queue.decided == [(0, 0, [1])]
    await within(consumer.commit())
    assert queue.decided == [(0, 0, [1]), (1, 1, [1])]
    await within(consumer.close())
    assert queue.decided == [(0, 0, [1]), (1, 1, [1])]


async def test_explicit_decisions_go_with_a_commit(queue: Queue, consumers: Open, within: Within) -> None:
    queue.add(0, 1, 2)
    consumer = consumers(share_acknowledgement_mode="explicit")
    await consumer.subscribe("t")
    first, second, third = await within(polled(consumer, 3))
    consumer.acknowledge(first)
    consumer.acknowledge(second, AcknowledgeType.REJECT)
    consumer.acknowledge(
        (TopicPartition(third.topic, third.partition), third.offset), AcknowledgeType.RELEASE
    )
    await within(consumer.commit())
    assert queue.decided == [(0, 2, [1, 3, 2])]


async def test_a_refused_commit_names_the_partition_and_tells_the_callback(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0)
    outcomes: list[Any] = []
    consumer = consumers()
    consumer.on_acknowledged(outcomes.append)
    await consumer.subscribe("t")
    await within(polled(consumer, 1))
    queue.acknowledge_code = ErrorCode.INVALID_RECORD_STATE
    with pytest.raises(PartialFailureError, match="t-0") as error:
        await within(consumer.commit())
    assert [problem.code for problem in error.value.errors.values()] == [ErrorCode.INVALID_RECORD_STATE]
    assert [(outcome.offsets, outcome.error is None) for outcome in outcomes] == [((0,), False)]


async def test_a_renewal_has_its_own_request_and_the_record_comes_again(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0)
    consumer = consumers(share_acknowledgement_mode="explicit")
    await consumer.subscribe("t")
    [record] = await within(polled(consumer, 1))
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    assert await within(consumer.poll(5.0)) == [record]
    [renewal] = queue.broker.requests("ShareAcknowledge")
    assert renewal.is_renew_ack
    assert queue.decided == [(0, 0, [4])]
    consumer.acknowledge(record)


async def test_a_user_who_renews_gets_other_records_meanwhile(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0)
    consumer = consumers(share_acknowledgement_mode="explicit", max_poll_records=2)
    await consumer.subscribe("t")
    [busy] = await within(polled(consumer, 1))
    queue.add(1, 2)
    consumer.acknowledge(busy, AcknowledgeType.RENEW)
    seen: list[ShareRecord] = []
    busy_count = 0
    while len(seen) < 2 or not busy_count:
        for record in await within(consumer.poll(5.0)):
            if record == busy:
                busy_count += 1
                consumer.acknowledge(record, AcknowledgeType.RENEW)
            else:
                seen.append(record)
                consumer.acknowledge(record)
    assert offsets(seen) == [(1, 1), (2, 1)]


async def test_a_broker_that_renews_no_locks_is_named(queue: Queue, consumers: Open, within: Within) -> None:
    from odradek.protocol import APIS

    offered = {api.name: (api.versions.min, api.versions.max) for api in APIS.values()}
    queue.broker.versions = offered | {"ShareAcknowledge": (1, 1), "ShareFetch": (1, 1)}
    queue.add(0)
    consumer = consumers(share_acknowledgement_mode="explicit")
    await consumer.subscribe("t")
    [record] = await within(polled(consumer, 1))
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    with pytest.raises(PartialFailureError, match="does not renew locks"):
        await within(consumer.commit())


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
async def test_a_session_that_the_broker_forgot_is_opened_again_and_its_decisions_are_refused(
    queue: Queue, consumers: Open, within: Within, code: ErrorCode
) -> None:
    queue.add(0)
    outcomes: list[Any] = []
    consumer = consumers()
    consumer.on_acknowledged(outcomes.append)
    await consumer.subscribe("t")
    await within(polled(consumer, 1))
    queue.broker.once["ShareFetch"].append(lambda asked: ShareFetchResponse(error_code=code))
    queue.add(0, count=2)
    assert offsets(await within(polled(consumer, 1))) == [(0, 2)]
    assert queue.epochs == [0, 0]
    assert [(outcome.offsets, outcome.error.code) for outcome in outcomes] == [((0,), code)]


async def test_a_connection_that_breaks_ends_the_session_and_the_records_in_hand_are_not_accepted(
    queue: Queue, consumers: Open, within: Within, hang_up: object
) -> None:
    queue.add(0)
    consumer = consumers()
    await consumer.subscribe("t")
    await within(polled(consumer, 1))
    queue.broker.once["ShareAcknowledge"].append(lambda asked: hang_up)
    with pytest.raises(PartialFailureError, match="t-0"):
        await within(consumer.commit())
    queue.add(0, count=2)
    assert offsets(await within(polled(consumer, 1))) == [(0, 2)]
    assert queue.decided == []


async def test_a_refused_partition_is_tried_again_and_others_are_read_meanwhile(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.broker.topics = {"t": 2}
    queue.partitions = [0, 1]
    asked: list[list[int]] = []

    def refuse(request: Any) -> ShareFetchResponse:
        queue.epochs.append(request.message.share_session_epoch)
        asked.append([part.partition_index for topic in request.message.topics for part in topic.partitions])
        refused = PartitionData(partition_index=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=b"")
        topic = ShareFetchableTopicResponse(topic_id=queue.broker.topic_id, partitions=[refused])
        return ShareFetchResponse(acquisition_lock_timeout_ms=30_000, responses=[topic])

    queue.broker.once["ShareFetch"].append(refuse)
    queue.add(0)
    consumer = consumers()
    await consumer.subscribe("t")
    assert offsets(await within(polled(consumer, 1))) == [(0, 1)]
    assert asked == [[0, 1]]
    await within(consumer.poll(0.2))
    later = queue.broker.requests("ShareFetch")[1:]
    added = [
        part.partition_index for request in later for topic in request.topics for part in topic.partitions
    ]
    assert 1 in added, "the refused partition is read again"


async def test_what_may_not_be_read_is_raised_by_poll(queue: Queue, consumers: Open, within: Within) -> None:
    refused = ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    queue.broker.once["ShareFetch"].append(lambda asked: refused)
    consumer = consumers()
    await consumer.subscribe("t")
    with pytest.raises(KafkaError, match="group 'g'") as error:
        await within(polled(consumer, 1))
    assert error.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    queue.add(0)
    assert offsets(await within(polled(consumer, 1))) == [(0, 1)]


async def test_a_broker_without_share_groups_is_named(queue: Queue, consumers: Open, within: Within) -> None:
    from odradek.protocol import APIS

    queue.broker.versions = {
        api.name: (api.versions.min, api.versions.max)
        for api in APIS.values()
        if not api.name.startswith("Share")
    }
    consumer = consumers()
    await consumer.subscribe("t")
    with pytest.raises(KafkaError, match="does not offer ShareGroupHeartbeat"):
        await within(polled(consumer, 1))


async def test_a_record_that_cannot_be_deserialized_is_released_and_raised_after_those_before_it(
    queue: Queue, broker: Any, within: Within
) -> None:
    def strict(value: bytes) -> int:
        if value == b"1":
            raise ValueError("one is not allowed")
        return int(value)

    queue.add(0, 1, 2)
    consumer = AsyncShareConsumer(broker.bootstrap, group_id="g", value_deserializer=strict, **QUICK)
    async with consumer:
        await consumer.subscribe("t")
        assert [record.value for record in await within(polled(consumer, 1))] == [0]
        with pytest.raises(ValueError, match="one is not allowed") as error:
            await within(consumer.poll(5.0))
        assert "offset 1 of t-0, which was released" in str(error.value.__notes__)
        assert [record.value for record in await within(polled(consumer, 1))] == [2]
        await within(consumer.commit())
    assert queue.decided == [(0, 2, [1, 2, 1])]


async def test_records_are_asked_for_by_the_setting_or_by_the_poll(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(*range(5))
    consumer = consumers(max_poll_records=3, share_acquire_mode="record_limit")
    await consumer.subscribe("t")
    assert len(await within(consumer.poll(5.0, max_records=2))) == 2
    assert len(await within(consumer.poll(5.0))) == 3
    first, second = queue.broker.requests("ShareFetch")[:2]
    assert (first.max_records, first.share_acquire_mode) == (2, 1)
    assert second.max_records == 3


async def test_a_poll_ends_when_it_is_woken(queue: Queue, consumers: Open, within: Within) -> None:
    consumer = consumers()
    await consumer.subscribe("t")
    waiting = asyncio.create_task(consumer.poll(60.0))
    await asyncio.sleep(0)
    consumer.wakeup()
    assert await within(waiting) == []
    consumer.wakeup()
    assert await within(consumer.poll(60.0)) == []


async def test_closing_sends_decisions_releases_the_rest_and_leaves(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0, 1)
    consumer = consumers(share_acknowledgement_mode="explicit")
    await consumer.subscribe("t")
    first, _ = await within(polled(consumer, 2))
    consumer.acknowledge(first)
    await within(consumer.close())
    assert queue.decided == [(0, 0, [1])]
    assert queue.epochs[-1] == -1
    assert [beat.member_epoch for beat in queue.broker.requests("ShareGroupHeartbeat")][-1] == -1
    with pytest.raises(ClientClosedError):
        await consumer.poll()


async def test_a_poll_that_waits_ends_with_the_consumer(
    queue: Queue, consumers: Open, within: Within
) -> None:
    consumer = consumers()
    await consumer.subscribe("t")
    waiting = asyncio.create_task(consumer.poll(60.0))
    await asyncio.sleep(0.05)
    await within(consumer.close())
    with pytest.raises(ClientClosedError):
        await within(waiting)


async def test_an_unsubscribed_consumer_has_closed_its_session_and_may_subscribe_again(
    queue: Queue, consumers: Open, within: Within
) -> None:
    queue.add(0)
    consumer = consumers()
    await consumer.subscribe("t")
    await within(polled(consumer, 1))
    await within(consumer.unsubscribe())
    assert queue.epochs[-1] == -1
    assert (consumer.subscription(), consumer.assignment()) == (frozenset(), ())
    with pytest.raises(IllegalStateError, match="subscribe"):
        await consumer.poll()
    queue.add(0, count=2)
    await consumer.subscribe(["t"])
    assert offsets(await within(polled(consumer, 1))) == [(0, 2)]
    assert queue.decided == []


async def test_two_tasks_may_not_poll_one_consumer(queue: Queue, consumers: Open, within: Within) -> None:
    consumer = consumers()
    await consumer.subscribe("t")
    waiting = asyncio.create_task(consumer.poll(60.0))
    await asyncio.sleep(0)
    with pytest.raises(ConcurrentUseError):
        await consumer.poll()
    consumer.wakeup()
    await within(waiting)
