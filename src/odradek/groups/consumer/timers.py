"""The deadlines of a consumer group's members."""

from __future__ import annotations

from enum import Enum

from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.member import Current, Member, MemberState
from odradek.groups.consumer.settings import ConsumerSettings
from odradek.groups.deadlines import Deadlines, Due
from odradek.shards import Moment


class ConsumerTimer(Enum):
    SESSION = "session"
    """A member has not been heard of."""
    REBALANCE = "rebalance"
    """A member was to give partitions back, and did not say that it has."""
    JOIN = "join"
    """A member of the classic protocol was told to join again, and did not."""
    SYNC = "sync"
    """A member of the classic protocol joined, and did not ask for its assignment."""


class MemberTimers:
    """The deadlines of one group's members, at one moment."""

    __slots__ = ("_deadlines", "_group_id", "_now")

    def __init__(self, deadlines: Deadlines, group_id: str, now: Moment) -> None:
        self._deadlines = deadlines
        self._group_id = group_id
        self._now = now

    def heard_of(self, member: Member, settings: ConsumerSettings) -> None:
        """Its session begins anew."""
        classic = member.profile.classic
        timeout_ms = settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        self.begin(ConsumerTimer.SESSION, member.member_id, timeout_ms)

    def moved(self, member: Member, before: Current) -> None:
        """Its assignment changed: it has time to give back what it should, beginning with each change."""
        if member.current is before or member.is_classic:
            return
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            self.begin(ConsumerTimer.REBALANCE, member.member_id, member.profile.rebalance_timeout_ms)
        else:
            self.end(ConsumerTimer.REBALANCE, member.member_id)

    def forget(self, member_id: str) -> None:
        for kind in ConsumerTimer:
            self.end(kind, member_id)

    def begin(self, kind: ConsumerTimer, member_id: str, timeout_ms: int) -> None:
        self._deadlines.set(Due(kind, self._group_id, member_id), self._now.monotonic_ms + max(timeout_ms, 0))

    def begin_once(self, kind: ConsumerTimer, member_id: str, timeout_ms: int) -> None:
        if self._deadlines.at(Due(kind, self._group_id, member_id)) is None:
            self.begin(kind, member_id, timeout_ms)

    def end(self, kind: ConsumerTimer, member_id: str) -> None:
        self._deadlines.cancel(Due(kind, self._group_id, member_id))

    def loaded(self, group: ConsumerGroup, settings: ConsumerSettings) -> None:
        """After a restart nobody is late: every member has all its time again."""
        for member in group.members.values():
            self.heard_of(member, settings)
            self.moved(member, Current())
