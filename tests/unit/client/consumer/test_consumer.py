"""The consumer against a broker that misbehaves on command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from tests.kit.waiting import until
from tests.unit.client.scripted_log import QUICK, A, Log, Within, consumer_of, read

from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.consumer.consumer import Consumer
from odradek.client.network.errors import ClientClosedError, TimedOutError
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.data.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsResponse,
)
from odradek.protocol.messages.data.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


@pytest.fixture
def log(broker: Any) -> Log:
    return Log(broker)


async def test_records_come_in_order_from_the_beginning(broker: Any, log: Log, within: Within) -> None:
    log.end = 20
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        assert await read(consumer, 20, within) == list(range(20))
        assert await consumer.position(A) == 20


async def test_latest_begins_at_the_end(broker: Any, log: Log, within: Within) -> None:
    log.end = 20
    async with consumer_of(broker, auto_offset_reset="latest") as consumer:
        await consumer.assign([A])
        assert await within(consumer.position(A)) == 20
        log.end = 22
        assert await read(consumer, 2, within) == [20, 21]


async def test_a_poll_returns_no_more_than_asked_and_waits_no_longer(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 9
    async with consumer_of(broker, max_poll_records=4) as consumer:
        await consumer.assign([A])
        assert len(await within(consumer.poll(10))) <= 4
        assert len(await within(consumer.poll(10, 1))) == 1
        await read(consumer, 9 - await consumer.position(A), within)
        assert await within(consumer.poll(0)) == []


async def test_seeks_go_to_offsets_ends_and_times(broker: Any, log: Log, within: Within) -> None:
    log.start, log.end = 5, 20
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        consumer.seek(A, 10)
        assert (await read(consumer, 1, within))[0] == 10
        consumer.seek_to_beginning()
        assert (await read(consumer, 1, within))[0] == 5
        consumer.seek_to_end(A)
        assert await within(consumer.position(A)) == 20
        await consumer.seek_to_timestamp({A: 1_017})
        assert await within(consumer.position(A)) == 17
        await consumer.seek_to_timestamp({A: 99_999})
        assert await within(consumer.position(A)) == 20
        with pytest.raises(ValueError, match="an offset is 0 or more"):
            consumer.seek(A, -1)
        with pytest.raises(OdradekError, match="u-0 is not assigned"):
            consumer.seek(TopicPartition("u", 0), 1)


async def test_ends_and_times_are_answered_without_an_assignment(
    broker: Any, log: Log, within: Within
) -> None:
    log.start, log.end = 5, 20
    async with consumer_of(broker) as consumer:
        assert await within(consumer.beginning_offsets([A])) == {A: 5}
        assert await within(consumer.end_offsets([A])) == {A: 20}
        offsets = await within(consumer.offsets_for_times({A: 1_008}))
        assert offsets[A] is not None
        assert offsets[A].offset == 8
        assert await within(consumer.offsets_for_times({A: 99_999})) == {A: None}
        assert await within(consumer.partitions_for("t")) == (0,)
        with pytest.raises(KafkaError, match="topic 't' has partitions 0 to 0, not 4"):
            await within(consumer.end_offsets([TopicPartition("t", 4)]))


async def test_a_partition_that_an_answer_about_offsets_leaves_out_is_asked_about_again(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 3
    broker.once["ListOffsets"] = [lambda asked: ListOffsetsResponse(topics=[])]
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        assert await within(read(consumer, 3, within)) == [0, 1, 2]


async def test_an_offset_that_is_gone_goes_by_the_policy(broker: Any, log: Log, within: Within) -> None:
    log.start, log.end = 9, 20
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        consumer.seek(A, 2)
        assert (await read(consumer, 1, within))[0] == 9
    async with consumer_of(broker, auto_offset_reset="none") as consumer:
        await consumer.assign([A])
        consumer.seek(A, 2)
        with pytest.raises(KafkaError, match="t-0 does not hold offset 2") as caught:
            await within(consumer.poll(10))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        consumer.seek(A, 10)
        assert (await read(consumer, 1, within))[0] == 10


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 30)])
async def test_a_topic_that_is_made_again_is_read_by_the_policy_and_not_on_from_where_the_other_one_was(
    broker: Any, log: Log, within: Within, policy: str, first: int
) -> None:
    """The topic has another id, and as many records already."""

    def answer(asked: Any) -> FetchResponse:
        response = log.fetch(asked)
        for topic in response.responses:
            if topic.topic_id != broker.topic_id:
                topic.partitions = [
                    PartitionData(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                        high_watermark=-1,
                        records=b"",
                    )
                    for partition in topic.partitions
                ]
        return response

    broker.on["Fetch"] = answer
    log.end = 9
    async with consumer_of(broker, auto_offset_reset=policy) as consumer:
        await consumer.assign([A])
        consumer.seek(A, 0)
        assert await within(read(consumer, 9, within)) == list(range(9))
        broker.topic_id, log.end = UUID(int=6), 30
        await until(lambda: consumer.position(A), holds=lambda value: value != 9)
        assert await consumer.position(A) == first
        log.end = 33
        assert (await within(read(consumer, 1, within)))[0] == first


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
async def test_a_partition_refused_for_the_moment_is_asked_for_again_with_fresh_metadata(
    broker: Any, log: Log, within: Within, code: ErrorCode
) -> None:
    log.end = 3

    def refuse(asked: Any) -> FetchResponse:
        topic = asked.message.topics[0]
        refused = [log.refuse(partition, code) for partition in topic.partitions]
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=refused)]
        )

    broker.once["Fetch"] = [refuse, refuse]
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        before = len(broker.requests("Metadata"))
        assert await within(read(consumer, 3, within)) == [0, 1, 2]
        assert len(broker.requests("Metadata")) > before


async def test_a_refusal_for_good_is_raised_by_poll(broker: Any, log: Log, within: Within) -> None:
    def refuse(asked: Any) -> FetchResponse:
        topic = asked.message.topics[0]
        refused = [
            log.refuse(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for partition in topic.partitions
        ]
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=refused)]
        )

    broker.on["Fetch"] = refuse
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        with pytest.raises(KafkaError, match="t-0: not authorised") as caught:
            await within(consumer.poll(10))
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_broken_connection_costs_no_record_and_doubles_none(
    broker: Any, log: Log, within: Within, hang_up: object
) -> None:
    log.end, log.sessions = 30, True
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        broker.once["Fetch"] = [log.fetch, lambda _: hang_up, log.fetch, lambda _: hang_up]
        assert await read(consumer, 30, within) == list(range(30))


async def test_a_session_is_asked_in_small_steps_and_counted(broker: Any, log: Log, within: Within) -> None:
    log.end, log.sessions = 30, True
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        await read(consumer, 30, within)
    fetches = broker.requests("Fetch")
    assert [fetch.session_epoch for fetch in fetches[:3]] == [0, 1, 2]
    assert [fetch.session_id for fetch in fetches[:3]] == [0, 9, 9]


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
async def test_a_session_the_broker_lost_is_begun_again(
    broker: Any, log: Log, within: Within, code: ErrorCode
) -> None:
    log.end, log.sessions = 30, True
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        broker.once["Fetch"] = [log.fetch, lambda _: FetchResponse(error_code=code)]
        assert await read(consumer, 30, within) == list(range(30))
    assert [request.session_epoch for request in broker.requests("Fetch")].count(0) == 2


async def test_a_damaged_batch_is_raised_where_it_is_and_can_be_passed_by(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 9
    whole = log.batch

    def damaged(first: int) -> bytearray:
        built = whole(first)
        if first == 3:
            built[-1] ^= 0xFF
        return built

    log.batch = damaged  # type: ignore[method-assign]
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        assert await within(read(consumer, 3, within)) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(KafkaError, match="seek to 6 to continue after it"):
                await within(consumer.poll(10))
        assert await consumer.position(A) == 3
        consumer.seek(A, 6)
        assert await read(consumer, 3, within) == [6, 7, 8]


async def test_a_deserializer_that_fails_loses_nothing(broker: Any, log: Log, within: Within) -> None:
    log.end = 6

    def strict(value: bytes | None) -> int:
        number = int(value or b"")
        if number == 4 and not lenient:
            raise ZeroDivisionError
        return number

    lenient = False
    async with consumer_of(broker, value_deserializer=strict) as consumer:
        await consumer.assign([A])
        assert [record.value for record in await within(consumer.poll(10))] in ([0, 1, 2], [0, 1, 2, 3])
        while await consumer.position(A) < 4:
            await within(consumer.poll(10))
        with pytest.raises(ZeroDivisionError) as caught:
            await within(consumer.poll(10))
        assert caught.value.__notes__ == ["while deserializing the record at offset 4 of t-0"]
        lenient = True
        assert [record.value for record in await within(consumer.poll(10))] == [4, 5]


async def test_after_a_change_of_leader_a_log_that_was_cut_is_read_from_the_cut(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 6
    broker.on["OffsetForLeaderEpoch"] = lambda asked: OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic="t", partitions=[EpochEndOffset(partition=0, leader_epoch=3, end_offset=4)]
            )
        ]
    )
    async with consumer_of(broker, metadata_max_age_ms=10) as consumer:
        await consumer.assign([A])
        assert await read(consumer, 6, within) == list(range(6))
        log.end, log.epoch, broker.leader_epoch = 8, 4, 4
        assert (await read(consumer, 4, within))[:2] == [4, 5]
    assert broker.requests("OffsetForLeaderEpoch")[0].topics[0].partitions[0].leader_epoch == 3


async def test_when_the_leader_dies_reading_goes_on_at_the_next_one(
    make_broker: Callable[[], Awaitable[Any]], within: Within
) -> None:
    first, second = await make_broker(), await make_broker()
    logs = [Log(first), Log(second)]
    first.nodes = second.nodes = {1: first.port, 2: second.port}
    for log in logs:
        log.end = 3
    servers = [first.bootstrap, second.bootstrap]
    async with AsyncConsumer(servers, auto_offset_reset="earliest", fetch_max_wait_ms=1, **QUICK) as consumer:
        await consumer.assign([A])
        assert await within(read(consumer, 3, within)) == [0, 1, 2]
        logs[1].end = 6
        first.leader = second.leader = 2
        first.leader_epoch = second.leader_epoch = 4
        second.on["OffsetForLeaderEpoch"] = lambda asked: OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic="t", partitions=[EpochEndOffset(partition=0, leader_epoch=3, end_offset=6)]
                )
            ]
        )
        await first.stop()
        assert await read(consumer, 3, within) == [3, 4, 5]


async def test_paused_partitions_rest(broker: Any, log: Log, within: Within) -> None:
    log.end = 6
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        consumer.pause([A])
        assert consumer.paused() == (A,)
        assert await within(consumer.poll(0.02)) == []
        consumer.resume([A])
        assert await read(consumer, 6, within) == list(range(6))


async def test_arrow_has_place_columns_and_an_empty_batch_has_them_too(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 3
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        rows = await within(consumer.poll_arrow(10))
        assert rows.to_pydict() | {"headers": []} == {
            "topic": ["t"] * 3,
            "partition": [0] * 3,
            "offset": [0, 1, 2],
            "timestamp": [1_000, 1_001, 1_002],
            "timestamp_type": [0] * 3,
            "key": [None] * 3,
            "value": [b"0", b"1", b"2"],
            "headers": [],
        }
        empty = await within(consumer.poll_arrow(0.01))
        assert (empty.num_rows, empty.schema) == (0, rows.schema)


async def test_iteration_goes_on_for_ever(broker: Any, log: Log, within: Within) -> None:
    log.end = 7

    async def first_ten() -> list[int]:
        results = []
        async for record in consumer:
            results.append(record.offset)
            if len(results) == 7:
                log.end = 10
            if len(results) == 10:
                break
        return results

    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        assert await within(first_ten()) == list(range(10))


async def test_an_unknown_topic_is_named_by_poll(broker: Any, log: Log, within: Within) -> None:
    async with consumer_of(broker, default_api_timeout_ms=500) as consumer:
        await consumer.assign([TopicPartition("nope", 0)])
        with pytest.raises(KafkaError, match="there is no topic 'nope'"):
            await within(consumer.poll(10))


@pytest.mark.parametrize("create", [True, False])
async def test_a_mistyped_topic_is_warned_of_once_beside_one_that_is_read(
    broker: Any, log: Log, within: Within, caplog: pytest.LogCaptureFixture, create: bool
) -> None:
    log.end = 20
    async with consumer_of(broker, metadata_max_age_ms=20, allow_auto_create_topics=create) as consumer:
        await consumer.assign([A, TopicPartition("tt", 0)])
        await within(read(consumer, 20, within))
        await until(lambda: len(broker.requests("Metadata")) >= 8)
    (line,) = [message for message in caplog.messages if message.startswith("unknown_topic")]
    assert "topic=tt" in line
    assert "near" in line


async def test_a_partition_with_a_number_without_sense_is_not_believed(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 1

    def answer(asked: Any) -> Any:
        response = broker.answer_Metadata(asked)
        response.topics[0].partitions[0].partition_index = 2**31 - 1
        return response

    broker.once["Metadata"] = [answer]
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        with pytest.raises(KafkaError, match="has a partition 2147483647 of topic 't', and 1 in all"):
            await within(consumer.poll(10))
        assert await within(read(consumer, 1, within)) == [0]


async def test_an_unreachable_bootstrap_is_named_by_every_call(within: Within) -> None:
    async with AsyncConsumer("127.0.0.1:1", default_api_timeout_ms=500, **QUICK) as consumer:
        await consumer.assign([A])
        with pytest.raises(KafkaError, match=r"cannot connect to 127\.0\.0\.1:1: connection refused"):
            await within(consumer.poll(10))
        for call in (consumer.position(A), consumer.end_offsets([A]), consumer.partitions_for("t")):
            with pytest.raises(TimedOutError, match=r"cannot connect to 127\.0\.0\.1:1"):
                await within(call)


async def test_old_brokers_are_spoken_to_by_name_and_without_sessions(
    broker: Any, log: Log, within: Within
) -> None:
    log.end = 6
    broker.versions = {"ApiVersions": (0, 2), "Metadata": (0, 5), "Fetch": (0, 6), "ListOffsets": (0, 2)}
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        assert await read(consumer, 6, within) == list(range(6))


async def test_the_synchronous_face_reads_the_same(broker: Any, log: Log, within: Within) -> None:
    log.end = 10

    def work() -> list[int]:
        results = []
        with Consumer(
            broker.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=1, **QUICK
        ) as consumer:
            consumer.assign([A])
            for record in consumer:
                results.append(record.offset)
                if len(results) == 10:
                    break
            assert consumer.position(A) == 10
            assert consumer.end_offsets([A]) == {A: 10}
            consumer.seek_to_beginning()
            assert consumer.poll_arrow(10).num_rows in (3, 6)
            assert consumer.assignment() == (A,)
        with pytest.raises(ClientClosedError):
            consumer.poll(0)
        return results

    assert await within(asyncio.to_thread(work)) == list(range(10))


async def test_waiting_in_vain_leaves_nothing_behind(broker: Any, log: Log, within: Within) -> None:
    async with consumer_of(broker) as consumer:
        await consumer.assign([A])
        for _ in range(5):
            assert await within(consumer.poll(0.001)) == []
        assert consumer._core.assignment.news.watcher_count == 0


async def test_closing_ends_what_others_wait_for(
    broker: Any, log: Log, within: Within, silence: object
) -> None:
    broker.on["Metadata"] = lambda _: silence
    consumer = consumer_of(broker)
    await consumer.assign([A])
    waiting = asyncio.create_task(consumer.partitions_for("t"))
    polling = asyncio.create_task(consumer.poll(100))
    await asyncio.sleep(0.01)
    await within(consumer.close())
    for task in (waiting, polling):
        with pytest.raises(ClientClosedError):
            await within(task)


async def test_the_subscription_is_what_was_asked_for_last(broker: Any) -> None:
    async with AsyncConsumer(broker.bootstrap, group_id="g", group_protocol="classic") as consumer:
        assert consumer.subscription() == frozenset()
        await consumer.subscribe(["t", "u", "t"])
        assert consumer.subscription() == {"t", "u"}
        await consumer.subscribe(pattern="t.*")
        assert consumer.subscription() == frozenset()
        await consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
