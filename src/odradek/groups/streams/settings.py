"""The settings of streams groups: the broker's `group.streams.*`, overridden by a group's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.config.broker import BrokerConfig
from odradek.config.definition import INT_MAX
from odradek.groups.settings import own_or
from odradek.groups.streams import assignor


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
    max_size: int = INT_MAX
    assignor: str = assignor.NAME

    @property
    def assignment_configs(self) -> Mapping[str, str]:
        """The settings that the target depends on: when they change, a new target is worked out."""
        return {"num.standby.replicas": str(self.standby_replicas)}

    @classmethod
    def of(cls, config: BrokerConfig, own: Mapping[str, str]) -> StreamsSettings:
        """Returns the broker's settings, overridden by the group's own."""
        streams = config.group.streams
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
            task_offset_interval_ms=streams.task_offset_interval_ms,
            acceptable_recovery_lag=streams.acceptable_recovery_lag,
            standby_replicas=own_or(
                own,
                "streams.num.standby.replicas",
                streams.num_standby_replicas,
                0,
                streams.max_standby_replicas,
            ),
            max_size=streams.max_size,
            assignor=own.get("streams.assignor.name", streams.assignors[0]),
        )
