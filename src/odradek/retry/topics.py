"""The topics that a policy needs: which there must be, and how those that are missing are made."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.client import NewTopic
from odradek.model.errors import ConfigError
from odradek.retry.policy import RetryPolicy
from odradek.retry.routing import Routing


def missing_topics(
    routing: Routing, policy: RetryPolicy, partition_counts: Mapping[str, int]
) -> list[NewTopic]:
    """What to create; ConfigError when a topic is missing that must be there. `partition_counts`: of topics that exist.

    A retry or dead-letter topic has as many partitions as the largest topic whose records it takes, so a record stays in
    the partition of its number.
    """
    absent = [topic for topic in routing.topics if topic not in partition_counts]
    if absent:
        raise ConfigError(f"there is no topic {', '.join(absent)}: create it first (odradek topic create)")
    wanted: dict[str, int] = {}
    retention: dict[str, str] = {}
    for topic in routing.topics:
        count = partition_counts[topic]
        dead = routing.dead_letter_topics[topic]
        retention[dead] = str(policy.dead_letter_retention_ms)
        for name in (*routing.retry_topics_of(topic), dead):
            wanted[name] = max(wanted.get(name, 0), count)
    missing = {name: count for name, count in wanted.items() if name not in partition_counts}
    if missing and not policy.creating_topics:
        raise ConfigError(
            f"there is no topic {', '.join(missing)}: create it, or set retry.topics.create=true"
        )
    return [
        NewTopic(name, count, configs={"retention.ms": retention[name]} if name in retention else {})
        for name, count in missing.items()
    ]
