"""The settings of a topic: Kafka 4's keys, defaults and bounds, and one of our own (`flush.before.ack`).

Each setting names the broker keys that give it its value where the topic does not set it. The broker's twins
of these settings (`log.retention.ms`, `message.max.bytes`, ...) are generated from this file, so that nothing
is declared twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from odradek.config.definition import (
    LONG_MAX,
    Bounds,
    Scope,
    Setting,
    any_of,
    at_least,
    between,
    by_key,
    one_of,
)
from odradek.config.section import (
    HIGH,
    LIST,
    LOW,
    Boolean,
    Double,
    Int,
    List,
    Long,
    Section,
    String,
    section,
    setting,
)
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.near_names import KEYS_ALIKE, near_hint

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
DECOMPRESSED_BYTES_MAX: Final = 2**31 - 9
COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_THROTTLED: Final = re.compile(r"[0-9]+:[0-9]+\Z")
_THROTTLED_REPLICAS: Final = Bounds(
    allowed="* or pairs PARTITION:BROKER",
    accepts=lambda pairs: pairs == ("*",) or all(not pair or _THROTTLED.match(pair) for pair in pairs),
)
_GZIP_LEVEL = Bounds(allowed="1 to 9, or -1", accepts=lambda level: level == -1 or 1 <= level <= 9)


@section(scope=Scope.TOPIC)
class LogConfig(Section):
    """The settings of the log of one topic's partitions. `LogConfig()` has Kafka's defaults."""

    # fmt: off
    cleanup_policy: frozenset[str] = setting(default=frozenset({"delete"}), valid=any_of("compact", "delete"),
        broker="log.cleanup.policy", type_=LIST, meaning=
        "How old data goes: 'delete' drops whole segments by age and size, 'compact' keeps the newest value of each key, both "
        "together do both, and nothing at all keeps everything.")
    compression_type: String = setting(default="producer", valid=one_of(*COMPRESSION_TYPES),
        broker="compression.type", meaning=
        "The codec of stored batches. 'producer' stores them as they came.")
    compression_gzip_level: Int = setting(default=-1, valid=_GZIP_LEVEL, broker="compression.gzip.level", meaning=
        "Effort of gzip where the broker compresses; -1 is the codec's own choice.")
    compression_lz4_level: Int = setting(default=9, valid=between(1, 17), broker="compression.lz4.level", meaning=
        "Effort of lz4 where the broker compresses.")
    compression_zstd_level: Int = setting(default=3, valid=between(-131072, 22), broker="compression.zstd.level",
        meaning=
        "Effort of zstd where the broker compresses.")
    delete_retention_ms: Long = setting(default=DAY_MS, valid=at_least(0), broker="log.cleaner.delete.retention.ms",
        meaning=
        "How long a compacted topic keeps a tombstone (a null value), for readers that began before it.")
    errors_deadletterqueue_group_enable: Boolean = setting(default=False, meaning=
        "Whether share groups may send records that they gave up on to this topic (KIP-1191).")
    file_delete_delay_ms: Long = setting(default=60_000, valid=at_least(0), broker="log.segment.delete.delay.ms",
        importance=LOW, meaning=
        "How long the files of a deleted segment stay on disk, so that running reads can end.")
    flush_before_ack: Boolean = setting(default=True, broker="log.flush.before.ack", importance=HIGH, meaning=
        "Odradek's own: whether acks=all is answered only after fsync. False gives Kafka's promise: the record is in the page "
        "cache.")
    flush_messages: Long = setting(default=LONG_MAX, valid=at_least(1), broker="log.flush.interval.messages", meaning=
        "Fsync after this many records, whatever their acks.")
    flush_ms: Long = setting(default=LONG_MAX, valid=at_least(0),
        broker="log.flush.interval.ms log.flush.scheduler.interval.ms", meaning=
        "Fsync what is older than this, whatever its acks.")
    follower_replication_throttled_replicas: List = setting(default=(), valid=_THROTTLED_REPLICAS, meaning=
        "Partition:broker pairs whose copying is slowed down on the follower's side; * for all.")
    index_interval_bytes: Int = setting(default=4096, valid=at_least(0), broker="log.index.interval.bytes",
        importance=LOW, meaning=
        "Bytes of log between two entries of its indexes.")
    internal_segment_bytes: Int | None = setting(default=None, valid=at_least(1), internal=True, meaning=
        "For tests: a segment size below what segment.bytes allows.")
    leader_replication_throttled_replicas: List = setting(default=(), valid=_THROTTLED_REPLICAS, meaning=
        "Partition:broker pairs whose copying is slowed down on the leader's side; * for all.")
    local_retention_bytes: Long = setting(default=-2, valid=at_least(-2), broker="log.local.retention.bytes",
        effective=False, meaning=
        "With tiered storage: bytes of a partition kept on local disk; -2 follows retention.bytes.")
    local_retention_ms: Long = setting(default=-2, valid=at_least(-2), broker="log.local.retention.ms",
        effective=False, meaning=
        "With tiered storage: how long data stays on local disk; -2 follows retention.ms.")
    max_compaction_lag_ms: Long = setting(default=LONG_MAX, valid=at_least(1),
        broker="log.cleaner.max.compaction.lag.ms", meaning=
        "The longest that a record of a compacted topic may wait for compaction.")
    max_decompressed_message_bytes: Int = setting(default=DECOMPRESSED_BYTES_MAX,
        valid=between(1, DECOMPRESSED_BYTES_MAX), broker="max.decompressed.message.bytes", meaning=
        "The largest record, once decompressed, that is accepted in a compressed batch.")
    max_message_bytes: Int = setting(default=1_048_588, valid=at_least(0), broker="message.max.bytes",
        importance=HIGH, meaning=
        "The largest record batch, as compressed by its producer, that is accepted.")
    message_timestamp_after_max_ms: Long = setting(default=HOUR_MS, valid=at_least(0),
        broker="log.message.timestamp.after.max.ms", meaning=
        "How far a record's CreateTime may be ahead of the broker's clock.")
    message_timestamp_before_max_ms: Long = setting(default=LONG_MAX, valid=at_least(0),
        broker="log.message.timestamp.before.max.ms", meaning=
        "How far a record's CreateTime may be before the broker's clock.")
    message_timestamp_type: String = setting(default="CreateTime", valid=one_of("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type", meaning=
        "Whose clock stamps records: the producer's (CreateTime) or the broker's on arrival (LogAppendTime).")
    min_cleanable_dirty_ratio: Double = setting(default=0.5, valid=between(0, 1),
        broker="log.cleaner.min.cleanable.ratio", meaning=
        "The part of a compacted log that must be uncompacted before it is compacted again.")
    min_compaction_lag_ms: Long = setting(default=0, valid=at_least(0), broker="log.cleaner.min.compaction.lag.ms",
        meaning=
        "How long a record of a compacted topic stays untouched.")
    min_insync_replicas: Int = setting(default=1, valid=at_least(1), broker="min.insync.replicas", importance=HIGH,
        meaning=
        "How many replicas must hold a record before acks=all is answered; with fewer in sync it is refused.")
    preallocate: Boolean = setting(default=False, broker="log.preallocate", effective=False, meaning=
        "Whether a new segment's file takes its full size on disk at once.")
    remote_copy_lag_bytes: Long = setting(default=-1, valid=at_least(-1), broker="log.remote.copy.lag.bytes",
        effective=False, meaning=
        "With tiered storage: newer bytes that must follow a segment before it is copied away.")
    remote_copy_lag_ms: Long = setting(default=0, valid=at_least(-1), broker="log.remote.copy.lag.ms",
        effective=False, meaning=
        "With tiered storage: how long a segment waits before it is copied away.")
    remote_log_copy_disable: Boolean = setting(default=False, effective=False, meaning=
        "With tiered storage: stop copying to it while still reading from it.")
    remote_log_delete_on_disable: Boolean = setting(default=False, effective=False, meaning=
        "With tiered storage: delete the remote part when the topic leaves it.")
    remote_storage_enable: Boolean = setting(default=False,
        valid=Bounds(allowed="and only false, as there is no tiered storage", accepts=lambda value: value is False),
        meaning=
        "Tiered storage for this topic. Not offered: true is refused.")
    retention_bytes: Long = setting(default=-1, broker="log.retention.bytes", importance=HIGH, meaning=
        "Bytes that each partition may hold before its oldest segments go; -1 sets no limit.")
    retention_ms: Long = setting(default=7 * DAY_MS, valid=at_least(-1),
        broker="log.retention.ms log.retention.minutes log.retention.hours", importance=HIGH, meaning=
        "How long records are kept; -1 sets no limit.")
    segment_bytes: Int = setting(default=1 << 30, valid=at_least(1 << 20), broker="log.segment.bytes", meaning=
        "The size at which a new segment file is begun. Whole segments are deleted, never parts.")
    segment_index_bytes: Int = setting(default=10 << 20, valid=at_least(4), broker="log.index.size.max.bytes",
        importance=LOW, meaning=
        "The largest size of a segment's offset index; a full index begins a new segment.")
    segment_jitter_ms: Long = setting(default=0, valid=at_least(0), broker="log.roll.jitter.ms log.roll.jitter.hours",
        importance=LOW, meaning=
        "The most by which segment.ms is shortened at random, so that not all partitions roll at once.")
    segment_ms: Long = setting(default=7 * DAY_MS, valid=at_least(1), broker="log.roll.ms log.roll.hours", meaning=
        "The age at which a new segment is begun although the current one is not full.")
    unclean_leader_election_enable: Boolean = setting(default=False, broker="unclean.leader.election.enable", meaning=
        "Whether a replica that may lack acknowledged records may lead when no other is left. It loses data.")
    # fmt: on


TOPIC_SETTINGS: Final[dict[str, Setting]] = by_key(LogConfig.settings.values())
TOPIC_ATTRIBUTES: Final[dict[str, str]] = {
    setting.key: attribute for attribute, setting in LogConfig.settings.items()
}
"""The attribute of `LogConfig` that carries each key."""


class TopicDefaults(Protocol):
    """The settings of a broker, as far as its topics are concerned."""

    @property
    def log(self) -> LogConfig:
        """The settings of a topic that sets nothing itself."""


def topic_config(overrides: Mapping[str, str], broker: TopicDefaults) -> LogConfig:
    """Returns the settings of a topic that sets `overrides` on this broker.

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
    config = replace(broker.log, **values)
    _check_agreement(config)
    if config.internal_segment_bytes is not None:
        config = replace(config, segment_bytes=config.internal_segment_bytes)
    return config


def ineffective(overrides: Mapping[str, str]) -> list[str]:
    """Returns a warning for each of a topic's settings that this version accepts and ignores."""
    known = (TOPIC_SETTINGS.get(key) for key in overrides)
    return [
        f"topic setting {setting.key} is not supported yet and has no effect"
        for setting in known
        if setting is not None and not setting.effective
    ]


def _unknown(key: str) -> str:
    known = (setting.key for setting in TOPIC_SETTINGS.values() if not setting.internal)
    hint = near_hint(key, known, likeness=KEYS_ALIKE)
    return f"Unknown topic config name: {key}{hint}"


def _check_agreement(config: LogConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms={config.min_compaction_lag_ms} is not allowed: it is above "
            f"max.compaction.lag.ms={config.max_compaction_lag_ms}",
        )
