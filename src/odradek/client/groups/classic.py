"""A member of a classic group (KIP-62, 345, 394, 429): join, sync, heartbeat, and again when the group rebalances.

    OUT -> TO_JOIN -> JOINING -> LEADING -> SYNCING -> TAKING -> STABLE
              ^                  (leader only)                     |
              +--------------------- GIVING_UP <-------------------+

With an eager assignor everything is given up before the next join; with a cooperative one partitions are kept, and only
what went to someone else is given up after the sync: then another round lets the new owner have it. GIVING_UP and
TAKING wait for the user's side, which acts inside `poll`; heartbeats go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final
from uuid import UUID

from odradek.client.groups.assignors import ASSIGNORS, Assignor, GroupMember
from odradek.client.groups.member import (
    COORDINATOR_MOVED,
    PATIENCE_S,
    MemberRequest,
    MemberSettings,
    MembershipState,
    UserSide,
    matching_topics,
    minus,
)
from odradek.client.groups.member_bytes import (
    PROTOCOL_TYPE,
    MemberSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from odradek.client.groups.values import NO_GENERATION, Partitions, Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import Message
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest
from odradek.protocol.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_FIRST_LEAVE_WITH_MEMBERS: Final = 3
_NOT_A_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_LATER: Final = COORDINATOR_MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION}


class ClassicPhase(Enum):
    """The phases of a member of a classic group, as the module's picture shows them."""

    OUT = auto()
    TO_JOIN = auto()
    JOINING = auto()
    LEADING = auto()
    SYNCING = auto()
    TAKING = auto()
    STABLE = auto()
    GIVING_UP = auto()
    STALLED = auto()
    """The user has not polled for max.poll.interval.ms: out of the group until they do."""
    FAILED = auto()


_ALIVE: Final = frozenset(
    {ClassicPhase.LEADING, ClassicPhase.TAKING, ClassicPhase.STABLE, ClassicPhase.GIVING_UP}
)
"""Phases in which heartbeats are due."""


