"""A member of a share group (KIP-932): one request, ShareGroupHeartbeat, and nothing to agree about.

Several members may read one partition, record by record, so nothing is handed over: the broker sends each member its
partitions, and the member reads them from then on. Epoch 0 joins, -1 leaves; a member that the broker does not know any more
joins again, under the id that it has chosen for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from odradek.client.groups.member import (
    COORDINATOR_MOVED,
    FirstPauses,
    MemberRequest,
    MemberSettings,
    MembershipState,
)
from odradek.client.groups.reconciling import JOIN_EPOCH, LEAVE_EPOCH, ConsumerPhase
from odradek.client.groups.values import NO_GENERATION, Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import Message
from odradek.protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_LATER: Final = COORDINATOR_MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_FEATURE_OFF: Final = "share groups are off in this cluster: raise its feature share.version to 1"

AssignedPartitions = Mapping[UUID, tuple[int, ...]]


class SharingMember(MembershipState):
    """The state machine of a member of a share group. `on_assigned` is called when the member's partitions change."""

    def __init__(
        self,
        settings: MemberSettings,
        backoff: Backoff,
        *,
        member_id: str,
        on_assigned: Callable[[], None],
    ) -> None:
        super().__init__(settings, backoff)
        self.phase = ConsumerPhase.OUT
        self.member_id = member_id
        self.assigned: AssignedPartitions = {}
        """The partitions to read, by topic id."""
        self.names: Mapping[UUID, str] = {}
        """The names of topics, by the last metadata."""
        self._on_assigned = on_assigned
        self._epoch = JOIN_EPOCH
        self._interval_s = settings.heartbeat_interval_s
        self._beat_at = 0.0
        self._pauses = FirstPauses()
        self._in_flight = False
        self._sending: tuple[str, ...] | None = None
        self._last_sent: tuple[str, ...] | None = None
        """The topics that the broker knows we subscribe to; None where it may not know."""
        self._leave_request: MemberRequest | None = None

    # -- what the service and the user ask

    @property
    def wants(self) -> Sequence[str]:
        return self.subscription.topics if self.subscription is not None else ()

    @property
    def unnamed(self) -> bool:
        """Something was assigned of a topic whose name is not known yet."""
        return any(topic_id not in self.names for topic_id in self.assigned)

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self.subscription = subscription
        self._pauses.begin()
        if self.phase in (ConsumerPhase.OUT, ConsumerPhase.STALLED):
            self.user.polled_at = now
            self._join(now)
        self._beat_at = min(self._beat_at, now)

    def due(self, now: float) -> list[MemberRequest]:
        if self.phase is ConsumerPhase.IN and self._poll_overdue(now):
            self._stall()
        requests = [self._leave_request] if self._leave_request is not None else []
        self._leave_request = None
        if (
            self.phase is ConsumerPhase.IN
            and not self._in_flight
            and now >= max(self._beat_at, self._not_before)
        ):
            requests.append(self._beat(now))
        return requests

    def next_deadline(self, now: float) -> float | None:
        times = []
        if self.phase is ConsumerPhase.IN and not self._in_flight:
            times.append(max(self._beat_at, self._not_before))
        if self.phase is ConsumerPhase.IN and not self.user.in_poll:
            times.append(self._poll_deadline())
        return min(times, default=None)

    def learned(self, counts: Mapping[str, int], names: Mapping[UUID, str], now: float) -> None:
        """Notes the names of topics by id; called whenever metadata came."""
        was_unnamed = self.unnamed
        self.names = names
        if was_unnamed and not self.unnamed:
            self._on_assigned()

    def handed_over(self, number: int, now: float) -> None:
        """Does nothing: a member of a share group gives up nothing that another one waits for."""

    def fenced(self, code: ErrorCode, now: float) -> None:
        """Does nothing: no request but the heartbeat carries the member's epoch."""

    @property
    def awaits_poll(self) -> bool:
        """Whether nothing happens before the user polls."""
        is_failed = self.phase is ConsumerPhase.FAILED and self.problem is None
        return self.phase is ConsumerPhase.STALLED or is_failed

    def poll_began(self, now: float) -> None:
        """Tries again: the user polls, and has seen the errors."""
        self.user.polled_at = now
        if self.awaits_poll:
            self._join(now)

    def leave(self) -> MemberRequest | None:
        """Returns the last request, if the group knows this member."""
        was_in = self.phase is ConsumerPhase.IN and self.generation != NO_GENERATION
        self._go_out(ConsumerPhase.OUT)
        return self._request(LEAVE_EPOCH) if was_in else None

    # -- answers

    def answered(self, ask: MemberRequest, response: ShareGroupHeartbeatResponse, now: float) -> None:
        if ask.incarnation != self._incarnation or self.phase is not ConsumerPhase.IN:
            return
        self._in_flight = False
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._welcomed(response, now)
        elif code in _FENCED:
            self._assign({})
            self._join(now)
        elif code in _LATER:
            self._last_sent = None
            self._pause(now)
        else:
            off = code is ErrorCode.UNSUPPORTED_VERSION
            self._fail(code, _FEATURE_OFF if off else response.error_message)

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

    def _welcomed(self, response: ShareGroupHeartbeatResponse, now: float) -> None:
        self._failure_count = 0
        self._last_sent = self._sending
        self._epoch = self.generation = response.member_epoch
        if response.heartbeat_interval_ms > 0:
            self._interval_s = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._assign(
                {
                    assigned.topic_id: tuple(assigned.partitions)
                    for assigned in response.assignment.topic_partitions
                }
            )
        pause_s = self._pauses.next_s(self._interval_s, has_partitions=bool(self.assigned))
        self._beat_at = now if self._last_sent != self._topics() else now + pause_s

    # -- moves

    def _assign(self, assigned: AssignedPartitions) -> None:
        if assigned != self.assigned:
            self.assigned = assigned
            self._on_assigned()

    def _join(self, now: float) -> None:
        self._incarnation += 1
        self._in_flight = False
        self.phase = ConsumerPhase.IN
        self._epoch = JOIN_EPOCH
        self.generation = NO_GENERATION
        self._last_sent = None
        self._pauses.begin()
        self._beat_at = now

    def _go_out(self, phase: ConsumerPhase) -> None:
        self._incarnation += 1
        self._in_flight = False
        self.phase = phase
        self.generation = NO_GENERATION
        self._assign({})

    def _stall(self) -> None:
        """Leaves the group until the user polls again: others should have the partitions' room meanwhile."""
        if self.generation != NO_GENERATION:
            self._leave_request = self._request(LEAVE_EPOCH)
        self._go_out(ConsumerPhase.STALLED)

    def _fail(self, code: ErrorCode, message: str | None = None) -> None:
        self._go_out(ConsumerPhase.FAILED)
        self.problem = self._explained(code, message)

    # -- requests

    def _topics(self) -> tuple[str, ...]:
        return tuple(sorted(self.wants))

    def _beat(self, now: float) -> MemberRequest:
        self._in_flight = True
        self._beat_at = now + self._interval_s
        self._sending = self._topics()
        is_joining = self._epoch == JOIN_EPOCH
        is_news = is_joining or self._last_sent != self._sending
        return self._request(
            self._epoch,
            rack_id=self.settings.rack_id if is_joining else None,
            topics=list(self._sending) if is_news else None,
        )

    def _request(
        self, epoch: int, *, rack_id: str | None = None, topics: list[str] | None = None
    ) -> MemberRequest:
        group_id, member_id = self.settings.group_id, self.member_id

        def build(version: int) -> Message:
            return ShareGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                rack_id=rack_id,
                subscribed_topic_names=topics,
            )

        return MemberRequest(
            api="ShareGroupHeartbeat",
            build=build,
            wait_s=self.settings.request_timeout_s,
            incarnation=self._incarnation,
        )
