"""A clock that stands still, chance that is known, and a broker that answers what a test tells it to."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.client.settings.settings import ConsumerSettings, ProducerSettings
from odradek.protocol import api_by_key, decode, decode_request_header, encode_response
from odradek.protocol.messages.data.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.metadata.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdResponse

TOPIC_ID = UUID(int=5)
HERE = "127.0.0.1:9092"


class StillClock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.wall = 1_700_000_000_000

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return self.wall


class FixedEntropy:
    """Always the same number."""

    def __init__(self, value: float = 0.5) -> None:
        self.value = value

    def uniform(self) -> float:
        return self.value

    def uuid(self) -> UUID:
        return UUID(int=1)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def chance() -> FixedEntropy:
    return FixedEntropy()


@pytest.fixture
def producer_settings() -> Callable[..., ProducerSettings]:
    return lambda **given: ProducerSettings.of(HERE, given)


@pytest.fixture
def consumer_settings() -> Callable[..., ConsumerSettings]:
    return lambda **given: ConsumerSettings.of(HERE, given)


HANG_UP = object()
"""What a handler returns to cut the connection instead of answering."""
SILENCE = object()
"""What a handler returns to never answer."""
UNSERVED = frozenset({"GetTelemetrySubscriptions", "PushTelemetry"})
"""APIs that the broker offers only where a test sets `versions`: clients would ask on their own."""


@dataclass(slots=True)
class ReceivedRequest:
    """One request that the scripted broker got."""

    name: str
    version: int
    message: Any
    connection: int


@dataclass
class ScriptedBroker:
    """One broker on a port of its own. `on[name]` answers requests of that API: called with an `ReceivedRequest`, it returns a
    response (or an awaitable of one), HANG_UP or SILENCE; scripts in `once[name]` go first, one for each request."""

    port: int = 0
    asked: list[ReceivedRequest] = field(default_factory=list)
    on: dict[str, Callable[[ReceivedRequest], Any]] = field(default_factory=dict)
    once: dict[str, list[Callable[[ReceivedRequest], Any]]] = field(default_factory=lambda: defaultdict(list))
    topics: dict[str, int] = field(default_factory=lambda: {"t": 1})
    topic_id: UUID = TOPIC_ID
    """The id of all topics."""
    versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What ApiVersions offers in place of everything."""
    leader: int = 1
    nodes: dict[int, int] = field(default_factory=dict)
    """Ports of the cluster's brokers by id; by default this one alone, as broker 1."""
    leader_epoch: int = 3
    server: asyncio.Server | None = None
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    offsets: dict[tuple[str, int], itertools.count[int]] = field(
        default_factory=lambda: defaultdict(lambda: itertools.count(0))
    )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, name: str) -> list[Any]:
        return [asked.message for asked in self.asked if asked.name == name]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        connection = len(self.writers)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                if not await self._answer(await reader.readexactly(size), writer, connection):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter, connection: int) -> bool:
        header, position = decode_request_header(frame)
        api = api_by_key(header.api_key)
        message, _ = decode(api.request, header.api_version, frame, position)
        asked = ReceivedRequest(api.name, header.api_version, message, connection)
        self.asked.append(asked)
        script = self.once[api.name].pop(0) if self.once[api.name] else self.on.get(api.name)
        response = script(asked) if script is not None else getattr(self, f"answer_{api.name}")(asked)
        if isinstance(response, Awaitable):
            response = await response
        if response is HANG_UP:
            return False
        if response is not SILENCE:
            writer.writelines(encode_response(api.key, header.api_version, header.correlation_id, response))
        return True

    def answer_ApiVersions(self, asked: ReceivedRequest) -> Any:  # noqa: N802 - an API's name
        from odradek.protocol import APIS

        offered = self.versions or {
            api.name: (api.versions.min, api.versions.max)
            for api in APIS.values()
            if api.name not in UNSERVED
        }
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=api.key, min_version=offered[api.name][0], max_version=offered[api.name][1]
                )
                for api in APIS.values()
                if api.name in offered
            ]
        )

    def answer_Metadata(self, asked: ReceivedRequest) -> MetadataResponse:  # noqa: N802 - an API's name
        wanted = (
            self.topics if asked.message.topics is None else [topic.name for topic in asked.message.topics]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
                for node, port in (self.nodes or {1: self.port}).items()
            ],
            cluster_id="scripted",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    error_code=0 if name in self.topics else 3,
                    name=name,
                    topic_id=self.topic_id if asked.version >= 10 else UUID(int=0),
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number,
                            leader_id=self.leader,
                            leader_epoch=self.leader_epoch,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                        for number in range(self.topics.get(name, 0))
                    ],
                )
                for name in wanted
            ],
        )

    def answer_InitProducerId(self, asked: ReceivedRequest) -> InitProducerIdResponse:  # noqa: N802 - an API's name
        return InitProducerIdResponse(producer_id=40, producer_epoch=0)

    def answer_Produce(self, asked: ReceivedRequest) -> Any:  # noqa: N802 - an API's name
        return self.produced(asked)

    def produced(self, asked: ReceivedRequest, code: int = 0, message: str | None = None) -> Any:
        """The same answer for every partition of a request."""
        if asked.message.acks == 0:
            return SILENCE
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=partition.index,
                            error_code=code,
                            error_message=message,
                            base_offset=next(self.offsets[topic.name, partition.index]) if code == 0 else -1,
                        )
                        for partition in topic.partition_data
                    ],
                )
                for topic in asked.message.topic_data
            ]
        )

    async def stop(self) -> None:
        """Stop listening, and hang up on everyone."""
        if self.server is not None:
            self.server.close()
        for writer in self.writers:
            writer.close()
        await asyncio.sleep(0)


@pytest.fixture
async def make_broker() -> AsyncIterator[Callable[[], Awaitable[ScriptedBroker]]]:
    made: list[ScriptedBroker] = []

    async def make() -> ScriptedBroker:
        broker = ScriptedBroker()
        broker.server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        broker.port = broker.server.sockets[0].getsockname()[1]
        made.append(broker)
        return broker

    yield make
    for broker in made:
        await broker.stop()


@pytest.fixture
async def broker(make_broker: Callable[[], Awaitable[ScriptedBroker]]) -> ScriptedBroker:
    return await make_broker()


@pytest.fixture
def within() -> Callable[[Awaitable[Any]], Awaitable[Any]]:
    """Await something, but not for ever: a hang is a failure."""

    async def bounded(work: Awaitable[Any]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return bounded


@pytest.fixture
def hang_up() -> object:
    return HANG_UP


@pytest.fixture
def silence() -> object:
    return SILENCE
