"""The deadlines of a consumer group's members."""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.member import ConsumerGroupMember
from odradek.groups.consumer.settings import ConsumerGroupSettings
from odradek.groups.shard.deadlines import DeadlineKey, Deadlines
from odradek.shards import Moment, StoredRecord


class ConsumerTimer(Enum):
    SESSION = "session"
    """A member has not been heard of."""
    REBALANCE = "rebalance"
    """A member was to give partitions back, and did not say that it has."""
    JOIN = "join"
    """A member of the classic protocol had to join again, and did not."""
    SYNC = "sync"
    """A member of the classic protocol joined, and did not ask for its assignment."""
    DOWNGRADE = "downgrade"
    """Only members of the classic protocol are left: the group may become a classic one."""
    DOWNGRADED = "downgraded"
    """It has become one: its members are to join again, and share among them what the last other member had."""


_HEARTBEATS_AFTER_LOADING: Final = 3
MEMBER_TIMERS: Final = (
    ConsumerTimer.SESSION,
    ConsumerTimer.REBALANCE,
    ConsumerTimer.JOIN,
    ConsumerTimer.SYNC,
)


class MemberTimers:
    """The deadlines of one group's members, at one moment.

    What changes is gathered, and takes effect in `apply`: a decision that is refused in the end has changed nothing.
    """

    __slots__ = ("_changes", "_deadlines", "_group_id", "_now")

    def __init__(self, deadlines: Deadlines, group_id: str, now: Moment) -> None:
        self._deadlines = deadlines
        self._group_id = group_id
        self._now = now
        self._changes: dict[DeadlineKey, int | None] = {}

    def apply(self) -> None:
        for due, at_ms in self._changes.items():
            if at_ms is None:
                self._deadlines.cancel(due)
            else:
                self._deadlines.set(due, at_ms)
        self._changes.clear()

    def heartbeat_received(self, member: ConsumerGroupMember, settings: ConsumerGroupSettings) -> None:
        """Begins the member's session again."""
        classic = member.profile.classic
        timeout_ms = settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        self.begin(ConsumerTimer.SESSION, timeout_ms, member.member_id)

    def moved(self, member: ConsumerGroupMember) -> None:
        """Begins, or ends, the time that a member has to give partitions back after its assignment changed."""
        if member.is_giving_back and not member.is_classic:
            self.begin(ConsumerTimer.REBALANCE, member.profile.rebalance_timeout_ms, member.member_id)
        else:
            self.end(ConsumerTimer.REBALANCE, member.member_id)

    def forget(self, member_id: str) -> None:
        for kind in MEMBER_TIMERS:
            self.end(kind, member_id)

    def begin(self, kind: ConsumerTimer, timeout_ms: int, member_id: str = "") -> None:
        self._changes[DeadlineKey(kind, self._group_id, member_id)] = self._now.monotonic_ms + max(
            timeout_ms, 0
        )

    def begin_once(self, kind: ConsumerTimer, timeout_ms: int, member_id: str) -> None:
        if self._deadlines.at(DeadlineKey(kind, self._group_id, member_id)) is None:
            self.begin(kind, timeout_ms, member_id)

    def end(self, kind: ConsumerTimer, member_id: str) -> None:
        self._changes[DeadlineKey(kind, self._group_id, member_id)] = None

    def check_downgrade(self, group: ConsumerGroup) -> None:
        """Begins a downgrade soon, after the replay of this decision's records, if only members of the classic protocol are
        left."""
        if group.members and all(member.is_classic for member in group.members.values()):
            self.begin(ConsumerTimer.DOWNGRADE, 0)

    def loaded(self, group: ConsumerGroup, settings: ConsumerGroupSettings) -> None:
        """Sessions continue, as far as the log has the time of a member's last heartbeat.

        A member that is heard of is written about every `note_interval_ms`, so it was not heard of later than that after its
        newest record. A broker that fetched it as a follower knows its age; where it is unknown, and for members of the
        classic protocol, all their time begins again. There is time for a few heartbeats in any case: they could not be sent
        while there was no coordinator, and an older version of this broker wrote nothing about them.
        """
        for member in group.members.values():
            if member.is_classic:
                self.heartbeat_received(member, settings)
            else:
                left_ms = _left_of_session(group.noted.get(member.member_id), settings)
                self.begin(ConsumerTimer.SESSION, left_ms, member.member_id)
            self.moved(member)
        self.check_downgrade(group)


def _left_of_session(noted: StoredRecord | None, settings: ConsumerGroupSettings) -> int:
    session_ms = settings.session_timeout_ms
    if noted is None or noted.age_ms is None:
        return session_ms
    least_ms = min(_HEARTBEATS_AFTER_LOADING * settings.heartbeat_interval_ms, session_ms)
    return max(least_ms, min(settings.note_interval_ms + session_ms - noted.age_ms, session_ms))
