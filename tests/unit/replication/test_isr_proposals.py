"""How proposals of ISRs reach the controller, and how its answers are applied."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol import Message
from odradek.protocol.messages.cluster.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from odradek.replication import isr_proposals
from odradek.replication.in_sync import IsrAnswer, IsrProposal
from odradek.replication.isr_proposals import ALTER_PARTITION, AlterPartitions

TOPIC = UUID(int=7)
TURNS = 50


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_proposals, "PAUSE_S_MIN", 0.0)


async def turns() -> None:
    """All that would happen by itself has happened."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class FakePartition:
    """As much of a partition as counts here."""

    def __init__(self, index: int) -> None:
        self.name = TopicPartition("t", index)
        self.topic_id = TOPIC
        self.wanted: IsrProposal | None = None
        self.answers: list[IsrAnswer | KafkaError] = []

    def wants(self, proposal: IsrProposal) -> bool:
        return proposal is self.wanted

    def isr_answered(self, proposal: IsrProposal, reply: IsrAnswer | KafkaError) -> None:
        self.answers.append(reply)


class ScriptedController:
    """A controller that answers when the test says so, with what the test gives it."""

    def __init__(self) -> None:
        self.asked: list[tuple[AlterPartitionRequest, asyncio.Future[Message]]] = []
        self.proposals = AlterPartitions(self.ask, broker_id=BrokerId(1), broker_epoch=lambda: 11)

    async def ask(self, api_key: int, request: Message) -> Message:
        assert api_key == ALTER_PARTITION
        assert isinstance(request, AlterPartitionRequest)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.asked.append((request, future))
        return await future

    def propose(self, partition: Any, *isr: int) -> IsrProposal:
        proposal = IsrProposal(
            leader_epoch=LeaderEpoch(3),
            partition_epoch=5,
            isr=tuple((BrokerId(broker), 10 * broker) for broker in isr),
        )
        partition.wanted = proposal
        self.proposals.propose(partition, proposal)
        return proposal

    async def next(self, count: int) -> list[int]:
        """The partitions that the `count`th request asked for."""
        for _ in range(TURNS):
            if len(self.asked) >= count:
                return [
                    partition.partition_index
                    for topic in self.asked[count - 1][0].topics
                    for partition in topic.partitions
                ]
            await asyncio.sleep(0)
        raise AssertionError(f"only {len(self.asked)} requests came")

    async def answer(self, *results: PartitionResult, error_code: int = 0) -> None:
        response = AlterPartitionResponse(
            error_code=error_code, topics=[TopicResult(topic_id=TOPIC, partitions=list(results))]
        )
        self.asked[-1][1].set_result(response)
        await turns()


def result(index: int, *isr: int, error_code: int = 0) -> PartitionResult:
    return PartitionResult(
        partition_index=index,
        error_code=error_code,
        leader_id=1,
        leader_epoch=3,
        isr=list(isr),
        partition_epoch=6,
    )


async def test_what_is_proposed_in_one_turn_goes_in_one_request_and_each_hears_its_own_answer() -> None:
    controlling, broker, two = ScriptedController(), FakePartition(0), FakePartition(1)
    controlling.propose(broker, 1, 2)
    controlling.propose(two, 1)
    assert await controlling.next(1) == [0, 1]
    request = controlling.asked[0][0]
    assert (request.broker_id, request.broker_epoch) == (1, 11)
    first = request.topics[0].partitions[0]
    assert (first.leader_epoch, first.partition_epoch) == (3, 5)
    assert [(member.broker_id, member.broker_epoch) for member in first.new_isr_with_epochs] == [
        (1, 10),
        (2, 20),
    ]
    await controlling.answer(result(0, 1, 2), result(1, error_code=ErrorCode.INELIGIBLE_REPLICA))
    (answered,) = broker.answers
    assert isinstance(answered, IsrAnswer)
    assert (answered.isr, answered.partition_epoch) == ((1, 2), 6)
    (refused,) = two.answers
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INELIGIBLE_REPLICA


async def test_one_request_is_under_way_at_a_time() -> None:
    controlling, first, two = ScriptedController(), FakePartition(0), FakePartition(1)
    controlling.propose(first, 1)
    await controlling.next(1)
    controlling.propose(two, 1)
    await turns()
    assert len(controlling.asked) == 1
    await controlling.answer(result(0, 1))
    assert await controlling.next(2) == [1]
    await controlling.answer(result(1, 1))
    assert (len(first.answers), len(two.answers)) == (1, 1)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, 999])
async def test_a_controller_that_cannot_decide_is_asked_again(code: int) -> None:
    controlling, asking = ScriptedController(), FakePartition(0)
    controlling.propose(asking, 1)
    await controlling.next(1)
    await controlling.answer(error_code=code)
    assert await controlling.next(2) == [0]
    assert asking.answers == []
    await controlling.answer(result(0, error_code=code))
    assert await controlling.next(3) == [0]
    await controlling.answer()  # it forgot about it
    assert await controlling.next(4) == [0]
    await controlling.answer(result(0, 1))
    assert len(asking.answers) == 1


async def test_an_unreachable_controller_is_asked_again_and_by_then_others_go_along() -> None:
    controlling, first, two = ScriptedController(), FakePartition(0), FakePartition(1)
    controlling.propose(first, 1)
    await controlling.next(1)
    controlling.asked[-1][1].set_exception(OdradekError("gone"))
    await asyncio.sleep(0)
    controlling.propose(two, 1)
    assert sorted(await controlling.next(2)) == [0, 1]
    await controlling.proposals.close()


async def test_what_the_partition_does_not_want_any_more_is_not_asked_again() -> None:
    controlling, asking = ScriptedController(), FakePartition(0)
    controlling.propose(asking, 1)
    await controlling.next(1)
    asking.wanted = None
    controlling.asked[-1][1].set_exception(OdradekError("gone"))
    await turns()
    assert len(controlling.asked) == 1
    later = controlling.propose(asking, 1, 3)
    assert await controlling.next(2) == [0]
    assert asking.wanted is later
    await controlling.proposals.close()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
async def test_an_outdated_proposal_is_reported_and_not_asked_again(code: ErrorCode) -> None:
    controlling, asking = ScriptedController(), FakePartition(0)
    controlling.propose(asking, 1)
    await controlling.next(1)
    await controlling.answer(result(0, error_code=code))
    (answered,) = asking.answers
    assert isinstance(answered, KafkaError)
    assert answered.code is code
    await turns()
    assert len(controlling.asked) == 1


async def test_once_closed_nothing_is_asked_any_more() -> None:
    controlling, asking = ScriptedController(), FakePartition(0)
    controlling.propose(asking, 1)
    await controlling.next(1)
    await controlling.proposals.close()
    controlling.propose(asking, 1, 2)
    await turns()
    assert len(controlling.asked) == 1
