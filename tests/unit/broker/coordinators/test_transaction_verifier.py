"""Questions about transactions: to which coordinator, in which requests, and what is made of the answers."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.contract.coordinators.brokers import PeerRequests, Serve, handlers_of

from odradek.broker.coordinators.runtime import CoordinatorRuntime
from odradek.broker.coordinators.transaction_verifier import ClusterVerifier
from odradek.cluster.image import NO_LEADER, TRANSACTION_STATE, ClusterImage, PartitionImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.config.coordinator import TransactionConfig
from odradek.config.loading import reconfigured
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.turns import Turns
from odradek.transactions.state import ProducerIdentity, TransactionVersion
from odradek.transactions.verification import VerificationQuestion

HERE, OTHER = BrokerId(1), BrokerId(2)
P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NONE = ErrorCode.NONE


def topic(name: str, number: int, *leaders: BrokerId) -> TopicImage:
    partitions = tuple(
        PartitionImage(leader=leader, leader_epoch=LeaderEpoch(0), replicas=(HERE,), isr=(HERE,))
        for leader in leaders
    )
    return TopicImage(name=name, topic_id=UUID(int=number), partitions=partitions)


def image(*topics: TopicImage) -> ClusterImage:
    empty = ClusterImage(
        version=0, cluster_id="c", controller_id=HERE, brokers=(), topics={}, topics_by_id={}
    )
    return empty.with_topics(topics)


LED_ELSEWHERE = image(topic(TRANSACTION_STATE, 9, OTHER), topic("t", 1, HERE, HERE), topic("u", 2, HERE))


class Coordinator:
    """The transactions of the other broker: what they say, and what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.says: dict[TopicPartition, ErrorCode] = {}
        self.refusals: list[ErrorCode] = []

    async def verify_partitions(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        *,
        until_timeout: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self._note("verify", transactional_id, who, partitions, until_timeout=until_timeout)
        return {partition: self.says.get(partition, NONE) for partition in partitions}

    async def add_partitions(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        *,
        client_version: TransactionVersion,
        until_timeout: bool,
    ) -> None:
        assert client_version is TransactionVersion.EPOCH_FOR_EACH
        self._note("add", transactional_id, who, partitions, until_timeout=until_timeout)

    async def verify(self, question: VerificationQuestion) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(("here", question))
        return dict.fromkeys(question.partitions, NONE)

    def _note(
        self, kind: str, name: str, who: ProducerIdentity, partitions: Any, *, until_timeout: bool
    ) -> None:
        assert not until_timeout, "another broker's questions wait behind each other"
        self.asked.append((kind, name, who.producer_id, who.producer_epoch, partitions))
        if self.refusals:
            raise KafkaError(self.refusals.pop(0))


def question(
    *partitions: TopicPartition, add: bool = False, name: str = "x", epoch: int = 3
) -> VerificationQuestion:
    return VerificationQuestion(
        transactional_id=name,
        producer_id=7,
        producer_epoch=epoch,
        adds=add,
        partitions=frozenset(partitions),
    )


class World:
    def __init__(self, image: ClusterImage = LED_ELSEWHERE) -> None:
        self.image = image
        self.turns = Turns(SystemClock().monotonic)
        self.coordinator = Coordinator()
        self.config = BrokerConfig(
            transaction=TransactionConfig(
                add_partitions_to_txn_retry_backoff_ms=20, add_partitions_to_txn_retry_backoff_max_ms=50
            )
        )
        self.slept: list[float] = []
        self.answer: Serve = handlers_of(self)
        self.peers = PeerRequests({OTHER: lambda request: self.answer(request)})
        coordinators = self.coordinators = CoordinatorRuntime()
        broker: Any = self
        coordinators.begin(broker)
        coordinators.send_to_peer = self.peers.ask
        self.verifier = ClusterVerifier(
            coordinators, lambda: self.coordinator, lambda: self.config, self.sleep
        )

    @property
    def transactions(self) -> Coordinator:
        return self.coordinator

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    @property
    def requests(self) -> list[Any]:
        assert all(broker == OTHER for broker, _ in self.peers.requests)
        return [request for _, request in self.peers.requests]

    async def verify(
        self, *partitions: TopicPartition, add: bool = False, name: str = "x", epoch: int = 3
    ) -> dict[TopicPartition, ErrorCode]:
        return dict(await self.verifier.verify(question(*partitions, add=add, name=name, epoch=epoch)))


async def test_a_coordinator_on_this_broker_is_called() -> None:
    world = World(image(topic(TRANSACTION_STATE, 9, HERE)))
    assert await world.verify(P0, add=True) == {P0: NONE}
    assert world.coordinator.asked == [("here", question(P0, add=True))]
    assert not world.requests


@pytest.mark.parametrize(("add", "kind"), [(False, "verify"), (True, "add")])
async def test_a_coordinator_elsewhere_is_asked(add: bool, kind: str) -> None:
    world = World()
    assert await world.verify(P0, P1, U0, add=add) == {P0: NONE, P1: NONE, U0: NONE}
    assert world.coordinator.asked == [(kind, "x", 7, 3, frozenset({P0, P1, U0}))]
    assert len(world.requests) == 1


async def test_each_partition_has_its_own_answer() -> None:
    world = World()
    world.coordinator.says[P1] = ErrorCode.TRANSACTION_ABORTABLE
    assert await world.verify(P0, P1) == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("cluster", [image(), image(topic(TRANSACTION_STATE, 9, NO_LEADER))])
async def test_without_a_coordinator_there_is_no_one_to_ask(cluster: ClusterImage) -> None:
    world = World(cluster)
    assert await world.verify(P0) == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not world.requests


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
@pytest.mark.parametrize("add", [False, True])
async def test_what_the_coordinator_refuses_is_passed_on(said: ErrorCode, code: ErrorCode, add: bool) -> None:
    world = World()
    world.coordinator.refusals = [said]
    assert await world.verify(P0, P1, add=add) == {P0: code, P1: code}


async def test_a_topic_that_the_coordinator_does_not_know_yet_is_its_refusal() -> None:
    world = World()
    gone = TopicPartition("unheard-of", 0)
    assert await world.verify(P0, gone, add=True) == {
        P0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_coordinator_out_of_reach_is_a_network_exception() -> None:
    world = World()

    async def unreachable(_: AddPartitionsToTxnRequest) -> Any:
        raise OdradekError("unreachable")

    world.answer = unreachable
    assert await world.verify(P0) == {P0: ErrorCode.NETWORK_EXCEPTION}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (NONE, ErrorCode.NETWORK_EXCEPTION),
    ],
)
async def test_an_answer_without_the_partition_lets_nothing_in(said: ErrorCode, code: ErrorCode) -> None:
    world = World()

    async def answer(_: AddPartitionsToTxnRequest) -> Any:
        return AddPartitionsToTxnResponse(error_code=said)

    world.answer = answer
    assert await world.verify(P0) == {P0: code}


