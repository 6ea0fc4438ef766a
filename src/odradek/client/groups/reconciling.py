"""A member of a consumer group in the new protocol (KIP-848): one request, ConsumerGroupHeartbeat, and no leader.

The broker decides who reads what, and tells each member its part; a member gives up what is no longer in it, takes what
is new, and reports what it owns. No one stops reading what they keep. Epoch 0 joins, -1 leaves; a member whose epoch the
broker does not know any more has lost everything and joins again. A heartbeat carries only what changed since the last
one that was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final
from uuid import UUID

from odradek.client.groups.member import (
    COORDINATOR_MOVED,
    FirstPauses,
    MemberRequest,
    MemberSettings,
    MembershipState,
    UserSide,
    matching_topics,
    minus,
)
from odradek.client.groups.values import NO_GENERATION, GroupMetadata, Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol import Message
from odradek.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.telemetry import events

_log = events.get("client")

HEARTBEAT: Final = "ConsumerGroupHeartbeat"
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
_FIRST_VERSION_WITH_OWN_ID: Final = 1
"""The version of Kafka 4.0, in which the protocol is generally available; version 0 is a preview."""
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_LATER: Final = COORDINATOR_MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_REFUSALS: Final = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND})
"""Answers to a first heartbeat of brokers without the protocol, and of groups that may not leave the classic one."""
_ADVICE: Final = (
    "group.protocol=consumer needs brokers that serve KIP-848 (Kafka 4.0 and later): use auto or classic"
)
_HELD_S: Final = 60.0
"""The time for which a static member waits for its instance id: the longest session of a member that died with it, by
Kafka's default of group.consumer.max.session.timeout.ms."""


