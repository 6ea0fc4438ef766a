"""Replicas that may lack records, where records are acknowledged before they are on disk: who leads, and what waits."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.cluster.availability import LogEnd
from odradek.cluster.image import NO_LEADER


class Forgetful:
    """Brokers 1 and 2 were in sync, and died; 3 is the controller, and was not."""

    def __init__(self, three: Any) -> None:
        self._three = three
        self.place = (three.controller.latest.topics["t"].topic_id, 0)

    async def begin(self) -> None:
        three = self._three
        await three.brokers[1].ask()
        await three.brokers[1].propose("t", 0, [1, 2])
        await three.elect(three.brokers[3], knows=three.brokers[3].image)
        await three.all_ask()
        await three.kill(1, 2)

    async def revive(self, number: int, *, ends_at: int | None) -> None:
        """With a log whose end is in doubt, or with everything."""
        broker = self._three.brokers[number]
        if ends_at is not None:
            broker.damaged = frozenset({self.place})
            broker.uncertain = {self.place: LogEnd(leader_epoch=0, offset=ends_at)}
        await self._three.revive(number)

    @property
    def leader_and_isr(self) -> tuple[int, tuple[int, ...]]:
        partition = self._three.partition("t")
        return partition.leader, partition.isr


@pytest.fixture
async def forgetful(three: Any) -> Forgetful:
    await three.topic("t")
    cluster = Forgetful(three)
    await cluster.begin()
    return cluster


async def test_an_uncertain_replica_waits_for_another_one_in_sync(forgetful: Forgetful) -> None:
    await forgetful.revive(1, ends_at=10)
    assert forgetful.leader_and_isr == (NO_LEADER, (2,))
    await forgetful.revive(2, ends_at=None)
    assert forgetful.leader_and_isr == (2, (2,))


@pytest.mark.parametrize(("first", "second", "leader"), [(10, 7, 1), (7, 10, 2), (10, 10, 2)])
async def test_of_replicas_that_are_all_uncertain_the_one_with_the_longest_log_leads(
    forgetful: Forgetful, first: int, second: int, leader: int
) -> None:
    await forgetful.revive(1, ends_at=first)
    await forgetful.revive(2, ends_at=second)
    assert forgetful.leader_and_isr == (leader, (leader,))


async def test_a_log_that_knows_a_later_epoch_is_longer_than_one_with_more_records(
    forgetful: Forgetful, three: Any
) -> None:
    await forgetful.revive(1, ends_at=10)
    three.brokers[2].damaged = frozenset({forgetful.place})
    three.brokers[2].uncertain = {forgetful.place: LogEnd(leader_epoch=1, offset=3)}
    await three.revive(2)
    assert forgetful.leader_and_isr == (2, (2,))


async def test_the_next_controller_goes_on_with_the_leader_that_was_chosen(
    forgetful: Forgetful, three: Any
) -> None:
    await forgetful.revive(1, ends_at=10)
    await forgetful.revive(2, ends_at=7)
    three.brokers[1].damaged, three.brokers[1].uncertain = frozenset(), {}  # it leads: no one has more
    await three.elect(three.brokers[3], knows=three.brokers[3].image)
    await three.all_ask()
    assert forgetful.leader_and_isr == (1, (1,))


async def test_an_uncertain_replica_that_is_the_only_one_leads(three: Any) -> None:
    await three.topic("t")
    place = (three.controller.latest.topics["t"].topic_id, 0)
    await three.kill(2, 3)
    three.brokers[1].damaged = frozenset({place})
    three.brokers[1].uncertain = {place: LogEnd(leader_epoch=0, offset=5)}
    await three.revive(1)
    assert (three.partition("t").leader, three.partition("t").isr) == (1, (1,))
    assert not three.partition("t").recovering
