"""The topics that a policy needs: their names, and the creation of missing ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client import NewTopic
from odradek.model.errors import ConfigError
from odradek.retry.policy import RetryPolicy, delay_ms
from odradek.retry.routing import Routing

BYTE_LIMIT: Final = "max.message.bytes"
HEADER_ROOM_BYTES: Final = 1 << 16
"""The bytes that a record may grow by: its failure's headers have at most 5,000 characters of text, some names and numbers."""
RETRY_SPARE_MS: Final = 7 * 86_400_000
"""A retry topic keeps records this much longer than the longest delay, whatever the brokers' default:
consumers may be down."""
_BYTE_LIMIT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowTopic:
    """A topic that refuses records that its source takes."""

    topic: str
    byte_limit: int
    source: str
    source_byte_limit: int


def missing_topics(
    routing: Routing,
    policy: RetryPolicy,
    partition_counts: Mapping[str, int],
    byte_limits: Mapping[str, int],
) -> list[NewTopic]:
    """Returns the topics to create. Raises ConfigError for a missing source topic. `partition_counts`: of existing topics.

    A retry or dead-letter topic has as many partitions as the largest topic whose records it takes, so a record stays in
    the partition of its number. It takes the largest record that one of these topics takes, with the headers of its failure.
    `byte_limits`: max.message.bytes of topics that exist, where it is known.
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
        waiting = routing.retry_topics_of(topic)
        retention |= dict.fromkeys(
            waiting, str(max(map(delay_ms, policy.delays), default=0) + RETRY_SPARE_MS)
        )
        for name in (*waiting, dead):
            wanted[name] = max(wanted.get(name, 0), count)
    missing = {name: count for name, count in wanted.items() if name not in partition_counts}
    if missing and not policy.creating_topics:
        raise ConfigError(
            f"there is no topic {', '.join(missing)}: create it, or set retry.topics.create=true"
        )
    limits = _source_limits(routing, byte_limits)
    made = []
    for name, count in missing.items():
        configs = {"retention.ms": retention[name]}
        if name in limits:
            configs[BYTE_LIMIT] = str(min(limits[name][0] + HEADER_ROOM_BYTES, _BYTE_LIMIT_MAX))
        made.append(NewTopic(name, count, configs=configs))
    return made


def narrow_topics(routing: Routing, byte_limits: Mapping[str, int]) -> list[NarrowTopic]:
    """Retry and dead-letter topics that exist, and take smaller records than a topic whose records go there."""
    return [
        NarrowTopic(topic=name, byte_limit=byte_limits[name], source=source, source_byte_limit=needed)
        for name, (needed, source) in _source_limits(routing, byte_limits).items()
        if byte_limits.get(name, needed) < needed
    ]


def _source_limits(routing: Routing, byte_limits: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """Returns, for each retry and dead-letter topic, the largest limit of the topics whose records it takes, and that topic."""
    limits: dict[str, tuple[int, str]] = {}
    for source in routing.topics:
        if source in byte_limits:
            for name in (*routing.retry_topics_of(source), routing.dead_letter_topics[source]):
                limits[name] = max(limits.get(name, (0, "")), (byte_limits[source], source))
    return limits
