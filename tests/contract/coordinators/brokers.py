"""Two brokers for the tests of adapters: one asks, and the other is asked through the bytes of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from odradek.broker.coordinators.internal_topics import InternalTopic
from odradek.broker.coordinators.runtime import CoordinatorParts, CoordinatorRuntime
from odradek.broker.handlers import Handlers
from odradek.broker.share.persister import SharePersister
from odradek.cluster.image import SHARE_GROUP_STATE, ClusterImage, PartitionImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.config.server import ServerConfig
from odradek.groups.share.state import ShareStates, StateSettings
from odradek.model.errors import KafkaError, OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.protocol import APIS, Message, api_of, decode, encode
from odradek.records import assign, read_header
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.turns import Turns
from odradek.shards import ShardLog

HERE, OTHER = BrokerId(1), BrokerId(2)


class MemoryLog:
    """A shard's log in memory, durable at once."""

    name, leader_epoch, start_offset, batch_bytes_max = "log-0", 0, 0, 1_000_000

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.refusal: KafkaError | None = None

    def check_writable(self) -> None: ...

    def call_after_flush(self, call: Callable[[], None]) -> bool:
        return False

    def append(self, batch: bytearray, *, now_ms: int) -> int:
        if self.refusal is not None:
            raise self.refusal
        assign(memoryview(batch), self.end_offset, 0)
        self.batches.append(bytes(batch))
        self.end_offset += read_header(batch).last_offset_delta + 1
        return self.end_offset - 1

    def append_marker(self, *_: Any, **__: Any) -> int:
        raise AssertionError

    def committed(self, last_offset: int) -> None:
        return None

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        return b"", self.end_offset


class ShareBroker:
    """A broker that keeps the state of share groups, if it leads the shard of it."""

    def __init__(self, broker_id: BrokerId, leader: BrokerId) -> None:
        self.config = BrokerConfig(server=ServerConfig(node_id=broker_id))
        self.turns = Turns(SystemClock().monotonic)
        self.image = image(leader)
        self.coordinators = CoordinatorRuntime()
        broker: Any = self
        self.coordinators.begin(broker)
        topic = InternalTopic(name=SHARE_GROUP_STATE, partition_count=lambda _: 1)
        shards = self.coordinators.new_shards(topic, lambda _: ShareStates(StateSettings), SystemClock())
        shares = self.coordinators.expect(SHARE_GROUP_STATE, lambda: CoordinatorParts(topic, shards, None))
        self.kinds = SimpleNamespace(shares=shares)
        self.shards = shards
        self.keeper = SharePersister(self.coordinators, shards, lambda: None)
        self.log = MemoryLog()
        if broker_id == leader:
            log: ShardLog = self.log
            shards.elected(0, log)


TOPIC_ID = UUID(int=7)
"""The id of a topic of ten partitions, which share groups read."""


def image(leader: BrokerId) -> ClusterImage:
    partition = PartitionImage(leader=leader, leader_epoch=LeaderEpoch(0), replicas=(leader,), isr=(leader,))
    empty = ClusterImage(
        version=0, cluster_id="c", controller_id=HERE, brokers=(), topics={}, topics_by_id={}
    )
    kept = TopicImage(name=SHARE_GROUP_STATE, topic_id=UUID(int=1), partitions=(partition,))
    read = TopicImage(name="read", topic_id=TOPIC_ID, partitions=(partition,) * 10)
    return empty.with_topics([kept, read])


Serve = Callable[[Any], Awaitable[Any]]
"""Answers a request of another broker."""


def handlers_of(broker: Any) -> Serve:
    """Returns what answers as the production handlers do, over `broker`."""
    handlers = Handlers()

    def serve(request: Message) -> Awaitable[Any]:
        api = api_of(request)
        context: Any = SimpleNamespace(api_version=api.versions.max)
        response: Any = handlers[api.key].handle(broker, context, request)
        return cast(Awaitable[Any], response)

    return serve


class PeerRequests:
    """Requests of one broker to others, which go through their bytes, as their answers do. Brokers without a handler are
    unreachable."""

    def __init__(self, handlers: Mapping[BrokerId, Serve]) -> None:
        self.handlers = dict(handlers)
        self.requests: list[tuple[BrokerId, Any]] = []
        self.held: asyncio.Event | None = None
        """No request is answered before it is set."""

    async def ask(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> Message:
        api = APIS[api_key]
        version = api.versions.max
        arrived = decode(api.request, version, encode(request, version))[0]
        self.requests.append((broker, arrived))
        if self.held is not None:
            await self.held.wait()
        if broker not in self.handlers:
            raise OdradekError(f"broker {broker} is unreachable")
        return decode(api.response, version, encode(await self.handlers[broker](arrived), version))[0]
