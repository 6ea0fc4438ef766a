"""Simulated transactional producers, in both ways of speaking.

A producer keeps its memory when connections break and brokers die; it gives up a transaction now and then, dies itself and
comes back under its name, and shares that name with a zombie. Its requests and the answers go into the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.kit.requests import produce_request
from tests.simulation.broker.clients import ClientContext, RefusedError
from tests.simulation.transactions.history import Fate, SentTransaction, TransactionHistory
from tests.simulation.transactions.offsets import OFFSETS, add_offsets, commit_offsets, offsets_of

from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol import Message
from odradek.protocol.messages.data.produce import ProduceResponse
from odradek.protocol.messages.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.records import BatchBuilder
from odradek.testing.sim.failures import ViolationError
from odradek.testing.sim.wire_client import WireClient

_BY_ID_SINCE: Final = 13
_EPOCHS: Final = 5
"""The version of EndTxn from which each transaction has its own epoch."""
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""The producer, or its transaction, is over."""


class FencedError(Exception):
    """The broker says that this producer or its transaction is over."""


@dataclass(slots=True, kw_only=True)
class Late:
    """Requests that a network kept, and their versions: someone delivers them, maybe long after their time."""

    requests: list[tuple[Message, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHabits:
    """How producers of a run behave."""

    on_end: Callable[[], None]
    """Called whenever an EndTxn is about to be sent."""
    is_resting: Callable[[], bool]
    """Whether producers die no more."""
    gives_up: float
    """How likely a producer gives a transaction up that was broken off."""


@dataclass(slots=True, kw_only=True)
class _Identity:
    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


def check(code: int, what: str) -> None:
    """RefusedError: try again. FencedError: begin again. ViolationError: it must not happen here."""
    error = ErrorCode.of(code)
    if error is ErrorCode.NONE:
        return
    if error.retriable or error is ErrorCode.CONCURRENT_TRANSACTIONS:
        raise RefusedError(error.name)
    if error in _FENCED:
        raise FencedError(error.name)
    raise ViolationError(f"{what} was answered with {error.name}")


class TransactionalProducer:
    """Runs `count` transactions, one after another, under one transactional id."""

    def __init__(
        self,
        context: ClientContext,
        history: TransactionHistory,
        late: Late,
        actions: ClientHabits,
        rng: Random,
        *,
        name: str,
        transactional_id: str,
        partitions: list[TopicPartition],
        count: int,
        with_epochs: bool,
    ) -> None:
        self._context = context
        self._history = history
        self._late = late
        self._habits = actions
        self._rng = rng
        self._name = name
        self._id = transactional_id
        self._partitions = partitions
        self._left = count
        self._number = 0
        self._end_version = _EPOCHS if with_epochs else rng.randint(0, 4)
        self._produce_version = rng.choice((12, 13)) if with_epochs else rng.choice((3, 7, 9, 11))
        self._timeout_ms = rng.choice((1_000, 5_000, 20_000))
        self._identity: _Identity | None = None
        self._transaction: SentTransaction | None = None
        self._unsent: list[tuple[TopicPartition, bytes]] = []
        self._ending: EndTxnRequest | None = None
        self._refusal = ""

    @property
    def waits_for(self) -> str:
        """Returns a text for people; empty when all is over."""
        if not self._left:
            return ""
        step = "its end" if self._ending else f"{len(self._unsent)} records"
        return (
            f"{self._name} with {self._left} transactions left: {step}; the last refusal was {self._refusal}"
        )

    @property
    def with_epochs(self) -> bool:
        return self._end_version >= _EPOCHS

    async def run(self) -> None:
        """Runs until all its transactions are over, one way or another."""
        await asyncio.sleep(self._rng.uniform(0, 2))
        while self._left:
            try:
                client = await self._context.connect()
            except OSError:
                await self._context.pause()
                continue
            try:
                await self._use(client)
            except (OSError, RefusedError) as error:
                self._refusal = repr(error)
                self._interrupted()
                await self._context.pause()
            except FencedError as error:
                self._refusal = repr(error)
                self._give_up()
                self._identity = None
                await self._context.pause()
            finally:
                client.close()

    async def _use(self, client: WireClient) -> None:
        await self._find_coordinator(client)
        while self._left:
            if self._identity is None:
                await self._init(client)
            if self._transaction is None:
                self._begin()
            if self._ending is None:
                await self._write(client)
                await self._think()
            if self._transaction is not None:
                await self._end(client)

    # -- one transaction

    def _begin(self) -> None:
        self._number += 1
        transaction = self._history.begin(f"{self._name}/{self._number}")
        chosen = self._rng.sample(self._partitions, self._rng.randint(1, len(self._partitions)))
        records = [(partition, part) for partition in chosen for part in range(self._rng.randint(1, 2))]
        self._unsent = [
            (text, f"{transaction.name}/{text.partition}/{part}".encode()) for text, part in records
        ]
        if self._rng.random() < 0.4:
            self._unsent.insert(self._rng.randint(0, len(records)), (OFFSETS, offsets_of(transaction.name)))
        self._transaction = transaction

    async def _write(self, client: WireClient) -> None:
        """Send what is left, each record once it is sure that the one before it is there."""
        assert self._transaction is not None
        assert self._identity is not None
        while self._unsent:
            partition, value = self._unsent[0]
            self._history.writes(self._transaction, partition, value)
            if partition == OFFSETS:
                await self._commit_offsets(client, self._transaction.name)
            else:
                if not self.with_epochs:
                    await self._add(client, partition)
                await self._produce(client, partition, value)
                sequences = self._identity.sequences
                sequences[partition] = sequences.get(partition, 0) + 1
            self._unsent.pop(0)
            if self._rng.random() < 0.2:
                await asyncio.sleep(self._rng.uniform(0, 0.5))

    async def _think(self) -> None:
        """Before the end: nothing, or too long, or a death from which another producer of the name comes back."""
        if self._habits.is_resting():
            return
        roll = self._rng.random()
        if roll < 0.1:
            await asyncio.sleep(self._rng.uniform(0, 2.5 * self._timeout_ms / 1000))
        elif roll < 0.2:
            self._give_up()
            self._identity = None

    async def _end(self, client: WireClient) -> None:
        assert self._transaction is not None
        assert self._identity is not None
        if self._ending is None:
            commit = self._rng.random() < 0.7
            if commit:
                self._history.asks_to_commit(self._transaction)
            else:
                self._history.aborted(self._transaction)
            self._ending = EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                committed=commit,
            )
        request = self._ending
        self._habits.on_end()
        response = await client.call(request, self._end_version, EndTxnResponse)
        if response.error_code == ErrorCode.INVALID_TXN_STATE:
            self._decided_otherwise(request)
            raise FencedError
        check(response.error_code, f"EndTxn of {self._transaction.name}")
        if request.committed:
            self._history.committed(self._transaction)
        if self.with_epochs:
            self._late.requests.append((request, self._end_version))
            self._identity = _Identity(producer_id=response.producer_id, epoch=response.producer_epoch)
        self._over()

    def _decided_otherwise(self, request: EndTxnRequest) -> None:
        assert self._transaction is not None
        name = self._transaction.name
        if not request.committed:
            raise ViolationError(f"{name} was to be aborted, and is committed")
        if not self.with_epochs:
            raise ViolationError(f"{name}: no one else could end a transaction of this epoch")
        self._history.aborted(self._transaction)

    def _give_up(self) -> None:
        """Whatever happens: a producer that never asked to commit knows that it is aborted."""
        if self._transaction is not None:
            if self._transaction.fate is Fate.OPEN:
                self._history.aborted(self._transaction)
            if self._ending is not None and self.with_epochs:
                self._late.requests.append((self._ending, self._end_version))
            self._over()

    def _over(self) -> None:
        self._transaction = self._ending = None
        self._unsent = []
        self._left -= 1

    def _interrupted(self) -> None:
        """A transaction that was broken off is gone on with, or given up and begun again under the next epoch."""
        if self._rng.random() < self._habits.gives_up:
            self._give_up()
            self._identity = None

    # -- requests

    async def _find_coordinator(self, client: WireClient) -> None:
        request = FindCoordinatorRequest(key=self._id, key_type=_TRANSACTION_KEY)
        response = await client.call(request, 2, FindCoordinatorResponse)
        check(response.error_code, "FindCoordinator")
        request = FindCoordinatorRequest(key="any", key_type=_GROUP_KEY)
        response = await client.call(request, 2, FindCoordinatorResponse)
        check(response.error_code, "FindCoordinator")

    async def _init(self, client: WireClient) -> None:
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)
        response = await client.call(request, 4, InitProducerIdResponse)
        check(response.error_code, "InitProducerId")
        self._identity = _Identity(producer_id=response.producer_id, epoch=response.producer_epoch)

    async def _add(self, client: WireClient, partition: TopicPartition) -> None:
        assert self._identity is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
            ],
        )
        response = await client.call(request, min(self._end_version, 3), AddPartitionsToTxnResponse)
        (topic,) = response.results_by_topic_v3_and_below
        check(topic.results_by_partition[0].partition_error_code, f"adding {partition}")

    async def _commit_offsets(self, client: WireClient, name: str) -> None:
        assert self._identity is not None
        who = (self._id, self._identity.producer_id, self._identity.epoch)
        if not self.with_epochs:
            code = await add_offsets(client, *who, name, min(self._end_version, 4))
            check(code, f"adding offsets of {name}")
        topic = self._partitions[0].topic
        code = await commit_offsets(client, *who, name, topic, 5 if self.with_epochs else self._end_version)
        check(code, f"offsets of {name}")

    async def _produce(self, client: WireClient, partition: TopicPartition, value: bytes) -> None:
        assert self._identity is not None
        builder = BatchBuilder()
        builder.append(self._context.now_ms(), b"key", value, ())
        batch = builder.build(
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._identity.sequences.get(partition, 0),
            transactional=True,
        )
        topic = self._context.named(partition.topic, by_id=self._produce_version >= _BY_ID_SINCE)
        request = produce_request(topic, batch, partition=partition.partition, transactional_id=self._id)
        if self.with_epochs and self._rng.random() < 0.1:
            self._late.requests.append((request, self._produce_version))
            if not self._habits.is_resting() and self._rng.random() < 0.5:
                raise FencedError  # the producer dies, and its request is still on the way
        response = await client.call(request, self._produce_version, ProduceResponse)
        (partition_data,) = response.responses[0].partition_responses
        check(partition_data.error_code, f"{value!r} for {partition}")


async def deliver_late(context: ClientContext, request: Message, version: int) -> None:
    """Once; no one listens to the answer."""
    try:
        with closing(await context.connect()) as client:
            await client.call(request, version, Message)
    except (OSError, RefusedError):
        return
