"""The `.txnindex` of a segment, in Kafka's format: the aborted transactions that ended in it.

34 bytes each: version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64. Written and
read once there are transactions; the file exists in Kafka only where a segment has entries, and so it does here.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction whose records must not be read: the producer's, from the first offset to the last, its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Where it was when the marker was written; it ends the search for entries that concern an offset."""


def encode_aborted(entry: AbortedTransaction) -> bytes:
    return ENTRY.pack(_VERSION, *entry)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """All entries; ValueError when the bytes are not whole entries of a known version."""
    if len(data) % ENTRY.size:
        raise ValueError(f"{len(data)} bytes are not a multiple of {ENTRY.size}")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise ValueError(f"version {version} is unknown")
        entries.append(AbortedTransaction(*fields))
    return entries
