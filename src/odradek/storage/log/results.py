"""The results of a log's methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.runtime.ports import Buffer
from odradek.storage.log.retention_rules import DeletionReason


class AppendResult(NamedTuple):
    """The offsets of appended batches. A tuple, because every append makes one."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """The log append time; -1 unless the topic's timestamps are LogAppendTime."""
    duplicate: bool
    """True if the batches were in the log already; the offsets come from the first append."""


class LogRead(NamedTuple):
    """Whole batches, the first of which holds the requested offset, or nothing. A tuple, because every read makes one."""

    records: Buffer
    next_offset: int
    """The offset at which the next read continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSegment:
    """A segment that retention took out of a log."""

    base_offset: int
    end_offset: int
    size_bytes: int
    reason: DeletionReason