class ConsumerPhase(Enum):
    """The phases of a member in the consumer protocol. It is `IN` from its first heartbeat on."""

    OUT = auto()
    IN = auto()
    FENCED = auto()
    """Everything is lost; once the user's side has let go of it, the member joins again."""
    STALLED = auto()
    """The user has not polled for max.poll.interval.ms: out of the group until they do."""
    FAILED = auto()
    REFUSED = auto()
    """The coordinator does not serve this protocol for the group, and the member may take the classic one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentFields:
    """The fields of the last heartbeat, which are sent again only if they change."""

    names: tuple[str, ...] | None
    pattern: str | None
    owned: tuple[tuple[UUID, int], ...]


class ReconcilingMember(MembershipState):
    """The state machine of a member in the consumer protocol (KIP-848). `member_id` is the member's own choice.

    With `may_be_refused` a coordinator that does not serve the protocol leads to the phase REFUSED, not to an error."""

    def __init__(
        self,
        settings: MemberSettings,
        backoff: Backoff,
        *,
        member_id: str,
        user: UserSide | None = None,
        may_be_refused: bool = False,
    ) -> None:
        super().__init__(settings, backoff, user)
        self._may_be_refused = may_be_refused
        self.refusal = ""
        """The reason of the phase REFUSED."""
        self.phase = ConsumerPhase.OUT
        self.member_id = member_id
        self._epoch = JOIN_EPOCH
        self._interval_s = settings.heartbeat_interval_s
        self._target: dict[UUID, tuple[int, ...]] | None = None
        """The partitions that the broker wants us to own; None until it has sent them."""
        self._names: dict[UUID, str] = {}
        self._owned_ids: dict[str, UUID] = {}
        """The topics that `owned` is of; one that is made again has another id, and is another topic."""
        self._taken_ids: dict[str, UUID] = {}
        """The ids of the topics that the handover under way takes, by name."""
        self._beat_at = 0.0
        self._in_flight = False
        self._sending: _SentFields | None = None
        self._last_sent: _SentFields | None = None
        self._leave_request: MemberRequest | None = None
        self._topics: tuple[str, ...] = ()
        """The subscribed topics, with a pattern of the client's resolved."""
        self._knows_topics = False
        self._pauses = FirstPauses()
        self._held_since: float | None = None
        """The time of the first answer that another member holds the instance id."""

    # -- what the service and the user ask

    @property
    def metadata(self) -> GroupMetadata:
        """The identity for commits now: outside the group the member's own id means nothing to the coordinator."""
        metadata = super().metadata
        return replace(metadata, member_id="") if metadata.generation == NO_GENERATION else metadata

    @property
    def wants(self) -> Sequence[str]:
        return self.subscription.topics if self.subscription is not None else ()

    @property
    def unnamed(self) -> bool:
        """Something was assigned of a topic whose name is not known yet."""
        return any(topic_id not in self._names for topic_id in self._target or ())

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self.subscription = subscription
        self._pauses.begin()
        is_out = self.phase in (ConsumerPhase.OUT, ConsumerPhase.STALLED)
        if subscription.pattern is None or subscription.resolved_by_broker:
            self._topics, self._knows_topics = subscription.topics, True
        elif is_out:  # an active member keeps its topics until metadata arrives
            self._topics, self._knows_topics = (), False
        if is_out:
            self.user.polled_at = now
            self._join(now)
        self._beat_at = min(self._beat_at, now)

    def due(self, now: float) -> list[MemberRequest]:
        if self.phase is ConsumerPhase.IN and self._poll_overdue(now):
            self._stall()
        asks = [self._leave_request] if self._leave_request is not None else []
        self._leave_request = None
        if (
            self.phase is ConsumerPhase.IN
            and not self._in_flight
            and self._knows_topics
            and now >= max(self._beat_at, self._not_before)
        ):
            asks.append(self._beat(now))
        return asks

    def next_deadline(self, now: float) -> float | None:
        times = []
        if self.phase is ConsumerPhase.IN and not self._in_flight and self._knows_topics:
            times.append(max(self._beat_at, self._not_before))
        if self.phase is ConsumerPhase.IN and not self.user.in_poll:
            times.append(self._poll_deadline())
        return min(times, default=None)

    def learned(self, counts: Mapping[str, int], names: Mapping[UUID, str], now: float) -> None:
        """Notes partition counts of topics, and their names by id; called whenever metadata came."""
        self._names.update(names)
        subscription = self.subscription
        if (
            subscription is not None
            and subscription.pattern is not None
            and not subscription.resolved_by_broker
        ):
            topics = matching_topics(subscription.pattern, counts)
            if topics != self._topics or not self._knows_topics:
                self._topics, self._knows_topics = topics, True
                self._beat_at = min(self._beat_at, now)
        self._reconcile()

    def handed_over(self, number: int, now: float) -> None:
        handover = self.handover
        if handover is None or handover.number != number:
            return
        self.handover = None
        if handover.taken is not None:
            self.owned = handover.taken
            self._owned_ids = self._taken_ids
            self._beat_at = now
            self._reconcile()
        else:
            self.owned = minus(self.owned, handover.revoked)
            if self.phase is ConsumerPhase.FENCED:
                self._join(now)

    def fenced(self, code: ErrorCode, now: float) -> None:
        """Handles a refused commit: the group continued without this member."""
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            self._beat_at = min(self._beat_at, now)
        elif code in _FENCED and self.phase is ConsumerPhase.IN:
            self._lose(now)

    @property
    def awaits_poll(self) -> bool:
        """Whether nothing happens before the user polls."""
        stalled = self.phase is ConsumerPhase.STALLED and self.handover is None
        return stalled or (self.phase is ConsumerPhase.FAILED and self.problem is None)

    def poll_began(self, now: float) -> None:
        """Tries again: the user polls, and has seen the errors."""
        self.user.polled_at = now
        if self.awaits_poll:
            self._join(now)

    def leave(self) -> MemberRequest | None:
        """Returns the last request; a static member only reports that it is away for a while."""
        was_in = self.phase is ConsumerPhase.IN and self.generation != NO_GENERATION
        self._incarnation += 1
        self.phase = ConsumerPhase.OUT
        self.generation = NO_GENERATION
        self.handover = None
        self.owned = ()
        return self._leave_ask() if was_in else None

    # -- answers

    def answered(self, ask: MemberRequest, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        if ask.incarnation != self._incarnation or self.phase is not ConsumerPhase.IN:
            return
        self._in_flight = False
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._welcomed(response, now)
        elif code in _FENCED or (code is ErrorCode.GROUP_ID_NOT_FOUND and self._epoch != JOIN_EPOCH):
            self._lose(
                now
            )  # a group may be gone, or be a classic one again, after a member's session has ended
        elif code in _LATER or (code is ErrorCode.UNRELEASED_INSTANCE_ID and self._may_wait_for_its_id(now)):
            self._last_sent = None
            self._pause(now)
        else:
            self._fail(code, response.error_message)

    def failed(self, ask: MemberRequest, error: KafkaError, now: float) -> None:
        """Handles a request without an answer, or one that could not be sent: the next one has all fields again."""
        if ask.incarnation != self._incarnation or self.phase is not ConsumerPhase.IN:
            return
        self._in_flight = False
        self._last_sent = None
        if error.retriable:
            self._pause(now)
            self._beat_at = min(self._beat_at, self._not_before)
        else:
            self._fail(error.code, error.message)

    def _welcomed(self, response: ConsumerGroupHeartbeatResponse, now: float) -> None:
        self._failure_count = 0
        self._held_since = None
        self._last_sent = self._sending
        self.member_id = response.member_id or self.member_id
        self._epoch = self.generation = response.member_epoch
        if response.heartbeat_interval_ms > 0:
            self._interval_s = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._target = {
                topic_partition.topic_id: tuple(topic_partition.partitions)
                for topic_partition in response.assignment.topic_partitions
            }
        pause_s = self._pauses.next_s(self._interval_s, has_partitions=any((self._target or {}).values()))
        self._beat_at = now if self._changed() else now + pause_s
        if response.assignment is not None:
            self._reconcile()

    # -- moves

    def _reconcile(self) -> None:
        """Asks the user's side for the changes that lead to the target, one step at a time."""
        if (
            self.phase is not ConsumerPhase.IN
            or self.handover is not None
            or self._target is None
            or self.unnamed
        ):
            return
        target = tuple(
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in self._target.items()
            for number in numbers
        )
        target = tuple(dict.fromkeys(target))
        ids = {self._names[topic_id]: topic_id for topic_id in self._target}
        made_again = {tp.topic for tp in self.owned if self._owned_ids[tp.topic] != ids.get(tp.topic)}
        kept = tuple(tp for tp in target if tp.topic not in made_again)
        if set(kept) != set(self.owned) or set(target) != set(self.owned):
            self._taken_ids = ids
            self._hand_over(revoked=minus(self.owned, kept), taken=target)

    def _join(self, now: float) -> None:
        self._incarnation += 1
        self._in_flight = False
        self.phase = ConsumerPhase.IN
        self._epoch = JOIN_EPOCH
        self.generation = NO_GENERATION
        self._target = None
        self._last_sent = None
        self._pauses.begin()
        self._beat_at = now

    def _lose(self, now: float) -> None:
        self.generation = NO_GENERATION
        self._incarnation += 1
        self._in_flight = False
        if self.owned:
            self.phase = ConsumerPhase.FENCED
            self._hand_over(revoked=self.owned, lost=True)
        else:
            self.handover = None
            self._join(now)

    def _may_wait_for_its_id(self, now: float) -> bool:
        """Whether the member that holds our instance id may be dead: the broker learns of that when its session ends."""
        if self._held_since is None:
            self._held_since = now
            _log.warning(
                "group_instance_id_is_held",
                group=self.settings.group_id,
                group_instance_id=self.settings.group_instance_id,
                reason=f"another member holds it, or died with it: trying for {_HELD_S:g} s",
            )
        return now - self._held_since < _HELD_S

    def _stall(self) -> None:
        """Gives up the partitions of a user who does not poll, so that another member gets them."""
        if self.generation != NO_GENERATION:
            self._leave_request = self._leave_ask()
        self.generation = NO_GENERATION
        self._incarnation += 1
        self._in_flight = False
        self.handover = None
        self.phase = ConsumerPhase.STALLED
        if self.owned:
            self.phase = ConsumerPhase.FENCED
            self._hand_over(revoked=self.owned, lost=True)

    def _fail(self, code: ErrorCode, message: str | None = None) -> None:
        self._incarnation += 1
        self._in_flight = False
        self.generation = NO_GENERATION
        self._held_since = None
        if self._may_be_refused and code in _REFUSALS:
            self.phase = ConsumerPhase.REFUSED
            self.refusal = message or code.meaning
        else:
            self.phase = ConsumerPhase.FAILED
            advice = f": {_ADVICE}" if code is ErrorCode.UNSUPPORTED_VERSION else ""
            self.problem = self._explained(code, (message or code.meaning) + advice)
        if self.owned:
            self._hand_over(revoked=self.owned, lost=True)

    # -- requests

    def _now_to_tell(self) -> _SentFields:
        assert self.subscription is not None
        pattern = self.subscription.pattern if self.subscription.resolved_by_broker else None
        names = None if pattern is not None else tuple(sorted(self._topics))
        owned = tuple((self._owned_ids[tp.topic], tp.partition) for tp in self.owned)
        return _SentFields(names=names, pattern=pattern, owned=owned)

    def _changed(self) -> bool:
        return self._last_sent != self._now_to_tell()

    def _beat(self, now: float) -> MemberRequest:
        self._in_flight = True
        self._beat_at = now + self._interval_s
        telling, last_sent = self._now_to_tell(), self._last_sent
        self._sending = telling
        settings, epoch, member_id = self.settings, self._epoch, self.member_id
        everything = last_sent is None or epoch == JOIN_EPOCH
        grouped: dict[UUID, list[int]] = {}
        for topic_id, number in telling.owned:
            grouped.setdefault(topic_id, []).append(number)
        owned = [
            TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in grouped.items()
        ]
        names_changed = everything or (last_sent is not None and last_sent.names != telling.names)
        pattern_changed = (everything and telling.pattern is not None) or (
            last_sent is not None and last_sent.pattern != telling.pattern
        )
        owned_changed = everything or (last_sent is not None and last_sent.owned != telling.owned)

        def build(version: int) -> Message:
            with_pattern = version >= _FIRST_VERSION_WITH_OWN_ID
            if self._may_be_refused and not with_pattern:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "the broker has a preview of the consumer protocol (before 4.0)",
                )
            if telling.pattern is not None and not with_pattern:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, "the broker does not resolve patterns: subscribe by name"
                )
            own_id = with_pattern or epoch != JOIN_EPOCH
            return ConsumerGroupHeartbeatRequest(
                group_id=settings.group_id,
                member_id=member_id if own_id else "",
                member_epoch=epoch,
                instance_id=settings.group_instance_id,
                rack_id=settings.rack_id if everything else None,
                rebalance_timeout_ms=int(settings.max_poll_interval_s * 1000) if everything else -1,
                subscribed_topic_names=list(telling.names or ()) if names_changed else None,
                subscribed_topic_regex=(telling.pattern or "") if pattern_changed else None,
                server_assignor=settings.remote_assignor if everything else None,
                topic_partitions=owned if owned_changed else None,
            )

        return self._request(build)

    def _leave_ask(self) -> MemberRequest:
        settings, member_id = self.settings, self.member_id
        epoch = LEAVE_EPOCH if settings.group_instance_id is None else STATIC_LEAVE_EPOCH

        def build(version: int) -> Message:
            return ConsumerGroupHeartbeatRequest(
                group_id=settings.group_id,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=settings.group_instance_id,
            )

        return self._request(build)

    def _request(self, build: Callable[[int], Message]) -> MemberRequest:
        return MemberRequest(
            api=HEARTBEAT,
            build=build,
            wait_s=self.settings.request_timeout_s,
            incarnation=self._incarnation,
        )
