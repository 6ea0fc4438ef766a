"""The `simple` assignor (KIP-932): each partition to as few members as keep all of them busy.

A partition may belong to several members, so there is always enough for everyone: with more members than partitions, each
partition is shared; with fewer, each member has several.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from odradek.groups.modern.assignment import NOTHING, Assignment
from odradek.model.least_loaded import LeastLoaded

NAME: Final = "simple"
_TopicIdPartition = tuple[UUID, int]


def assign(
    subscriptions: Mapping[str, frozenset[UUID]],
    partitions: Mapping[UUID, Collection[int]],
    before: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Returns each member's share of `partitions`.

    A member keeps the partitions that it has, as long as the others get their share.
    """
    target: dict[str, set[_TopicIdPartition]] = {member_id: set() for member_id in subscriptions}
    readers: dict[_TopicIdPartition, int] = {
        (topic_id, partition): 0
        for topic_id in sorted(set().union(*subscriptions.values()), key=lambda uuid: uuid.bytes)
        for partition in sorted(partitions.get(topic_id, ()))
    }
    share = -(-len(readers) // len(target)) if target else 0
    crowd = -(-len(target) // len(readers)) if readers else 0
    for member_id in sorted(target):
        retained = (
            (topic_id, number)
            for topic_id, all_of in before.get(member_id, NOTHING).items()
            for number in all_of
        )
        for partition_id in sorted(retained, key=lambda assigned: (assigned[0].bytes, assigned[1])):
            wanted = partition_id in readers and partition_id[0] in subscriptions[member_id]
            if wanted and readers[partition_id] < crowd and len(target[member_id]) < share:
                target[member_id].add(partition_id)
                readers[partition_id] += 1
    _spread(target, readers, subscriptions)
    return {member_id: _by_topic(assigned) for member_id, assigned in target.items()}


def _spread(
    target: dict[str, set[_TopicIdPartition]],
    readers: dict[_TopicIdPartition, int],
    subscriptions: Mapping[str, frozenset[UUID]],
) -> None:
    """Assigns each partition without a reader to a subscriber, then a partition to each subscriber that has none."""
    loads = {member_id: len(assigned) for member_id, assigned in target.items()}
    subscribers = _subscribers(subscriptions, loads)
    for partition_id, count in readers.items():
        if count == 0 and partition_id[0] in subscribers:
            member_id = subscribers[partition_id[0]].find()
            target[member_id].add(partition_id)
            loads[member_id] += 1
            readers[partition_id] = 1
    open_to: dict[frozenset[UUID], LeastLoaded[_TopicIdPartition] | None] = {}
    for member_id in sorted(target):
        if target[member_id]:
            continue
        topics = subscriptions[member_id]
        if topics not in open_to:
            readable = [partition_id for partition_id in readers if partition_id[0] in topics]
            open_to[topics] = LeastLoaded(readable, readers) if readable else None
        least_read = open_to[topics]
        if least_read is not None:
            partition_id = least_read.find()
            target[member_id].add(partition_id)
            readers[partition_id] += 1


def _subscribers(
    subscriptions: Mapping[str, frozenset[UUID]], loads: Mapping[str, int]
) -> dict[UUID, LeastLoaded[str]]:
    """Returns the subscribers of each topic, by topic id. Topics with the same subscribers share one object."""
    by_topic: dict[UUID, list[str]] = {}
    for member_id in sorted(subscriptions):
        for topic_id in subscriptions[member_id]:
            by_topic.setdefault(topic_id, []).append(member_id)
    known: dict[tuple[str, ...], LeastLoaded[str]] = {}
    by_id = {}
    for topic_id, member_ids in by_topic.items():
        key = tuple(member_ids)
        if key not in known:
            known[key] = LeastLoaded(key, loads)
        by_id[topic_id] = known[key]
    return by_id


def _by_topic(assigned: set[_TopicIdPartition]) -> Assignment:
    by_id: dict[UUID, set[int]] = {}
    for topic_id, partition in assigned:
        by_id.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_id.items()}
