"""The settings of replication between brokers: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.definition import (
    LONG_MAX,
    Bounds,
    Importance,
    Setting,
    SettingType,
    Update,
    at_least,
    declare,
    one_of,
)
from odradek.config.zookeeper import ZooKeeperConfig


def _whole(
    key: str,
    default: int,
    valid: Bounds,
    meaning: str,
    importance: Importance = Importance.MEDIUM,
    dynamic: Update = Update.READ_ONLY,
) -> int:
    setting = Setting(
        key=key,
        type=SettingType.INT,
        default=default,
        meaning=meaning,
        valid=valid,
        importance=importance,
        dynamic=dynamic,
    )
    declared: int = declare(setting)
    return declared


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicationConfig(ZooKeeperConfig):
    """How followers fetch from leaders, and consumers from followers."""

    num_replica_fetchers: int = _whole(
        "num.replica.fetchers",
        1,
        at_least(1),
        "How many connections a follower fetches over from each leader; its partitions are spread over them. "
        "A new number counts for those that it begins to follow.",
        Importance.HIGH,
        Update.CLUSTER_WIDE,
    )
    replica_fetch_max_bytes: int = _whole(
        "replica.fetch.max.bytes",
        1_048_576,
        at_least(0),
        "How much a follower fetches of one partition at once; a larger batch comes whole.",
    )
    replica_fetch_response_max_bytes: int = _whole(
        "replica.fetch.response.max.bytes",
        10_485_760,
        at_least(0),
        "How much a follower fetches of all partitions at once; a larger batch comes whole.",
    )
    replica_fetch_min_bytes: int = _whole(
        "replica.fetch.min.bytes",
        1,
        at_least(0),
        "How much must be there before a follower's fetch is answered, unless its time is over.",
        Importance.HIGH,
    )
    replica_fetch_wait_max_ms: int = _whole(
        "replica.fetch.wait.max.ms",
        500,
        at_least(0),
        "How long a follower's fetch waits for records; up to a sixth of replica.lag.time.max.ms, if that is longer, while "
        "nothing happens and all are in sync.",
        Importance.HIGH,
    )
    replica_fetch_backoff_ms: int = _whole(
        "replica.fetch.backoff.ms",
        1_000,
        at_least(0),
        "The longest pause before a partition that could not be fetched is tried again; the first ones are shorter.",
    )
    replica_socket_timeout_ms: int = _whole(
        "replica.socket.timeout.ms",
        30_000,
        at_least(1),
        "How long a follower waits for the answer of a leader before it gives the connection up.",
        Importance.HIGH,
    )
    replica_lag_time_max_ms: int = declare(
        Setting(
            key="replica.lag.time.max.ms",
            type=SettingType.LONG,
            default=30_000,
            meaning="A follower that has not had everything for so long is not in sync any more.",
            valid=at_least(1),
            importance=Importance.HIGH,
        )
    )
    replica_selector_class: str | None = declare(
        Setting(
            key="replica.selector.class",
            type=SettingType.STRING,
            default=None,
            meaning="Which replica consumers are told to read from: with "
            "org.apache.kafka.common.replica.RackAwareReplicaSelector a follower in their own rack, else the leader.",
            valid=one_of("org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        )
    )
    leader_replication_throttled_rate: int = declare(
        Setting(
            key="leader.replication.throttled.rate",
            type=SettingType.LONG,
            default=LONG_MAX,
            meaning="Bytes a second that go to followers not in sync, of what leader.replication.throttled.replicas names.",
            valid=at_least(0),
            dynamic=Update.CLUSTER_WIDE,
        )
    )
    follower_replication_throttled_rate: int = declare(
        Setting(
            key="follower.replication.throttled.rate",
            type=SettingType.LONG,
            default=LONG_MAX,
            meaning="Bytes a second that are fetched of what follower.replication.throttled.replicas names and is not in sync.",
            valid=at_least(0),
            dynamic=Update.CLUSTER_WIDE,
        )
    )
    replication_quota_window_num: int = _whole(
        "replication.quota.window.num",
        11,
        at_least(1),
        "Samples of the window of those rates: all but one of them say how much may be copied at once after a silence.",
        Importance.LOW,
    )
    replication_quota_window_size_seconds: int = _whole(
        "replication.quota.window.size.seconds",
        1,
        at_least(1),
        "The length of such a sample.",
        Importance.LOW,
    )
