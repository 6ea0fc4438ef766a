"""Logs with many versions of few keys, ready to be compacted."""

from __future__ import annotations

from tests.simulation.compaction.keyed_log import HOME, PARTITION, KeyedLog

from odradek.config.topic import LogConfig

EAGER = LogConfig(
    segment_bytes=2000, index_interval_bytes=300, min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000
)
DIRECTORY = f"{HOME}/{PARTITION}"


def filled(config: LogConfig = EAGER, *, count: int = 60, seed: int = 0, **more: object) -> KeyedLog:
    """`count` batches of two records with few keys, in several segments, all durable."""
    keyed = KeyedLog(config, seed=seed, **more)  # type: ignore[arg-type]
    for number in range(count):
        keyed.write((b"k%d" % (number % 5), b"%d" % number * 20), (b"once %d" % number, b"x"))
    keyed.flush()
    return keyed


def keys(keyed: KeyedLog) -> list[bytes | None]:
    return [record.key for record in keyed.records()]


def files(keyed: KeyedLog, suffix: str = "") -> list[str]:
    return [name for name in keyed.disk.list_directory(DIRECTORY) if name.endswith(suffix)]


class Fixed:
    """What a cleaner asks of a partition; nothing of it moves."""

    def __init__(self, keyed: KeyedLog) -> None:
        self.log = keyed.log
        self.last_stable_offset = keyed.log.flushed_offset

    def flush_if_due(self) -> None: ...
