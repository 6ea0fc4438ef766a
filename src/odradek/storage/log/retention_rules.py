"""Decides which segments are deleted. Pure; `docs/decisions/0006-retention-counts-from-the-append.md` explains how
age counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from odradek.config.topic import LogConfig


class DeletionReason(Enum):
    AGE = "retention.ms"
    SIZE = "retention.bytes"
    BELOW_START = "log start offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionTerms:
    """The limits of a log's retention. None: no such limit."""

    keep_ms: int | None
    keep_bytes: int | None
    start_offset: int
    """Segments that end at or below it hold nothing that may be read."""
    deletable_below: int
    """Segments that reach beyond it stay, whatever their age: the high watermark."""
    now_ms: int

    @classmethod
    def of(cls, config: LogConfig, *, start_offset: int, deletable_below: int, now_ms: int) -> RetentionTerms:
        deletes = "delete" in config.cleanup_policy
        return cls(
            keep_ms=config.retention_ms if deletes and config.retention_ms >= 0 else None,
            keep_bytes=config.retention_bytes if deletes and config.retention_bytes >= 0 else None,
            start_offset=start_offset,
            deletable_below=deletable_below,
            now_ms=now_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSegment:
    """A segment as retention sees it. `end_offset` is where the next one begins."""

    end_offset: int
    size_bytes: int
    last_append_ms: int


def deletable(
    candidates: Iterable[RetentionSegment], total_bytes: int, terms: RetentionTerms
) -> list[DeletionReason]:
    """Returns the reason for the deletion of each of the first segments, in order; all after these stay.

    `candidates` from the oldest on, drawn one by one, so that the files of those that stay are never looked at.
    """
    reasons = []
    for candidate in candidates:
        reason = _reason(candidate, total_bytes, terms)
        if reason is None:
            break
        reasons.append(reason)
        total_bytes -= candidate.size_bytes
    return reasons


def _reason(candidate: RetentionSegment, total_bytes: int, terms: RetentionTerms) -> DeletionReason | None:
    if candidate.end_offset > terms.deletable_below:
        return None
    if candidate.end_offset <= terms.start_offset:
        return DeletionReason.BELOW_START
    if terms.keep_ms is not None and terms.now_ms - candidate.last_append_ms > terms.keep_ms:
        return DeletionReason.AGE
    if terms.keep_bytes is not None and total_bytes - candidate.size_bytes >= terms.keep_bytes:
        return DeletionReason.SIZE
    return None
