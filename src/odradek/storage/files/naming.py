"""Names of files and directories: Kafka's own, so that its tools and its users find their way.

A partition's directory is `<topic>-<partition>`. A segment is a set of files that share the 20 digits of its base offset.
A second suffix marks a file that is being added or removed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from uuid import UUID

from odradek.model.ids import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
INDEX_SUFFIXES: Final = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED: Final = ".deleted"
"""Renamed by retention, to be removed."""
CLEANED: Final = ".cleaned"
"""A compaction that did not end."""
SWAP: Final = ".swap"
"""A compaction that did end: this file replaces the segments it covers."""
TEMPORARY: Final = ".tmp"
"""A `Disk.replace` that did not end."""
CUT: Final = ".cut"
"""Ours: good batches that recovery found after a bad one, kept for inspection by a person."""

TRUNCATION: Final = "truncation"
"""Ours: the end of a log is being taken away, or was, and checkpoints may not know it yet."""
START_OFFSET: Final = "log-start-offset"
"""Ours, in a partition's directory: where its log begins, once that is not where its first segment does."""
TRANSACTION_SUMS: Final = "transaction-index-sums"
"""Ours, in a partition's directory: the CRCs of its transaction indexes, which have no checksum in them."""
LACK_NOTE: Final = "lacks-records"
"""Ours, in a partition's directory: its log has not all that it had (`lack_notes.py`)."""
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
START_OFFSETS: Final = "log-start-offset-checkpoint"
START_OFFSETS_SUMS: Final = "log-start-offset-checkpoint-sums"
"""Ours: what the CRC of the file of that name may be."""
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
HELD_REPLICAS: Final = "held-replicas"
"""Ours: the partitions whose logs were made in the directory, each with its topic's id."""
GENERATION: Final = "generation"
"""Ours: how new the content of the directory is (`generation.py`)."""
EXTENTS: Final = "log-extents"
"""Ours, in a data directory: from where to where its logs are durable, second by second."""
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
DELETED_DIRECTORY: Final = "-delete"
STRAY_DIRECTORY: Final = "-stray"
"""A partition that belongs to no topic that is known, set aside for a person to look at."""

_OFFSET_DIGITS: Final = 20
_OFFSET_FILE = re.compile(r"([0-9]{20})(\.[a-z]+)((?:\.[a-z0-9]+)*)\Z")
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\Z")
_DIRECTORY_NAME_MAX: Final = 255


class OffsetFile(NamedTuple):
    """A file named after an offset: `kind` is `.log`, `.index`, ...; `state` is "" or what follows it (`.deleted`, ...)."""

    offset: int
    kind: str
    state: str


def offset_file(offset: int, kind: str) -> str:
    return f"{offset:0{_OFFSET_DIGITS}d}{kind}"


def parse_offset_file(name: str) -> OffsetFile | None:
    """Returns None for a file that is not named after an offset."""
    match = _OFFSET_FILE.match(name)
    return OffsetFile(int(match[1]), match[2], match[3]) if match else None


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Returns None for a directory that does not hold a live partition."""
    match = _PARTITION_DIRECTORY.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def retired_directory(topic_partition: TopicPartition, unique: UUID, suffix: str) -> str:
    """Returns the name of a partition on its way out. A long topic name is cut so that the whole is a legal file name."""
    tail = f".{unique.hex}{suffix}"
    return str(topic_partition)[: _DIRECTORY_NAME_MAX - len(tail)] + tail


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}"


def parent(path: str) -> str:
    return path.rpartition("/")[0]
