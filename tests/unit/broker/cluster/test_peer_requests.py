"""Questions to other brokers: which share a request, which wait, and how they fail with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from odradek.broker.cluster.peer_requests import NoPeers, RequestBatcher, by_leader, no_peers
from odradek.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from odradek.model.errors import OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest

ONE, TWO = BrokerId(1), BrokerId(2)


class Requests:
    """Requests that stay under way until they are answered."""

    def __init__(self, under_way_max: int = 1) -> None:
        self.sent: list[tuple[BrokerId, list[str], asyncio.Future[list[str]]]] = []
        self.gathered: RequestBatcher[str, str] = RequestBatcher(
            self._send, key=lambda question: question[0], under_way_max=under_way_max
        )

    async def _send(self, broker: BrokerId, questions: Sequence[str]) -> list[str]:
        answered: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.sent.append((broker, list(questions), answered))
        return await answered

    def ask(self, broker: BrokerId, *questions: str) -> list[asyncio.Future[str]]:
        return [self.gathered.submit(broker, question) for question in questions]

    def questions(self) -> list[list[str]]:
        return [questions for _, questions, _ in self.sent]

    async def answer(self, position: int) -> None:
        _, questions, answered = self.sent[position]
        answered.set_result([question.upper() for question in questions])
        await turns()


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_what_is_asked_at_once_shares_a_request_and_what_comes_meanwhile_shares_the_next() -> None:
    requests = Requests()
    first = requests.ask(ONE, "a", "b")
    await turns()
    second = requests.ask(ONE, "c", "d")
    await turns()
    assert requests.questions() == [["a", "b"]]
    await requests.answer(0)
    assert requests.questions() == [["a", "b"], ["c", "d"]]
    await requests.answer(1)
    assert [await request for request in first + second] == ["A", "B", "C", "D"]


async def test_brokers_do_not_wait_for_each_other() -> None:
    requests = Requests()
    requests.ask(ONE, "a")
    other = requests.ask(TWO, "b")
    await turns()
    await requests.answer(1)
    assert await other[0] == "B"
    await requests.answer(0)


async def test_two_questions_with_one_key_never_share_a_request() -> None:
    requests = Requests()
    asked = requests.ask(ONE, "x1", "y", "x2")
    await turns()
    assert requests.questions() == [["x1", "y"]]
    await requests.answer(0)
    await requests.answer(1)
    assert requests.questions() == [["x1", "y"], ["x2"]]
    assert [await request for request in asked] == ["X1", "Y", "X2"]


async def test_so_many_requests_are_under_way_and_no_more() -> None:
    requests = Requests(under_way_max=2)
    for question in "abc":
        requests.ask(ONE, question)
        await turns()
    assert requests.questions() == [["a"], ["b"]]
    await requests.answer(1)
    assert requests.questions() == [["a"], ["b"], ["c"]]
    await requests.answer(0)
    await requests.answer(2)


async def test_a_request_that_fails_fails_all_its_questions_and_no_later_one() -> None:
    requests = Requests()
    failed = requests.ask(ONE, "a", "b")
    await turns()
    requests.sent[0][2].set_exception(NoPeers("gone"))
    later = requests.ask(ONE, "c")
    await turns()
    await requests.answer(1)
    assert await later[0] == "C"
    for failure in failed:
        with pytest.raises(NoPeers):
            await failure


async def test_who_asked_may_go_away_before_and_after_the_request_is_made() -> None:
    requests = Requests()
    first, second = requests.ask(ONE, "a", "b")
    await turns()
    never = requests.ask(ONE, "c")[0]
    await turns()
    first.cancel()
    never.cancel()
    await turns()
    await requests.answer(0)
    assert await second == "B"
    assert requests.questions() == [["a", "b"]]


async def test_closing_ends_what_is_under_way() -> None:
    requests = Requests()
    asked = requests.ask(ONE, "a")[0]
    await turns()
    requests.gathered.close()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_closing_ends_what_was_to_be_asked_next() -> None:
    requests = Requests()
    requests.ask(ONE, "a")
    await turns()
    next_one = requests.ask(ONE, "b")[0]
    requests.gathered.close()
    with pytest.raises(asyncio.CancelledError):
        await next_one
    assert requests.questions() == [["a"]]


async def test_too_few_answers_fail_their_questions_and_what_is_asked_next_is_answered() -> None:
    requests = Requests()
    failed = requests.ask(ONE, "a", "b")
    await turns()
    later = requests.ask(ONE, "c")
    requests.sent[0][2].set_result(["A"])
    await turns()
    await requests.answer(1)
    assert await later[0] == "C"
    for failure in failed:
        with pytest.raises(ValueError, match="shorter"):
            await failure


async def test_a_broker_alone_has_no_one_to_ask() -> None:
    with pytest.raises(OdradekError, match="broker 7 cannot be asked"):
        await no_peers(BrokerId(7), 12, HeartbeatRequest())


def test_partitions_are_sorted_by_who_leads_them() -> None:
    def led_by(leader: BrokerId) -> PartitionImage:
        return PartitionImage(leader=leader, leader_epoch=LeaderEpoch(3), replicas=(ONE, TWO), isr=(ONE,))

    topic = TopicImage(
        name="t", topic_id=UUID(int=1), partitions=(led_by(ONE), led_by(TWO), led_by(NO_LEADER))
    )
    empty = ClusterImage(version=0, cluster_id="c", controller_id=ONE, brokers=(), topics={}, topics_by_id={})
    names = [TopicPartition("t", index) for index in (0, 1, 2, 3)] + [TopicPartition("u", 0)]
    led, leaderless, missing = by_leader(empty.with_topics([topic]), names)
    assert led == {ONE: names[:1], TWO: names[1:2]}
    assert (leaderless, missing) == (names[2:3], names[3:])
