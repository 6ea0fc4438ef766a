"""The settings of groups and their offsets: the broker's configuration, and a group's own settings (KIP-1043)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.config.definition import INT_MAX

NO_OWN_SETTINGS: Final[Mapping[str, str]] = {}
"""The settings of a group that has none of its own (KIP-1043)."""


def own_or(own: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    """Returns the group's own value, or the broker's. It stays within the broker's bounds even when those were narrowed
    since."""
    value = own.get(key)
    return default if value is None else min(max(int(value), least), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of groups, with Kafka's defaults. Times are milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = INT_MAX
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_exempt_prefixes: tuple[str, ...] = ()
    """Groups that begin so keep their offsets."""
    offsets_retention_check_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = 300_000
    """How long a member that joined for the first time may wait for the rebalance to end: it has no session to lose yet."""

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            min_session_timeout_ms=config.group.min_session_timeout_ms,
            max_session_timeout_ms=config.group.max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group.initial_rebalance_delay_ms,
            max_size=config.group.max_size,
            offset_metadata_max_bytes=config.offsets.metadata_max_bytes,
            offsets_retention_ms=config.offsets.retention_minutes * 60_000,
            offsets_retention_exempt_prefixes=tuple(filter(None, config.offsets.retention_exempt_prefixes)),
            offsets_retention_check_interval_ms=config.offsets.retention_check_interval_ms,
        )
