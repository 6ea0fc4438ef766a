"""Brings a member from its present assignment to its target (KIP-848), one heartbeat at a time.

A partition is free for its next owner only when the previous owner has reported that it does not use it any
more. So a member first gives back (UNREVOKED_PARTITIONS, still in its old epoch), then moves to the target's
epoch, takes what is free, and waits for what others still have (UNRELEASED_PARTITIONS). Each member does this
at its own pace; no one stops for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from uuid import UUID

from odradek.groups.consumer.member import EMPTY, CurrentAssignment, Holding, MemberState
from odradek.groups.modern.assignment import Assignment
from odradek.model.errors import ErrorCode, KafkaError

Owned = Mapping[UUID, AbstractSet[int]]
"""The partitions that a member reports as its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The state to which a member is brought."""

    target_epoch: int
    target: Assignment
    subscribed: AbstractSet[UUID]
    """Topics that exist and that the member subscribes to now: it is given, and keeps, no others."""
    subscription_changed: bool
    is_free: Callable[[UUID, int], bool]
    """Whether no one has the partition, whether to use or to give back."""


def reconcile(current: CurrentAssignment, goal: Goal, owned: Owned | None) -> CurrentAssignment:
    """Returns the member's next state; the very same object when nothing changes.

    `owned` is what the member reports; None when its heartbeat omitted them. FENCED_MEMBER_EPOCH for a member
    in a state that only a newer broker knows, unless it reports to own nothing.
    """
    state = current.state
    if state is MemberState.UNKNOWN:
        if owned is None or any(owned.values()):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the member is in an unknown state: give up all partitions and join again",
            )
        return _next(current, goal, owned)
    if state is MemberState.STABLE and current.epoch == goal.target_epoch:
        return _unsubscribed(current, goal, owned) if goal.subscription_changed else current
    if state is MemberState.UNREVOKED_PARTITIONS and _uses(owned, current.revoking):
        return _unsubscribed(current, goal, owned) if goal.subscription_changed else current
    return _next(current, goal, owned)


def _next(current: CurrentAssignment, goal: Goal, owned: Owned | None) -> CurrentAssignment:
    assigned: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    added: dict[UUID, set[int]] = {}
    unreleased = False
    for topic in _topics(goal.target, current.assigned):
        target = goal.target.get(topic, frozenset()) if topic in goal.subscribed else frozenset()
        has = current.assigned.get(topic, {})
        _put(assigned, topic, {partition: epoch for partition, epoch in has.items() if partition in target})
        _put(
            revoking, topic, {partition: epoch for partition, epoch in has.items() if partition not in target}
        )
        giving_back = current.revoking.get(topic, {})
        for partition in target - has.keys():
            if partition in giving_back or goal.is_free(topic, partition):
                added.setdefault(topic, set()).add(partition)
            else:
                unreleased = True
    if revoking and _uses(owned, revoking):
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking)
    for topic, partitions in added.items():
        epochs = dict.fromkeys(partitions, goal.target_epoch)
        assigned[topic] = {**assigned.get(topic, {}), **epochs}
    after = CurrentAssignment(
        epoch=goal.target_epoch,
        previous_epoch=current.epoch if current.epoch != goal.target_epoch else current.previous_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        assigned=assigned,
        revoking=EMPTY,
    )
    return current if after == current else after


def _unsubscribed(current: CurrentAssignment, goal: Goal, owned: Owned | None) -> CurrentAssignment:
    """Returns the assignment without topics that the member does not subscribe to any more. It revokes them at once: the
    target, which will not contain them, may be computed only later."""
    gone = current.assigned.keys() - goal.subscribed
    if not gone:
        return current
    assigned = {topic: parts for topic, parts in current.assigned.items() if topic not in gone}
    revoking = dict(current.revoking)
    for topic in gone:
        revoking[topic] = {**revoking.get(topic, {}), **current.assigned[topic]}
    if _uses(owned, revoking):
        return replace(current, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking)
    return replace(current, assigned=assigned)


def _uses(owned: Owned | None, holding: Holding) -> bool:
    """Returns whether the member may still use some of these partitions."""
    if not holding:
        return False
    if owned is None:
        return True
    return any(not holding[topic].keys().isdisjoint(owned.get(topic, ())) for topic in holding)


def _topics(*mappings: Mapping[UUID, object]) -> Iterable[UUID]:
    return sorted(set().union(*mappings))


def _put(holding: dict[UUID, Mapping[int, int]], topic: UUID, partitions: Mapping[int, int]) -> None:
    if partitions:
        holding[topic] = partitions
