"""A broker with far fewer descriptors than partitions that are written to: appends wait for flushes, and none is refused."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.scenarios.transactions.transactional_producer import SMALL, TransactionalProducer, coordinated

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.runtime import real
from odradek.runtime.descriptors import UNLIMITED
from odradek.storage.files.writer import SegmentWriter

PARTITIONS = 100
WRITERS = 16
CONNECTIONS = 4
FEW = replace(UNLIMITED, readers=8, writers=WRITERS)


@pytest.fixture(autouse=True)
def _few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "budget", lambda: FEW)


async def _connections(scene: Any) -> list[Any]:
    return [await scene.connect() for _ in range(CONNECTIONS)]


async def _read_all(wire: Any, expected: int) -> dict[int, list[bytes | None]]:
    """Reads all partitions again and again until each has so many records."""
    values: dict[int, list[bytes | None]] = {}
    async with asyncio.timeout(30):
        while len(values) < PARTITIONS:
            for partition in range(PARTITIONS):
                if len(read := await wire.values("t", partition=partition)) == expected:
                    values[partition] = read
    return values


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_all_partitions_are_written_from_several_connections_with_a_reader_beside(
    scene: Any,
    make_batch: Callable[..., bytearray],
    make_produce: Callable[..., Any],
    acks: int,
    is_durable: bool,
) -> None:
    await scene.start()
    wires, reader = await _connections(scene), await scene.connect()
    created = await wires[0].create("t", partitions=PARTITIONS, flush_before_ack=str(is_durable).lower())
    assert created.error_code == ErrorCode.NONE
    reading = asyncio.create_task(_read_all(reader, CONNECTIONS))

    async def write(number: int, wire: Any) -> None:
        shift = number * PARTITIONS // CONNECTIONS
        partitions = [(partition + shift) % PARTITIONS for partition in range(PARTITIONS)]
        for partition in partitions:
            batch = make_batch([b"%d" % number])
            wire.ask_later(make_produce("t", batch, partition=partition, acks=acks), 9)
            if acks == 0:
                wire.expect_no_response()
        for partition in partitions if acks else ():
            (topic,) = (await wire.response()).responses
            (outcome,) = topic.partition_responses
            assert (outcome.index, outcome.error_code) == (partition, ErrorCode.NONE), outcome.error_message

    await asyncio.gather(*(write(number, wire) for number, wire in enumerate(wires)))
    values = await reading
    assert all(set(read) == {b"0", b"1", b"2", b"3"} for read in values.values())
    await scene.stop()

    await scene.start()
    again = await scene.connect()
    for partition in range(PARTITIONS):
        assert (await again.produce("t", [b"later"], partition=partition, acks=1)).error_code == 0
    assert len(await _read_all(again, CONNECTIONS + 1)) == PARTITIONS


async def test_batches_that_wait_get_the_time_of_their_append(
    scene: Any, make_batch: Callable[..., bytearray], make_produce: Callable[..., Any]
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t", partitions=PARTITIONS, message_timestamp_type="LogAppendTime")
    for partition in range(PARTITIONS):
        wire.ask_later(make_produce("t", make_batch([b"a"]), partition=partition), 9)
    for _ in range(PARTITIONS):
        (outcome,) = (await wire.response()).responses[0].partition_responses
        assert outcome.error_code == ErrorCode.NONE, outcome.error_message
        assert outcome.log_append_time_ms > 0


async def test_one_request_for_all_partitions_and_those_behind_it_are_answered_in_order(
    scene: Any, make_batch: Callable[..., bytearray], make_produce: Callable[..., Any]
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t", partitions=PARTITIONS, flush_before_ack="false")
    request = make_produce("t", make_batch([b"a"]), acks=1)
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    wide = [data.replace(index=index, records=make_batch([b"a"])) for index in range(PARTITIONS)]
    wire.ask_later(request.replace(topic_data=[topic.replace(partition_data=wide)]), 9)
    wire.ask_later(make_produce("t", make_batch([b"b"]), partition=PARTITIONS - 1, acks=1), 9)
    (first,) = (await wire.response()).responses
    assert [(part.index, part.error_code, part.base_offset) for part in first.partition_responses] == [
        (index, 0, 0) for index in range(PARTITIONS)
    ]
    (second,) = (await wire.response()).responses
    assert second.partition_responses[0].base_offset == 1


async def test_an_idempotent_producer_loses_no_sequence_while_it_waits(
    scene: Any, make_batch: Callable[..., bytearray], make_produce: Callable[..., Any]
) -> None:
    await scene.start()
    wire = await scene.connect()
    await wire.create("t", partitions=PARTITIONS, flush_before_ack="false")
    ids = await wire.ask(InitProducerIdRequest(transactional_id=None), 4)
    sent = [(partition, turn) for turn in range(3) for partition in range(PARTITIONS)]
    for partition, sequence in sent:
        batch = make_batch(
            [b"%d" % sequence], producer_id=ids.producer_id, producer_epoch=0, base_sequence=sequence
        )
        wire.ask_later(make_produce("t", batch, partition=partition), 9)
    for partition, sequence in sent:
        (topic,) = (await wire.response()).responses
        (outcome,) = topic.partition_responses
        assert (outcome.index, outcome.error_code, outcome.base_offset) == (partition, 0, sequence)


async def test_a_transaction_over_all_partitions_is_committed(
    scene: Any, make_batch: Callable[..., bytearray]
) -> None:
    await scene.start(**SMALL)
    wire, other = await scene.connect(), await scene.connect()
    await wire.create("t", partitions=PARTITIONS, flush_before_ack="false")
    await coordinated(wire)
    producer = TransactionalProducer(wire, make_batch, "x", 3)
    assert await producer.init() is ErrorCode.NONE
    assert set(await producer.add("t", *range(PARTITIONS))) == {ErrorCode.NONE}
    for partition in range(PARTITIONS):
        assert await producer.send("t", b"kept", partition) is ErrorCode.NONE
        assert (await other.produce("t", [b"plain"], partition=partition, acks=1)).error_code == 0
    assert await producer.end(commit=True) is ErrorCode.NONE

    async def committed(partition: int) -> bool:
        data = await other.fetch("t", 0, partition=partition)
        return bool(data.last_stable_offset == data.high_watermark == 3)

    async with asyncio.timeout(30):
        while not all([await committed(partition) for partition in range(PARTITIONS)]):
            await asyncio.sleep(0.05)


async def test_an_append_is_refused_when_its_time_is_up_and_no_flush_ends(
    scene: Any,
    make_batch: Callable[..., bytearray],
    make_produce: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await scene.start()
    wire, other = await scene.connect(), await scene.connect()
    await wire.create("t", partitions=PARTITIONS, flush_before_ack="false")
    monkeypatch.setattr(SegmentWriter, "rest", lambda self: False)  # as if every flush took for ever
    refused = 0
    for partition in range(3 * WRITERS):
        request = make_produce("t", make_batch([b"a"]), partition=partition, timeout_ms=20)
        (topic,) = (await wire.ask(request, 9)).responses
        (outcome,) = topic.partition_responses
        if outcome.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            assert "raise the limit of open files" in outcome.error_message
            refused += 1
    assert refused >= WRITERS
    assert (await other.fetch("t", 0)).error_code == ErrorCode.NONE
