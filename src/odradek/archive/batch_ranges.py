"""Which offsets a batch has read: whole ranges, from Spark's checkpoint."""

from __future__ import annotations

from odradek.archive.values import ArchiveError
from odradek.spark.exactly_once.checkpoint import source_offsets
from odradek.spark.offsets import OffsetRange, StreamOffset, ranges_between


def batch_ranges(checkpoint: str, batch: int) -> list[OffsetRange]:
    """The range of each partition that the batch's sources read; ConfigError when the checkpoint cannot be read from here.

    ArchiveError when it does not say where the batch begins.
    """
    ends = source_offsets(checkpoint, batch)
    starts = source_offsets(checkpoint, batch - 1) if batch else []
    ranges: list[OffsetRange] = []
    for index, end in enumerate(ends):
        start = starts[index] if index < len(starts) else StreamOffset(next_offsets={})
        unknown = [
            each for each in end.next_offsets if each not in start.next_offsets and each not in end.beginnings
        ]
        if unknown:
            raise ArchiveError(
                f"the checkpoint does not say where batch {batch} begins in {unknown[0]}: an archive is written from"
                ' format("odradek"), whose offsets say it'
            )
        ranges += ranges_between(start, end)
    return ranges
