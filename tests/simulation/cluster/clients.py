"""How simulated clients find their way in a cluster: metadata from any broker, then the leader or the coordinator.

`ClusterRouter` looks like one connection and sends each request where it belongs. What it learned it keeps until something goes
wrong; then its user drops it and takes another, as a client does that refreshes its metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from tests.simulation.broker.clients import ClientContext, RefusedError, check_code

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.net.outgoing_security import LoginCredentials
from odradek.protocol import Message
from odradek.protocol.messages.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.testing.sim.wire_client import WireClient

GROUP_KEY, TRANSACTION_KEY = 0, 1
_PATIENCE_S: Final = 3.0
M = TypeVar("M", bound=Message)
Address = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class ClusterContext(ClientContext):
    """What all clients of a run share. `brokers` is where they ask first; `broker` is not used."""

    brokers: tuple[Address, ...]
    login: LoginCredentials | None = None

    async def connect(self) -> ClusterRouter:  # type: ignore[override]
        return ClusterRouter(self)

    async def connect_to(self, partition: TopicPartition) -> WireClient:
        """Connects to the partition's leader, as some broker knows it."""
        client = ClusterRouter(self)
        address = await client.leader_of(partition)
        client.close()
        return await self.dial(address)

    async def connect_to_any(self) -> WireClient:
        return await self.dial(self.rng.choice(self.brokers))

    async def dial(self, address: Address) -> WireClient:
        return await WireClient.connect(*address, api_timeout_s=_PATIENCE_S, login=self.login)

    def name_of(self, topic_id: UUID) -> str:
        return next(name for name, known in self.topic_ids.items() if known == topic_id)


class ClusterRouter:
    """A connection to the whole cluster; used as a `WireClient` is."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context
        self._links: dict[Address, WireClient] = {}
        self._first: Address | None = None
        self._leaders: dict[TopicPartition, Address] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    async def call(self, request: Message, version: int, answer_type: type[M]) -> M:
        link = await self._link(await self._address(request))
        return await link.call(request, version, answer_type)

    async def _link(self, address: Address) -> WireClient:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = await self._context.dial(address)
        return link

    # -- who is asked

    async def _address(self, request: Any) -> Address:
        partition = self._partition(request)
        if partition is not None:
            return await self.leader_of(partition)
        if isinstance(request, AddPartitionsToTxnRequest):
            return await self.coordinator_of(TRANSACTION_KEY, request.v3_and_below_transactional_id)
        group = getattr(request, "group_id", None) or _first_group(request)
        if group is not None and not _is_for_transactions(request):
            return await self.coordinator_of(GROUP_KEY, group)
        transactional_id = getattr(request, "transactional_id", None)
        if transactional_id is not None:
            return await self.coordinator_of(TRANSACTION_KEY, transactional_id)
        return self._anyone()

    def _partition(self, request: Any) -> TopicPartition | None:
        """Returns the partition of a request that goes to the leader of its only partition."""
        match type(request).__name__:
            case "ProduceRequest":
                topic = request.topic_data[0]
                return TopicPartition(
                    topic.name or self._context.name_of(topic.topic_id), topic.partition_data[0].index
                )
            case "FetchRequest":
                topic = request.topics[0]
                name = topic.topic or self._context.name_of(topic.topic_id)
                return TopicPartition(name, topic.partitions[0].partition)
            case "ListOffsetsRequest" | "DeleteRecordsRequest":
                topic = request.topics[0]
                return TopicPartition(topic.name, topic.partitions[0].partition_index)
        return None

    def _anyone(self) -> Address:
        if self._first is None:
            self._first = self._context.rng.choice(self._context.brokers)
        return self._first

    async def leader_of(self, partition: TopicPartition) -> Address:
        """RefusedError while the broker that is asked knows of none."""
        leader = self._leaders.get(partition)
        if leader is None:
            leader = self._leaders[partition] = await self._find_leader(partition)
        return leader

    async def _find_leader(self, partition: TopicPartition) -> Address:
        link = await self._link(self._anyone())
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False
        )
        response = await link.call(request, 12, MetadataResponse)
        (topic,) = response.topics
        check_code(topic.error_code, f"metadata of {partition.topic}")
        index = partition.partition
        for response_partition in topic.partitions:
            if response_partition.partition_index == index:
                for broker in response.brokers:
                    if broker.node_id == response_partition.leader_id:
                        return broker.host, broker.port
        raise RefusedError(f"no leader for {partition}")

    async def coordinator_of(self, kind: int, key: str) -> Address:
        coordinator = self._coordinators.get((kind, key))
        if coordinator is None:
            link = await self._link(self._anyone())
            request = FindCoordinatorRequest(key=key, key_type=kind)
            response = await link.call(request, 2, FindCoordinatorResponse)
            if response.error_code != ErrorCode.NONE:
                raise RefusedError(ErrorCode.of(response.error_code).name)
            coordinator = self._coordinators[kind, key] = (response.host, response.port)
        return coordinator


def _first_group(request: Any) -> str | None:
    groups = getattr(request, "groups", None)
    return groups[0].group_id if groups and hasattr(groups[0], "group_id") else None


def _is_for_transactions(request: Message) -> bool:
    """AddOffsetsToTxn names a group, and goes to the coordinator of transactions."""
    return type(request).__name__ in ("AddOffsetsToTxnRequest", "EndTxnRequest", "InitProducerIdRequest")
