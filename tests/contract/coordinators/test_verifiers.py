"""What every `TransactionVerifier` answers: a coordinator of this broker, and one of another that is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import pytest
from tests.contract.coordinators.brokers import HERE, OTHER, MemoryLog, PeerRequests, handlers_of

from odradek.broker.coordinators.remote_transaction_verification import RemoteVerification
from odradek.cluster.image import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode
from odradek.model.ids import LeaderEpoch, TopicPartition
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.turns import Turns
from odradek.shards import Shards
from odradek.shards.shard import ShardState
from odradek.transactions.machine import TransactionMachine, TransactionTerms
from odradek.transactions.markers import MarkerBatch
from odradek.transactions.service import TransactionCoordinator, TransactionSettings
from odradek.transactions.state import ProducerIdentity, TransactionVersion
from odradek.transactions.verification import TransactionVerifier, VerificationQuestion

ID = "payments"
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE = ErrorCode.NONE


class MarkersAtOnce:
    async def write(self, batch: MarkerBatch) -> Mapping[TopicPartition, ErrorCode]:
        return dict.fromkeys(batch.partitions, NONE)


class CoordinatingBroker:
    """A coordinator over a log in memory, and what the handler of AddPartitionsToTxn needs of its broker."""

    def __init__(self) -> None:
        self.turns = Turns(SystemClock().monotonic)
        partition = PartitionImage(leader=HERE, leader_epoch=LeaderEpoch(0), replicas=(HERE,), isr=(HERE,))
        empty = ClusterImage(
            version=0, cluster_id="c", controller_id=HERE, brokers=(), topics={}, topics_by_id={}
        )
        self.image = empty.with_topics(
            [TopicImage(name="t", topic_id=UUID(int=1), partitions=(partition, partition))]
        )
        self.transactions = TransactionCoordinator(
            self._settings, self._next_producer_id, lambda _: TopicPartition(CONSUMER_OFFSETS, 0)
        )
        self.shards: Shards[TransactionMachine] = Shards(
            TRANSACTION_STATE, lambda: 1, self.transactions.new_machine, SystemClock()
        )
        self.transactions.begin(self.shards, MarkersAtOnce())
        log: Any = MemoryLog()
        self.shards.elected(0, log)

    def _settings(self) -> TransactionSettings:
        terms = TransactionTerms(
            id_expiration_ms=1_000_000,
            timeout_check_ms=1_000_000,
            expiration_check_ms=1_000_000,
            level=TransactionVersion.EPOCH_FOR_EACH,
        )
        return TransactionSettings(
            terms=terms,
            timeout_ms_max=900_000,
            two_phase_commit=False,
            retry_seconds=0.01,
            retry_seconds_max=0.02,
        )

    async def _next_producer_id(self) -> int:
        return 7

    async def begin(self) -> ProducerIdentity:
        while self.shards.shard(0).state is not ShardState.ACTIVE:
            await asyncio.sleep(0)
        return await self.transactions.init_producer(ID, timeout_ms=60_000, expected=None)

    async def close(self) -> None:
        await self.transactions.close()
        self.shards.close()


class World:
    def __init__(
        self, broker: CoordinatingBroker, who: ProducerIdentity, verifier: TransactionVerifier
    ) -> None:
        self.broker = broker
        self.who = who
        self._verifier = verifier

    async def verify(
        self, *partitions: TopicPartition, adds: bool, name: str = ID, epoch: int | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        question = VerificationQuestion(
            transactional_id=name,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.producer_epoch if epoch is None else epoch,
            adds=adds,
            partitions=frozenset(partitions),
        )
        return dict(await self._verifier.verify(question))


@pytest.fixture(params=["local", "remote"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    broker = CoordinatingBroker()
    peers = PeerRequests({OTHER: handlers_of(broker)})
    remote = RemoteVerification(lambda: peers.ask, BrokerConfig, asyncio.sleep)
    who = await broker.begin()
    yield World(broker, who, broker.transactions if request.param == "local" else remote.at(OTHER))
    remote.close()
    await broker.close()


async def test_a_partition_that_joined_may_be_written_and_another_may_not(world: World) -> None:
    assert await world.verify(P0, adds=True) == {P0: NONE}
    assert await world.verify(P0, P1, adds=False) == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}


async def test_a_mere_question_adds_nothing(world: World) -> None:
    await world.verify(P0, adds=True)
    await world.verify(P1, adds=False)
    transaction = await world.broker.transactions.find(ID)
    assert transaction.partitions == {P0}


@pytest.mark.parametrize("adds", [False, True])
async def test_a_fenced_producer_gets_the_error_of_a_partition(world: World, adds: bool) -> None:
    await world.verify(P0, adds=True)
    successor = await world.broker.begin()
    assert successor.producer_epoch > world.who.producer_epoch
    assert await world.verify(P0, adds=adds) == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}


@pytest.mark.parametrize("adds", [False, True])
async def test_an_id_that_no_one_knows_is_refused(world: World, adds: bool) -> None:
    refused = await world.verify(P0, P1, adds=adds, name="unheard-of")
    assert refused == dict.fromkeys((P0, P1), ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.parametrize("adds", [False, True])
async def test_a_broker_that_coordinates_no_more_says_so(world: World, adds: bool) -> None:
    world.broker.shards.resigned(0)
    assert await world.verify(P0, adds=adds) == {P0: ErrorCode.NOT_COORDINATOR}
