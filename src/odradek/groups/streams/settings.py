"""The settings of streams groups: the broker's `group.streams.*`, overridden by a group's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.config.definition import INT_MAX, LONG_MAX
from odradek.config.group import GROUP_SETTINGS
from odradek.groups.shard.settings import own_or
from odradek.groups.streams import assignor

_TAGS: Final = GROUP_SETTINGS["streams.rack.aware.assignment.tags"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    """The settings of one streams group, with Kafka's defaults. Times are milliseconds."""

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    standby_replicas: int = 0
    rack_aware_tags: tuple[str, ...] = ()
    """Keys of client tags, the most important one first."""
    max_size: int = INT_MAX
    assignor: str = assignor.NAME

    @property
    def assignment_configs(self) -> Mapping[str, str]:
        """The settings that the target depends on: when they change, a new target is worked out."""
        configs = {"num.standby.replicas": str(self.standby_replicas)}
        if self.rack_aware_tags:
            configs["rack.aware.assignment.tags"] = ",".join(self.rack_aware_tags)
        return configs

    @classmethod
    def of(cls, config: BrokerConfig, own: Mapping[str, str]) -> StreamsSettings:
        """Returns the broker's settings, overridden by the group's own."""
        streams, tags = config.group.streams, own.get(_TAGS.key)
        return cls(
            heartbeat_interval_ms=own_or(
                own,
                "streams.heartbeat.interval.ms",
                streams.heartbeat_interval_ms,
                streams.min_heartbeat_interval_ms,
                streams.max_heartbeat_interval_ms,
            ),
            session_timeout_ms=own_or(
                own,
                "streams.session.timeout.ms",
                streams.session_timeout_ms,
                streams.min_session_timeout_ms,
                streams.max_session_timeout_ms,
            ),
            assignment_interval_ms=own_or(
                own,
                "streams.assignment.interval.ms",
                streams.assignment_interval_ms,
                streams.min_assignment_interval_ms,
                streams.max_assignment_interval_ms,
            ),
            initial_rebalance_delay_ms=own_or(
                own, "streams.initial.rebalance.delay.ms", streams.initial_rebalance_delay_ms, 0, INT_MAX
            ),
            task_offset_interval_ms=own_or(
                own,
                "streams.task.offset.interval.ms",
                streams.task_offset_interval_ms,
                streams.min_task_offset_interval_ms,
                INT_MAX,
            ),
            acceptable_recovery_lag=own_or(
                own, "streams.acceptable.recovery.lag", streams.acceptable_recovery_lag, 0, LONG_MAX
            ),
            standby_replicas=own_or(
                own,
                "streams.num.standby.replicas",
                streams.num_standby_replicas,
                0,
                streams.max_standby_replicas,
            ),
            rack_aware_tags=streams.rack_aware_assignment_tags if tags is None else _TAGS.parse(tags),
            max_size=streams.max_size,
            assignor=own.get("streams.assignor.name", streams.assignors[0]),
        )
