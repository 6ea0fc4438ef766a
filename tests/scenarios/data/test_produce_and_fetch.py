"""Records in and out of a broker, as the wire has it."""

import asyncio
import random
import threading
from typing import Any
from uuid import uuid4

import pytest
from tests.kit.requests import fetch_request, produce_request
from tests.kit.waiting import until

from odradek.broker.produce import record_validation
from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection
from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.records import Codec


async def test_what_was_acknowledged_is_read_back_at_its_offset(wire: Any) -> None:
    await wire.create("t")
    first = await wire.produce("t", [b"a", b"b"])
    second = await wire.produce("t", [b"c"])
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert await wire.values("t") == [b"a", b"b", b"c"]
    assert await wire.values("t", 1) == [b"b", b"c"]


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_every_kind_of_acks_becomes_readable(
    wire: Any, make_produce: Any, make_batch: Any, acks: int
) -> None:
    await wire.create("t")
    wire.ask_later(make_produce("t", make_batch([b"x"]), acks=acks), 9)
    if acks == 0:
        wire.expect_no_response()  # no answer will come
    else:
        assert (await wire.response()).responses[0].partition_responses[0].error_code == 0
    data = await wire.fetch("t", 0, max_wait_ms=5000)
    assert data.high_watermark == 1


async def test_acks_2_is_refused_and_writes_nothing(wire: Any) -> None:
    await wire.create("t")
    assert (await wire.produce("t", [b"x"], acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert await wire.values("t") == []


async def test_an_error_with_acks_0_closes_the_connection(
    wire: Any, make_produce: Any, make_batch: Any
) -> None:
    wire.ask_later(make_produce("none", make_batch([b"x"]), acks=0), 9)
    assert await wire.closed_by_broker()


async def test_a_waiting_fetch_is_answered_by_a_produce_of_another_connection(
    scene: Any, wire: Any, make_fetch: Any
) -> None:
    await wire.create("t")
    reader = await scene.connect()
    reader.ask_later(make_fetch("t", 0, max_wait_ms=20_000), 11)
    await wire.produce("t", [b"x"])
    response = await reader.response()
    assert len(response.responses[0].partitions[0].records) > 0


async def test_a_waiting_fetch_wants_all_of_its_min_bytes(scene: Any, wire: Any, make_fetch: Any) -> None:
    await wire.create("t")
    size = len((await wire.produce("t", [b"x" * 100]) and await wire.fetch("t", 0)).records)
    reader = await scene.connect()
    reader.ask_later(make_fetch("t", 0, max_wait_ms=20_000, min_bytes=3 * size), 11)
    await wire.produce("t", [b"x" * 100])
    await asyncio.sleep(0.1)
    await wire.produce("t", [b"x" * 100])
    response = await reader.response()
    assert len(response.responses[0].partitions[0].records) == 3 * size


async def test_a_fetch_that_finds_nothing_is_answered_when_its_time_is_up(wire: Any) -> None:
    await wire.create("t")
    data = await wire.fetch("t", 0, max_wait_ms=50)
    assert (data.error_code, bytes(data.records), data.high_watermark) == (0, b"", 0)


async def test_the_first_batch_comes_whole_however_small_the_limit_and_the_others_do_not(wire: Any) -> None:
    await wire.create("t")
    for _ in range(3):
        await wire.produce("t", [b"x" * 1000])
    partition = await wire.fetch("t", 0, partition_max_bytes=1, max_bytes=1)
    two = await wire.fetch("t", 0, partition_max_bytes=2 * len(partition.records) + 10)
    assert len(partition.records) > 1000
    assert len(two.records) == 2 * len(partition.records)


async def test_offsets_outside_of_the_log_are_refused_and_its_end_is_not(wire: Any) -> None:
    await wire.create("t")
    await wire.produce("t", [b"x"])
    assert (await wire.fetch("t", 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await wire.fetch("t", -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await wire.fetch("t", 1)).error_code == 0


async def test_unknown_topics_partitions_and_ids_get_their_own_errors(wire: Any, make_batch: Any) -> None:
    await wire.create("t")
    assert (await wire.fetch("none", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await wire.fetch("t", 0, partition=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await wire.produce("none", [b"x"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = uuid4()
    fetched = await wire.ask(fetch_request(unknown, 0), 13)
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    produced = await wire.ask(produce_request(unknown, make_batch([b"x"])), 13)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_one_bad_partition_does_not_harm_the_others_of_its_request(wire: Any, make_batch: Any) -> None:
    await wire.create("t", partitions=2)
    damaged = make_batch([b"bad"])
    damaged[-1] ^= 1
    partitions = [
        PartitionProduceData(index=0, records=damaged),
        PartitionProduceData(index=1, records=make_batch([b"good"])),
        PartitionProduceData(index=7, records=make_batch([b"lost"])),
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=partitions)]
    )
    response = await wire.ask(request, 9)
    codes = [partition.error_code for partition in response.responses[0].partition_responses]
    assert codes == [ErrorCode.CORRUPT_MESSAGE, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await wire.values("t", partition=1) == [b"good"]
    assert await wire.values("t", partition=0) == []


async def test_pipelined_produces_are_appended_and_answered_in_order(
    wire: Any, make_produce: Any, make_batch: Any
) -> None:
    await wire.create("t")
    for number in range(50):
        wire.ask_later(make_produce("t", make_batch([b"%d" % number])), 9)
    offsets = [(await wire.response()).responses[0].partition_responses[0].base_offset for _ in range(50)]
    assert offsets == list(range(50))
    assert await wire.values("t") == [b"%d" % number for number in range(50)]


async def test_large_compressed_batches_keep_their_place_among_small_ones(
    wire: Any, make_produce: Any, make_batch: Any
) -> None:
    await wire.create("t", max_message_bytes="10000000")
    noise = random.Random(1).randbytes(600_000)
    for number in range(6):
        value = noise if number % 2 else b"small"
        codec = Codec.GZIP if number % 2 else Codec.NONE
        batch = make_batch([value], codec=codec, producer_id=1, producer_epoch=0, base_sequence=number)
        wire.ask_later(make_produce("t", batch), 9)
    answers = [(await wire.response()).responses[0].partition_responses[0] for _ in range(6)]
    assert [(answered.error_code, answered.base_offset) for answered in answers] == [
        (0, number) for number in range(6)
    ]
    assert await wire.values("t") == [b"small", noise] * 3


async def test_batches_that_are_small_on_the_wire_and_large_inside_are_checked_on_other_threads(
    wire: Any, make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as one step of a large request takes are checked on the loop; each of these expands to more."""
    await wire.create("t", partitions=20)
    real = record_validation.validate_records
    on_loop_bytes: list[int] = []
    elsewhere: list[int] = []

    def noted(batch: Any, header: Any, **options: Any) -> Any:
        summary = real(batch, header, **options)
        is_on_loop = threading.current_thread() is threading.main_thread()
        (on_loop_bytes if is_on_loop else elsewhere).append(summary.records_bytes)
        return summary

    monkeypatch.setattr(record_validation, "validate_records", noted)
    batch = make_batch([b"x" * 900_000], codec=Codec.GZIP)
    assert len(batch) < 10_000
    data = [PartitionProduceData(index=index, records=bytes(batch)) for index in range(20)]
    request = ProduceRequest(
        acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    response = await wire.ask(request, 9)
    assert [partition.error_code for partition in response.responses[0].partition_responses] == [0] * 20
    assert sum(on_loop_bytes) <= record_validation.INLINE_BYTES_MAX
    assert len(elsewhere) >= 18


@pytest.mark.parametrize(("size", "is_on_loop"), [(1_000, True), (500_000, False)])
async def test_a_large_batch_is_compressed_again_on_another_thread(
    wire: Any,
    make_produce: Any,
    make_batch: Any,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    is_on_loop: bool,
) -> None:
    await wire.create("t", compression_type="zstd")
    threads: list[threading.Thread] = []
    real = record_validation.recompressed

    def noted(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(record_validation, "recompressed", noted)
    value = random.Random(1).randbytes(size)
    response = await wire.ask(make_produce("t", make_batch([value])), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert [thread is threading.main_thread() for thread in threads] == [is_on_loop]
    assert await wire.values("t") == [value]


async def test_a_large_damaged_batch_is_refused_like_a_small_one(
    wire: Any, make_produce: Any, make_batch: Any
) -> None:
    await wire.create("t", max_message_bytes="10000000")
    batch = make_batch([random.Random(1).randbytes(600_000)], codec=Codec.ZSTD)
    batch[-1] ^= 1
    response = await wire.ask(make_produce("t", batch), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE


async def test_an_idempotent_producer_may_repeat_a_batch_but_not_skip_one(wire: Any) -> None:
    await wire.create("t")
    ids = {"producer_id": 5, "producer_epoch": 0}
    first = await wire.produce("t", [b"a", b"b"], base_sequence=0, **ids)
    again = await wire.produce("t", [b"a", b"b"], base_sequence=0, **ids)
    gap = await wire.produce("t", [b"z"], base_sequence=9, **ids)
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = await wire.produce("t", [b"c"], base_sequence=0, producer_id=5, producer_epoch=1)
    assert newer.error_code == 0
    fenced = await wire.produce("t", [b"d"], base_sequence=2, **ids)
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await wire.values("t") == [b"a", b"b", b"c"]


async def test_clients_cannot_fetch_as_a_replica(wire: Any) -> None:
    await wire.create("t")
    response = await wire.ask(FetchRequest(replica_id=1), 11)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_fetch_of_another_leader_epoch_is_fenced(scene: Any, wire: Any) -> None:
    await wire.create("t")
    assert (await wire.fetch("t", 0, current_leader_epoch=1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    await scene.stop()
    broker = await scene.start()
    wire = await scene.connect()
    assert (await wire.fetch("t", 0, current_leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    epoch = broker.context.image.topics["t"].partitions[0].leader_epoch
    assert (await wire.fetch("t", 0, current_leader_epoch=epoch)).error_code == 0


async def test_a_fetch_session_tells_only_what_changed(wire: Any, make_fetch: Any) -> None:
    await wire.create("t")
    await wire.create("u")
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1000)]) for name in ("t", "u")
    ]
    first = await wire.ask(FetchRequest(max_bytes=9999, session_epoch=0, topics=topics), 11)
    assert first.session_id != 0
    assert {topic.topic for topic in first.responses} == {"t", "u"}
    request = FetchRequest(max_bytes=9999, session_id=first.session_id, session_epoch=1)
    assert (await wire.ask(request, 11)).responses == []
    await wire.produce("u", [b"x"])
    request = FetchRequest(max_bytes=9999, session_id=first.session_id, session_epoch=2)
    assert [topic.topic for topic in (await wire.ask(request, 11)).responses] == ["u"]
    assert (await wire.ask(request, 11)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    request = FetchRequest(max_bytes=9999, session_id=first.session_id + 1, session_epoch=1)
    assert (await wire.ask(request, 11)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_all_replicas_are_enough_where_more_are_required_than_exist(wire: Any) -> None:
    await wire.create("t", min_insync_replicas="2")
    assert (await wire.produce("t", [b"x"])).error_code == 0
    assert (await wire.produce("t", [b"x"], acks=1)).error_code == 0


async def test_without_flush_before_ack_records_are_readable_at_once_and_flushed_in_time(
    scene: Any, wire: Any
) -> None:
    await wire.create("t", flush_before_ack="false", flush_ms="1")
    assert (await wire.produce("t", [b"x"])).error_code == 0
    assert await wire.values("t") == [b"x"]
    partition = scene.broker.context.replicas.leader("t", 0)
    await until(lambda: partition.log.flushed_offset == 1)


async def test_clients_that_do_not_read_cannot_make_the_broker_hold_more_than_its_limit(
    scene: Any, make_fetch: Any, monkeypatch: Any
) -> None:
    # What is sent from a mapping of a file takes no memory: this is about answers that have to be read into it.
    monkeypatch.setattr(Connection, "sends_uncopied", property(lambda connection: False))
    await scene.start(queued_max_response_bytes=str(4 << 20))
    wire = await scene.connect()
    await wire.create("t", max_message_bytes="2000000")
    for _ in range(20):
        await wire.produce("t", [b"x" * 1_000_000])
    idle = [await scene.connect() for _ in range(30)]
    for open_connection in idle:
        open_connection.stop_reading()
        for _ in range(20):
            open_connection.ask_later(make_fetch("t", 0, max_bytes=1 << 20, partition_max_bytes=1 << 20), 11)
    answers = scene.broker.server.answers
    await until(lambda: answers.held_bytes > 0)
    assert (await wire.fetch("none", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (
        "others are served"
    )
    # Each answer was made while there was room, so the last one may go beyond it, once: by a batch and what is around it.
    assert answers.counters.peak_bytes <= (4 << 20) + (2 << 20)
    for open_connection in idle:
        open_connection.abandon()
    await until(lambda: answers.held_bytes == 0)
    assert len((await wire.fetch("t", 0)).records) > 1_000_000
