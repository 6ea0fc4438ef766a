"""Which offsets a batch has read: whole ranges, from Spark's checkpoint."""

from __future__ import annotations

from odradek.spark.exactly_once.checkpoint import source_offsets
from odradek.spark.offsets import OffsetRange, StreamOffset, ranges_between


def batch_ranges(checkpoint: str, batch: int) -> list[OffsetRange]:
    """The range of each partition that the batch's sources read; ConfigError when the checkpoint cannot be read from here.

    A partition whose beginning is not told was not read: a batch of `format("odradek")` that reads it says where it begins.
    """
    ends = source_offsets(checkpoint, batch)
    starts = source_offsets(checkpoint, batch - 1) if batch else []
    ranges: list[OffsetRange] = []
    for index, end in enumerate(ends):
        start = starts[index] if index < len(starts) else StreamOffset(next_offsets={})
        known = start.next_offsets.keys() | end.beginnings.keys()
        ranges += [span for span in ranges_between(start, end) if span.partition in known]
    return ranges
