"""The producer against a broker that misbehaves on command."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from tests.kit.waiting import until

from odradek.client.network.errors import (
    BufferFullError,
    ClientClosedError,
    DeliveryError,
    TimedOutError,
    WrongPeerError,
)
from odradek.client.producer.aio import AsyncProducer
from odradek.client.producer.producer import Producer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.data.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdResponse
from odradek.records import decode_batch, read_header

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}


def batches(broker: Any) -> list[Any]:
    """The batches of all Produce requests, in the order they came."""
    return [
        partition.records
        for request in broker.requests("Produce")
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def values(broker: Any) -> list[bytes]:
    return [record.value for batch in batches(broker) for record in decode_batch(batch)]


async def test_a_record_is_sent_and_its_place_returned(broker: Any, within: Within) -> None:
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        delivery = await producer.send("t", b"value", key="key", headers={"h": b"1"}, timestamp_ms=77)
        assert (await within(delivery)) == ("t", 0, 0, 77)
    (record,) = decode_batch(batches(broker)[0])
    assert (record.key, record.value, record.headers, record.timestamp) == (
        b"key",
        b"value",
        (("h", b"1"),),
        77,
    )
    (request,) = broker.requests("Produce")
    assert (request.acks, request.timeout_ms) == (-1, 30_000)


async def test_serializers_make_bytes_of_anything(broker: Any) -> None:
    async with AsyncProducer(
        broker.bootstrap, key_serializer=str, value_serializer=lambda number: b"<%d>" % number, **QUICK
    ) as producer:
        await producer.send("t", 5, key=6)
    (record,) = decode_batch(batches(broker)[0])
    assert (record.key, record.value) == (b"6", b"<5>")


async def test_serializers_are_not_called_for_none_which_stays_a_tombstone(broker: Any) -> None:
    async with AsyncProducer(
        broker.bootstrap, key_serializer=json.dumps, value_serializer=json.dumps, **QUICK
    ) as producer:
        await producer.send("t", None, key=None)
    (record,) = decode_batch(batches(broker)[0])
    assert (record.key, record.value) == (None, None)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"value": 5}, "no value_serializer is set, and the value is int"),
        ({"key": 5.0}, "no key_serializer is set, and the key is float"),
        ({"headers": [(5, b"")]}, "a header's name must be str"),
    ],
)
async def test_what_is_not_bytes_is_refused_in_words(broker: Any, more: dict[str, Any], words: str) -> None:
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        with pytest.raises(TypeError, match=words):
            await producer.send("t", **{"value": b"", **more})


async def test_a_partitioner_of_the_users_own_decides_and_may_decline(broker: Any, within: Within) -> None:
    broker.topics = {"t": 4}
    asked: list[Any] = []

    def choose(topic: str, key: bytes | None, count: int) -> int | None:
        asked.append((topic, key, count))
        return 3 if key == b"special" else None

    async with AsyncProducer(broker.bootstrap, partitioner=choose, **QUICK) as producer:
        assert (await within(await producer.send("t", b"", key=b"special"))).partition == 3
        assert (await within(await producer.send("t", b"", key=b"21"))).partition == 3_173_551_340 % 2**31 % 4
    assert asked == [("t", b"special", 4), ("t", b"21", 4)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_a_retriable_refusal_is_tried_again_with_the_same_numbers(
    broker: Any, within: Within, code: ErrorCode
) -> None:
    broker.once["Produce"] = [lambda asked: broker.produced(asked, code)] * 2
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await within(await producer.send("t", b"v"))
    headers = [read_header(batch) for batch in batches(broker)]
    assert len(headers) == 3
    assert len({(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers}) == 1


def warnings_of(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [message for message in caplog.messages if message.split()[0] == event]


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_retries_that_go_on_are_warned_of_once_until_they_have_ended(
    broker: Any, within: Within, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        for outage in (1, 2):
            broker.once["Produce"] = [lambda asked: broker.produced(asked, code)] * 4
            await within(await producer.send("t", b"v"))
            lines = warnings_of(caplog, "produce_is_retried")
            assert len(lines) == outage
            assert "t-0" in lines[-1]
            assert code.name in lines[-1]
            await within(await producer.send("t", b"w"))
    assert len(warnings_of(caplog, "produce_is_retried")) == 2


async def test_a_leader_that_moves_is_no_warning_and_one_that_stays_away_is(
    broker: Any, within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        for refusals, warned in ((1, 0), (5, 1)):
            broker.once["Produce"] = [lambda asked: broker.produced(asked, moved)] * refusals
            await within(await producer.send("t", b"v"))
            assert len(warnings_of(caplog, "produce_is_retried")) == warned


async def test_a_lost_answer_is_asked_for_again_over_a_new_connection(
    broker: Any, within: Within, hang_up: object
) -> None:
    broker.once["Produce"] = [lambda _: hang_up]
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        assert (await within(await producer.send("t", b"v"))).offset == 0
    assert values(broker) == [b"v", b"v"]
    assert len({named.connection for named in broker.asked if named.name == "Produce"}) == 2


async def test_an_answer_counts_though_the_topic_has_left_the_metadata_meanwhile(
    broker: Any, make_broker: Callable[[], Awaitable[Any]], within: Within
) -> None:
    """As when the broker that is asked has just started, and does not know the topic yet."""
    leader = await make_broker()
    broker.nodes = leader.nodes = {1: broker.port, 2: leader.port}
    broker.leader = leader.leader = 2
    arrived, forgotten = asyncio.Event(), asyncio.Event()

    async def answer(asked: Any) -> Any:
        arrived.set()
        await forgotten.wait()
        return leader.produced(asked)

    leader.on["Produce"] = answer
    async with AsyncProducer(broker.bootstrap, acks=1, enable_idempotence=False, **QUICK) as producer:
        delivery = await producer.send("t", b"once")
        await within(arrived.wait())
        broker.topics, known = {"other": 1}, broker.topics
        await within(producer.partitions_for("other"))
        broker.topics = {**known, "other": 1}
        forgotten.set()
        assert (await within(delivery)).offset == 0
    assert values(leader) == [b"once"]


async def test_order_survives_a_refusal_in_the_middle_of_a_pipeline(broker: Any, within: Within) -> None:
    kept: list[bytes] = []
    refusals = [1, 3]

    def answer(asked: Any) -> Any:
        batch = batches(broker)[-1]
        sequence = read_header(batch).base_sequence
        if sequence in refusals:
            refusals.remove(sequence)
            return broker.produced(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if sequence != len(kept):
            return broker.produced(asked, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        kept.extend(record.value for record in decode_batch(batch))
        return broker.produced(asked)

    broker.on["Produce"] = answer
    async with AsyncProducer(broker.bootstrap, **{**QUICK, "batch_size": 100}) as producer:
        for number in range(9):
            await producer.send("t", b"%d" % number * 90)
        await within(producer.flush())
    assert [value[:1] for value in kept] == [b"%d" % number for number in range(9)]
    assert {read_header(batch).producer_epoch for batch in batches(broker)} == {0}


async def test_a_recognised_duplicate_counts_as_delivered(broker: Any, within: Within) -> None:
    broker.once["Produce"] = [lambda asked: broker.produced(asked, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        assert (await within(await producer.send("t", b"v"))).offset == -1


async def test_a_broker_that_forgot_the_producer_gets_a_new_epoch_from_sequence_zero(
    broker: Any, within: Within
) -> None:
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await within(await producer.send("t", b"1"))
        broker.once["Produce"] = [lambda asked: broker.produced(asked, ErrorCode.UNKNOWN_PRODUCER_ID)]
        await within(await producer.send("t", b"2"))
    headers = [read_header(batch) for batch in batches(broker)]
    assert [(header.producer_epoch, header.base_sequence) for header in headers] == [(0, 0), (0, 1), (1, 0)]


async def test_a_fenced_producer_gets_another_id(broker: Any, within: Within) -> None:
    ids = iter((40, 41))
    broker.on["InitProducerId"] = lambda _: InitProducerIdResponse(producer_id=next(ids), producer_epoch=0)
    broker.once["Produce"] = [lambda asked: broker.produced(asked, ErrorCode.INVALID_PRODUCER_EPOCH)]
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await within(await producer.send("t", b"1"))
    assert [read_header(batch).producer_id for batch in batches(broker)] == [40, 41]


async def test_a_batch_too_large_is_halved_until_it_fits(broker: Any, within: Within) -> None:
    def answer(asked: Any) -> Any:
        too_large = read_header(batches(broker)[-1]).record_count > 2
        return broker.produced(asked, ErrorCode.MESSAGE_TOO_LARGE if too_large else 0)

    broker.on["Produce"] = answer
    async with AsyncProducer(broker.bootstrap, **{**QUICK, "linger_ms": 5_000}) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(7)]
        await within(producer.flush())
    counts = [read_header(batch).record_count for batch in batches(broker)]
    assert max(counts) == 7
    assert sum(count for count in counts if count <= 2) == 7
    assert all(delivery.done() for delivery in deliveries)
    kept = [
        record.value
        for batch in batches(broker)
        if read_header(batch).record_count <= 2
        for record in decode_batch(batch)
    ]
    assert kept == [b"%d" % number for number in range(7)]


async def test_a_refusal_for_good_reaches_the_delivery_with_the_brokers_words(
    broker: Any, within: Within
) -> None:
    broker.on["Produce"] = lambda asked: broker.produced(asked, ErrorCode.INVALID_RECORD, "no key, no entry")
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(KafkaError, match="t-0: no key, no entry") as caught:
            await within(delivery)
    assert caught.value.code is ErrorCode.INVALID_RECORD


async def test_failures_no_one_looked_at_are_raised_by_flush_once(broker: Any, within: Within) -> None:
    broker.on["Produce"] = lambda asked: broker.produced(asked, ErrorCode.INVALID_RECORD)
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await producer.send("t", b"v")
        with pytest.raises(DeliveryError, match="1 record was not delivered"):
            await within(producer.flush())
        await within(producer.flush())


async def test_close_raises_them_too_but_never_hides_another_error(broker: Any) -> None:
    broker.on["Produce"] = lambda asked: broker.produced(asked, ErrorCode.INVALID_RECORD)
    producer = AsyncProducer(broker.bootstrap, **QUICK)
    await producer.send("t", b"v")
    with pytest.raises(DeliveryError):
        await producer.close()

    async def fail() -> None:
        async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
            await producer.send("t", b"v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await fail()
    assert "closing the producer failed, too" in caught.value.__notes__[0]


async def test_retries_can_be_limited(broker: Any, within: Within) -> None:
    broker.on["Produce"] = lambda asked: broker.produced(asked, ErrorCode.NOT_ENOUGH_REPLICAS)
    async with AsyncProducer(broker.bootstrap, retries=2, **QUICK) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(KafkaError, match="t-0"):
            await within(delivery)
    assert len(broker.requests("Produce")) == 3


async def test_a_record_that_cannot_be_delivered_in_time_fails_with_the_reason(
    broker: Any, within: Within
) -> None:
    broker.on["Produce"] = lambda asked: broker.produced(asked, ErrorCode.NOT_ENOUGH_REPLICAS)
    async with AsyncProducer(
        broker.bootstrap, delivery_timeout_ms=500, request_timeout_ms=400, **QUICK
    ) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(TimedOutError, match=r"not acknowledged within 500 ms .*replicas are in sync"):
            await within(delivery)


async def test_acks_zero_asks_for_no_answer_and_acks_one_needs_no_producer_id(
    broker: Any, within: Within
) -> None:
    for acks in (0, 1):
        async with AsyncProducer(broker.bootstrap, acks=acks, **QUICK) as producer:
            assert (await within(await producer.send("t", b"v"))).offset == (-1 if acks == 0 else 0)
    async with AsyncProducer(
        broker.bootstrap, **QUICK
    ) as producer:  # what was sent unanswered has arrived by now
        await within(await producer.send("t", b"v"))
    assert [request.acks for request in broker.requests("Produce")] == [0, 1, -1]
    assert len(broker.requests("InitProducerId")) == 1


async def test_a_cluster_that_grants_no_producer_id_ends_an_idempotent_producer_in_words(
    broker: Any, within: Within
) -> None:
    broker.on["InitProducerId"] = lambda _: InitProducerIdResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
    )
    producer = AsyncProducer(broker.bootstrap, **QUICK)
    delivery = await producer.send("t", b"v")
    with pytest.raises(KafkaError, match="set enable_idempotence=False to do without"):
        await within(delivery)
    with pytest.raises(KafkaError, match="set enable_idempotence=False"):
        await producer.send("t", b"v")
    await producer.close()


async def test_a_fatal_failure_no_one_saw_is_raised_by_close(broker: Any, within: Within) -> None:
    broker.on["InitProducerId"] = lambda _: InitProducerIdResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
    )
    producer = AsyncProducer(broker.bootstrap, **QUICK)
    await producer.send("t", b"v")
    with pytest.raises(DeliveryError, match="gives this producer no id"):
        await within(producer.close())


async def test_brokers_before_topic_ids_are_spoken_to_by_name(broker: Any, within: Within) -> None:
    broker.versions = {"ApiVersions": (0, 3), "Metadata": (0, 9), "Produce": (0, 9), "InitProducerId": (0, 4)}
    async with AsyncProducer(broker.bootstrap, **QUICK) as producer:
        await within(await producer.send("t", b"v"))
    assert [named.version for named in broker.asked if named.name == "Produce"] == [9]


async def test_full_memory_makes_send_wait_and_then_say_so(
    broker: Any, within: Within, silence: object
) -> None:
    broker.on["Produce"] = lambda _: silence
    producer = AsyncProducer(
        broker.bootstrap, batch_size=1_000, buffer_memory=1_000, max_block_ms=500, **QUICK
    )
    await producer.send("t", b"x" * 900)
    with pytest.raises(BufferFullError, match=r"buffer\.memory .* stayed full for 0\.5 s"):
        await within(producer.send("t", b"x" * 900))
    with pytest.raises(TimeoutError):
        await producer.close(0.01)


async def test_memory_that_comes_back_lets_send_go_on(broker: Any, within: Within) -> None:
    async with AsyncProducer(broker.bootstrap, batch_size=1_000, buffer_memory=2_000, **QUICK) as producer:
        for number in range(30):
            await within(producer.send("t", b"%03d" % number * 300))
    assert [value[:3] for value in values(broker)] == [b"%03d" % number for number in range(30)]


async def test_an_unknown_topic_is_named_after_the_wait(
    broker: Any, within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncProducer(broker.bootstrap, max_block_ms=500, **QUICK) as producer:
        with pytest.raises(KafkaError, match="there is no topic 'nope'") as caught:
            await within(producer.send("nope", b"v"))
        await within(await producer.send("t", b"v"))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (line,) = warnings_of(caplog, "unknown_topic")
    assert "nope" in line


async def test_an_unreachable_bootstrap_is_named_with_the_reason(within: Within) -> None:
    async with AsyncProducer("127.0.0.1:1", max_block_ms=500, **QUICK) as producer:
        with pytest.raises(TimedOutError, match=r"cannot connect to 127\.0\.0\.1:1: connection refused"):
            await within(producer.send("t", b"v"))


async def test_a_wrong_peer_is_not_waited_for(within: Within) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with AsyncProducer(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as producer:
        with pytest.raises(WrongPeerError, match="HTTP, not Kafka"):
            await within(producer.send("t", b"v"))
    server.close()


async def test_partitions_that_are_added_are_used(broker: Any, within: Within) -> None:
    async with AsyncProducer(broker.bootstrap, metadata_max_age_ms=20, **QUICK) as producer:
        assert await producer.partitions_for("t") == (0,)
        broker.topics = {"t": 3}
        await until(lambda: producer.partitions_for("t"), holds=lambda value: value == (0, 1, 2))
        assert (await within(await producer.send("t", b"v", partition=2))).partition == 2


async def test_a_topic_that_is_made_again_with_fewer_partitions_gets_all_records_in_these(
    broker: Any, within: Within
) -> None:
    broker.topics = {"t": 4}
    async with AsyncProducer(broker.bootstrap, metadata_max_age_ms=20, **QUICK) as producer:
        assert await producer.partitions_for("t") == (0, 1, 2, 3)
        await within(await producer.send("t", b"before"))
        broker.topics, broker.topic_id = {"t": 1}, UUID(int=6)
        await until(lambda: producer.partitions_for("t"), holds=lambda value: value == (0,))
        for key in (b"1", b"2", b"3", b"4", None):
            assert (await within(await producer.send("t", b"v", key=key))).partition == 0
        with pytest.raises(KafkaError, match="topic 't' has partitions 0 to 0, not 3"):
            await producer.send("t", b"v", partition=3)


# -- several brokers


async def test_when_the_leader_dies_its_batches_follow_the_leadership(
    make_broker: Callable[[], Awaitable[Any]], within: Within
) -> None:
    first, second = await make_broker(), await make_broker()
    first.nodes = second.nodes = {1: first.port, 2: second.port}
    async with AsyncProducer([first.bootstrap, second.bootstrap], **QUICK) as producer:
        assert (await within(await producer.send("t", b"1"))).offset == 0
        first.leader = second.leader = 2
        first.leader_epoch = second.leader_epoch = 4
        await first.stop()
        await within(await producer.send("t", b"2"))
    assert (values(first), values(second)) == ([b"1"], [b"2"])


async def test_a_refusal_that_names_the_new_leader_saves_the_question(
    make_broker: Callable[[], Awaitable[Any]], within: Within
) -> None:
    first, second = await make_broker(), await make_broker()
    first.nodes = second.nodes = {1: first.port, 2: second.port}

    def refuse(asked: Any) -> Any:
        response = first.produced(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        reply = response.responses[0].partition_responses[0]
        moved = PartitionProduceResponse(
            index=reply.index,
            error_code=reply.error_code,
            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
        )
        topic = TopicProduceResponse(
            name=response.responses[0].name,
            topic_id=response.responses[0].topic_id,
            partition_responses=[moved],
        )
        endpoint = NodeEndpoint(node_id=2, host="127.0.0.1", port=second.port)
        return ProduceResponse(responses=[topic], node_endpoints=[endpoint])

    first.once["Produce"] = [refuse]
    async with AsyncProducer(first.bootstrap, **{**QUICK, "retry_backoff_ms": 60_000}) as producer:
        await within(await producer.send("t", b"1"))
    assert (values(first), values(second)) == ([b"1"], [b"1"])


# -- the synchronous face, on the same broker


async def aside(work: Callable[[], Any]) -> Any:
    """Run blocking work beside the loop that serves the broker."""
    return await asyncio.to_thread(work)


async def test_the_synchronous_face_delivers_from_several_threads(broker: Any, within: Within) -> None:
    def work() -> None:
        with Producer(broker.bootstrap, **QUICK) as producer:

            def some(letter: bytes) -> None:
                for number in range(50):
                    producer.send("t", letter + b"%02d" % number)

            threads = [threading.Thread(target=some, args=(letter,)) for letter in (b"a", b"b", b"c")]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush(10)

    await within(aside(work))
    for letter in (b"a", b"b", b"c"):
        assert [value for value in values(broker) if value[:1] == letter] == [
            letter + b"%02d" % n for n in range(50)
        ]


async def test_the_synchronous_face_raises_what_went_wrong(broker: Any, within: Within) -> None:
    def work() -> None:
        with pytest.raises(DeliveryError), Producer(broker.bootstrap, **QUICK) as producer:
            producer.send("t", b"v")
        with pytest.raises(ClientClosedError, match="the producer is closed"):
            producer.send("t", b"v")
        producer.close()

    broker.on["Produce"] = lambda asked: broker.produced(asked, ErrorCode.INVALID_RECORD)
    await within(aside(work))


async def test_a_callback_may_not_wait_for_its_own_producer(broker: Any, within: Within) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        with Producer(broker.bootstrap, **QUICK) as producer:

            def on_done(_: Any) -> None:
                try:
                    producer.flush()
                except RuntimeError as error:
                    caught.append(error)

            producer.send("t", b"v").add_done_callback(on_done)
            producer.flush(10)

    await within(aside(work))
    assert "must not wait for its own producer" in str(caught[0])


async def test_full_memory_blocks_the_synchronous_face_until_there_is_room(
    broker: Any, within: Within
) -> None:
    def work() -> None:
        with Producer(broker.bootstrap, batch_size=1_000, buffer_memory=2_000, **QUICK) as producer:
            for number in range(30):
                producer.send("t", b"%03d" % number * 300)

    await within(aside(work))
    assert [value[:3] for value in values(broker)] == [b"%03d" % number for number in range(30)]


async def test_a_producer_no_one_closed_says_so(broker: Any) -> None:
    def work() -> None:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            Producer(broker.bootstrap)
            gc.collect()
        assert ["was not closed" in str(warning_message.message) for warning_message in seen] == [True]

    await aside(work)


async def test_what_a_producer_that_no_one_closed_has_accepted_is_sent(broker: Any) -> None:
    def work() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            delivery = Producer(broker.bootstrap, linger_ms=60_000).send("t", b"forgotten")
            gc.collect()
            delivery.result(10)

    await aside(work)
    assert [value[:9] for value in values(broker)] == [b"forgotten"]
