"""Simulated clients of one broker: producers that retry, consumers that check, an admin that deletes records.

They speak the protocol package over the simulated network, in versions drawn from the seed, and share nothing
with the broker but bytes. What they learn goes into the ledgers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from tests.kit.requests import fetch_request, produce_request
from tests.simulation.ledger import Ledger, ReadRecord, found_in
from tests.simulation.record_source import Batch, RecordSource

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol import Message
from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.data.fetch import FetchResponse, PartitionData
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.data.produce import ProduceRequest, ProduceResponse
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

PORT: Final = 9092
_IN_FLIGHT_MAX: Final = 5
_BY_ID_SINCE: Final = 13
_EARLIEST, _LATEST = -2, -1
_MISSING_COUNT_MAX: Final = 20
_ALL: Final = -1


class RefusedError(Exception):
    """The broker answered with a retriable error: try again later."""


@dataclass(slots=True, kw_only=True)
class ClientContext:
    """What all clients of a run share."""

    broker: str
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    rng: Random
    now_ms: Callable[[], int]
    leaders_change: bool = False
    """Who was deposed may answer, knowing less than the leader does."""

    async def connect(self) -> WireClient:
        return await WireClient.connect(self.broker, PORT)

    async def connect_to(self, partition: TopicPartition) -> WireClient:
        """Connects to the broker where the partition is written and read."""
        return await self.connect()

    def named(self, topic: str, *, by_id: bool) -> str | UUID:
        """Returns what a request names the topic by."""
        return self.topic_ids[topic] if by_id else topic

    async def pause(self) -> None:
        """Waits before the next try."""
        await asyncio.sleep(self.rng.uniform(0.01, 0.5))

    async def stay_connected(
        self, session: Callable[[WireClient], Awaitable[None]], is_over: Callable[[], bool]
    ) -> None:
        """One session after another, each on a connection of its own, until it is over. A session may end in an error that
        clients try again after."""
        while not is_over():
            try:
                client = await self.connect()
            except OSError:
                await self.pause()
                continue
            try:
                await session(client)
            except (OSError, RefusedError):
                await self.pause()
            finally:
                client.close()


def check_code(code: int, what: str) -> None:
    """RefusedError for errors that a client retries, ViolationError for those that it must never get here."""
    error = ErrorCode.of(code)
    if error is ErrorCode.NONE:
        return
    if error.retriable:
        raise RefusedError(error.name)
    raise ViolationError(f"{what} was answered with {error.name}")


async def create_topic(
    context: ClientContext, name: str, partitions: int, configs: dict[str, str], *, replication: int = 1
) -> None:
    """Create it, however long that takes, and learn its id."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    while name not in context.topic_ids:
        try:
            client = await context.connect()
            response = await client.call(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
            code = response.topics[0].error_code
            if code != ErrorCode.TOPIC_ALREADY_EXISTS:
                check_code(code, f"creating {name}")
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            metadata = await client.call(request, 12, MetadataResponse)
            check_code(metadata.topics[0].error_code, f"metadata of {name}")
            context.topic_ids[name] = metadata.topics[0].topic_id
            client.close()
        except (OSError, RefusedError):
            await context.pause()


class SimulatedProducer:
    """Sends a source's batches, up to five at a time, until all are acknowledged.

    What is acknowledged with another `acks` than all may be lost: the ledger does not hear of it.
    """

    def __init__(
        self,
        context: ClientContext,
        partition: TopicPartition,
        source: RecordSource,
        *,
        acks: int = -1,
        start_s: float = 5.0,
        pause_s: float = 0.4,
        first_alone: bool = False,
    ) -> None:
        """`start_s` and `pause_s`: the longest that it waits at first, and between batches."""
        self._acks = acks
        self._first_alone = first_alone
        self._start_s = start_s
        self._pause_s = pause_s
        self._context = context
        self._partition = partition
        self._source = source
        self._missing_count = 0
        self._version = context.rng.choice((3, 7, 8, 9, 11, 12, 13))

    def by_id(self) -> None:
        """Name the topic by its id, which no other topic of the name will have."""
        self._version = _BY_ID_SINCE

    async def run(self) -> None:
        await asyncio.sleep(self._context.rng.choice((0.0, self._context.rng.uniform(0, self._start_s))))
        while not self._source.is_done:
            try:
                client = await self._context.connect_to(self._partition)
            except (OSError, RefusedError):
                await self._context.pause()
                continue
            try:
                await self._use(client)
            except (OSError, RefusedError):
                await self._context.pause()
            finally:
                client.close()

    async def _use(self, client: WireClient) -> None:
        """Produce over one connection until it breaks or all is done."""
        source, rng = self._source, self._context.rng
        if source.is_idempotent and source.producer_id < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = await client.call(request, 4, InitProducerIdResponse)
            check_code(response.error_code, "InitProducerId")
            source.producer_id = response.producer_id
        again = deque(source.to_send_again())
        in_flight: deque[tuple[Batch, asyncio.Future[Message]]] = deque()
        while again or in_flight or not source.is_done:
            while len(in_flight) < rng.randint(1, self._in_flight_max()) and (again or not source.is_drained):
                batch = again.popleft() if again else source.next_batch()
                in_flight.append((batch, client.send(self._request(batch), self._version)))
            batch, future = in_flight.popleft()
            self._acknowledged(batch, await client.answer(future, ProduceResponse))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(0, self._pause_s))

    def _in_flight_max(self) -> int:
        """Where a broker may refuse the first batch for a while, and take the second as the first that it sees of a producer
        (so does Kafka), nothing is sent behind the first one until it is acknowledged."""
        waits = self._first_alone and self._source.is_idempotent and not self._source.is_begun
        return 1 if waits else _IN_FLIGHT_MAX

    def _check_order(self, code: int) -> None:
        """Who led in the past may miss a batch that its successor has acknowledged, but is not asked for ever."""
        is_missing = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._context.leaders_change
        if is_missing and self._missing_count < _MISSING_COUNT_MAX:
            self._missing_count += 1
            raise RefusedError("it misses a batch")

    def _request(self, batch: Batch) -> ProduceRequest:
        records = self._source.build(batch, self._context.now_ms())
        topic = self._context.named(self._partition.topic, by_id=self._version >= _BY_ID_SINCE)
        return produce_request(topic, records, partition=self._partition.partition, acks=self._acks)

    def _acknowledged(self, batch: Batch, response: ProduceResponse) -> None:
        (topic,) = response.responses
        (partition,) = topic.partition_responses
        self._check_order(partition.error_code)
        check_code(partition.error_code, f"{self._partition}: batch {batch.first} of {self._source.name}")
        if self._acks == _ALL:
            self._source.acknowledged(batch, partition.base_offset)
        else:
            self._source.in_doubt.remove(batch)


