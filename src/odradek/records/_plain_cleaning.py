"""The key map of compaction, and new bases for timestamps, in plain Python: the readable twin of `_fast_cleaning.py`.

The two hash keys in different ways (here BLAKE2, there SipHash): nothing outside of a map sees a hash.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from odradek.records._plain import _read_varint, _read_varlong, _varint, each_record
from odradek.records.cleaning import SLOT_BYTES, Sieved
from odradek.records.frame import Frame
from odradek.records.record import TimestampType
from odradek.runtime.ports import Buffer

_HEADER_BYTES: Final = 61
_HASH_BYTES: Final = 16
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_NO_TIMESTAMP: Final = -1


class KeyMap:
    """The key map of compaction as a dict; see `cleaning.KeyMap` for its methods. It takes several times the memory that it
    reports, and has the same limit of keys."""

    __slots__ = ("_key_count_max", "_last", "_seed", "size_bytes")

    def __init__(self, slot_count: int, key_count_max: int, seed: bytes) -> None:
        self._seed = seed
        self._last: dict[bytes, int] = {}
        self._key_count_max = min(key_count_max, slot_count - 1)
        self.size_bytes = slot_count * SLOT_BYTES

    @property
    def key_count(self) -> int:
        return len(self._last)

    def _hash(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_HASH_BYTES, key=self._seed).digest()

    def note(self, data: Buffer, frame: Frame, from_offset: int) -> int:
        last, raw = self._last, bytes(data)
        for _, delta, key_start, key_stop, _, _, _ in each_record(raw, frame):
            offset = frame.base_offset + delta
            if offset < from_offset or key_stop < 0:
                continue
            key = self._hash(raw[key_start:key_stop])
            if key not in last and len(last) >= self._key_count_max:
                return offset
            last[key] = offset
        return -1

    def sieve(self, data: Buffer, frame: Frame, end_offset: int, drops_tombstones: bool) -> Sieved:
        raw = bytes(data)
        kept = bytearray(_HEADER_BYTES)
        count, latest, tombstones, position = 0, _NO_TIMESTAMP, 0, 0
        for timestamp, delta, key_start, key_stop, _, value_stop, _ in each_record(raw, frame):
            start = position
            length, position = _read_varint(raw, position)
            position += length
            offset, is_tombstone = frame.base_offset + delta, value_stop < 0
            if offset < end_offset:
                if key_stop < 0 or (is_tombstone and drops_tombstones):
                    continue
                if offset < self._last.get(self._hash(raw[key_start:key_stop]), -1):
                    continue
            kept += raw[start:position]
            latest = timestamp if not count else max(latest, timestamp)
            count += 1
            tombstones += is_tombstone
        return Sieved(None if count == frame.record_count else kept, count, latest, tombstones)


def rebase(data: Buffer, frame: Frame, base_timestamp: int) -> bytearray:
    """See `cleaning.CleaningEngine`."""
    raw = bytes(data)
    out = bytearray(_HEADER_BYTES)
    is_append_time = frame.timestamp_type is TimestampType.LOG_APPEND_TIME
    position = 0
    for timestamp, *_ in each_record(raw, frame):
        first = position
        length, start = _read_varint(raw, first)
        position = start + length
        if is_append_time:  # the distances mean nothing: they stay
            out += raw[first:position]
            continue
        delta = timestamp - base_timestamp
        if not _INT64_MIN <= delta <= _INT64_MAX:
            raise OverflowError("a timestamp's distance from the batch's base must fit in 64 bits")
        rest = _read_varlong(raw, start + 1)[1]
        body = raw[start : start + 1] + _varint(delta) + raw[rest:position]
        out += _varint(len(body)) + body
    return out
