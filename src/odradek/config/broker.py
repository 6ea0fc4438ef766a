"""The settings of a broker: Kafka 4's keys, and a `BrokerConfig` with those that this version acts upon.

`BROKER_SETTINGS` knows three kinds of key: the fields of `BrokerConfig`, the broker's twins of the topic
settings (`log.retention.hours`, `message.max.bytes`, ...: they arrive in `BrokerConfig.topic_defaults`), and
those that have no effect in this version (`unsupported.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from odradek.config.data_directory import default_data_directory
from odradek.config.definition import (
    INT_MAX,
    Bounds,
    Importance,
    Setting,
    SettingType,
    Update,
    at_least,
    between,
    by_key,
    declare,
    declared,
)
from odradek.config.listeners import Listener
from odradek.config.shares import ShareConfig
from odradek.config.topic import TOPIC_ATTRIBUTES, TOPIC_SETTINGS, LogConfig
from odradek.config.unsupported import unsupported_settings

BOOLEAN, STRING, LIST = SettingType.BOOLEAN, SettingType.STRING, SettingType.LIST
INT, LONG, DOUBLE = SettingType.INT, SettingType.LONG, SettingType.DOUBLE
HIGH, LOW = Importance.HIGH, Importance.LOW

_ASSIGNORS: Final = Bounds(
    allowed="one or more of uniform, range",
    accepts=lambda names: bool(names) and all(name in ("uniform", "range") for name in names),
)
_MIGRATION_POLICIES: Final = Bounds(
    allowed="one of disabled, upgrade, downgrade, bidirectional",
    accepts=lambda name: name.lower() in ("disabled", "upgrade", "downgrade", "bidirectional"),
)
_BUFFER_BYTES: Final = Bounds(allowed="1 or more, or -1", accepts=lambda value: value == -1 or value > 0)


def _broker(
    key: str,
    type_: SettingType,
    default: object,
    meaning: str,
    valid: Bounds | None = None,
    value: Mapping[str, Any] = MappingProxyType({}),
    **other: Any,
) -> Any:
    """Declare a broker setting; `value` is the field's default where it differs from the setting's."""
    return declare(
        Setting(key=key, type=type_, default=default, meaning=meaning, valid=valid, **other), **value
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ShareConfig):
    """What governs one broker. `BrokerConfig()` is a broker on 127.0.0.1:9092 with Kafka's defaults.

    Build it with `load`, which checks what people write; the constructor trusts its caller.

    Its own settings are read once, at the start, but for those that are declared dynamic. So are the defaults of topics: a
    new one reaches every log that does not override it.
    """

    # Who this broker is
    node_id: int = _broker(
        "node.id",
        INT,
        1,
        "This broker's number, unique in its cluster.",
        at_least(0),
        importance=HIGH,
        synonyms=("broker.id",),
    )
    broker_rack: str | None = _broker(
        "broker.rack", STRING, None, "Where this broker stands: told to clients."
    )

    # Where it listens
    listeners: tuple[Listener, ...] = _broker(
        "listeners",
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where to listen: NAME://HOST:PORT, separated by commas. No host: every interface. Port 0: any.",
        value={"default": (Listener(),)},
        importance=HIGH,
    )
    advertised_listeners: tuple[Listener, ...] = _broker(
        "advertised.listeners",
        LIST,
        None,
        "What clients are told to connect to. Not set: the address to which they connected already.",
        value={"default": ()},
        importance=HIGH,
    )
    listener_security_protocol_map: Mapping[str, str] = _broker(
        "listener.security.protocol.map",
        LIST,
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "The security protocol of each listener name: NAME:PROTOCOL, separated by commas.",
        value={"default_factory": lambda: {"PLAINTEXT": "PLAINTEXT"}},
        importance=LOW,
    )
    controller_listener_names: tuple[str, ...] = _broker(
        "controller.listener.names",
        LIST,
        (),
        "Listeners meant for a KRaft controller. They are not opened, since there is none.",
        importance=LOW,
    )

    # Where it keeps data
    log_dirs: tuple[str, ...] = _broker(
        "log.dirs",
        LIST,
        None,
        "The data directories, separated by commas; each partition lives in one of them.",
        value={"default_factory": lambda: (default_data_directory(),)},
        importance=HIGH,
        synonyms=("log.dir",),
    )

    # Topics
    auto_create_topics_enable: bool = _broker(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a topic is created when a client asks for one that does not exist.",
        importance=HIGH,
    )
    default_replication_factor: int = _broker(
        "default.replication.factor",
        INT,
        1,
        "Replicas of a topic whose creator does not say how many.",
        at_least(1),
    )
    delete_topic_enable: bool = _broker(
        "delete.topic.enable", BOOLEAN, True, "Whether topics may be deleted at all.", importance=HIGH
    )
    num_partitions: int = _broker(
        "num.partitions", INT, 1, "Partitions of a topic whose creator does not say how many.", at_least(1)
    )

    # Connections and requests
    connections_max_idle_ms: int = _broker(
        "connections.max.idle.ms",
        LONG,
        600_000,
        "A connection idle for longer is closed; -1 never closes it.",
    )
    max_connections: int = _broker(
        "max.connections",
        INT,
        INT_MAX,
        "The most connections held at once.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = _broker(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        "The most connections held at once from one address.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: Mapping[str, int] = _broker(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for certain addresses: ADDRESS:COUNT, separated by commas.",
        value={"default_factory": dict},
        dynamic=Update.CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = _broker(
        "max.connection.creation.rate",
        INT,
        INT_MAX,
        "The most connections accepted in a second, over time; who comes faster waits.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    queued_max_requests: int = _broker(
        "queued.max.requests",
        INT,
        500,
        "Requests that may wait at once before the broker stops reading from connections.",
        at_least(1),
        importance=HIGH,
    )
    queued_max_response_bytes: int = _broker(
        "queued.max.response.bytes",
        LONG,
        256 << 20,
        "Bytes of answers held for clients that do not read them, beyond which fetches find nothing.",
        at_least(1 << 20),
    )
    socket_request_max_bytes: int = _broker(
        "socket.request.max.bytes",
        INT,
        100 << 20,
        "The largest request. A larger one ends its connection before anything is allocated for it.",
        at_least(1),
        importance=HIGH,
    )
    socket_receive_buffer_bytes: int = _broker(
        "socket.receive.buffer.bytes",
        INT,
        -1,
        "SO_RCVBUF of connections; -1 leaves it to the system, which tunes it.",
        _BUFFER_BYTES,
    )
    socket_send_buffer_bytes: int = _broker(
        "socket.send.buffer.bytes",
        INT,
        -1,
        "SO_SNDBUF of connections; -1 leaves it to the system, which tunes it.",
        _BUFFER_BYTES,
    )
    socket_listen_backlog_size: int = _broker(
        "socket.listen.backlog.size", INT, 50, "Connections that may wait to be accepted.", at_least(1)
    )
    fetch_max_bytes: int = _broker(
        "fetch.max.bytes", INT, 55 << 20, "The most bytes that one fetch is answered with.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = _broker(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "The most fetch sessions held at once.",
        at_least(0),
    )
    max_request_partition_size_limit: int = _broker(
        "max.request.partition.size.limit",
        INT,
        2000,
        "The most partitions that one DescribeTopicPartitions is answered with.",
        at_least(1),
    )
    num_io_threads: int = _broker(
        "num.io.threads",
        INT,
        8,
        "Threads for what blocks: fsync and reads from a cold disk. They start when they are needed.",
        at_least(1),
        importance=HIGH,
    )
    quota_window_num: int = _broker(
        "quota.window.num",
        INT,
        11,
        "Samples of a quota's window: all but one of them say how much a client that was silent may use at once.",
        at_least(1),
        importance=LOW,
    )
    quota_window_size_seconds: int = _broker(
        "quota.window.size.seconds", INT, 1, "The length of such a sample.", at_least(1), importance=LOW
    )
    controller_quota_window_num: int = _broker(
        "controller.quota.window.num",
        INT,
        11,
        "Samples of the window of controller_mutation_rate: a client may save up what they bring.",
        at_least(1),
        importance=LOW,
    )
    controller_quota_window_size_seconds: int = _broker(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "The length of such a sample.",
        at_least(1),
        importance=LOW,
    )
    unstable_api_versions_enable: bool = _broker(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        "Whether clients are offered versions of the protocol that Kafka has not declared stable.",
        importance=LOW,
    )

    # Compaction
    log_cleaner_enable: bool = _broker(
        "log.cleaner.enable", BOOLEAN, True, "Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_threads: int = _broker(
        "log.cleaner.threads",
        INT,
        1,
        "Logs that are compacted at once.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = _broker(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long compaction rests when no log needs it.",
        at_least(0),
    )
    log_cleaner_dedupe_buffer_size: int = _broker(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        "Memory for the keys of the logs under compaction, 24 bytes each, taken as far as they need it. A log with "
        "more keys is compacted in several goes.",
        at_least(1024),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = _broker(
        "log.cleaner.io.buffer.size",
        INT,
        512 << 10,
        "Memory for what compaction reads and writes; a larger batch takes what it needs.",
        at_least(0),
        importance=LOW,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = _broker(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "How full the memory for keys may get: the fuller, the more keys in one go, and the slower each.",
        between(0, 1),
        importance=LOW,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = _broker(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        1.7976931348623157e308,
        "Bytes that compaction reads and writes in a second, all logs together.",
        at_least(1),
        dynamic=Update.CLUSTER_WIDE,
    )

    # The log
    log_retention_check_interval_ms: int = _broker(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        "How often old segments are looked for.",
        at_least(1),
    )
    log_flush_offset_checkpoint_interval_ms: int = _broker(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        "How often the offsets known to be on disk are written down, from which recovery starts.",
        at_least(0),
    )
    producer_id_expiration_ms: int = _broker(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        "How long an idempotent producer that sends nothing is remembered.",
        at_least(1),
    )

    # Groups and their offsets
    group_min_session_timeout_ms: int = _broker(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        "The shortest session.timeout.ms that a member of a classic group may ask for.",
        at_least(1),
    )
    group_max_session_timeout_ms: int = _broker(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        "The longest session.timeout.ms that a member of a classic group may ask for.",
        at_least(1),
    )
    group_initial_rebalance_delay_ms: int = _broker(
        "group.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long an empty group waits for more members before it assigns partitions for the first time.",
        at_least(0),
    )
    group_max_size: int = _broker(
        "group.max.size", INT, INT_MAX, "The most members that a classic group may have.", at_least(1)
    )
    # Groups of the consumer protocol (KIP-848)
    group_consumer_heartbeat_interval_ms: int = _broker(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of a consumer group are told to send heartbeats; changes reach them that late.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = _broker(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a group may be given.",
        at_least(1),
    )
    group_consumer_max_heartbeat_interval_ms: int = _broker(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a group may be given.",
        at_least(1),
    )
    group_consumer_session_timeout_ms: int = _broker(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        "How long a member of a consumer group may be silent before it is removed.",
        at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = _broker(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session timeout that a group may be given.",
        at_least(1),
    )
    group_consumer_max_session_timeout_ms: int = _broker(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session timeout that a group may be given.",
        at_least(1),
    )
    group_consumer_assignment_interval_ms: int = _broker(
        "group.consumer.assignment.interval.ms",
        INT,
        1_000,
        "The least time between two assignments of a group, so that many arrivals make one rebalance; 0: no such time.",
        at_least(0),
    )
    group_consumer_min_assignment_interval_ms: int = _broker(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "The shortest assignment interval that a group may be given.",
        at_least(0),
    )
    group_consumer_max_assignment_interval_ms: int = _broker(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest assignment interval that a group may be given.",
        at_least(0),
    )
    group_consumer_max_size: int = _broker(
        "group.consumer.max.size",
        INT,
        INT_MAX,
        "The most members that a consumer group may have.",
        at_least(1),
    )
    group_consumer_assignors: tuple[str, ...] = _broker(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        "The assignors that members may choose from; the first is for groups that choose none.",
        _ASSIGNORS,
    )
    group_consumer_migration_policy: str = _broker(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether a group with members may go from the classic to the consumer protocol (upgrade), back (downgrade), or both.",
        _MIGRATION_POLICIES,
    )

    offset_metadata_max_bytes: int = _broker(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "The longest text that may be committed along with an offset.",
        at_least(0),
        importance=HIGH,
    )
    offsets_retention_minutes: int = _broker(
        "offsets.retention.minutes",
        INT,
        10_080,
        "How long offsets are kept once their group is empty; or once they were committed, for topics that a group does not "
        "read any more and for groups that never had members.",
        at_least(1),
        importance=HIGH,
    )
    offsets_retention_check_interval_ms: int = _broker(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        "How often offsets that expired are looked for.",
        at_least(1),
        importance=HIGH,
    )
    offsets_commit_timeout_ms: int = _broker(
        "offsets.commit.timeout.ms",
        INT,
        5000,
        "How long a commit of offsets may take to become durable, before its client is told to try again.",
        at_least(1),
        importance=HIGH,
    )
    offsets_topic_num_partitions: int = _broker(
        "offsets.topic.num.partitions",
        INT,
        50,
        "Partitions of __consumer_offsets, when it is made. Later the topic itself says how many there are.",
        at_least(1),
        importance=HIGH,
    )
    offsets_topic_segment_bytes: int = _broker(
        "offsets.topic.segment.bytes",
        INT,
        100 << 20,
        "Where the log of __consumer_offsets begins a new segment: small, so that it is compacted and loaded fast. "
        "Less than 1 MiB, which no topic may have, counts as that.",
        at_least(1),
        importance=HIGH,
    )

    topic_defaults: LogConfig = field(default_factory=LogConfig)
    """What a topic has that sets nothing itself."""
    originals: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was given to `load`, as text: the broker's static configuration. Not in its `repr`: it may hold
    passwords."""
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was changed on this running broker (`reconfigured`), as text: it outranks all else."""
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was changed for all running brokers, as text: it outranks `originals`."""

    @classmethod
    def load(cls, values: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """What `values` (Kafka's keys, as text) describe, and a warning for each that has no effect.

        ConfigError names every value that cannot be used, and what is allowed.
        """
        from odradek.config.loading import load

        return load(values)

    def reconfigured(
        self, defaults: Mapping[str, str], own: Mapping[str, str] = MappingProxyType({})
    ) -> BrokerConfig:
        """This configuration with dynamic settings on top of what it was loaded from: those of all brokers (`defaults`),
        and above them this broker's own. ConfigError as in `load`.

        Of the settings that are known, only those that a running broker may take are accepted.
        """
        from odradek.config.loading import reconfigure

        return reconfigure(self, defaults, own)


TWIN_UNIT_MS: Final = {".hours": 3_600_000, ".minutes": 60_000}
"""The endings of broker keys that count in another unit than the topic setting that they stand for."""


def _twin(topic: Setting, position: int) -> Setting:
    """The broker's setting at `position` among those that stand for a topic's setting.

    The strongest may change while the broker runs; the last carries the default, in its own unit.
    """
    key = topic.synonyms[position]
    unit_ms = next((ms for ending, ms in TWIN_UNIT_MS.items() if key.endswith(ending)), 1)
    default = topic.default
    if position + 1 < len(topic.synonyms):
        default = None
    elif isinstance(default, int) and unit_ms > 1:
        default //= unit_ms
    return Setting(
        key=key,
        type=INT if unit_ms > 1 else topic.type,
        default=default,
        meaning=f"For topics that do not set {topic.key}. {topic.meaning}",
        valid=topic.valid,
        importance=topic.importance,
        dynamic=Update.CLUSTER_WIDE if position == 0 else Update.READ_ONLY,
        synonyms=topic.synonyms[position + 1 :],
        effective=topic.effective,
    )


OLDER_NAMES: Final = (
    Setting(key="broker.id", type=INT, default=-1, meaning="The older name of node.id.", importance=LOW),
    Setting(
        key="log.dir",
        type=LIST,
        default=None,
        meaning="The data directory where log.dirs is not set; by default in the user's XDG data home.",
        importance=HIGH,
    ),
)

_unsupported = unsupported_settings()
UNSUPPORTED: Final[dict[str, str]] = {setting.key: reason for setting, reason in _unsupported}
"""Known keys without effect, and how the warning about each ends."""

BROKER_ATTRIBUTES: Final[dict[str, str]] = {
    setting.key: attribute for attribute, setting in declared(BrokerConfig).items()
}
"""The attribute of `BrokerConfig` that carries each key."""

TWINS: Final[dict[str, str]] = {
    key: TOPIC_ATTRIBUTES[topic.key] for topic in TOPIC_SETTINGS.values() for key in topic.synonyms
}
"""The attribute of `LogConfig` that each broker twin of a topic setting stands for."""

BROKER_SETTINGS: Final[dict[str, Setting]] = by_key(
    [
        *declared(BrokerConfig).values(),
        *OLDER_NAMES,
        *(
            _twin(topic, position)
            for topic in TOPIC_SETTINGS.values()
            for position in range(len(topic.synonyms))
        ),
        *(setting for setting, _ in _unsupported),
    ]
)
