"""Settings of several brokers that are one cluster: its registry, its controller, replication."""

from __future__ import annotations

from odradek.config.definition import LONG_MAX, at_least, one_of
from odradek.config.section import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    PER_BROKER,
    Boolean,
    Int,
    Long,
    Section,
    String,
    section,
    setting,
)


@section()
class ClusterConfig(Section):
    """How a broker finds the others, and how they know that it lives."""

    # fmt: off
    registry_dir: String | None = setting("odradek.registry.dir", default=None, importance=HIGH, meaning=
        "The directory of the registry that brokers on one machine share. Not set: the first of log.dirs, so that a broker "
        "joins another one by naming that one's. Without effect where zookeeper.connect is set.")
    broker_session_timeout_ms: Int = setting(default=9_000, valid=at_least(1), importance=HIGH, meaning=
        "How long a broker may be silent before others take over what it led; with zookeeper.connect, "
        "zookeeper.session.timeout.ms says so.")
    odradek_broker_cordoned: Boolean = setting(default=False, dynamic=PER_BROKER, meaning=
        "Whether this broker gets no new replicas. What it holds stays, until it is moved.")
    # fmt: on


@section()
class ControllerConfig(Section):
    """Settings for returning leadership to preferred leaders, and for healing lost replicas."""

    # fmt: off
    auto_leader_rebalance_enable: Boolean = setting(default=True, importance=HIGH, meaning=
        "Whether preferred leaders, the first replicas of each partition, are made leaders again after a while.")
    leader_imbalance_check_interval_seconds: Long = setting(default=300, valid=at_least(1), importance=HIGH, meaning=
        "How often the controller looks for partitions that are not led by their preferred leader.")
    leader_imbalance_per_broker_percentage: Int = setting(default=10, importance=HIGH, meaning=
        "How many of a broker's preferred partitions others may lead, in percent, before it gets them back.")
    odradek_healing_delay_ms: Long = setting(default=1_800_000, valid=at_least(-1), dynamic=CLUSTER_WIDE, meaning=
        "How long a broker may be dead before its replicas are made again on other brokers; -1 for never. They are copied "
        "whole, so this should be longer than a restart takes.")
    odradek_healing_partitions_max: Int = setting(default=20, valid=at_least(1), dynamic=CLUSTER_WIDE, meaning=
        "How many partitions are made again at one time.")
    # fmt: on


@section()
class ReplicationConfig(Section):
    """How followers fetch from leaders, and consumers from followers."""

    # fmt: off
    num_replica_fetchers: Int = setting(default=1, valid=at_least(1), importance=HIGH, dynamic=CLUSTER_WIDE, meaning=
        "How many connections a follower fetches over from each leader; its partitions are spread over them. A new number "
        "counts for those that it begins to follow.")
    replica_fetch_max_bytes: Int = setting(default=1_048_576, valid=at_least(0), meaning=
        "How much a follower fetches of one partition at once; a larger batch comes whole.")
    replica_fetch_response_max_bytes: Int = setting(default=10_485_760, valid=at_least(0), meaning=
        "How much a follower fetches of all partitions at once; a larger batch comes whole.")
    replica_fetch_min_bytes: Int = setting(default=1, valid=at_least(0), importance=HIGH, meaning=
        "How much must be there before a follower's fetch is answered, unless its time is over.")
    replica_fetch_wait_max_ms: Int = setting(default=500, valid=at_least(0), importance=HIGH, meaning=
        "How long a follower's fetch waits for records; up to a sixth of replica.lag.time.max.ms, if that is longer, while "
        "nothing happens and all are in sync.")
    replica_fetch_backoff_ms: Int = setting(default=1_000, valid=at_least(0), meaning=
        "The longest pause before a partition that could not be fetched is tried again; the first ones are shorter.")
    replica_socket_timeout_ms: Int = setting(default=30_000, valid=at_least(1), importance=HIGH, meaning=
        "How long a follower waits for the answer of a leader before it gives the connection up.")
    replica_lag_time_max_ms: Long = setting(default=30_000, valid=at_least(1), importance=HIGH, meaning=
        "A follower that has not had everything for so long is not in sync any more.")
    replica_selector_class: String | None = setting(default=None,
        valid=one_of("org.apache.kafka.common.replica.RackAwareReplicaSelector"), meaning=
        "The replica that consumers read from: with org.apache.kafka.common.replica.RackAwareReplicaSelector a "
        "follower in their own rack, else the leader.")
    leader_replication_throttled_rate: Long = setting(default=LONG_MAX, valid=at_least(0), dynamic=CLUSTER_WIDE,
        meaning=
        "Bytes a second that go to followers not in sync, of what leader.replication.throttled.replicas names.")
    follower_replication_throttled_rate: Long = setting(default=LONG_MAX, valid=at_least(0), dynamic=CLUSTER_WIDE,
        meaning=
        "Bytes a second that are fetched of what follower.replication.throttled.replicas names and is not in sync.")
    replication_quota_window_num: Int = setting(default=11, valid=at_least(1), importance=LOW, meaning=
        "Samples of the window of those rates: all but one of them say how much may be copied at once after a silence.")
    replication_quota_window_size_seconds: Int = setting(default=1, valid=at_least(1), importance=LOW, meaning=
        "The length of such a sample.")
    # fmt: on
