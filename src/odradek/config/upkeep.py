"""The settings of what a broker does to its logs unasked: a part of `BrokerConfig` (`broker.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.definition import Importance, SettingType, Update, at_least, between, setting_field
from odradek.config.network import NetworkConfig

BOOLEAN, INT, LONG, DOUBLE = SettingType.BOOLEAN, SettingType.INT, SettingType.LONG, SettingType.DOUBLE


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class UpkeepConfig(NetworkConfig):
    """Compaction, the search for what is old, and what is known to be on disk."""

    # Compaction
    log_cleaner_enable: bool = setting_field(
        "log.cleaner.enable", BOOLEAN, True, "Whether topics with cleanup.policy=compact are compacted."
    )
    log_cleaner_threads: int = setting_field(
        "log.cleaner.threads",
        INT,
        1,
        "Logs that are compacted at once.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_backoff_ms: int = setting_field(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long compaction rests when no log needs it.",
        at_least(0),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = setting_field(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        "Memory for the keys of the logs under compaction, 24 bytes each, taken as far as they need it. A log with "
        "more keys is compacted in several goes.",
        at_least(1024),
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_size: int = setting_field(
        "log.cleaner.io.buffer.size",
        INT,
        512 << 10,
        "Memory for what compaction reads and writes; a larger batch takes what it needs.",
        at_least(0),
        importance=Importance.LOW,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = setting_field(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "How full the memory for keys may get: the fuller, the more keys in one go, and the slower each.",
        between(0, 1),
        importance=Importance.LOW,
        dynamic=Update.CLUSTER_WIDE,
    )
    log_cleaner_io_max_bytes_per_second: float = setting_field(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        1.7976931348623157e308,
        "Bytes that compaction reads and writes in a second, all logs together.",
        at_least(1),
        dynamic=Update.CLUSTER_WIDE,
    )

    log_retention_check_interval_ms: int = setting_field(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        "How often old segments are looked for.",
        at_least(1),
    )
    log_flush_offset_checkpoint_interval_ms: int = setting_field(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        "How often the offsets known to be on disk are written down, from which recovery starts.",
        at_least(0),
    )
    producer_id_expiration_ms: int = setting_field(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        "How long an idempotent producer that sends nothing is remembered.",
        at_least(1),
        dynamic=Update.CLUSTER_WIDE,
    )
