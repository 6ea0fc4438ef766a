"""The settings of classic and consumer groups, and of their offsets: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.config.definition import (
    INT_MAX,
    Bounds,
    Importance,
    SettingType,
    Update,
    at_least,
    setting_field,
)
from odradek.config.upkeep import UpkeepConfig

STRING, LIST, INT, LONG = SettingType.STRING, SettingType.LIST, SettingType.INT, SettingType.LONG
_ASSIGNORS: Final = Bounds(
    allowed="one or more of uniform, range",
    accepts=lambda names: bool(names) and all(name in ("uniform", "range") for name in names),
)
_MIGRATION_POLICIES: Final = Bounds(
    allowed="one of disabled, upgrade, downgrade, bidirectional",
    accepts=lambda name: name.lower() in ("disabled", "upgrade", "downgrade", "bidirectional"),
)


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class CoordinatorConfig(UpkeepConfig):
    """What governs groups that read topics on one broker. Share groups: `shares.py`."""

    group_min_session_timeout_ms: int = setting_field(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        "The shortest session.timeout.ms that a member of a classic group may ask for.",
        at_least(1),
    )
    group_max_session_timeout_ms: int = setting_field(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        "The longest session.timeout.ms that a member of a classic group may ask for.",
        at_least(1),
    )
    group_initial_rebalance_delay_ms: int = setting_field(
        "group.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long an empty group waits for more members before it assigns partitions for the first time.",
        at_least(0),
    )
    group_max_size: int = setting_field(
        "group.max.size", INT, INT_MAX, "The most members that a classic group may have.", at_least(1)
    )
    # Groups of the consumer protocol (KIP-848)
    group_consumer_heartbeat_interval_ms: int = setting_field(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of a consumer group are told to send heartbeats; changes reach them that late.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = setting_field(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a group may be given.",
        at_least(1),
    )
    group_consumer_max_heartbeat_interval_ms: int = setting_field(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a group may be given.",
        at_least(1),
    )
    group_consumer_session_timeout_ms: int = setting_field(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        "How long a member of a consumer group may be silent before it is removed.",
        at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = setting_field(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session timeout that a group may be given.",
        at_least(1),
    )
    group_consumer_max_session_timeout_ms: int = setting_field(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session timeout that a group may be given.",
        at_least(1),
    )
    group_consumer_assignment_interval_ms: int = setting_field(
        "group.consumer.assignment.interval.ms",
        INT,
        1_000,
        "The least time between two assignments of a group, so that many arrivals make one rebalance; 0: no such time.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = setting_field(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "The shortest assignment interval that a group may be given.",
        at_least(0),
    )
    group_consumer_max_assignment_interval_ms: int = setting_field(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest assignment interval that a group may be given.",
        at_least(0),
    )
    group_consumer_max_size: int = setting_field(
        "group.consumer.max.size",
        INT,
        INT_MAX,
        "The most members that a consumer group may have.",
        at_least(1),
    )
    group_consumer_assignors: tuple[str, ...] = setting_field(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        "The assignors that members may choose from; the first is for groups that choose none.",
        _ASSIGNORS,
    )
    group_consumer_migration_policy: str = setting_field(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether a group with members may go from the classic to the consumer protocol (upgrade), back (downgrade), or both.",
        _MIGRATION_POLICIES,
    )

    offset_metadata_max_bytes: int = setting_field(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "The longest text that may be committed along with an offset.",
        at_least(0),
        importance=Importance.HIGH,
    )
    offsets_retention_minutes: int = setting_field(
        "offsets.retention.minutes",
        INT,
        10_080,
        "How long offsets are kept once their group is empty; or once they were committed, for topics that a group does not "
        "read any more and for groups that never had members.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_retention_check_interval_ms: int = setting_field(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        "How often offsets that expired are looked for.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_commit_timeout_ms: int = setting_field(
        "offsets.commit.timeout.ms",
        INT,
        5000,
        "How long what a group's coordinator writes, a commit of offsets above all, may take to become durable, before its"
        " client is told to try again.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_topic_num_partitions: int = setting_field(
        "offsets.topic.num.partitions",
        INT,
        50,
        "Partitions of __consumer_offsets, when it is made. Later the topic itself says how many there are.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_topic_segment_bytes: int = setting_field(
        "offsets.topic.segment.bytes",
        INT,
        100 << 20,
        "Where the log of __consumer_offsets begins a new segment: small, so that it is compacted and loaded fast. "
        "Less than 1 MiB, which no topic may have, counts as that.",
        at_least(1),
        importance=Importance.HIGH,
    )
