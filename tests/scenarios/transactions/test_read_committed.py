"""Transactions as partitions and readers see them: what is admitted, how far readers get, what they must leave out."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.requests import produce_request
from tests.kit.waiting import until
from tests.scenarios.transactions.transactional_producer import CLASSIC as CLASSIC_END
from tests.scenarios.transactions.transactional_producer import EPOCHS, TransactionalProducer, coordinated

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.data.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.data.fetch import FetchTopic
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest
from odradek.records import data_batches, decode_batch, split_batches

SECONDS = 10
COMMITTED = 1
CLASSIC, NEWEST = 9, 12
"""Versions of Produce: partitions are added before, or by producing."""


class Producer(TransactionalProducer):
    """Its batches are whatever a test wants, and so is the version of Produce."""

    def request(self, topic: str, values: list[bytes], partition: int = 0, **more: Any) -> ProduceRequest:
        name = TopicPartition(topic, partition)
        sequence = self.sequences.get(name, 0)
        self.sequences[name] = sequence + len(values)
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "transactional": True,
        } | more
        batch = self.batch_of(values, **fields)
        return produce_request(topic, batch, partition=partition, transactional_id=self.name)

    async def produce(self, topic: str, values: list[bytes], version: int = CLASSIC, **more: Any) -> int:
        """The error code."""
        response = await self.wire.ask(self.request(topic, values, **more), version)
        return int(response.responses[0].partition_responses[0].error_code)


@pytest.fixture
def producer_of(wire: Any, make_batch: Callable[..., bytearray]) -> Callable[[str], Any]:
    async def make(name: str, end_version: int = CLASSIC_END) -> Producer:
        await coordinated(wire, name)
        producer = Producer(wire, make_batch, name, end_version)
        assert await producer.init() is ErrorCode.NONE
        return producer

    return make


async def read(wire: Any, make_fetch: Any, topic: str, *, isolation: int = COMMITTED, **more: int) -> Any:
    request = make_fetch(topic, more.pop("offset", 0), **more).replace(isolation_level=isolation)
    response = await wire.ask(request, 11)
    return response.responses[0].partitions[0]


def values_in(data: Any) -> list[bytes | None]:
    aborted = [
        (transaction.producer_id, transaction.first_offset) for transaction in data.aborted_transactions or ()
    ]
    return [
        record.value
        for header, batch in data_batches(split_batches(data.records), aborted=aborted)
        for record in decode_batch(batch, header)
    ]


async def latest(wire: Any, topic: str, isolation: int) -> int:
    partition = ListOffsetsPartition(timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    response = await wire.ask(request, 7)
    return int(response.topics[0].partitions[0].offset)


async def settled(wire: Any, make_fetch: Any, topic: str, end_offset: int) -> Any:
    """What a reader of committed records gets once the last marker is there."""
    return await until(
        lambda: read(wire, make_fetch, topic), holds=lambda data: data.last_stable_offset >= end_offset
    )


# -- what readers see


async def test_an_open_transaction_is_seen_by_those_who_read_everything_alone(
    wire: Any, producer_of: Any, make_fetch: Any
) -> None:
    await wire.create("t")
    await wire.produce("t", [b"plain"])
    producer = await producer_of("one")
    assert await producer.add("t", 0) == [0]
    assert await producer.produce("t", [b"a", b"b"]) == 0
    committed = await read(wire, make_fetch, "t")
    assert values_in(committed) == [b"plain"]
    assert (committed.last_stable_offset, committed.high_watermark) == (1, 3)
    assert committed.aborted_transactions == []
    everything = await read(wire, make_fetch, "t", isolation=0)
    assert values_in(everything) == [b"plain", b"a", b"b"]
    assert everything.aborted_transactions is None
    assert everything.last_stable_offset == 1
    assert await latest(wire, "t", COMMITTED) == 1
    assert await latest(wire, "t", 0) == 3


@pytest.mark.parametrize("version", [CLASSIC, 11, NEWEST])
async def test_committed_records_are_seen_and_aborted_ones_are_named(
    wire: Any, producer_of: Any, make_fetch: Any, version: int
) -> None:
    await wire.create("t")
    producer = await producer_of("one", EPOCHS if version >= NEWEST else CLASSIC_END)
    offset = 0
    for number, commit in enumerate((True, False, True, False)):
        if version < NEWEST:
            assert await producer.add("t", 0) == [0]
        assert await producer.produce("t", [b"%d" % number], version) == 0
        assert await producer.end(commit=commit) == 0
        offset += 2
        data = await settled(wire, make_fetch, "t", offset)
    assert values_in(data) == [b"0", b"2"]
    assert [transaction.first_offset for transaction in data.aborted_transactions] == [2, 6]
    later = await read(wire, make_fetch, "t", offset=4)
    assert [transaction.first_offset for transaction in later.aborted_transactions] == [6]
    assert await latest(wire, "t", COMMITTED) == 8


async def test_a_long_poll_for_committed_records_ends_with_the_transaction_not_with_its_batches(
    scene: Any, wire: Any, producer_of: Any, make_fetch: Any
) -> None:
    await wire.create("t")
    producer = await producer_of("one")
    assert await producer.add("t", 0) == [0]
    reader = await scene.connect()
    request = make_fetch("t", 0, max_wait_ms=15_000).replace(isolation_level=COMMITTED)
    reader.ask_later(request, 11)
    polled = asyncio.ensure_future(reader.response())
    assert await producer.produce("t", [b"a"]) == 0
    assert await producer.produce("t", [b"b"]) == 0
    assert await latest(wire, "t", 0) == 2
    assert not polled.done(), "what is readable is not committed"
    assert await producer.end(commit=True) == 0
    data = (await polled).responses[0].partitions[0]
    assert values_in(data) == [b"a", b"b"]


async def test_a_long_poll_in_an_open_transaction_ends_when_its_records_are_deleted(
    scene: Any, wire: Any, producer_of: Any, make_fetch: Any
) -> None:
    """The reader gets OFFSET_OUT_OF_RANGE as soon as that is so; it waits at the transaction's first record."""
    await wire.create("t")
    producer = await producer_of("one")
    assert await producer.add("t", 0) == [0]
    assert await producer.produce("t", [b"a", b"b", b"c"]) == 0
    reader = await scene.connect()
    reader.ask_later(make_fetch("t", 0, max_wait_ms=30_000).replace(isolation_level=COMMITTED), 11)
    polled = asyncio.ensure_future(reader.response())
    readers = scene.broker.context.replicas.leader("t", 0)._replica.readers
    await until(lambda: readers._committed)
    deletion = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    response = await wire.ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=SECONDS * 1000), 2)
    assert response.topics[0].partitions[0].error_code == 0
    async with asyncio.timeout(SECONDS):
        data = (await polled).responses[0].partitions[0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert data.log_start_offset in (2, -1)
    assert await latest(wire, "t", COMMITTED) == 2


async def test_every_version_of_fetch_names_the_aborted_transactions(
    wire: Any, producer_of: Any, make_fetch: Any
) -> None:
    topic = await wire.create("t")
    producer = await producer_of("one")
    await producer.add("t", 0)
    await producer.produce("t", [b"a"])
    await producer.end(commit=False)
    await settled(wire, make_fetch, "t", 2)
    for version in range(4, 19):
        request = make_fetch("t", 0).replace(
            isolation_level=COMMITTED, session_epoch=0 if version >= 7 else -1
        )
        if version >= 13:
            wanted = request.topics[0].partitions
            request = request.replace(topics=[FetchTopic(topic_id=topic.topic_id, partitions=wanted)])
        data = (await wire.ask(request, version)).responses[0].partitions[0]
        assert [transaction.producer_id for transaction in data.aborted_transactions] == [
            producer.producer_id
        ]
        assert data.last_stable_offset == 2


async def test_transactions_are_what_they_were_after_a_restart(
    scene: Any, wire: Any, producer_of: Any, make_fetch: Any
) -> None:
    await wire.create("t")
    producers = [await producer_of(name) for name in "ab"]
    for producer in producers:
        assert await producer.add("t", 0) == [0]
    assert await producers[0].produce("t", [b"gone"]) == 0
    assert await producers[1].produce("t", [b"open"]) == 0
    assert await producers[0].end(commit=False) == 0
    await until(lambda: latest(wire, "t", 0), holds=lambda value: value >= 3)
    await scene.stop()
    await scene.start()
    again = await scene.connect()
    data = await read(again, make_fetch, "t")
    assert data.last_stable_offset == 1
    assert [transaction.first_offset for transaction in data.aborted_transactions] == [0]
    assert values_in(data) == []
    producers[1].wire = again
    assert await producers[1].end(commit=True) == 0
    data = await settled(again, make_fetch, "t", 4)
    assert values_in(data) == [b"open"]


# -- what is admitted


async def test_a_batch_of_a_transaction_that_the_partition_was_not_added_to_is_refused(
    wire: Any, producer_of: Any
) -> None:
    await wire.create("t")
    producer = await producer_of("one")
    assert await producer.produce("t", [b"a"], 9) == 48, "clients up to 10 know it as INVALID_TXN_STATE"
    assert await producer.produce("t", [b"a"], 11, base_sequence=0) == 120
    assert await latest(wire, "t", 0) == 0


async def test_a_late_batch_after_the_abort_does_not_begin_another_transaction(
    wire: Any, producer_of: Any
) -> None:
    await wire.create("t")
    producer = await producer_of("one")
    await producer.add("t", 0)
    assert await producer.produce("t", [b"a"]) == 0
    late = producer.request("t", [b"late"])
    assert await producer.end(commit=False) == 0
    await until(lambda: latest(wire, "t", 0), holds=lambda value: value >= 2)
    response = await wire.ask(late, CLASSIC)
    assert response.responses[0].partition_responses[0].error_code in (48, 19)
    assert await latest(wire, "t", COMMITTED) == await latest(wire, "t", 0) == 2


async def test_requests_behind_one_that_waits_for_its_coordinator_keep_their_order(
    wire: Any, producer_of: Any
) -> None:
    await wire.create("t")
    producer = await producer_of("one")
    await producer.add("t", 0)
    for number in range(5):
        wire.ask_later(producer.request("t", [b"%d" % number]), CLASSIC)
    responses = [await wire.response() for _ in range(5)]
    results = [response.responses[0].partition_responses[0] for response in responses]
    assert [(outcome.error_code, outcome.base_offset) for outcome in results] == [
        (0, number) for number in range(5)
    ]


async def test_transactional_batches_need_a_transactional_id(wire: Any, producer_of: Any) -> None:
    await wire.create("t", 2)
    producer = await producer_of("one")
    await producer.add("t", 0)
    request = producer.request("t", [b"a"]).replace(transactional_id=None)
    plain = PartitionProduceData(index=1, records=producer.batch_of([b"plain"]))
    request.topic_data[0].partition_data.append(plain)
    response = await wire.ask(request, CLASSIC)
    assert [partition.error_code for partition in response.responses[0].partition_responses] == [53, 53]
    assert await latest(wire, "t", 0) == 0


async def test_a_request_has_batches_of_one_producer(wire: Any, producer_of: Any) -> None:
    await wire.create("t", 2)
    producer = await producer_of("one")
    request = producer.request("t", [b"a"])
    other = producer.request("t", [b"b"], 1, producer_id=producer.producer_id + 1)
    request.topic_data[0].partition_data.extend(other.topic_data[0].partition_data)
    response = await wire.ask(request, CLASSIC)
    assert [partition.error_code for partition in response.responses[0].partition_responses] == [49, 49]


async def test_a_producer_in_a_transaction_writes_nothing_outside_of_it(wire: Any, producer_of: Any) -> None:
    await wire.create("t")
    producer = await producer_of("one")
    await producer.add("t", 0)
    assert await producer.produce("t", [b"a"]) == 0
    assert await producer.produce("t", [b"b"], transactional=False) == 48


async def test_control_batches_and_batches_without_a_producer_are_not_for_clients(
    wire: Any, producer_of: Any
) -> None:
    await wire.create("t")
    producer = await producer_of("one")
    await producer.add("t", 0)
    assert await producer.produce("t", [b"a"], control=True) == 87
    assert await producer.produce("t", [b"a"], producer_id=-1, producer_epoch=-1, base_sequence=-1) == 87
    assert await latest(wire, "t", 0) == 0


async def test_clients_write_into_no_internal_topic(wire: Any, producer_of: Any) -> None:
    producer = await producer_of("one")
    assert await producer.produce("__transaction_state", [b"a"]) == 17
    response = await wire.produce("__transaction_state", [b"a"])
    assert response.error_code == 17


async def test_a_transactional_batch_is_still_one_when_the_topic_compresses_again(
    wire: Any, producer_of: Any, make_fetch: Any
) -> None:
    await wire.create("t", compression_type="gzip")
    producer = await producer_of("one")
    await producer.add("t", 0)
    assert await producer.produce("t", [b"a"]) == 0
    assert (await read(wire, make_fetch, "t")).last_stable_offset == 0
    await producer.end(commit=False)
    assert values_in(await settled(wire, make_fetch, "t", 2)) == []


# -- describing


async def test_producers_are_described_with_their_transactions(wire: Any, producer_of: Any) -> None:
    await wire.create("t")
    producer = await producer_of("one")
    await producer.add("t", 0)
    await wire.produce("t", [b"plain"], producer_id=9999, producer_epoch=3, base_sequence=4)
    assert await producer.produce("t", [b"a", b"b"]) == 0
    topics = [
        TopicRequest(name="t", partition_indexes=[0, 7]),
        TopicRequest(name="no/topic", partition_indexes=[0]),
    ]
    response = await wire.ask(DescribeProducersRequest(topics=topics), 0)
    partition, missing = response.topics[0].partitions
    assert (missing.error_code, response.topics[1].partitions[0].error_code) == (3, 17)
    described = {
        active_producer.producer_id: active_producer for active_producer in partition.active_producers
    }
    mine, other = described[producer.producer_id], described[9999]
    assert (mine.producer_epoch, mine.last_sequence, mine.current_txn_start_offset) == (producer.epoch, 1, 1)
    assert mine.last_timestamp == 1_700_000_000_001
    assert mine.coordinator_epoch == -1
    assert (other.producer_epoch, other.last_sequence, other.current_txn_start_offset) == (3, 4, -1)
