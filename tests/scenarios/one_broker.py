"""A production broker on the test's own event loop, and a client that says exactly what a test wants."""

import asyncio
import itertools
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tests.kit.frames import read_frame

from odradek.broker.app import Broker
from odradek.config.loading import load_broker_config
from odradek.model.errors import ErrorCode
from odradek.protocol import RequestHeader, api_by_name, decode_response, encode_request
from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.records import BatchBuilder, Codec, decode_batch, split_batches
from odradek.runtime.real import real_runtime

REPLY_SECONDS = 20


class ProducerFields(TypedDict, total=False):
    """The fields of a batch that an idempotent or transactional producer fills in."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool


class Wire:
    """One connection. `call` sends and waits; `send` and `receive` pipeline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._sent: list[tuple[int, int, int]] = []

    def send(self, name: str, version: int, request: Any) -> None:
        api = api_by_name(name)
        correlation_id = next(self._ids)
        header = RequestHeader(
            api_key=api.key, api_version=version, correlation_id=correlation_id, client_id="test"
        )
        self._writer.write(encode_request(header, request))
        self._sent.append((api.key, version, correlation_id))

    async def receive(self) -> Any:
        api_key, version, expected = self._sent.pop(0)
        frame = await read_frame(self._reader, seconds=REPLY_SECONDS)
        correlation_id, response = decode_response(api_key, version, frame)
        assert correlation_id == expected
        return response

    async def call(self, name: str, version: int, request: Any) -> Any:
        self.send(name, version, request)
        return await self.receive()

    async def closed_by_broker(self) -> bool:
        async with asyncio.timeout(REPLY_SECONDS):
            return await self._reader.read() == b""

    def expect_no_answer(self) -> None:
        """The last request gets none: a produce with acks=0."""
        self._sent.pop()

    @property
    def has_arrived(self) -> bool:
        """Whether bytes are there that no one received."""
        return bool(self._reader._buffer)  # type: ignore[attr-defined]  # asyncio has no public way to look

    def about(self, name: str) -> Any:
        """What the transport knows: `ssl_object`, `cipher`."""
        return self._writer.get_extra_info(name)

    def stop_reading(self) -> None:
        """Leave what comes in the socket."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def abort(self) -> None:
        """Be gone, without a word."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass

    # -- the calls that most scenarios need

    async def find_coordinator(self, group: str = "g") -> None:
        """Returns when the broker has loaded the group's partition of __consumer_offsets.

        Clients try again on COORDINATOR_LOAD_IN_PROGRESS; a scenario that is not about this waits here.
        """
        probe = HeartbeatRequest(group_id=group, generation_id=1, member_id="unknown")
        async with asyncio.timeout(REPLY_SECONDS):
            while True:
                response = await self.call(
                    "FindCoordinator", 4, FindCoordinatorRequest(coordinator_keys=[group])
                )
                assert response.coordinators[0].error_code == 0
                if (await self.call("Heartbeat", 4, probe)).error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    return
                await asyncio.sleep(0.01)

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> Any:
        """A topic; settings with underscores for dots. Returns its result."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=5000,
        )
        response = await self.call("CreateTopics", 7, request)
        return response.topics[0]

    async def produce(
        self,
        topic: str,
        values: list[bytes],
        *,
        partition: int = 0,
        acks: int = -1,
        **producer: Unpack[ProducerFields],
    ) -> Any:
        """One batch; returns the partition's response."""
        request = produce_request(topic, batch_of(values, **producer), partition=partition, acks=acks)
        response = await self.call("Produce", 9, request)
        return response.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, *, partition: int = 0, **options: int) -> Any:
        """Without a session; returns the partition's data."""
        response = await self.call("Fetch", 11, fetch_request(topic, offset, partition=partition, **options))
        return response.responses[0].partitions[0]

    async def values(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[bytes | None]:
        """All values from an offset to the high watermark."""
        records: list[bytes | None] = []
        while True:
            data = await self.fetch(topic, offset, partition=partition)
            assert data.error_code == 0
            batches = split_batches(data.records)
            if not batches:
                return records
            for header, batch in batches:
                records += [record.value for record in decode_batch(batch, header, from_offset=offset)]
                offset = header.next_offset


def batch_of(
    values: list[bytes],
    *,
    codec: Codec = Codec.NONE,
    timestamp: int = 1_700_000_000_000,
    **producer: Unpack[ProducerFields],
) -> bytearray:
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        builder.append(timestamp + number, b"k", value)
    return builder.build(**producer)


def produce_request(
    topic: str, records: Any, *, partition: int = 0, acks: int = -1, timeout_ms: int = 5000
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


class Scene:
    """Brokers and connections of one test; all of them are gone when it ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker: Broker | None = None
        self._wires: list[Wire] = []

    async def start(self, **settings: str) -> Broker:
        """A broker on this scene's data; settings with underscores for dots."""
        values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(self.directory / "data")}
        values |= {key.replace("_", "."): value for key, value in settings.items()}
        config, _ = load_broker_config(values)
        self.runtime = real_runtime()
        self.broker = Broker(config, self.runtime)
        await self.broker.start()
        return self.broker

    async def connect(self) -> Wire:
        assert self.broker is not None
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.broker.port))
        self._wires.append(wire)
        return wire

    def forget(self, wire: Wire) -> None:
        """It is closed already."""
        self._wires.remove(wire)

    async def stop(self) -> None:
        for wire in self._wires:
            await wire.close()
        self._wires.clear()
        if self.broker is not None:
            await self.broker.stop()
            self.broker = None
            self.runtime.offload.close()  # type: ignore[attr-defined]
            if self.runtime.file_syncs is not None:
                self.runtime.file_syncs.close()
