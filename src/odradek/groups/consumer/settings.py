"""The settings of consumer groups: the broker's `group.consumer.*`, overridden by a group's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.config.definition import INT_MAX
from odradek.groups.shard.settings import NO_OWN_SETTINGS, own_or


class MigrationPolicy(Enum):
    """Whether a group with members may change its protocol (KIP-848); one without members always may."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


_NOTES_A_SESSION: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """The settings of one consumer group, with Kafka's defaults. Times are milliseconds."""

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    assignment_interval_ms: int = 1_000
    """Members that come within this time of the last target wait for the next: many arrivals make one rebalance (KIP-1263)."""
    max_size: int = INT_MAX
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is for groups whose members prefer none."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    @property
    def note_interval_ms(self) -> int:
        """How often it is written that a member is heard of: so long a session may last too long after its coordinator died."""
        return self.session_timeout_ms // _NOTES_A_SESSION

    @classmethod
    def of(cls, config: BrokerConfig, own: Mapping[str, str] = NO_OWN_SETTINGS) -> ConsumerGroupSettings:
        """Returns the broker's settings, overridden by the group's own."""
        consumer = config.group.consumer
        return cls(
            heartbeat_interval_ms=own_or(
                own,
                "consumer.heartbeat.interval.ms",
                consumer.heartbeat_interval_ms,
                consumer.min_heartbeat_interval_ms,
                consumer.max_heartbeat_interval_ms,
            ),
            session_timeout_ms=own_or(
                own,
                "consumer.session.timeout.ms",
                consumer.session_timeout_ms,
                consumer.min_session_timeout_ms,
                consumer.max_session_timeout_ms,
            ),
            assignment_interval_ms=own_or(
                own,
                "consumer.assignment.interval.ms",
                consumer.assignment_interval_ms,
                consumer.min_assignment_interval_ms,
                consumer.max_assignment_interval_ms,
            ),
            max_size=consumer.max_size,
            assignors=consumer.assignors,
            migration=MigrationPolicy(consumer.migration_policy.lower()),
        )
