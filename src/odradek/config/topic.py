"""The settings of a topic: Kafka 4's keys, defaults and bounds, and one of our own (`flush.before.ack`).

Each setting names the broker keys that give it its value where the topic does not set it. The broker's twins
of these settings (`log.retention.ms`, `message.max.bytes`, ...) are generated from this file, so that nothing
is declared twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from odradek.config.definition import (
    LONG_MAX,
    Bounds,
    Importance,
    Scope,
    Setting,
    SettingType,
    any_of,
    at_least,
    between,
    by_key,
    declare,
    declared,
    nearest,
    one_of,
)
from odradek.model.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

BOOLEAN, STRING, LIST = SettingType.BOOLEAN, SettingType.STRING, SettingType.LIST
INT, LONG, DOUBLE = SettingType.INT, SettingType.LONG, SettingType.DOUBLE

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
DECOMPRESSED_BYTES_MAX: Final = 2**31 - 9
COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_GZIP_LEVEL = Bounds(allowed="1 to 9, or -1", accepts=lambda level: level == -1 or 1 <= level <= 9)


def _topic(
    key: str,
    type_: SettingType,
    default: object,
    broker: str,
    meaning: str,
    valid: Bounds | None = None,
    **other: Any,
) -> Any:
    """Declare a topic setting. `broker`: its broker keys, the strongest first, or "" where there is none."""
    setting = Setting(
        key=key,
        type=type_,
        default=default,
        meaning=meaning,
        valid=valid,
        scope=Scope.TOPIC,
        synonyms=tuple(broker.split()),
        **other,
    )
    return declare(setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What governs the log of one topic's partitions. `LogConfig()` has Kafka's defaults."""

    cleanup_policy: frozenset[str] = _topic(
        "cleanup.policy",
        LIST,
        frozenset({"delete"}),
        "log.cleanup.policy",
        "How old data goes: 'delete' drops whole segments by age and size, 'compact' keeps the newest value "
        "of each key, both together do both, and nothing at all keeps everything.",
        any_of("compact", "delete"),
    )
    compression_type: str = _topic(
        "compression.type",
        STRING,
        "producer",
        "compression.type",
        "The codec of stored batches. 'producer' stores them as they came.",
        one_of(*COMPRESSION_TYPES),
    )
    compression_gzip_level: int = _topic(
        "compression.gzip.level",
        INT,
        -1,
        "compression.gzip.level",
        "Effort of gzip where the broker compresses; -1 is the codec's own choice.",
        _GZIP_LEVEL,
    )
    compression_lz4_level: int = _topic(
        "compression.lz4.level",
        INT,
        9,
        "compression.lz4.level",
        "Effort of lz4 where the broker compresses.",
        between(1, 17),
    )
    compression_zstd_level: int = _topic(
        "compression.zstd.level",
        INT,
        3,
        "compression.zstd.level",
        "Effort of zstd where the broker compresses.",
        between(-131072, 22),
    )
    delete_retention_ms: int = _topic(
        "delete.retention.ms",
        LONG,
        DAY_MS,
        "log.cleaner.delete.retention.ms",
        "How long a compacted topic keeps a tombstone (a null value), for readers that began before it.",
        at_least(0),
    )
    errors_deadletterqueue_group_enable: bool = _topic(
        "errors.deadletterqueue.group.enable",
        BOOLEAN,
        False,
        "",
        "Whether share groups may send records that they gave up on to this topic.",
        effective=False,
    )
    file_delete_delay_ms: int = _topic(
        "file.delete.delay.ms",
        LONG,
        60_000,
        "log.segment.delete.delay.ms",
        "How long the files of a deleted segment stay on disk, so that running reads can end.",
        at_least(0),
        importance=Importance.LOW,
    )
    flush_before_ack: bool = _topic(
        "flush.before.ack",
        BOOLEAN,
        True,
        "log.flush.before.ack",
        "Odradek's own: whether acks=all is answered only after fsync. False gives Kafka's promise: "
        "the record is in the page cache.",
        importance=Importance.HIGH,
    )
    flush_messages: int = _topic(
        "flush.messages",
        LONG,
        LONG_MAX,
        "log.flush.interval.messages",
        "Fsync after this many records, whatever their acks.",
        at_least(1),
    )
    flush_ms: int = _topic(
        "flush.ms",
        LONG,
        LONG_MAX,
        "log.flush.interval.ms log.flush.scheduler.interval.ms",
        "Fsync what is older than this, whatever its acks.",
        at_least(0),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = _topic(
        "follower.replication.throttled.replicas",
        LIST,
        (),
        "",
        "Partition:broker pairs whose copying is slowed down on the follower's side; * for all.",
    )
    index_interval_bytes: int = _topic(
        "index.interval.bytes",
        INT,
        4096,
        "log.index.interval.bytes",
        "Bytes of log between two entries of its indexes.",
        at_least(0),
        importance=Importance.LOW,
    )
    internal_segment_bytes: int | None = _topic(
        "internal.segment.bytes",
        INT,
        None,
        "",
        "For tests: a segment size below what segment.bytes allows.",
        at_least(1),
        internal=True,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = _topic(
        "leader.replication.throttled.replicas",
        LIST,
        (),
        "",
        "Partition:broker pairs whose copying is slowed down on the leader's side; * for all.",
    )
    local_retention_bytes: int = _topic(
        "local.retention.bytes",
        LONG,
        -2,
        "log.local.retention.bytes",
        "With tiered storage: bytes of a partition kept on local disk; -2 follows retention.bytes.",
        at_least(-2),
        effective=False,
    )
    local_retention_ms: int = _topic(
        "local.retention.ms",
        LONG,
        -2,
        "log.local.retention.ms",
        "With tiered storage: how long data stays on local disk; -2 follows retention.ms.",
        at_least(-2),
        effective=False,
    )
    max_compaction_lag_ms: int = _topic(
        "max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        "log.cleaner.max.compaction.lag.ms",
        "The longest that a record of a compacted topic may wait for compaction.",
        at_least(1),
    )
    max_decompressed_message_bytes: int = _topic(
        "max.decompressed.message.bytes",
        INT,
        DECOMPRESSED_BYTES_MAX,
        "max.decompressed.message.bytes",
        "The largest record, once decompressed, that is accepted.",
        between(1, DECOMPRESSED_BYTES_MAX),
        effective=False,
    )
    max_message_bytes: int = _topic(
        "max.message.bytes",
        INT,
        1_048_588,
        "message.max.bytes",
        "The largest record batch, as compressed by its producer, that is accepted.",
        at_least(0),
        importance=Importance.HIGH,
    )
    message_timestamp_after_max_ms: int = _topic(
        "message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        "log.message.timestamp.after.max.ms",
        "How far a record's CreateTime may lie ahead of the broker's clock.",
        at_least(0),
    )
    message_timestamp_before_max_ms: int = _topic(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        "log.message.timestamp.before.max.ms",
        "How far a record's CreateTime may lie behind the broker's clock.",
        at_least(0),
    )
    message_timestamp_type: str = _topic(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "Whose clock stamps records: the producer's (CreateTime) or the broker's on arrival (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = _topic(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        "log.cleaner.min.cleanable.ratio",
        "The part of a compacted log that must be uncompacted before it is compacted again.",
        between(0, 1),
    )
    min_compaction_lag_ms: int = _topic(
        "min.compaction.lag.ms",
        LONG,
        0,
        "log.cleaner.min.compaction.lag.ms",
        "How long a record of a compacted topic stays untouched.",
        at_least(0),
    )
    min_insync_replicas: int = _topic(
        "min.insync.replicas",
        INT,
        1,
        "min.insync.replicas",
        "How many replicas must hold a record before acks=all is answered; with fewer in sync it is refused.",
        at_least(1),
        importance=Importance.HIGH,
    )
    preallocate: bool = _topic(
        "preallocate",
        BOOLEAN,
        False,
        "log.preallocate",
        "Whether a new segment's file takes its full size on disk at once.",
        effective=False,
    )
    remote_copy_lag_bytes: int = _topic(
        "remote.copy.lag.bytes",
        LONG,
        -1,
        "log.remote.copy.lag.bytes",
        "With tiered storage: newer bytes that must follow a segment before it is copied away.",
        at_least(-1),
        effective=False,
    )
    remote_copy_lag_ms: int = _topic(
        "remote.copy.lag.ms",
        LONG,
        0,
        "log.remote.copy.lag.ms",
        "With tiered storage: how long a segment waits before it is copied away.",
        at_least(-1),
        effective=False,
    )
    remote_log_copy_disable: bool = _topic(
        "remote.log.copy.disable",
        BOOLEAN,
        False,
        "",
        "With tiered storage: stop copying to it while still reading from it.",
        effective=False,
    )
    remote_log_delete_on_disable: bool = _topic(
        "remote.log.delete.on.disable",
        BOOLEAN,
        False,
        "",
        "With tiered storage: delete the remote part when the topic leaves it.",
        effective=False,
    )
    remote_storage_enable: bool = _topic(
        "remote.storage.enable",
        BOOLEAN,
        False,
        "",
        "Tiered storage for this topic. Not offered: true is refused.",
        Bounds(allowed="and only false, as there is no tiered storage", accepts=lambda value: value is False),
    )
    retention_bytes: int = _topic(
        "retention.bytes",
        LONG,
        -1,
        "log.retention.bytes",
        "Bytes that each partition may hold before its oldest segments go; -1 sets no limit.",
        importance=Importance.HIGH,
    )
    retention_ms: int = _topic(
        "retention.ms",
        LONG,
        7 * DAY_MS,
        "log.retention.ms log.retention.minutes log.retention.hours",
        "How long records are kept; -1 keeps them for ever.",
        at_least(-1),
        importance=Importance.HIGH,
    )
    segment_bytes: int = _topic(
        "segment.bytes",
        INT,
        1 << 30,
        "log.segment.bytes",
        "The size at which a new segment file is begun. Whole segments are deleted, never parts.",
        at_least(1 << 20),
    )
    segment_index_bytes: int = _topic(
        "segment.index.bytes",
        INT,
        10 << 20,
        "log.index.size.max.bytes",
        "The largest size of a segment's offset index; a full index begins a new segment.",
        at_least(4),
        importance=Importance.LOW,
    )
    segment_jitter_ms: int = _topic(
        "segment.jitter.ms",
        LONG,
        0,
        "log.roll.jitter.ms log.roll.jitter.hours",
        "The most by which segment.ms is shortened at random, so that not all partitions roll at once.",
        at_least(0),
        importance=Importance.LOW,
    )
    segment_ms: int = _topic(
        "segment.ms",
        LONG,
        7 * DAY_MS,
        "log.roll.ms log.roll.hours",
        "The age at which a new segment is begun although the current one is not full.",
        at_least(1),
    )
    unclean_leader_election_enable: bool = _topic(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "unclean.leader.election.enable",
        "Whether a replica that may lack acknowledged records may lead when no other is left. It loses data.",
    )


TOPIC_SETTINGS: Final[dict[str, Setting]] = by_key(declared(LogConfig).values())
TOPIC_ATTRIBUTES: Final[dict[str, str]] = {
    setting.key: attribute for attribute, setting in declared(LogConfig).items()
}
"""The attribute of `LogConfig` that carries each key."""


def topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """What governs a topic that sets `overrides` on this broker.

    Raises KafkaError INVALID_CONFIG naming the key, the value, and what is allowed.
    """
    values: dict[str, Any] = {}
    for key, text in overrides.items():
        setting = TOPIC_SETTINGS.get(key)
        if setting is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, _unknown(key))
        try:
            values[TOPIC_ATTRIBUTES[key]] = setting.parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    config = replace(broker.topic_defaults, **values)
    _check_agreement(config)
    if config.internal_segment_bytes is not None:
        config = replace(config, segment_bytes=config.internal_segment_bytes)
    return config


def ineffective(overrides: Mapping[str, str]) -> list[str]:
    """A warning for each of a topic's settings that this version accepts and does not act upon."""
    known = (TOPIC_SETTINGS.get(key) for key in overrides)
    return [
        f"topic setting {setting.key} is not supported yet and has no effect"
        for setting in known
        if setting is not None and not setting.effective
    ]


def _unknown(key: str) -> str:
    meant = nearest(key, (setting.key for setting in TOPIC_SETTINGS.values() if not setting.internal))
    hint = f"; did you mean {meant}?" if meant else ""
    return f"Unknown topic config name: {key}{hint}"


def _check_agreement(config: LogConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} is not allowed: it is above "
            f"max.compaction.lag.ms={config.max_compaction_lag_ms}",
        )
