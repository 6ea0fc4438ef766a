"""Partitions by topic, as assignors of the broker see them; and a number that tells whether topics changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final
from uuid import UUID

from odradek.groups.shard.machine import ClusterTopics

Assignment = Mapping[UUID, frozenset[int]]
"""A member's partitions, by topic; topics without any are absent."""

NOTHING: Final[Assignment] = {}
Targets = Mapping[str, Assignment]
"""Target assignments by member id."""


def topic_ids(names: Iterable[str], topics: ClusterTopics) -> frozenset[UUID]:
    """Returns the ids of the topics that exist."""
    known_ids = (topics.topic_id(name) for name in names)
    return frozenset(topic_id for topic_id in known_ids if topic_id is not None)


def metadata_hash(subscribed_topics: Iterable[str], topics: ClusterTopics) -> int:
    """Returns a number that changes with the ids and partition counts of a group's topics; 0 when it reads none."""
    digest = blake2b(digest_size=8)
    count = 0
    for name in sorted(subscribed_topics):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            count += 1
            digest.update(topic_id.bytes + topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if count else 0
