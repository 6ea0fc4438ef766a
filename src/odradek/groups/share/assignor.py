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
_Place = tuple[UUID, int]


def assign(
    subscriptions: Mapping[str, frozenset[UUID]],
    partitions: Mapping[UUID, Collection[int]],
    before: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Returns each member's share of `partitions`.

    A member keeps the partitions that it has, as long as the others get their share.
    """
    given: dict[str, set[_Place]] = {member_id: set() for member_id in subscriptions}
    readers: dict[_Place, int] = {
        (topic_id, partition): 0
        for topic_id in sorted(set().union(*subscriptions.values()), key=lambda uuid: uuid.bytes)
        for partition in sorted(partitions.get(topic_id, ()))
    }
    share = -(-len(readers) // len(given)) if given else 0
    crowd = -(-len(given) // len(readers)) if readers else 0
    for member_id in sorted(given):
        kept = (
            (topic_id, number)
            for topic_id, all_of in before.get(member_id, NOTHING).items()
            for number in all_of
        )
        for place in sorted(kept, key=lambda assigned: (assigned[0].bytes, assigned[1])):
            wanted = place in readers and place[0] in subscriptions[member_id]
            if wanted and readers[place] < crowd and len(given[member_id]) < share:
                given[member_id].add(place)
                readers[place] += 1
    _spread(given, readers, subscriptions)
    return {member_id: _by_topic(places) for member_id, places in given.items()}


def _spread(
    given: dict[str, set[_Place]], readers: dict[_Place, int], subscriptions: Mapping[str, frozenset[UUID]]
) -> None:
    """Gives every partition a reader if anyone wants it; then every member a partition if it wants any."""
    loads = {member_id: len(places) for member_id, places in given.items()}
    subscribers = _subscribers(subscriptions, loads)
    for place, count in readers.items():
        if count == 0 and place[0] in subscribers:
            member_id = subscribers[place[0]].find()
            given[member_id].add(place)
            loads[member_id] += 1
            readers[place] = 1
    open_to: dict[frozenset[UUID], LeastLoaded[_Place] | None] = {}
    for member_id in sorted(given):
        if given[member_id]:
            continue
        topics = subscriptions[member_id]
        if topics not in open_to:
            places = [place for place in readers if place[0] in topics]
            open_to[topics] = LeastLoaded(places, readers) if places else None
        least_read = open_to[topics]
        if least_read is not None:
            place = least_read.find()
            given[member_id].add(place)
            readers[place] += 1


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


def _by_topic(places: set[_Place]) -> Assignment:
    by_id: dict[UUID, set[int]] = {}
    for topic_id, partition in places:
        by_id.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_id.items()}
