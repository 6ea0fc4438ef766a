"""Administrators of a simulated cluster: one creates, deletes and re-creates a topic, another moves partitions about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from uuid import UUID

from tests.simulation.broker.clients import RefusedError, SimulatedProducer
from tests.simulation.cluster.clients import ClusterContext, ClusterRouter
from tests.simulation.cluster.plain import PLAIN
from tests.simulation.cluster.readers import ClusterConsumer
from tests.simulation.cluster.work import Setting
from tests.simulation.ledger import Ledger
from tests.simulation.record_source import RecordSource

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.topics.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.messages.topics.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.testing.sim.failures import ViolationError

CHURN: Final = "churn"
_TIMEOUT_MS: Final = 2000
_ROUNDS_MAX: Final = 5
T = TypeVar("T")
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
)
"""What the state of the cluster explains."""


async def insist(context: ClusterContext, act: Callable[[ClusterRouter], Awaitable[T]]) -> T:
    """Repeats an operation until it works."""
    while True:
        client = await context.connect()
        try:
            return await act(client)
        except (OSError, RefusedError):
            await context.pause()
        finally:
            client.close()


def expect(code: int, what: str, *also: ErrorCode) -> ErrorCode:
    """The code if it is success or one of `also`; RefusedError for what passes."""
    error = ErrorCode.of(code)
    if error is ErrorCode.NONE or error in also:
        return error
    if error.retriable or error in _NOT_NOW:
        raise RefusedError(error.name)
    raise ViolationError(f"{what} was answered with {error.name}")


class ChurnWork:
    """A topic of one name, again and again. What was in one of them is never seen in another."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._last_id: UUID | None = None
        self._ledger: Ledger | None = None
        self._step = ""

    async def prepare(self) -> None:
        """The topic comes and goes while faults fall."""

    async def run(self) -> None:
        await self._setting.somewhere(self._run())

    async def _run(self) -> None:
        context, rng = self._setting.context, self._setting.stream("churn")
        for number in range(_ROUNDS_MAX):
            self._step = f"creation {number} of {CHURN}"
            await insist(context, self._create)
            self._step = f"records of {CHURN} {number}"
            await self._write_and_read(number)
            self._step = ""
            if self._setting.is_calm() or number == _ROUNDS_MAX - 1:
                return
            await asyncio.sleep(rng.uniform(0, 1))
            self._step = f"deletion {number} of {CHURN}"
            await insist(context, self._delete)

    def undone(self) -> list[str]:
        return [self._step] if self._step else []

    async def _create(self, client: ClusterRouter) -> None:
        replication = self._setting.plan.replication
        topic = CreatableTopic(
            name=CHURN, num_partitions=1, replication_factor=replication, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        response = await client.call(request, 5, CreateTopicsResponse)
        expect(response.topics[0].error_code, "creating churn", ErrorCode.TOPIC_ALREADY_EXISTS)
        topic_id = await self._find_id(client)
        if topic_id is None or topic_id == self._last_id:
            raise RefusedError("the broker that was asked does not know the new topic yet")
        self._last_id = self._setting.context.topic_ids[CHURN] = topic_id

    async def _find_id(self, client: ClusterRouter) -> UUID | None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=CHURN)], allow_auto_topic_creation=False)
        response = await client.call(request, 12, MetadataResponse)
        code = expect(
            response.topics[0].error_code, "metadata of churn", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return response.topics[0].topic_id if code is ErrorCode.NONE else None

    async def _write_and_read(self, number: int) -> None:
        """Writes to the topic and reads it by id, so that nothing of this topic can rightly be found in the next."""
        context, name = self._setting.context, TopicPartition(CHURN, 0)
        ledger = self._ledger = Ledger(f"{CHURN}/{number}")
        source = RecordSource(
            name=f"c{number}",
            is_idempotent=True,
            ledger=ledger,
            rng=self._setting.stream(f"churn {number}"),
            record_count=6,
            padding_bytes=(0, 20),
        )
        producer = SimulatedProducer(context, name, source, first_alone=True)
        producer.by_id()
        await producer.run()
        await self.check()

    async def _delete(self, client: ClusterRouter) -> None:
        """By id: a request that was given up, and comes late all the same, must not hit the next topic of the name."""
        assert self._last_id is not None
        wanted = DeleteTopicState(topic_id=self._last_id)
        request = DeleteTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
        response = await client.call(request, 6, DeleteTopicsResponse)
        expect(response.responses[0].error_code, "deleting churn", ErrorCode.UNKNOWN_TOPIC_ID)
        if await self._find_id(client) == self._last_id:
            raise RefusedError("the broker that was asked still knows it")

    async def check(self) -> None:
        if self._ledger is not None:
            reader = ClusterConsumer(self._setting.context, TopicPartition(CHURN, 0), self._ledger)
            reader.by_id()
            await self._setting.somewhere(reader.read_all())


class ReassignWork:
    """Moves the partitions of plain records to other replicas, cancels moves, and wants preferred leaders."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._rng = setting.stream("reassign")

    async def prepare(self) -> None:
        """It needs nothing of its own."""

    async def run(self) -> None:
        await self._setting.somewhere(self._run())

    def undone(self) -> list[str]:
        return []

    async def check(self) -> None:
        """The scenario looks for moves that never end."""

    async def _run(self) -> None:
        while not self._setting.is_calm():
            await asyncio.sleep(self._rng.uniform(0.2, 1.5))
            client = await self._setting.context.connect()
            try:
                await (self._elect if self._rng.random() < 0.3 else self._move)(client)
            except (OSError, RefusedError):
                continue
            finally:
                client.close()

    async def _move(self, client: ClusterRouter) -> None:
        plan = self._setting.plan
        brokers = list(range(1, plan.broker_count + 1))
        count = self._rng.randint(min(2, plan.broker_count), plan.broker_count)  # one alone may rot
        replicas = None if self._rng.random() < 0.2 else self._rng.sample(brokers, count)
        index = self._rng.randrange(plan.partition_count)
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=_TIMEOUT_MS, topics=[ReassignableTopic(name=PLAIN, partitions=[partition])]
        )
        response = await client.call(request, 0, AlterPartitionReassignmentsResponse)
        expect(response.error_code, "reassigning")
        expect(response.responses[0].partitions[0].error_code, f"reassigning to {replicas}")

    async def _elect(self, client: ClusterRouter) -> None:
        wanted = TopicPartitions(
            topic=PLAIN, partitions=[self._rng.randrange(self._setting.plan.partition_count)]
        )
        request = ElectLeadersRequest(election_type=0, topic_partitions=[wanted], timeout_ms=_TIMEOUT_MS)
        response = await client.call(request, 2, ElectLeadersResponse)
        expect(response.error_code, "electing")
        for topic in response.replica_election_results:
            for partition in topic.partition_result:
                expect(partition.error_code, "electing the preferred leader")
