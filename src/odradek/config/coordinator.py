"""Settings of groups, offsets, transactions and share groups, and of their coordinators and the topics of these."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from odradek.config.definition import INT_MAX, Bounds, at_least, between
from odradek.config.section import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    Boolean,
    Int,
    List,
    Long,
    Section,
    Short,
    String,
    section,
    setting,
)

_ASSIGNORS: Final = Bounds(
    allowed="one or more of uniform, range",
    accepts=lambda names: bool(names) and all(name in ("uniform", "range") for name in names),
)
_TASK_ASSIGNORS: Final = Bounds(
    allowed="sticky",
    accepts=lambda names: bool(names) and all(name == "sticky" for name in names),
)
_TAG_KEYS: Final = Bounds(
    allowed="the keys of client tags, all different",
    accepts=lambda keys: all(keys) and len(set(keys)) == len(keys),
)
_MIGRATION_POLICIES: Final = Bounds(
    allowed="one of disabled, upgrade, downgrade, bidirectional",
    accepts=lambda name: name.lower() in ("disabled", "upgrade", "downgrade", "bidirectional"),
)
_REPLICAS: Final = (
    "when it is made. A broker alone makes it with one, and a smaller cluster with as many as there are "
    "brokers, unless this is set: then it waits for them."
)
# Kafka refuses to make a topic with more replicas than brokers, so with these defaults one broker has no groups. Here a
# topic that everything waits for is made with what there is.
OFFSETS_COPIES: Final = "offsets.topic.replication.factor"
TRANSACTIONS_COPIES: Final = "transaction.state.log.replication.factor"
SHARES_COPIES: Final = "share.coordinator.state.topic.replication.factor"


@section("group.consumer.")
class ConsumerGroupConfig(Section):
    """Groups of the consumer protocol (KIP-848)."""

    # fmt: off
    heartbeat_interval_ms: Int = setting(default=5_000, valid=at_least(1), meaning=
        "How often the members of a consumer group must send heartbeats; changes reach them that late.")
    min_heartbeat_interval_ms: Int = setting(default=5_000, valid=at_least(1), meaning=
        "The shortest heartbeat interval that a group may be given.")
    max_heartbeat_interval_ms: Int = setting(default=15_000, valid=at_least(1), meaning=
        "The longest heartbeat interval that a group may be given.")
    session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning=
        "How long a member of a consumer group may be silent before it is removed.")
    min_session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning=
        "The shortest session timeout that a group may be given.")
    max_session_timeout_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "The longest session timeout that a group may be given.")
    assignment_interval_ms: Int = setting(default=1_000, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "The least time between two assignments of a group, so that many arrivals make one rebalance; 0: no such time.")
    min_assignment_interval_ms: Int = setting(default=0, valid=at_least(0), meaning=
        "The shortest assignment interval that a group may be given.")
    max_assignment_interval_ms: Int = setting(default=15_000, valid=at_least(0), meaning=
        "The longest assignment interval that a group may be given.")
    max_size: Int = setting(default=INT_MAX, valid=at_least(1), meaning=
        "The most members that a consumer group may have.")
    assignors: List = setting(default=("uniform", "range"), valid=_ASSIGNORS, meaning=
        "The assignors that members may choose from; the first is for groups that choose none.")
    migration_policy: String = setting(default="bidirectional", valid=_MIGRATION_POLICIES, meaning=
        "Whether a group with members may go from the classic to the consumer protocol (upgrade), back (downgrade), or both.")
    # fmt: on


@section("group.share.")
class ShareGroupConfig(Section):
    """Share groups (KIP-932)."""

    # fmt: off
    heartbeat_interval_ms: Int = setting(default=5_000, valid=at_least(1), meaning=
        "How often the members of a share group must send heartbeats; changes reach them that late.")
    min_heartbeat_interval_ms: Int = setting(default=5_000, valid=at_least(1), meaning=
        "The shortest heartbeat interval that a share group may be given.")
    max_heartbeat_interval_ms: Int = setting(default=15_000, valid=at_least(1), meaning=
        "The longest heartbeat interval that a share group may be given.")
    session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning=
        "How long a member of a share group may be silent before it is removed.")
    min_session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning=
        "The shortest session timeout that a share group may be given.")
    max_session_timeout_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "The longest session timeout that a share group may be given.")
    assignment_interval_ms: Int = setting(default=1_000, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "The least time between two assignments of a share group; 0: no such time.")
    min_assignment_interval_ms: Int = setting(default=0, valid=at_least(0), meaning=
        "The shortest assignment interval that a share group may be given.")
    max_assignment_interval_ms: Int = setting(default=15_000, valid=at_least(0), meaning=
        "The longest assignment interval that a share group may be given.")
    max_size: Int = setting(default=200, valid=between(1, 1_000), meaning=
        "The most members that a share group may have.")
    max_share_sessions: Int = setting(default=2_000, valid=at_least(1), meaning=
        "The most members of share groups that may read from this broker at once.")
    delivery_count_limit: Int = setting(default=5, valid=between(2, 10), meaning=
        "How often a record is delivered to members of a share group at the most.")
    min_delivery_count_limit: Int = setting(default=2, valid=between(2, 5), meaning=
        "The least limit of deliveries that a share group may be given.")
    max_delivery_count_limit: Int = setting(default=10, valid=between(5, 25), meaning=
        "The largest limit of deliveries that a share group may be given.")
    partition_max_record_locks: Int = setting(default=2_000, valid=between(100, 10_000), meaning=
        "How many records of one partition a share group may have locked at once.")
    min_partition_max_record_locks: Int = setting(default=100, valid=between(100, 2_000), meaning=
        "The least number of locked records that a share group may be given.")
    max_partition_max_record_locks: Int = setting(default=4_000, valid=between(2_000, 10_000), meaning=
        "The largest number of locked records that a share group may be given.")
    record_lock_duration_ms: Int = setting(default=30_000, valid=between(1_000, 3_600_000), meaning=
        "For how long a record is locked for the member of a share group that got it.")
    min_record_lock_duration_ms: Int = setting(default=15_000, valid=between(1_000, 30_000), meaning=
        "The shortest lock that a share group may be given.")
    max_record_lock_duration_ms: Int = setting(default=60_000, valid=between(30_000, 3_600_000), meaning=
        "The longest lock that a share group may be given.")
    # fmt: on


@section("group.streams.")
class StreamsGroupConfig(Section):
    """Streams groups (KIP-1071)."""

    # fmt: off
    heartbeat_interval_ms: Int = setting(default=5_000, valid=at_least(1), meaning=
        "How often the members of a streams group must send heartbeats; changes reach them that late.")
    min_heartbeat_interval_ms: Int = setting(default=5_000, valid=at_least(1), meaning=
        "The shortest heartbeat interval that a streams group may be given.")
    max_heartbeat_interval_ms: Int = setting(default=15_000, valid=at_least(1), meaning=
        "The longest heartbeat interval that a streams group may be given.")
    session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning=
        "How long a member of a streams group may be silent before it is removed.")
    min_session_timeout_ms: Int = setting(default=45_000, valid=at_least(1), meaning=
        "The shortest session timeout that a streams group may be given.")
    max_session_timeout_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "The longest session timeout that a streams group may be given.")
    assignment_interval_ms: Int = setting(default=1_000, valid=at_least(0), dynamic=CLUSTER_WIDE, meaning=
        "The least time between two assignments of a streams group; 0: no such time.")
    min_assignment_interval_ms: Int = setting(default=0, valid=at_least(0), meaning=
        "The shortest assignment interval that a streams group may be given.")
    max_assignment_interval_ms: Int = setting(default=15_000, valid=at_least(0), meaning=
        "The longest assignment interval that a streams group may be given.")
    max_size: Int = setting(default=INT_MAX, valid=at_least(1), meaning=
        "The most members that a streams group may have.")
    rack_aware_assignment_tags: List = setting(default=(), valid=_TAG_KEYS, meaning=
        "Keys of client tags: the standby tasks of a task go to processes whose values differ, the first key first.")
    num_standby_replicas: Int = setting(default=0, valid=at_least(0), meaning=
        "How many standby copies of its state each task has.")
    max_standby_replicas: Int = setting("group.streams.max.standby.replicas", default=2, valid=at_least(0), meaning=
        "The most standby copies that a streams group may be given.")
    initial_rebalance_delay_ms: Int = setting(default=3_000, valid=at_least(0), meaning=
        "How long an empty streams group waits for more members before its first assignment.")
    assignors: List = setting(default=("sticky",), valid=_TASK_ASSIGNORS, meaning=
        "The task assignors that groups may choose from; the first is for groups that choose none.")
    min_task_offset_interval_ms: Int = setting(default=15_000, valid=at_least(1), meaning=
        "The shortest interval of such reports that a streams group may be given.")
    task_offset_interval_ms: Int = setting(default=60_000, valid=at_least(1), meaning=
        "How often members report how far they have restored the state of their tasks.")
    acceptable_recovery_lag: Long = setting(default=10_000, valid=at_least(0), meaning=
        "How many records a copy of a task's state may lack to count as complete.")
    # fmt: on


@section("group.")
class GroupConfig(Section):
    """Settings for classic groups; those for the newer kinds of groups are in sections of their own."""

    # fmt: off
    min_session_timeout_ms: Int = setting(default=6_000, valid=at_least(1), meaning=
        "The shortest session.timeout.ms that a member of a classic group may ask for.")
    max_session_timeout_ms: Int = setting(default=1_800_000, valid=at_least(1), meaning=
        "The longest session.timeout.ms that a member of a classic group may ask for.")
    initial_rebalance_delay_ms: Int = setting(default=3_000, valid=at_least(0), meaning=
        "How long an empty group waits for more members before it assigns partitions for the first time.")
    max_size: Int = setting(default=INT_MAX, valid=at_least(1), meaning=
        "The most members that a classic group may have.")
    # fmt: on
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    share: ShareGroupConfig = field(default_factory=ShareGroupConfig)
    streams: StreamsGroupConfig = field(default_factory=StreamsGroupConfig)


@section("offsets.")
class OffsetsConfig(Section):
    """Settings for committed offsets, and for the topic __consumer_offsets that holds them."""

    # fmt: off
    metadata_max_bytes: Int = setting("offset.metadata.max.bytes", default=4096, valid=at_least(0), importance=HIGH,
        meaning=
        "The longest text that may be committed along with an offset.")
    retention_minutes: Int = setting(default=10_080, valid=at_least(1), importance=HIGH, meaning=
        "How long offsets are kept once their group is empty; or once they were committed, for topics that a group does not "
        "read any more and for groups that never had members.")
    retention_exempt_prefixes: List = setting("odradek.offsets.retention.exempt.prefixes", default=("__odradek_sink.",),
        importance=LOW, meaning=
        "Groups whose names begin with one of these keep their offsets until someone deletes them, however long they idle: "
        "the decisions of exactly-once Spark sinks are such offsets. Empty: no exemption, as in Kafka.")
    retention_check_interval_ms: Long = setting(default=600_000, valid=at_least(1), importance=HIGH, meaning=
        "How often offsets that expired are looked for.")
    commit_timeout_ms: Int = setting(default=5000, valid=at_least(1), importance=HIGH, meaning=
        "How long what a group's coordinator writes, a commit of offsets above all, may take to become durable, before its "
        "client must try again.")
    topic_num_partitions: Int = setting(default=50, valid=at_least(1), importance=HIGH, meaning=
        "Partitions of __consumer_offsets, when it is made. Later the topic itself says how many there are.")
    topic_replication_factor: Short = setting(default=3, valid=at_least(1), importance=HIGH, meaning=
        f"Replicas of __consumer_offsets, {_REPLICAS}")
    topic_segment_bytes: Int = setting(default=100 << 20, valid=at_least(1), importance=HIGH, meaning=
        "Where the log of __consumer_offsets begins a new segment: small, so that it is compacted and loaded fast. Less than 1 "
        "MiB, which no topic may have, counts as that.")
    # fmt: on


@section("transaction.")
class TransactionConfig(Section):
    """The transaction coordinator, and the topic __transaction_state."""

    # fmt: off
    max_timeout_ms: Int = setting(default=900_000, valid=at_least(1), importance=HIGH, meaning=
        "The longest transaction.timeout.ms that a producer may ask for.")
    transactional_id_expiration_ms: Int = setting("transactional.id.expiration.ms", default=604_800_000,
        valid=at_least(1), importance=HIGH, meaning=
        "How long a transactional id that is not in use is remembered.")
    state_log_num_partitions: Int = setting(default=50, valid=at_least(1), importance=HIGH, meaning=
        "Partitions of the topic __transaction_state when it is made; later changes have no effect.")
    state_log_replication_factor: Short = setting(default=3, valid=at_least(1), importance=HIGH, meaning=
        f"Replicas of __transaction_state, {_REPLICAS}")
    state_log_min_isr: Int = setting(default=2, valid=at_least(1), importance=HIGH, meaning=
        "min.insync.replicas of __transaction_state, when it is made; less where it has fewer replicas than it should.")
    state_log_segment_bytes: Int = setting(default=104_857_600, valid=at_least(1), importance=HIGH, meaning=
        "Size of a segment of __transaction_state, when that is made: compaction works on whole segments.")
    abort_timed_out_transaction_cleanup_interval_ms: Int = setting(default=10_000, valid=at_least(1), importance=LOW,
        meaning=
        "How often transactions are looked for that have timed out: they are aborted.")
    remove_expired_transaction_cleanup_interval_ms: Int = setting(default=3_600_000, valid=at_least(1),
        importance=LOW, meaning=
        "How often transactional ids are looked for that have expired: they are forgotten.")
    partition_verification_enable: Boolean = setting(default=True, importance=LOW, dynamic=CLUSTER_WIDE, meaning=
        "Whether a partition asks the coordinator if a transaction that begins there is under way (KIP-890).")
    two_phase_commit_enable: Boolean = setting(default=False, importance=LOW, meaning=
        "Whether producers may have transactions that never time out, decided from outside (KIP-939).")
    add_partitions_to_txn_retry_backoff_ms: Int = setting("add.partitions.to.txn.retry.backoff.ms", default=20,
        valid=at_least(1), importance=HIGH, meaning=
        "Pause before a partition is added again to a transaction whose predecessor is being completed.")
    add_partitions_to_txn_retry_backoff_max_ms: Int = setting("add.partitions.to.txn.retry.backoff.max.ms",
        default=100, valid=at_least(0), importance=HIGH, meaning=
        "How long that is tried before the producer must try again itself.")
    # fmt: on


@section("share.coordinator.")
class ShareCoordinatorConfig(Section):
    """The coordinator of share groups, and the topic __share_group_state."""

    # fmt: off
    state_topic_replication_factor: Short = setting(default=3, valid=at_least(1), importance=HIGH, meaning=
        f"Replicas of __share_group_state, {_REPLICAS}")
    state_topic_min_isr: Short = setting(default=2, valid=at_least(1), importance=HIGH, meaning=
        "min.insync.replicas of __share_group_state, when it is made; less where it has fewer replicas than it should.")
    state_topic_num_partitions: Int = setting(default=50, valid=at_least(1), meaning=
        "Partitions of the topic __share_group_state when it is made; later changes have no effect.")
    state_topic_segment_bytes: Int = setting(default=104_857_600, valid=at_least(1), meaning=
        "The size of the segments of __share_group_state.")
    state_topic_prune_interval_ms: Int = setting(default=300_000, valid=at_least(1), meaning=
        "How often records of __share_group_state that no restart needs are deleted.")
    snapshot_update_records_per_snapshot: Int = setting(default=500, valid=between(0, 500), meaning=
        "After this many changes, what is known of a share group in a partition is written again as a whole.")
    cold_partition_snapshot_interval_ms: Int = setting(default=300_000, valid=at_least(1), meaning=
        "What was not written for so long is written again, so that older records can be deleted.")
    # fmt: on
