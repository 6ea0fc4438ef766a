"""Segments that a log no longer keeps: which could go, and taking them out of the list. Files follow (`file_removal.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.storage.log.results import DeletedSegment
from odradek.storage.log.retention import DeletionReason, RetentionSegment
from odradek.storage.log.segment_list import SegmentList
from odradek.storage.segment.segment import Segment


def candidates(segments: SegmentList, log_end_offset: int) -> Iterator[RetentionSegment]:
    """From the oldest on, as far as any may go: not one that is held, nor an active one without records."""
    for number, segment in enumerate(segments):
        if segment.held or (segment is segments.active and not segment.size_bytes):
            return
        yield RetentionSegment(
            end_offset=segments.end_of(number, log_end_offset),
            size_bytes=segment.size_bytes,
            last_append_ms=segment.records.last_append_ms(),
        )


def take_out(
    segments: SegmentList, reasons: Sequence[DeletionReason], log_end_offset: int
) -> list[tuple[Segment, DeletedSegment]]:
    """The oldest segments, one for each reason."""
    ends = [segments.end_of(number, log_end_offset) for number in range(len(reasons))]
    return [
        (
            segment,
            DeletedSegment(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size_bytes=segment.size_bytes,
                reason=reason,
            ),
        )
        for segment, end_offset, reason in zip(segments.drop_first(len(reasons)), ends, reasons, strict=True)
    ]
