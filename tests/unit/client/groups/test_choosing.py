"""A member that is free in its choice of the protocol: when it changes to the classic one, and what goes on meanwhile."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.client.groups.assignors import assignors_of
from odradek.client.groups.choosing import ChoosingMember
from odradek.client.groups.member import MemberRequest, MemberSettings
from odradek.client.groups.member_bytes import read_subscription
from odradek.client.groups.values import NO_GENERATION, Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T = UUID(int=7)
T0 = TopicPartition("t", 0)
COUNTS, NAMES = {"t": 3, "log-a": 1, "log-b": 1}, {T: "t"}
_NO_API = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not offer ConsumerGroupHeartbeat")


class Scene:
    """A member, and a coordinator whose answers the test gives."""

    def __init__(self, chance: Any, subscription: Subscription | None = None, **settings: Any) -> None:
        self.now = 100.0
        own = MemberSettings(group_id="g", assignors=assignors_of("range"), **settings)
        self.member = ChoosingMember(own, Backoff(100, 1_000, chance), member_id="me")
        self.member.subscribe(subscription or Subscription(topics=("t",)), self.now)
        self.member.learned(COUNTS, NAMES, self.now)

    def due(self) -> MemberRequest:
        [request] = self.member.due(self.now)
        return request

    def refuse(self, code: ErrorCode, message: str | None = None) -> None:
        refusal = ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
        self.member.answered(self.due(), refusal, self.now)

    def welcome(self, *numbers: int) -> None:
        part = TopicPartitions(topic_id=T, partitions=list(numbers))
        response = ConsumerGroupHeartbeatResponse(
            member_id="me",
            member_epoch=1,
            heartbeat_interval_ms=5_000,
            assignment=Assignment(topic_partitions=[part]),
        )
        self.member.answered(self.due(), response, self.now)

    def hand_over(self) -> Any:
        handover = self.member.handover
        assert handover is not None
        self.member.handed_over(handover.number, self.now)
        return handover


def built(request: MemberRequest, version: int = 1) -> Any:
    return request.build(version)


def joins(request: MemberRequest) -> list[str]:
    """Returns the topics of a JoinGroup."""
    assert request.api == "JoinGroup"
    return list(read_subscription(built(request, 9).protocols[0].metadata).topics)


@pytest.fixture
def scene(chance: Any) -> Scene:
    return Scene(chance)


def test_it_begins_with_the_consumer_protocol(scene: Scene) -> None:
    request = scene.due()
    assert (request.api, built(request).member_epoch, built(request).member_id) == (
        "ConsumerGroupHeartbeat",
        0,
        "me",
    )
    assert not scene.member.is_classic


def test_a_broker_that_does_not_offer_the_api_makes_it_classic(scene: Scene) -> None:
    scene.member.failed(scene.due(), _NO_API, scene.now)
    assert scene.member.is_classic
    assert scene.member.problem is None
    assert joins(scene.due()) == ["t"]


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND])
def test_a_coordinator_that_refuses_the_protocol_makes_it_classic(scene: Scene, code: ErrorCode) -> None:
    scene.refuse(code, "online upgrade is disabled")
    assert scene.member.is_classic
    assert joins(scene.due()) == ["t"]


def test_the_preview_of_the_protocol_is_not_used(scene: Scene) -> None:
    with pytest.raises(KafkaError, match="preview") as raised:
        scene.due().build(0)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "code",
    [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INVALID_REQUEST],
)
def test_other_errors_are_the_users(scene: Scene, code: ErrorCode) -> None:
    scene.refuse(code)
    assert not scene.member.is_classic
    assert scene.member.problem is not None
    assert scene.member.problem.code is code


def test_a_lost_connection_is_no_refusal(scene: Scene) -> None:
    scene.member.failed(scene.due(), KafkaError(ErrorCode.NETWORK_EXCEPTION), scene.now)
    assert not scene.member.is_classic
    scene.now += 10
    assert scene.due().api == "ConsumerGroupHeartbeat"


def test_a_coordinator_without_the_protocol_takes_the_partitions_first(scene: Scene) -> None:
    scene.welcome(0)
    assert scene.hand_over().taken == (T0,)
    scene.member.failed(scene.due(), _NO_API, scene.now)
    assert not scene.member.is_classic
    assert scene.member.problem is None
    assert not scene.member.awaits_poll
    assert scene.member.generation == NO_GENERATION
    lost = scene.hand_over()
    assert (lost.revoked, lost.lost) == ((T0,), True)
    assert scene.member.is_classic
    assert joins(scene.due()) == ["t"]


def test_numbers_of_handovers_go_on_after_the_change(scene: Scene) -> None:
    scene.welcome(0)
    first = scene.hand_over()
    scene.member.failed(scene.due(), _NO_API, scene.now)
    second = scene.hand_over()
    assert scene.member.is_classic
    scene.member.user.in_poll = False
    scene.now += 1_000  # the user does not poll: the classic member stalls, and owns nothing
    scene.member.due(scene.now)
    assert first.number < second.number == scene.member.user.handover_count


def test_a_group_that_is_gone_is_joined_again_before_it_counts_as_a_refusal(scene: Scene) -> None:
    scene.welcome(0)
    scene.hand_over()
    scene.refuse(ErrorCode.GROUP_ID_NOT_FOUND)
    assert scene.hand_over().lost
    assert not scene.member.is_classic
    assert built(scene.due()).member_epoch == 0


def test_answers_to_the_other_protocol_come_too_late(scene: Scene) -> None:
    late = scene.due()
    scene.member.failed(late, _NO_API, scene.now)
    request = scene.due()
    scene.member.answered(late, ConsumerGroupHeartbeatResponse(member_epoch=4), scene.now)
    assert scene.member.is_classic
    assert scene.member.generation == NO_GENERATION
    assert request.api == "JoinGroup"


def test_a_user_in_poll_is_not_overdue_after_the_change(chance: Any) -> None:
    scene = Scene(chance, max_poll_interval_s=10.0)
    scene.member.user.in_poll = True
    scene.member.failed(scene.due(), _NO_API, scene.now)
    scene.now += 60
    assert scene.due().api == "JoinGroup"


def test_a_new_membership_tries_the_consumer_protocol_again(scene: Scene) -> None:
    scene.member.failed(scene.due(), _NO_API, scene.now)
    scene.due()
    scene.member.leave()
    assert scene.member.due(scene.now) == []
    scene.member.subscribe(Subscription(topics=("t",)), scene.now)
    assert scene.due().api == "ConsumerGroupHeartbeat"


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_pattern_means_the_same_in_both_protocols(chance: Any, is_refused: bool) -> None:
    scene = Scene(chance, Subscription(pattern="log-"))
    request = scene.due()
    assert built(request).subscribed_topic_names == ["log-a", "log-b"]
    assert built(request).subscribed_topic_regex is None
    if is_refused:
        scene.member.failed(request, _NO_API, scene.now)
        assert joins(scene.due()) == ["log-a", "log-b"]


def test_a_pattern_waits_for_the_names_of_topics(chance: Any) -> None:
    own = MemberSettings(group_id="g", assignors=assignors_of("range"))
    member = ChoosingMember(own, Backoff(100, 1_000, chance), member_id="me")
    member.subscribe(Subscription(pattern="log-"), 1.0)
    assert member.wants_all
    assert member.due(1.0) == []
    assert member.next_deadline(1.0) == 301.0
    member.learned(COUNTS, NAMES, 1.0)
    [request] = member.due(1.0)
    assert request.api == "ConsumerGroupHeartbeat"


def test_a_topic_that_comes_to_match_is_subscribed_to_at_once(chance: Any) -> None:
    scene = Scene(chance, Subscription(pattern="log-"))
    scene.welcome()
    scene.hand_over() if scene.member.handover else None
    scene.member.learned({**COUNTS, "log-c": 2}, NAMES, scene.now)
    assert built(scene.due()).subscribed_topic_names == ["log-a", "log-b", "log-c"]
