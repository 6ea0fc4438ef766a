"""What a member is given of what was read: its cost grows with the batches and with the ranges, not with their product."""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from odradek.broker.share import reading
from odradek.broker.share.reading import AcquiredBatches, FetchedRange, FetchLimits
from odradek.groups.share import partition
from odradek.groups.share.partition import AcknowledgedRange, AcquiredRange, ShareLimits, SharePartition
from odradek.records import BatchBuilder, Codec, split_batches

LIMITS = ShareLimits(record_locks_max=10_000, delivery_count_max=5, lock_ms=1000)
RELEASE = 2
LOOKED_AT = {reading.__file__, partition.__file__}


def small_batches(count: int) -> Any:
    data = bytearray()
    for offset in range(count):
        builder = BatchBuilder(Codec.NONE)
        builder.append(1, None, b"")
        batch = builder.build()
        batch[:8] = offset.to_bytes(8, "big")
        data += batch
    return split_batches(memoryview(data))


class Scene:
    """A partition of batches with one record each, every other of which came back: each is a range of its own."""

    def __init__(self, count: int) -> None:
        self.core = SharePartition(0, lambda: LIMITS)
        self.core.acquire("anne", 0, count - 1, records_max=count, now_ms=0)
        released = [AcknowledgedRange(offset, offset, [RELEASE]) for offset in range(0, count, 2)]
        self.core.acknowledge("anne", released, now_ms=0)
        live: Any = SimpleNamespace(
            core=self.core, settings=SimpleNamespace(committed_only=False), locked=lambda: None
        )
        self.seen = FetchedRange(live, 0, count, small_batches(count), 0)
        self.line_count = 0

    def acquire(self, batch_size: int) -> AcquiredBatches | None:
        """Counts the lines that it takes."""
        room = FetchLimits(records=10_000, by_batches=True, batch_size=batch_size)
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            return reading.acquire(self.seen, "bert", room, 0)
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._step if frame.f_code.co_filename in LOOKED_AT else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.line_count += event == "line"
        return self._step


@pytest.mark.parametrize("batch_size", [1, 2, 0])
def test_twice_as_many_small_batches_cost_twice_as_much(batch_size: int) -> None:
    small, large = Scene(300), Scene(600)
    assert small.acquire(batch_size)
    acquired = large.acquire(batch_size)
    assert acquired is not None
    assert acquired.acquired == [AcquiredRange(offset, offset, 2) for offset in range(0, 600, 2)]
    assert large.line_count < 2.2 * small.line_count
