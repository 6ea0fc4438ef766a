"""The settings of share groups and of their coordinator: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.definition import Bounds, Setting, SettingType, Update, at_least, between, declare
from odradek.config.transactions import TransactionConfig


def _whole(key: str, default: int, valid: Bounds, meaning: str, dynamic: Update = Update.READ_ONLY) -> int:
    setting = Setting(
        key=key, type=SettingType.INT, default=default, meaning=meaning, valid=valid, dynamic=dynamic
    )
    declared: int = declare(setting)
    return declared


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ShareConfig(TransactionConfig):
    """What governs share groups (KIP-932) on one broker."""

    group_share_heartbeat_interval_ms: int = _whole(
        "group.share.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "How often members of a share group are told to send heartbeats; changes reach them that late.",
    )
    group_share_min_heartbeat_interval_ms: int = _whole(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        at_least(1),
        "The shortest heartbeat interval that a share group may be given.",
    )
    group_share_max_heartbeat_interval_ms: int = _whole(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        at_least(1),
        "The longest heartbeat interval that a share group may be given.",
    )
    group_share_session_timeout_ms: int = _whole(
        "group.share.session.timeout.ms",
        45_000,
        at_least(1),
        "How long a member of a share group may be silent before it is removed.",
    )
    group_share_min_session_timeout_ms: int = _whole(
        "group.share.min.session.timeout.ms",
        45_000,
        at_least(1),
        "The shortest session timeout that a share group may be given.",
    )
    group_share_max_session_timeout_ms: int = _whole(
        "group.share.max.session.timeout.ms",
        60_000,
        at_least(1),
        "The longest session timeout that a share group may be given.",
    )
    group_share_assignment_interval_ms: int = _whole(
        "group.share.assignment.interval.ms",
        1_000,
        at_least(0),
        "The least time between two assignments of a share group; 0: no such time.",
        Update.CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms: int = _whole(
        "group.share.min.assignment.interval.ms",
        0,
        at_least(0),
        "The shortest assignment interval that a share group may be given.",
    )
    group_share_max_assignment_interval_ms: int = _whole(
        "group.share.max.assignment.interval.ms",
        15_000,
        at_least(0),
        "The longest assignment interval that a share group may be given.",
    )
    group_share_max_size: int = _whole(
        "group.share.max.size",
        200,
        between(1, 1_000),
        "The most members that a share group may have.",
    )
    group_share_max_share_sessions: int = _whole(
        "group.share.max.share.sessions",
        2_000,
        at_least(1),
        "The most members of share groups that may read from this broker at once.",
    )
    group_share_delivery_count_limit: int = _whole(
        "group.share.delivery.count.limit",
        5,
        between(2, 10),
        "How often a record is delivered to members of a share group at the most.",
    )
    group_share_min_delivery_count_limit: int = _whole(
        "group.share.min.delivery.count.limit",
        2,
        between(2, 5),
        "The least limit of deliveries that a share group may be given.",
    )
    group_share_max_delivery_count_limit: int = _whole(
        "group.share.max.delivery.count.limit",
        10,
        between(5, 25),
        "The largest limit of deliveries that a share group may be given.",
    )
    group_share_partition_max_record_locks: int = _whole(
        "group.share.partition.max.record.locks",
        2_000,
        between(100, 10_000),
        "How many records of one partition a share group may have locked at once.",
    )
    group_share_min_partition_max_record_locks: int = _whole(
        "group.share.min.partition.max.record.locks",
        100,
        between(100, 2_000),
        "The least number of locked records that a share group may be given.",
    )
    group_share_max_partition_max_record_locks: int = _whole(
        "group.share.max.partition.max.record.locks",
        4_000,
        between(2_000, 10_000),
        "The largest number of locked records that a share group may be given.",
    )
    group_share_record_lock_duration_ms: int = _whole(
        "group.share.record.lock.duration.ms",
        30_000,
        between(1_000, 3_600_000),
        "For how long a record is locked for the member of a share group that got it.",
    )
    group_share_min_record_lock_duration_ms: int = _whole(
        "group.share.min.record.lock.duration.ms",
        15_000,
        between(1_000, 30_000),
        "The shortest lock that a share group may be given.",
    )
    group_share_max_record_lock_duration_ms: int = _whole(
        "group.share.max.record.lock.duration.ms",
        60_000,
        between(30_000, 3_600_000),
        "The longest lock that a share group may be given.",
    )
    share_coordinator_state_topic_num_partitions: int = _whole(
        "share.coordinator.state.topic.num.partitions",
        50,
        at_least(1),
        "Partitions of the topic __share_group_state when it is made; later changes have no effect.",
    )
    share_coordinator_state_topic_segment_bytes: int = _whole(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        at_least(1),
        "The size of the segments of __share_group_state.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = _whole(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        at_least(1),
        "How often records of __share_group_state that no restart needs are deleted.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = _whole(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        between(0, 500),
        "After so many changes, what is known of a share group in a partition is written anew as a whole.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = _whole(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        at_least(1),
        "What was not written for so long is written anew, so that older records can be deleted.",
    )
