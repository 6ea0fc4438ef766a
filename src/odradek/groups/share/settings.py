"""The settings of share groups: the broker's `group.share.*`, overridden by a group's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.config.definition import INT_MAX
from odradek.config.group import group_config
from odradek.groups.shard.settings import own_or
from odradek.groups.share.partition import ShareLimits

_DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
_DEFAULT_LIMITS: Final = ShareLimits(record_locks_max=2_000, delivery_count_max=5, lock_ms=30_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """The settings of one share group, with Kafka's defaults. Times are milliseconds."""

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    assignment_interval_ms: int = 1_000
    max_size: int = INT_MAX
    limits: ShareLimits = _DEFAULT_LIMITS
    offset_reset: str = "latest"
    committed_only: bool = False
    dead_letter_topic: str = ""
    """The topic for records that are given up; empty: they are dropped."""
    copies_dead_letters: bool = False
    """Whether dead letters have the record's key and value."""
    renews: bool = True

    @classmethod
    def of(cls, config: BrokerConfig, own: Mapping[str, str]) -> ShareSettings:
        """Returns the broker's settings, overridden by the group's own."""
        values = group_config(own, config)
        return cls(
            heartbeat_interval_ms=own_or(
                own,
                "share.heartbeat.interval.ms",
                config.group.share.heartbeat_interval_ms,
                config.group.share.min_heartbeat_interval_ms,
                config.group.share.max_heartbeat_interval_ms,
            ),
            session_timeout_ms=own_or(
                own,
                "share.session.timeout.ms",
                config.group.share.session_timeout_ms,
                config.group.share.min_session_timeout_ms,
                config.group.share.max_session_timeout_ms,
            ),
            assignment_interval_ms=own_or(
                own,
                "share.assignment.interval.ms",
                config.group.share.assignment_interval_ms,
                config.group.share.min_assignment_interval_ms,
                config.group.share.max_assignment_interval_ms,
            ),
            max_size=config.group.share.max_size,
            limits=_limits(config, own, has_dead_letters=bool(values[_DEAD_LETTER_TOPIC])),
            dead_letter_topic=values[_DEAD_LETTER_TOPIC],
            copies_dead_letters=values["errors.deadletterqueue.copy.record.enable"],
            offset_reset=values["share.auto.offset.reset"],
            committed_only=values["share.isolation.level"] == "read_committed",
            renews=values["share.renew.acknowledge.enable"],
        )


def _limits(config: BrokerConfig, own: Mapping[str, str], *, has_dead_letters: bool) -> ShareLimits:
    return ShareLimits(
        record_locks_max=own_or(
            own,
            "share.partition.max.record.locks",
            config.group.share.partition_max_record_locks,
            config.group.share.min_partition_max_record_locks,
            config.group.share.max_partition_max_record_locks,
        ),
        delivery_count_max=own_or(
            own,
            "share.delivery.count.limit",
            config.group.share.delivery_count_limit,
            config.group.share.min_delivery_count_limit,
            config.group.share.max_delivery_count_limit,
        ),
        lock_ms=own_or(
            own,
            "share.record.lock.duration.ms",
            config.group.share.record_lock_duration_ms,
            config.group.share.min_record_lock_duration_ms,
            config.group.share.max_record_lock_duration_ms,
        ),
        has_dead_letters=has_dead_letters,
    )
