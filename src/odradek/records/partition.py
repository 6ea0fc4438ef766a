"""Maps a key to a partition by the Java client's rule, so that producers in every language agree."""

from __future__ import annotations

from odradek.records import engine


def murmur2(key: bytes) -> int:
    """Returns the Java client's hash, as a signed 32-bit number."""
    return engine.active.murmur2(key)


def partition_of(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key. The sign bit is cleared, not negated, exactly as Java does it."""
    return (engine.active.murmur2(key) & 0x7FFF_FFFF) % partition_count