class ClassicMember(MembershipState):
    """The state machine of a member of a classic group: join, sync, heartbeat, and again after a rebalance."""

    def __init__(self, settings: MemberSettings, backoff: Backoff, user: UserSide | None = None) -> None:
        super().__init__(settings, backoff, user)
        self.phase = ClassicPhase.OUT
        self._cooperative = all(assignor.cooperative for assignor in settings.assignors)
        self._counts: Mapping[str, int] | None = None
        self._topics: tuple[str, ...] = ()
        """The subscribed topics, with the pattern resolved."""
        self._members: dict[str, GroupMember] = {}
        self._led_counts: Mapping[str, int] | None = None
        """The partition counts of the last assignment that we made; None if another member leads."""
        self._assignor: Assignor | None = None
        self._protocol_name: str | None = None
        self._skip_assignment = False
        self._beat_at = 0.0
        self._beat_in_flight = False
        self._again = False
        """Rejoin as soon as the user's side has taken what it was given."""
        self._leave_request: MemberRequest | None = None
        self._had: Partitions = ()
        """The last assignment, with its generation below: `sticky` prefers to get it again."""
        self._had_generation = NO_GENERATION

    # -- what the service and the user ask

    @property
    def wants(self) -> Sequence[str]:
        """Topics whose metadata must be known."""
        own = self.subscription.topics if self.subscription is not None else ()
        return tuple(dict.fromkeys((*own, *self._group_topics())))

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self.subscription = subscription
        self._counts = None if subscription.pattern is not None else self._counts
        self._topics = subscription.topics
        if self.phase in (ClassicPhase.OUT, ClassicPhase.STALLED):
            self.user.polled_at = now
            self.phase = ClassicPhase.TO_JOIN
            self._not_before = now
        else:
            self._rejoin(now)

    def due(self, now: float) -> list[MemberRequest]:
        asks: list[MemberRequest] = []
        if self.phase not in (
            ClassicPhase.OUT,
            ClassicPhase.STALLED,
            ClassicPhase.FAILED,
        ) and self._poll_overdue(now):
            self._stall()
        if self._leave_request is not None:
            asks.append(self._leave_request)
            self._leave_request = None
        if self.phase is ClassicPhase.TO_JOIN and now >= self._not_before and self._knows_topics:
            asks.append(self._join())
        elif self.phase is ClassicPhase.LEADING:
            self._lead(asks)
        if self._may_beat and now >= self._beat_at:
            asks.append(self._beat(now))
        return asks

    def next_deadline(self, now: float) -> float | None:
        times = []
        if self.phase is ClassicPhase.TO_JOIN and self._knows_topics:
            times.append(self._not_before)
        if self._may_beat:
            times.append(self._beat_at)
        if (
            self.phase not in (ClassicPhase.OUT, ClassicPhase.STALLED, ClassicPhase.FAILED)
            and not self.user.in_poll
        ):
            times.append(self._poll_deadline())
        return min(times, default=None)

    def learned(self, counts: Mapping[str, int], names: Mapping[UUID, str], now: float) -> None:
        """Partition counts of all topics that were asked for, 0 for those not there; called whenever metadata came."""
        self._counts = counts
        if self.subscription is None:
            return
        if self.subscription.pattern is not None:
            matching = matching_topics(self.subscription.pattern, counts)
            if matching != self._topics:
                self._topics = matching
                if self.phase is ClassicPhase.STABLE:
                    self._rejoin(now)
        leads = self.phase is ClassicPhase.STABLE and self._led_counts is not None
        if leads and self._known_counts(counts) != self._led_counts:
            self._rejoin(now)

    def handed_over(self, number: int, now: float) -> None:
        handover = self.handover
        if handover is None or handover.number != number:
            return
        self.handover = None
        if handover.taken is None:
            self.owned = minus(self.owned, handover.revoked)
            if self.phase is ClassicPhase.GIVING_UP:
                self._to_join(now)
            return
        self.owned = self._had = handover.taken
        self._had_generation = self.generation
        if self.phase is not ClassicPhase.TAKING:
            return
        self.phase = ClassicPhase.STABLE
        if self._again or (self._cooperative and handover.revoked):
            self._again = False
            self._rejoin(now)

    def fenced(self, code: ErrorCode, now: float) -> None:
        """Handles a refused commit: the group continued without this member."""
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(code)
        elif code in _NOT_A_MEMBER and self.phase in _ALIVE:
            self._lose(now, forget_id=code is ErrorCode.UNKNOWN_MEMBER_ID)

    @property
    def awaits_poll(self) -> bool:
        """Whether nothing happens before the user polls."""
        stalled = self.phase is ClassicPhase.STALLED and self.handover is None
        return stalled or (self.phase is ClassicPhase.FAILED and self.problem is None)

    def poll_began(self, now: float) -> None:
        """Tries again: the user polls, and has seen the errors."""
        self.user.polled_at = now
        if self.awaits_poll:
            self._to_join(now)

    def leave(self) -> MemberRequest | None:
        """Returns the last request, unless a static member keeps its place; afterwards nothing is due."""
        member_id = self.member_id
        self._incarnation += 1
        self.phase = ClassicPhase.OUT
        self.generation = NO_GENERATION
        self.handover = None
        self.member_id, self.owned = "", ()
        if not member_id or self.settings.group_instance_id is not None:
            return None
        return self._leave_ask(member_id, "the consumer is being closed")

    # -- answers

    def answered(self, ask: MemberRequest, response: Any, now: float) -> None:
        if ask.api == "Heartbeat":
            self._beat_in_flight = False
        if ask.incarnation != self._incarnation:
            return
        code = ErrorCode.of(response.error_code)
        if ask.api == "JoinGroup" and self.phase is ClassicPhase.JOINING:
            self._joined(code, response, now)
        elif ask.api == "SyncGroup" and self.phase is ClassicPhase.SYNCING:
            self._synced(code, response.assignment, now)
        elif ask.api == "Heartbeat":
            self._beaten(code, now)

    def failed(self, ask: MemberRequest, error: KafkaError, now: float) -> None:
        """Handles a request without an answer, or one that could not be sent."""
        if ask.api == "Heartbeat":
            self._beat_in_flight = False
            self._beat_at = now + self._backoff.delay_s(0)
        if ask.incarnation != self._incarnation:
            return
        if ask.api in ("JoinGroup", "SyncGroup"):
            if error.retriable:
                self._again_later(now)
            else:
                self._fail(error.code, error.message)
        elif ask.api == "Heartbeat" and not error.retriable:
            self._fail(error.code, error.message)

    def _joined(self, code: ErrorCode, response: JoinGroupResponse, now: float) -> None:
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.phase = ClassicPhase.TO_JOIN
            self._not_before = now
        elif code in _NOT_A_MEMBER:
            self._lose(now, forget_id=code is ErrorCode.UNKNOWN_MEMBER_ID)
        elif code in _LATER or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._again_later(now)
        elif code is not ErrorCode.NONE:
            self._fail(code)
        else:
            self._enter_generation(response, now)

    def _enter_generation(self, response: JoinGroupResponse, now: float) -> None:
        self._failure_count = 0
        self.member_id, self.generation = response.member_id, response.generation_id
        self._protocol_name = response.protocol_name
        self._assignor = ASSIGNORS.get(response.protocol_name or "")
        self._beat_at = now + self.settings.heartbeat_interval_s
        self._led_counts = None
        self._members = {}
        self._skip_assignment = response.skip_assignment
        self.phase = ClassicPhase.LEADING
        if response.leader == response.member_id:
            try:
                self._members = {
                    member.member_id: GroupMember(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        subscription=read_subscription(member.metadata),
                    )
                    for member in response.members
                }
            except KafkaError as error:
                self._fail(error.code, error.message)

    def _synced(self, code: ErrorCode, assignment: bytes, now: float) -> None:
        if code in _NOT_A_MEMBER:
            self._lose(now, forget_id=code is ErrorCode.UNKNOWN_MEMBER_ID)
        elif code in _LATER or code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._again_later(now)
        elif code is not ErrorCode.NONE:
            self._fail(code)
        else:
            try:
                taken = read_assignment(assignment)
            except KafkaError as error:
                self._fail(error.code, error.message)
                return
            self.phase = ClassicPhase.TAKING
            self._hand_over(revoked=minus(self.owned, taken), taken=taken)

    def _beaten(self, code: ErrorCode, now: float) -> None:
        if self.phase not in _ALIVE:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.phase is ClassicPhase.STABLE:
                self._rejoin(now)
            elif self.phase is ClassicPhase.TAKING:
                self._again = True
        elif code in _NOT_A_MEMBER:
            self._lose(now, forget_id=code is ErrorCode.UNKNOWN_MEMBER_ID)
        elif code in _LATER:
            self._beat_at = now + self._backoff.delay_s(0)
        elif code is not ErrorCode.NONE:
            self._fail(code)

    # -- moves

    @property
    def _knows_topics(self) -> bool:
        return self.subscription is not None and (
            self.subscription.pattern is None or self._counts is not None
        )

    @property
    def _may_beat(self) -> bool:
        return self.phase in _ALIVE and self.generation != NO_GENERATION and not self._beat_in_flight

    def _rejoin(self, now: float) -> None:
        if self.phase is ClassicPhase.TAKING:
            self._again = True
        elif self.phase is ClassicPhase.STABLE:
            if self._cooperative or not self.owned:
                self._to_join(now)
            else:
                self.phase = ClassicPhase.GIVING_UP
                self._hand_over(revoked=self.owned)
        elif self.phase in (ClassicPhase.JOINING, ClassicPhase.LEADING, ClassicPhase.SYNCING):
            self._again = True

    def _to_join(self, now: float) -> None:
        self._incarnation += 1
        self.phase = ClassicPhase.TO_JOIN
        self._not_before = now

    def _again_later(self, now: float) -> None:
        self._incarnation += 1
        self.phase = ClassicPhase.TO_JOIN
        self._pause(now)

    def _lose(self, now: float, *, forget_id: bool) -> None:
        """Gives up everything: the group continued without this member, and other members have its
        partitions."""
        self.generation = NO_GENERATION
        if forget_id:
            self.member_id = ""
        self._incarnation += 1
        if self.owned:
            self.phase = ClassicPhase.GIVING_UP
            self._hand_over(revoked=self.owned, lost=True)
        else:
            self.handover = None
            self._to_join(now)

    def _stall(self) -> None:
        """Gives up the partitions of a user who does not poll, for another member; leaves the group unless the member is
        static."""
        if self.member_id and self.settings.group_instance_id is None and self.generation != NO_GENERATION:
            self._leave_request = self._leave_ask(self.member_id, "no poll within max.poll.interval.ms")
            self.member_id = ""
        self.generation = NO_GENERATION
        self._incarnation += 1
        self.handover = None
        self.phase = ClassicPhase.STALLED
        if self.owned:
            self.phase = ClassicPhase.GIVING_UP
            self._hand_over(revoked=self.owned, lost=True)
            self.user.polled_at = float("inf")  # counted again from the next poll

    def _fail(self, code: ErrorCode, message: str | None = None) -> None:
        self._incarnation += 1
        self.phase = ClassicPhase.FAILED
        self.generation = NO_GENERATION
        self.problem = self._explained(code, message)
        if self.owned:
            self._hand_over(revoked=self.owned, lost=True)

    def _known_counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        return {topic: counts[topic] for topic in self._group_topics() if counts.get(topic)}

    def _group_topics(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(topic for member in self._members.values() for topic in member.subscription.topics)
        )

    # -- requests

    def _join(self) -> MemberRequest:
        self.phase = ClassicPhase.JOINING
        self._again = False
        settings = self.settings
        protocols = [
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=write_subscription(
                    MemberSubscription(
                        topics=self._topics,
                        owned=self.owned if self._cooperative else (),
                        generation=self.generation,
                        user_data=assignor.user_data(self._had, self._had_generation),
                        rack_id=settings.rack_id,
                    )
                ),
            )
            for assignor in settings.assignors
        ]

        def build(version: int) -> Message:
            return JoinGroupRequest(
                group_id=settings.group_id,
                session_timeout_ms=int(settings.session_timeout_s * 1000),
                rebalance_timeout_ms=int(settings.max_poll_interval_s * 1000),
                member_id=self.member_id,
                group_instance_id=settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=protocols,
            )

        return self._request("JoinGroup", build, settings.max_poll_interval_s + PATIENCE_S)

    def _lead(self, asks: list[MemberRequest]) -> None:
        """Hand in everyone's assignment, once the topics' partitions are known; a mere member hands in nothing."""
        assignments: list[SyncGroupRequestAssignment] = []
        if self._members and not self._skip_assignment:
            if self._assignor is None:
                self._fail(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"the group uses the assignor {self._protocol_name!r}, which this member's "
                    "partition.assignment.strategy does not name",
                )
                return
            if self._counts is None or any(topic not in self._counts for topic in self._group_topics()):
                return
            known = self._led_counts = self._known_counts(self._counts)
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(partitions))
                for member_id, partitions in self._assignor.assign(self._members, known).items()
            ]
        self.phase = ClassicPhase.SYNCING
        request = SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )
        wait_s = self.settings.max_poll_interval_s + PATIENCE_S
        asks.append(self._request("SyncGroup", lambda version: request, wait_s))

    def _beat(self, now: float) -> MemberRequest:
        self._beat_in_flight = True
        self._beat_at = now + self.settings.heartbeat_interval_s
        request = HeartbeatRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
        )
        wait_s = min(self.settings.session_timeout_s, self.settings.request_timeout_s)
        return self._request("Heartbeat", lambda version: request, wait_s)

    def _leave_ask(self, member_id: str, reason: str) -> MemberRequest:
        group_id = self.settings.group_id

        def build(version: int) -> Message:
            if version < _FIRST_LEAVE_WITH_MEMBERS:
                return LeaveGroupRequest(group_id=group_id, member_id=member_id)
            return LeaveGroupRequest(
                group_id=group_id, members=[MemberIdentity(member_id=member_id, reason=reason)]
            )

        return self._request("LeaveGroup", build, self.settings.request_timeout_s)

    def _request(self, api: str, build: Callable[[int], Message], wait_s: float) -> MemberRequest:
        return MemberRequest(api=api, build=build, wait_s=wait_s, incarnation=self._incarnation)
