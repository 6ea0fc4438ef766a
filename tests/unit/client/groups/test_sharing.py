"""A member of a share group, one heartbeat at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.client.groups.member import MemberRequest, MemberSettings
from odradek.client.groups.reconciling import ConsumerPhase
from odradek.client.groups.sharing import SharingMember
from odradek.client.groups.values import Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

T = UUID(int=7)
Make = Callable[..., "Scene"]


class Scene:
    """A member, and a coordinator whose answers the test gives."""

    def __init__(self, chance: Any, **settings: Any) -> None:
        self.now = 100.0
        self.changes = 0
        own = MemberSettings(group_id="g", **settings)
        self.member = SharingMember(
            own, Backoff(100, 1_000, chance), member_id="me", on_assigned=self.assigned
        )
        self.member.subscribe(Subscription(topics=("t",)), self.now)

    def assigned(self) -> None:
        self.changes += 1

    def welcome(self, epoch: int, *numbers: int, learns: bool = True) -> Any:
        """Answers the heartbeat that is due; returns it."""
        [ask] = self.member.due(self.now)
        part = TopicPartitions(topic_id=T, partitions=list(numbers))
        assignment = Assignment(topic_partitions=[part] if numbers else []) if learns else None
        response = ShareGroupHeartbeatResponse(
            member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment
        )
        self.member.answered(ask, response, self.now)
        return ask.build(1)

    def refuse(self, code: ErrorCode) -> None:
        [ask] = self.member.due(self.now)
        self.member.answered(ask, ShareGroupHeartbeatResponse(error_code=code), self.now)

    def beat_after(self) -> float:
        deadline = self.member.next_deadline(self.now)
        assert deadline is not None
        return deadline - self.now


def epoch_of(ask: MemberRequest) -> Any:
    message: Any = ask.build(1)
    return message.member_epoch


@pytest.fixture
def make(chance: Any) -> Make:
    return lambda **named: Scene(chance, **named)


def test_it_joins_with_all_fields_and_then_sends_what_changed(make: Make) -> None:
    scene = make(rack_id="r1")
    joining = scene.welcome(3, 0, 1)
    assert (joining.member_id, joining.member_epoch, joining.rack_id) == ("me", 0, "r1")
    assert joining.subscribed_topic_names == ["t"]
    assert (scene.member.assigned, scene.changes, scene.beat_after()) == ({T: (0, 1)}, 1, 5.0)
    scene.now += 5
    later = scene.welcome(3, learns=False)
    assert (later.member_epoch, later.rack_id, later.subscribed_topic_names) == (3, None, None)
    assert scene.member.assigned == {T: (0, 1)}


def test_a_member_without_partitions_beats_sooner_at_first(make: Make) -> None:
    scene = make()
    pauses = []
    for epoch in range(1, 8):
        scene.welcome(epoch)
        pauses.append(scene.beat_after())
        scene.now += pauses[-1]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    scene.welcome(8, 0)
    assert scene.beat_after() == 5.0


def test_a_new_subscription_is_sent_at_once(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.member.subscribe(Subscription(topics=("u", "t")), scene.now)
    assert scene.welcome(2, 0).subscribed_topic_names == ["t", "u"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_is_not_known_any_more_joins_again_under_its_id(make: Make, code: ErrorCode) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.now += 5
    scene.refuse(code)
    assert scene.member.assigned == {}
    again = scene.welcome(2, 0)
    assert (again.member_id, again.member_epoch, again.subscribed_topic_names) == ("me", 0, ["t"])


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_is_away_costs_a_pause_and_no_partitions(make: Make, code: ErrorCode) -> None:
    scene = make()
    scene.welcome(4, 0)
    scene.now += 5
    scene.refuse(code)
    assert scene.member.due(scene.now) == []
    scene.now += 10
    again = scene.welcome(4, learns=False)
    assert (again.member_epoch, again.subscribed_topic_names) == (4, ["t"])
    assert scene.member.assigned == {T: (0,)}


def test_a_request_without_an_answer_is_sent_again(make: Make) -> None:
    scene = make()
    [ask] = scene.member.due(scene.now)
    scene.member.failed(ask, KafkaError(ErrorCode.NETWORK_EXCEPTION), scene.now)
    scene.now += 1
    assert scene.welcome(1, 0).member_epoch == 0


def test_a_user_who_does_not_poll_is_out_of_the_group_until_they_do(make: Make) -> None:
    scene = make(max_poll_interval_s=60.0)
    scene.welcome(1, 0)
    scene.now += 61
    [leaving] = scene.member.due(scene.now)
    assert epoch_of(leaving) == -1
    assert (scene.member.phase, scene.member.assigned) == (ConsumerPhase.STALLED, {})
    assert scene.member.due(scene.now + 100) == []
    scene.member.poll_began(scene.now)
    assert scene.welcome(2, 0).member_epoch == 0


def test_a_refusal_for_good_is_a_problem_until_the_user_polls_again(make: Make) -> None:
    scene = make()
    scene.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    problem = scene.member.problem
    assert problem is not None
    assert problem.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert "group 'g'" in str(problem)
    assert scene.member.due(scene.now + 100) == []
    scene.member.problem = None
    scene.member.poll_began(scene.now)
    assert scene.welcome(1, 0).member_epoch == 0


def test_a_cluster_without_share_groups_is_named(make: Make) -> None:
    scene = make()
    scene.refuse(ErrorCode.UNSUPPORTED_VERSION)
    assert "raise its feature share.version to 1" in str(scene.member.problem)


def test_leaving_ends_everything_and_answers_that_come_later_count_for_nothing(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.now += 5
    [ask] = scene.member.due(scene.now)
    leaving = scene.member.leave()
    assert leaving is not None
    assert epoch_of(leaving) == -1
    scene.member.answered(ask, ShareGroupHeartbeatResponse(member_epoch=9), scene.now)
    assert (scene.member.phase, scene.member.assigned, scene.member.leave()) == (ConsumerPhase.OUT, {}, None)


def test_partitions_of_a_topic_whose_name_is_unknown_wait_for_its_name(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0)
    assert (scene.member.unnamed, scene.changes) == (True, 1)
    scene.member.learned({"t": 1}, {T: "t"}, scene.now)
    assert (scene.member.unnamed, scene.changes) == (False, 2)
