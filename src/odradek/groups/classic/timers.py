"""The deadlines of a classic group."""

from __future__ import annotations

from enum import Enum

from odradek.groups.shard.deadlines import DeadlineKey


class ClassicTimer(Enum):
    __hash__ = (
        object.__hash__
    )  # Enum's own is written in Python, and each request looks up a deadline several times

    SESSION = "session"
    """A member has not been heard of."""
    JOIN = "join"
    """The rebalance has waited long enough for members to join."""
    SYNC = "sync"
    """The generation has waited long enough for its members to ask for their assignment."""


def session_of(group_id: str, member_id: str) -> DeadlineKey:
    return DeadlineKey(ClassicTimer.SESSION, group_id, member_id)


def join_of(group_id: str) -> DeadlineKey:
    return DeadlineKey(ClassicTimer.JOIN, group_id)


def sync_of(group_id: str) -> DeadlineKey:
    return DeadlineKey(ClassicTimer.SYNC, group_id)