async def test_a_partition_that_joins_right_after_the_last_transaction_waits_a_little() -> None:
    world = World()
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    world.coordinator.refusals = [busy, busy]
    assert await world.verify(P0, add=True) == {P0: NONE}
    assert world.slept == [0.02, 0.02]
    world.slept.clear()
    world.coordinator.refusals = [busy] * 9
    assert await world.verify(P0, add=True) == {P0: busy}
    assert world.slept == [0.02, 0.02, pytest.approx(0.01)]


async def test_a_mere_question_about_a_transaction_being_completed_is_answered_at_once() -> None:
    world = World()
    world.coordinator.refusals = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await world.verify(P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert not world.slept


async def test_verification_can_be_turned_off_but_not_addition() -> None:
    world = World()
    world.config = reconfigured(world.config, {"transaction.partition.verification.enable": "false"})
    world.coordinator.says[P0] = ErrorCode.TRANSACTION_ABORTABLE
    assert await world.verify(P0) == {P0: NONE}
    assert not world.requests
    await world.verify(P0, add=True)
    assert len(world.requests) == 1


async def test_producers_share_requests_and_one_producer_has_one_question_in_each() -> None:
    world = World()
    questions = [
        world.verify(P0, name="x"),
        world.verify(P0, name="y", add=True),
        world.verify(P1, name="x"),
        world.verify(P1, name="z", epoch=4),
    ]
    answers = await asyncio.gather(*questions)
    assert answers == [{P0: NONE}, {P0: NONE}, {P1: NONE}, {P1: NONE}]
    asked = [
        [transaction.transactional_id for transaction in request.transactions] for request in world.requests
    ]
    assert asked == [["x", "y", "z"], ["x"]]
    assert [transaction.verify_only for transaction in world.requests[0].transactions] == [True, False, True]


async def test_closing_the_coordinators_ends_the_questions() -> None:
    world = World()

    async def never(_: AddPartitionsToTxnRequest) -> Any:
        await asyncio.Event().wait()

    world.answer = never
    waiting = asyncio.get_running_loop().create_task(world.verify(P0))
    for _ in range(5):
        await asyncio.sleep(0)
    world.coordinators.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
