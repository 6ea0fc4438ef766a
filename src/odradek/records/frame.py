"""The inputs and results of an engine, other than the bytes themselves."""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.records.record import TimestampType

RECORD_BYTES_MIN: Final = 7
"""Seven fields of a byte each: a header that counts more records than this many bytes can hold is wrong."""


class Frame(NamedTuple):
    """The fields of a batch's header that describe its records, as both engines get them."""

    record_count: int
    last_offset_delta: int
    base_offset: int
    """`base_offset + last_offset_delta` must fit in 64 bits: `content.frame_of` sees to it."""
    base_timestamp: int
    append_timestamp: int
    """The time of every record in a LogAppendTime batch; ignored otherwise."""
    timestamp_type: TimestampType
    leader_epoch: int


class Walk(NamedTuple):
    """The result of `walk`."""

    min_timestamp: int
    max_timestamp: int
    max_timestamp_delta: int
    null_key_count: int
    record_bytes_max: int = 0
    """The length that the largest record declares for what follows it."""


class ScanState(NamedTuple):
    """What a scan of a segment knows after the batches so far."""

    next_offset: int
    """No batch that follows has a lower offset."""
    last_epoch: int
    """The leader epoch of the last batch; -1 without any."""
    bytes_since_entry: int
    """Bytes of log since the last entry of the index."""
    max_timestamp: int
    max_timestamp_offset: int


class SoundRun(NamedTuple):
    """The result of `sound_run`."""

    length: int
    """Bytes of the batches."""
    state: ScanState
    """The state after the batches."""
    entries: list[tuple[int, int, int, int]]
    """Entries of the index: the beginning of the batch in the data, its last offset, the largest timestamp, its offset."""
    produced: list[tuple[tuple[int, ...], int, int]]
    """Batches with a producer's id: the header, the beginning and the end of each in the data."""
    above: int
    """The beginning of the first batch that reaches above the recovery point; -1 without any."""


class Written(NamedTuple):
    """Records that were written, and the values for their header."""

    batch: bytearray
    """61 bytes that are left for the header, and the records."""
    record_count: int
    base_timestamp: int
    max_timestamp: int
