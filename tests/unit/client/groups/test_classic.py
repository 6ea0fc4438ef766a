"""A member of a classic group, one event at a time: what it sends, what it asks of its user, what it does about errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.groups.assignors import assignors_of
from odradek.client.groups.classic import ClassicMember, ClassicPhase
from odradek.client.groups.member import MemberRequest, MemberSettings
from odradek.client.groups.member_bytes import (
    MemberSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from odradek.client.groups.values import Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups.heartbeat import HeartbeatResponse
from odradek.protocol.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse

T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
NEWEST = 9

Make = Callable[..., "Scene"]


class Scene:
    """A member, and a coordinator whose answers the test gives."""

    def __init__(self, chance: Any, strategy: str = "range", **settings: Any) -> None:
        self.now = 100.0
        own = MemberSettings(group_id="g", assignors=assignors_of(strategy), **settings)
        self.member = ClassicMember(own, Backoff(100, 1_000, chance))
        self.member.learned({"t": 4}, {}, self.now)

    def subscribe(self) -> None:
        self.member.subscribe(Subscription(topics=("t",)), self.now)

    def due(self) -> MemberRequest:
        [ask] = self.member.due(self.now)
        return ask

    def nothing_due(self) -> bool:
        return self.member.due(self.now) == []

    def answer(self, ask: MemberRequest, message: Any) -> None:
        self.member.answered(ask, message, self.now)

    def join(
        self, *, leader: str = "other", generation: int = 1, others: tuple[str, ...] = ()
    ) -> MemberRequest:
        """Join as `me`; the SyncGroup that follows."""
        ask = self.due()
        assert ask.api == "JoinGroup"
        metadata_bytes = write_subscription(MemberSubscription(topics=("t",)))
        members = [
            JoinGroupResponseMember(member_id=name, metadata=metadata_bytes) for name in ("me", *others)
        ]
        self.answer(
            ask,
            JoinGroupResponse(
                generation_id=generation,
                protocol_name=self.member.settings.assignors[0].name,
                leader=leader,
                member_id="me",
                members=members if leader == "me" else [],
            ),
        )
        return self.due()

    def sync(self, ask: MemberRequest, *partitions: TopicPartition) -> None:
        assert ask.api == "SyncGroup"
        self.answer(ask, SyncGroupResponse(assignment=write_assignment(partitions)))

    def hand_over(self) -> Any:
        handover = self.member.handover
        assert handover is not None
        self.member.handed_over(handover.number, self.now)
        return handover

    def stable(self, *partitions: TopicPartition) -> Scene:
        self.subscribe()
        self.sync(self.join(), *partitions)
        self.hand_over()
        assert self.member.phase is ClassicPhase.STABLE
        return self

    def beat(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.now += self.member.settings.heartbeat_interval_s
        ask = self.due()
        assert ask.api == "Heartbeat"
        self.answer(ask, HeartbeatResponse(error_code=code))


@pytest.fixture
def make(chance: Any) -> Make:
    return lambda *given, **named: Scene(chance, *given, **named)


def request_of(ask: MemberRequest, version: int = NEWEST) -> Any:
    return ask.build(version)


def test_a_newcomer_joins_with_every_assignor(make: Make) -> None:
    scene = make("range,roundrobin")
    scene.subscribe()
    request = request_of(scene.due())
    assert [protocol.name for protocol in request.protocols] == ["range", "roundrobin"]
    assert read_subscription(request.protocols[0].metadata).topics == ("t",)
    assert (request.member_id, request.group_instance_id) == ("", None)


def test_a_newcomer_sent_away_with_an_id_comes_back_with_it(make: Make) -> None:
    scene = make()
    scene.subscribe()
    refusal = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me", protocol_name="")
    scene.answer(scene.due(), refusal)
    assert request_of(scene.due()).member_id == "me"


def test_the_leader_hands_in_everyones_assignment(make: Make) -> None:
    scene = make()
    scene.subscribe()
    request = request_of(scene.join(leader="me", others=("you",)), 5)
    assigned = {
        assignment.member_id: read_assignment(assignment.assignment) for assignment in request.assignments
    }
    assert assigned == {"me": (T0, T1), "you": (T2, T3)}


def test_a_leader_waits_until_it_knows_the_topics_of_all(make: Make) -> None:
    scene = make()
    scene.subscribe()
    ask = scene.due()
    metadata_bytes = write_subscription(MemberSubscription(topics=("t", "unknown")))
    scene.answer(
        ask,
        JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="me",
            member_id="me",
            members=[JoinGroupResponseMember(member_id="me", metadata=metadata_bytes)],
        ),
    )
    assert scene.nothing_due()
    assert "unknown" in scene.member.wants
    scene.member.learned({"t": 4, "unknown": 0}, {}, scene.now)
    assert scene.due().api == "SyncGroup"


def test_what_is_assigned_is_taken_by_the_user_first(make: Make) -> None:
    scene = make()
    scene.subscribe()
    scene.sync(scene.join(), T0, T1)
    handover = scene.hand_over()
    assert (handover.revoked, handover.taken) == ((), (T0, T1))
    assert scene.member.owned == (T0, T1)


def test_an_eager_member_gives_up_everything_before_it_joins_again(make: Make) -> None:
    scene = make().stable(T0, T1)
    scene.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert scene.nothing_due()
    handover = scene.hand_over()
    assert (handover.revoked, handover.lost, handover.taken) == ((T0, T1), False, None)
    request = request_of(scene.due())
    assert request.member_id == "me"
    assert read_subscription(request.protocols[0].metadata).owned == ()


def test_a_sticky_member_remembers_what_it_gave_up(make: Make) -> None:
    scene = make("sticky").stable(T0)
    scene.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.hand_over()
    subscription = read_subscription(request_of(scene.due()).protocols[0].metadata)
    assert subscription.user_data is not None
    assert subscription.user_data.endswith(b"\x00\x00\x00\x01")


def test_a_cooperative_member_keeps_reading_while_it_joins_again(make: Make) -> None:
    scene = make("cooperative-sticky").stable(T0, T1)
    scene.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert scene.member.handover is None
    ask = scene.join(generation=2)
    scene.sync(ask, T1)
    handover = scene.hand_over()
    assert (handover.revoked, handover.taken) == ((T0,), (T1,))
    request = request_of(scene.due())
    assert read_subscription(request.protocols[0].metadata).owned == (T1,)


def test_heartbeats_go_on_while_the_user_takes_their_time(make: Make) -> None:
    scene = make().stable(T0)
    scene.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    for _ in range(3):
        scene.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert scene.member.phase is ClassicPhase.GIVING_UP


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_the_group_went_on_without_has_lost_what_it_had(make: Make, code: ErrorCode) -> None:
    scene = make().stable(T0)
    scene.beat(code)
    handover = scene.hand_over()
    assert (handover.revoked, handover.lost) == ((T0,), True)
    expected = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else "me"
    assert request_of(scene.due()).member_id == expected


def test_a_fenced_instance_stays_out(make: Make) -> None:
    scene = make(group_instance_id="one").stable(T0)
    scene.beat(ErrorCode.FENCED_INSTANCE_ID)
    assert scene.member.problem is not None
    assert scene.member.problem.code is ErrorCode.FENCED_INSTANCE_ID
    scene.hand_over()
    scene.member.poll_began(scene.now)
    assert scene.nothing_due()


def test_a_group_that_refuses_is_tried_again_when_the_user_polls_again(make: Make) -> None:
    scene = make()
    scene.subscribe()
    refusal = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED, protocol_name="")
    scene.answer(scene.due(), refusal)
    assert scene.nothing_due()
    scene.member.problem = None  # raised to the user
    assert scene.member.awaits_poll
    scene.member.poll_began(scene.now)
    assert scene.due().api == "JoinGroup"


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_coordinator_that_moves_is_asked_again_after_a_pause(make: Make, code: ErrorCode) -> None:
    scene = make()
    scene.subscribe()
    scene.answer(scene.due(), JoinGroupResponse(error_code=code, protocol_name=""))
    assert scene.nothing_due()
    scene.now = scene.member.next_deadline(scene.now) or 0.0
    assert scene.due().api == "JoinGroup"


def test_no_answer_is_no_reason_to_give_up_partitions(make: Make) -> None:
    scene = make().stable(T0)
    scene.now += 3
    ask = scene.due()
    scene.member.failed(ask, KafkaError(ErrorCode.NETWORK_EXCEPTION), scene.now)
    assert scene.member.handover is None
    assert scene.member.owned == (T0,)
    scene.now = scene.member.next_deadline(scene.now) or 0.0
    assert scene.due().api == "Heartbeat"


def test_who_does_not_poll_leaves_and_comes_back_with_the_next_poll(make: Make) -> None:
    scene = make(max_poll_interval_s=10.0, heartbeat_interval_s=3.0).stable(T0)
    scene.now = 111.0
    asks = scene.member.due(scene.now)
    assert [ask.api for ask in asks] == ["LeaveGroup"]
    assert request_of(asks[0], 5).members[0].member_id == "me"
    assert request_of(asks[0], 2).member_id == "me"
    scene.now += 1_000
    assert scene.nothing_due()
    scene.member.poll_began(scene.now)
    assert scene.hand_over().lost
    assert request_of(scene.due()).member_id == ""


def test_a_poll_that_waits_long_counts_as_polling(make: Make) -> None:
    scene = make(max_poll_interval_s=10.0).stable(T0)
    scene.member.user.in_poll = True
    scene.now += 60
    assert [ask.api for ask in scene.member.due(scene.now)] == ["Heartbeat"]


def test_a_static_member_does_not_say_goodbye(make: Make) -> None:
    assert make(group_instance_id="one").stable(T0).member.leave() is None
    assert make().stable(T0).member.leave() is not None


def test_a_leader_rebalances_when_a_topic_grows(make: Make) -> None:
    scene = make()
    scene.subscribe()
    scene.sync(scene.join(leader="me"), T0, T1, T2, T3)
    scene.hand_over()
    scene.member.learned({"t": 4}, {}, scene.now)
    assert scene.member.handover is None
    scene.member.learned({"t": 5}, {}, scene.now)
    assert scene.member.handover is not None


def test_a_pattern_follows_the_topics_there_are(make: Make, chance: Any) -> None:
    own = MemberSettings(group_id="g", assignors=assignors_of("cooperative-sticky"))
    member = ClassicMember(own, Backoff(100, 1_000, chance))
    member.subscribe(Subscription(pattern="log-.*"), 1.0)
    assert member.due(1.0) == []
    assert member.wants_all
    member.learned({"log-a": 1, "other": 1}, {}, 1.0)
    [ask] = member.due(1.0)
    assert read_subscription(request_of(ask).protocols[0].metadata).topics == ("log-a",)


def test_an_answer_to_an_earlier_life_is_ignored(make: Make) -> None:
    scene = make()
    scene.subscribe()
    late = scene.due()
    scene.member.leave()
    scene.subscribe()
    scene.answer(late, JoinGroupResponse(generation_id=9, protocol_name="range", leader="x", member_id="old"))
    assert scene.member.member_id == ""
    assert scene.due().api == "JoinGroup"
