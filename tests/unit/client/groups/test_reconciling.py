"""A member in the new protocol, one heartbeat at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.client.groups.member import MemberRequest, MemberSettings
from odradek.client.groups.reconciling import ConsumerPhase, ReconcilingMember
from odradek.client.groups.values import Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T = UUID(int=7)
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))

Make = Callable[..., "Scene"]


class Scene:
    """A member, and a coordinator whose answers the test gives."""

    def __init__(self, chance: Any, **settings: Any) -> None:
        self.now = 100.0
        own = MemberSettings(group_id="g", **settings)
        self.member = ReconcilingMember(own, Backoff(100, 1_000, chance), member_id="me")
        self.member.learned({"t": 3}, {T: "t"}, self.now)
        self.member.subscribe(Subscription(topics=("t",)), self.now)

    def due(self) -> MemberRequest:
        [ask] = self.member.due(self.now)
        return ask

    def welcome(self, epoch: int, *numbers: int, learns: bool = True) -> Any:
        """Answer the heartbeat that is due; returns it."""
        ask = self.due()
        part = TopicPartitions(topic_id=T, partitions=list(numbers))
        response = ConsumerGroupHeartbeatResponse(
            member_id="me",
            member_epoch=epoch,
            heartbeat_interval_ms=5_000,
            assignment=Assignment(topic_partitions=[part]) if learns else None,
        )
        self.member.answered(ask, response, self.now)
        return ask.build(1)

    def refuse(self, code: ErrorCode) -> None:
        self.member.answered(self.due(), ConsumerGroupHeartbeatResponse(error_code=code), self.now)

    def hand_over(self) -> Any:
        handover = self.member.handover
        assert handover is not None
        self.member.handed_over(handover.number, self.now)
        return handover


@pytest.fixture
def make(chance: Any) -> Make:
    return lambda **named: Scene(chance, **named)


def test_the_first_heartbeat_says_everything(make: Make) -> None:
    scene = make(remote_assignor="range", max_poll_interval_s=60.0)
    request = scene.due().build(1)
    assert (request.member_id, request.member_epoch) == ("me", 0)
    assert request.subscribed_topic_names == ["t"]
    assert request.topic_partitions == []
    assert (request.rebalance_timeout_ms, request.server_assignor) == (60_000, "range")


def test_an_old_broker_gives_the_member_its_id(make: Make) -> None:
    assert make().due().build(0).member_id == ""


def test_what_is_assigned_is_taken_and_reported_at_once(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0, 1)
    assert scene.hand_over().taken == (T0, T1)
    request = scene.welcome(1, learns=False)
    assert request.topic_partitions[0].partitions == [0, 1]
    assert request.subscribed_topic_names is None


def test_heartbeats_without_news_are_short_and_follow_the_brokers_interval(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.hand_over()
    scene.welcome(1, learns=False)
    assert scene.member.due(scene.now) == []
    assert scene.member.next_deadline(scene.now) == scene.now + 5
    scene.now += 5
    request = scene.due().build(1)
    assert (request.topic_partitions, request.subscribed_topic_names) == (None, None)
    assert request.rebalance_timeout_ms == -1


def test_what_is_taken_away_is_given_up_first_while_the_rest_is_read_on(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0, 1)
    scene.hand_over()
    scene.welcome(2, 1, 2)
    handover = scene.hand_over()
    assert (handover.revoked, handover.lost, handover.taken) == ((T0,), False, (T1, T2))
    assert scene.welcome(2, learns=False).topic_partitions[0].partitions == [1, 2]


def test_a_topic_is_taken_once_its_name_is_known(chance: Any) -> None:
    scene = Scene(chance)
    other = UUID(int=8)
    response = ConsumerGroupHeartbeatResponse(
        member_epoch=1,
        assignment=Assignment(topic_partitions=[TopicPartitions(topic_id=other, partitions=[0])]),
    )
    scene.member.answered(scene.due(), response, scene.now)
    assert scene.member.unnamed
    assert scene.member.handover is None
    scene.member.learned({}, {other: "later"}, scene.now)
    assert scene.hand_over().taken == (TopicPartition("later", 0),)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_has_lost_everything_and_joins_again(make: Make, code: ErrorCode) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.hand_over()
    scene.refuse(code)
    assert scene.member.due(scene.now) == []
    handover = scene.hand_over()
    assert (handover.revoked, handover.lost) == ((T0,), True)
    request = scene.due().build(1)
    assert (request.member_epoch, request.member_id, request.topic_partitions) == (0, "me", [])


def test_after_no_answer_everything_is_said_again(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.hand_over()
    scene.member.failed(scene.due(), KafkaError(ErrorCode.NETWORK_EXCEPTION), scene.now)
    assert scene.member.due(scene.now) == []
    scene.now += 1
    request = scene.due().build(1)
    assert (request.member_epoch, request.subscribed_topic_names) == (1, ["t"])
    assert request.topic_partitions[0].partitions == [0]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_moves_or_loads_is_asked_again_and_nothing_is_given_up(
    make: Make, code: ErrorCode
) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.hand_over()
    scene.refuse(code)
    assert scene.member.due(scene.now) == []
    assert (scene.member.handover, scene.member.owned) == (None, (T0,))
    scene.now = scene.member.next_deadline(scene.now) or 0.0
    assert scene.due().build(1).member_epoch == 1


def test_the_user_hears_of_an_assignor_that_the_broker_lacks(make: Make) -> None:
    scene = make(remote_assignor="fair")
    scene.refuse(ErrorCode.UNSUPPORTED_ASSIGNOR)
    assert scene.member.phase is ConsumerPhase.FAILED
    assert scene.member.problem is not None
    assert scene.member.due(scene.now) == []


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("one", -2)])
def test_leaving_is_a_heartbeat_too(make: Make, instance: str | None, epoch: int) -> None:
    scene = make(group_instance_id=instance)
    scene.welcome(1, 0)
    shutdown = scene.member.leave()
    assert shutdown is not None
    assert shutdown.build(1).member_epoch == epoch


def test_who_does_not_poll_leaves_and_comes_back_with_the_next_poll(make: Make) -> None:
    scene = make(max_poll_interval_s=10.0)
    scene.welcome(1, 0)
    scene.hand_over()
    scene.now = 111.0
    assert scene.due().build(1).member_epoch == -1
    assert scene.member.due(scene.now) == []
    scene.member.poll_began(scene.now)
    assert scene.hand_over().lost
    assert scene.due().build(1).member_epoch == 0


def test_a_pattern_is_the_brokers_to_resolve(chance: Any) -> None:
    member = ReconcilingMember(MemberSettings(group_id="g"), Backoff(1, 1, chance), member_id="me")
    member.subscribe(Subscription(pattern="log-.*", resolved_by_broker=True), 1.0)
    [ask] = member.due(1.0)
    assert ask.build(1).subscribed_topic_regex == "log-.*"
    with pytest.raises(KafkaError, match="subscribe by name"):
        ask.build(0)


def test_a_new_subscription_is_sent_at_once(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.hand_over()
    scene.welcome(1, learns=False)
    scene.member.subscribe(Subscription(topics=("t", "u")), scene.now)
    assert scene.due().build(1).subscribed_topic_names == ["t", "u"]


def test_a_broker_without_the_protocol_is_one_clear_error(make: Make) -> None:
    scene = make()
    scene.member.failed(
        scene.due(),
        KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker at b:1 does not offer it"),
        scene.now,
    )
    assert scene.member.phase is ConsumerPhase.FAILED
    assert str(scene.member.problem) == (
        "UNSUPPORTED_VERSION: group 'g': the broker at b:1 does not offer it: group.protocol=consumer needs brokers that"
        " serve KIP-848 (Kafka 4.0 and later): use auto or classic"
    )


def test_a_group_that_is_gone_is_joined_again(make: Make) -> None:
    scene = make()
    scene.welcome(1, 0)
    scene.hand_over()
    scene.refuse(ErrorCode.GROUP_ID_NOT_FOUND)
    assert scene.hand_over().lost
    request = scene.due()
    assert request.build(1).member_epoch == 0
    refusal = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    scene.member.answered(request, refusal, scene.now)
    assert scene.member.problem is not None


def test_a_static_member_waits_for_the_session_of_the_one_that_died(make: Make) -> None:
    scene = make(group_instance_id="one")
    for _ in range(5):
        scene.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
        assert scene.member.problem is None
        scene.now += 5
    scene.welcome(1, 0)
    assert scene.hand_over().taken == (T0,)


def test_an_instance_id_that_stays_held_is_the_users_problem(make: Make) -> None:
    scene = make(group_instance_id="one")
    scene.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    scene.now += 61
    scene.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert scene.member.problem is not None
    assert scene.member.problem.code is ErrorCode.UNRELEASED_INSTANCE_ID
    scene.member.problem = None
    scene.member.poll_began(scene.now)
    scene.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert scene.member.problem is None  # and the wait begins again


def test_outside_the_group_it_commits_and_asks_as_no_member(make: Make) -> None:
    scene = make()
    assert (scene.member.metadata.member_id, scene.member.metadata.generation) == ("", -1)
    scene.welcome(3, 0)
    assert (scene.member.metadata.member_id, scene.member.metadata.generation) == ("me", 3)
    scene.member.leave()
    assert (scene.member.metadata.member_id, scene.member.metadata.generation) == ("", -1)


def test_a_member_without_partitions_asks_sooner_at_first(make: Make) -> None:
    scene = make()
    pauses = []
    for _ in range(7):
        scene.welcome(1)
        pauses.append(scene.member.next_deadline(scene.now) - scene.now)
        scene.now += pauses[-1]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    scene.welcome(2, 0)
    scene.hand_over()
    scene.welcome(2, learns=False)
    assert scene.member.next_deadline(scene.now) - scene.now == 5.0
