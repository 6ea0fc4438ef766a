"""The compiled engine's short way through a segment finds what the scan of one batch after another finds."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.records import (
    BatchBuilder,
    BatchHeader,
    Codec,
    ControlKind,
    assign,
    control_batch,
    engine,
    read_header,
)
from odradek.runtime.ports import DiskFile
from odradek.storage.producers.producer_state import Producers
from odradek.storage.recovery.replay import replay_batch
from odradek.storage.recovery.segment_scan import scan_file
from odradek.storage.segment.transaction_index import AbortedTransaction

FAST = engine.compiled()
pytestmark = pytest.mark.skipif(FAST is None, reason="the package was installed without a compiler")

BASE_OFFSETS = st.sampled_from([0, 7, 2**40, 2**62 - 2**31, 2**62, 2**63 - 2**32])
BATCHES = st.lists(
    st.tuples(
        st.integers(1, 4),  # records
        st.sampled_from([0, 0, 0, 1, 900, 2**31 - 3]),  # offsets left out before it
        st.integers(0, 5000),  # the timestamp
        st.sampled_from([(-1, -1), (3, 0), (3, 0), (3, 1), (2**62, 5)]),  # the producer's id and epoch
        st.sampled_from(["data", "data", "data", "packed", "control", "transactional"]),
        st.integers(-1, 3),  # the leader epoch
        st.sampled_from([0, 0, 30, 700]),  # bytes of each value
    ),
    max_size=24,
)
DAMAGE = st.none() | st.tuples(
    st.sampled_from(["flip", "cut", "zeros", "again"]), st.floats(0, 1), st.integers(0, 255)
)


class MemoryFile:
    """A file in memory that knows which of its bytes were written."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.written: set[int] = set()

    def pread(self, length: int, position: int) -> bytes:
        return self.data[position : position + length]

    def pwrite(self, data: memoryview, position: int) -> None:
        assert self.data[position : position + len(data)] == data, "it is written as it is"
        self.written |= set(range(position, position + len(data)))


def segment(base_offset: int, batches: list[Any]) -> bytes:
    parts = []
    offset = base_offset
    for number, (record_count, hole, timestamp, producer, kind, epoch, size) in enumerate(batches):
        builder = BatchBuilder(Codec.GZIP if kind == "packed" else Codec.NONE)
        for _ in range(record_count):
            builder.append(timestamp, b"key", b"v" * size)
        count = 1 if kind == "control" else record_count
        batch = (
            control_batch(ControlKind.ABORT, *producer, coordinator_epoch=number, timestamp=timestamp)
            if kind == "control"
            else builder.build(
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=number if producer[0] >= 0 else -1,
                transactional=kind == "transactional",
            )
        )
        offset = min(offset + hole, 2**63 - 1 - count)
        assign(batch, offset, epoch)
        offset += count
        parts.append(bytes(batch))
    return b"".join(parts)


def damaged(data: bytes, damage: tuple[str, float, int] | None) -> bytes:
    if damage is None or not data:
        return data
    kind, where, byte = damage
    at = min(int(where * len(data)), len(data) - 1)
    if kind == "flip":
        return data[:at] + bytes([byte]) + data[at + 1 :]
    if kind == "cut":
        return data[:at]
    if kind == "zeros":
        return data[:at] + bytes(len(data) - at)
    return data + data[at:]


def producers_at(data: bytes, base_offset: int, offset: int) -> Producers:
    """Returns what a snapshot at `offset` has, from the batches below it."""
    producers = Producers()

    def on_batch(header: BatchHeader, batch: memoryview, position: int) -> None:
        if header.next_offset <= offset:
            replay_batch(producers, header, batch, position, 1)

    with patch.object(engine, "active", engine.PLAIN):
        file = cast(DiskFile, MemoryFile(data))
        scan_file(file, base_offset, len(data), index_interval_bytes=0, on_batch=on_batch)
    return producers


def transactions_of(producers: Producers) -> tuple[int, int | None, int]:
    transactions = producers.transactions
    return len(transactions), transactions.oldest_producer_id, transactions.stable_below(2**62)


def scanned(
    chosen: Any, data: bytes, base_offset: int, recovery_point: int, *, later: int = 0, **more: Any
) -> object:
    file = MemoryFile(data)
    aborted: list[AbortedTransaction] = []
    states = [(-1, Producers()), (base_offset + later, producers_at(data, base_offset, base_offset + later))]

    def on_batch(header: BatchHeader, batch: memoryview, position: int) -> None:
        assert read_header(batch) == header
        assert bytes(batch) == data[position : position + header.size_bytes]
        for offset, producers in states:
            if header.next_offset > offset:
                replay_batch(producers, header, batch, position, 1, aborted.append)

    with patch.object(engine, "active", chosen):
        scan = scan_file(
            cast(DiskFile, file),
            base_offset,
            len(data),
            recovery_point=recovery_point,
            on_batch=on_batch if more.pop("follows") else None,
            **more,
        )
    index = scan.index
    before_seal = index.offset_bytes(), index.time_bytes(), index.bytes_since_entry
    index.seal()
    return (
        (scan.good_bytes, scan.next_offset, scan.last_epoch, scan.problem),
        (*before_seal, index.max_timestamp, index.max_timestamp_offset, index.time_bytes()),
        [(list(producers), transactions_of(producers)) for _, producers in states],
        (aborted, file.written),
    )


@settings(max_examples=400, deadline=None)
@given(
    base_offset=BASE_OFFSETS,
    batches=BATCHES,
    damage=DAMAGE,
    above=st.integers(-1, 40),
    interval=st.sampled_from([0, 100, 1000]),
    window_bytes=st.sampled_from([1, 100, 500, 1 << 20]),
    follows=st.booleans(),
    later=st.integers(0, 20),
)
def test_both_engines_trust_the_same_part_of_a_segment(
    base_offset: int,
    batches: list[Any],
    damage: tuple[str, float, int] | None,
    above: int,
    interval: int,
    window_bytes: int,
    follows: bool,
    later: int,
) -> None:
    data = damaged(segment(base_offset, batches), damage)
    outcomes = [
        scanned(
            chosen,
            data,
            base_offset,
            base_offset + above,
            index_interval_bytes=interval,
            window_bytes=window_bytes,
            follows=follows,
            later=later,
        )
        for chosen in (engine.PLAIN, FAST)
    ]
    assert outcomes[0] == outcomes[1]


def test_the_short_way_is_gone_for_whole_windows() -> None:
    """A test that no damage ends must use it: else the one above compares the long way with itself."""
    assert FAST is not None
    data = segment(0, [(1, 0, 5, (3, 0), "data", 0, 30)] * 200)
    lengths = []
    real = FAST.sound_run

    def sound_run(*arguments: Any) -> Any:
        run = real(*arguments)
        lengths.append(run.length)
        return run

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return sound_run if name == "sound_run" else getattr(FAST, name)

    scanned(Watched(), data, 0, 0, index_interval_bytes=0, follows=True)
    assert lengths == [len(data)]