class SimulatedConsumer:
    """Fetches, forwards and at random, and tells the ledger what it saw."""

    def __init__(self, context: ClientContext, partition: TopicPartition, ledger: Ledger) -> None:
        self._context = context
        self._partition = partition
        self._ledger = ledger
        self._version = context.rng.choice((4, 7, 11, 12, 13, 17))
        self._high_watermark = 0
        self._start_offset = 0
        self._offset = 0

    def by_id(self) -> None:
        """Name the topic by its id, which no other topic of the name will have."""
        self._version = _BY_ID_SINCE

    async def follow(self, finished: Callable[[], bool]) -> None:
        """Read until `stop`."""
        while not finished():
            try:
                with closing(await self._connect()) as client:
                    while not finished():
                        await self._step(client)
            except (OSError, RefusedError):
                await self._context.pause()

    async def _connect(self) -> WireClient:
        return await self._context.connect_to(self._partition)

    async def _step(self, client: WireClient) -> None:
        rng = self._context.rng
        if rng.random() < 0.2:
            low = min(self._start_offset, self._high_watermark)
            self._offset = rng.randint(low, self._high_watermark)
        data = await self.fetch(client, self._offset, rng.choice((1, 1000, 1 << 20)), rng.choice((0, 200)))
        if data is None:
            self._offset = await self.offset_at(client, _EARLIEST)
            return
        records = records_of(data, self._offset)
        self._check_first(records, self._offset)
        self._ledger.observe(records, data.high_watermark)
        if records:
            self._offset = records[-1].offset + 1
        await asyncio.sleep(rng.uniform(0, 0.1))

    def _check_first(self, records: list[ReadRecord], offset: int) -> None:
        if records and records[0].offset != offset:
            raise ViolationError(f"{self._partition}: a fetch at {offset} returned {records[0]}")

    async def fetch(
        self, client: WireClient, offset: int, max_bytes: int, max_wait_ms: int
    ) -> PartitionData | None:
        """None when the offset is below what is left. The high watermark that one consumer sees
        never shrinks.
        """
        topic, index = self._partition
        request = fetch_request(
            self._context.named(topic, by_id=self._version >= _BY_ID_SINCE),
            offset,
            partition=index,
            max_wait_ms=max_wait_ms,
            partition_max_bytes=max_bytes,
        )
        response = await client.call(request, self._version, FetchResponse)
        check_code(response.error_code, "Fetch")
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._was_removed(offset):
            return None
        check_code(data.error_code, f"{self._partition}: a fetch at {offset}")
        if data.high_watermark < self._high_watermark:
            raise ViolationError(
                f"{self._partition}: the high watermark went from {self._high_watermark} to {data.high_watermark}"
            )
        self._high_watermark = data.high_watermark
        self._start_offset = max(self._start_offset, data.log_start_offset)
        return data

    def _was_removed(self, offset: int) -> bool:
        """Whether it may be out of range. RefusedError when another broker may say otherwise."""
        return offset < self._ledger.removable_below

    async def offset_at(self, client: WireClient, timestamp: int) -> int:
        """ListOffsets."""
        name = self._partition
        partition = ListOffsetsPartition(partition_index=name.partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=name.topic, partitions=[partition])
        reply = await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 6, ListOffsetsResponse)
        response = reply.topics[0].partitions[0]
        check_code(response.error_code, f"{name}: offset at {timestamp}")
        return response.offset

    async def read_all(self) -> None:
        """Everything from the earliest to the latest offset, for the ledger's full check."""
        while True:
            try:
                with closing(await self._context.connect_to(self._partition)) as client:
                    await self._read_all(client)
                return
            except (OSError, RefusedError):
                await self._context.pause()

    async def _read_all(self, client: WireClient) -> None:
        start_offset = await self.offset_at(client, _EARLIEST)
        end_offset = await self.offset_at(client, _LATEST)
        records: list[ReadRecord] = []
        offset = start_offset
        while offset < end_offset:
            data = await self.fetch(client, offset, 1 << 20, 0)
            piece = records_of(data, offset) if data is not None else []
            if not piece:
                break
            records += piece
            offset = piece[-1].offset + 1
        if await self.offset_at(client, _EARLIEST) != start_offset:  # retention went by
            raise RefusedError
        self._check_contents(records, start_offset, end_offset)

    def _check_contents(self, records: list[ReadRecord], start_offset: int, end_offset: int) -> None:
        self._ledger.check(records, start_offset=start_offset, end_offset=end_offset)


def records_of(data: PartitionData, offset: int) -> list[ReadRecord]:
    """The records of a fetch answer from `offset` on."""
    return found_in(data.records or b"", offset, allow_partial=True)


async def delete_records(context: ClientContext, partition: TopicPartition, offset: int) -> None:
    """Once; whether it happened is not looked into."""
    try:
        with closing(await context.connect_to(partition)) as client:
            wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            topic = DeleteRecordsTopic(name=partition.topic, partitions=[wanted])
            request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
            response = await client.call(request, 2, DeleteRecordsResponse)
            check_code(response.topics[0].partitions[0].error_code, f"{partition}: deleting below {offset}")
    except (OSError, RefusedError):
        return
