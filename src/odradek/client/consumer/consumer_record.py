"""A record as a consumer hands it out."""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.records import Header, TimestampType


class ConsumerRecord(NamedTuple):
    """A record and where it was. A tuple and not a dataclass: millions of them are made."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since 1970; -1 where the producer gave none."""
    timestamp_type: TimestampType
    key: Any
    """bytes or None, or what the key_deserializer made of it."""
    value: Any
    """bytes or None (a tombstone in a compacted topic), or what the value_deserializer made of it."""
    headers: tuple[Header, ...]
    leader_epoch: int
    """-1 where the broker does not say."""
