"""What a log answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.runtime.ports import Buffer
from odradek.storage.log.retention_rules import DeletionReason


class AppendResult(NamedTuple):
    """Where batches are. A tuple: one is made for every append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic's timestamps are LogAppendTime."""
    duplicate: bool
    """The batches were in the log already; the offsets are those they got then."""


class LogRead(NamedTuple):
    """Whole batches, the first of which holds the offset asked for, or nothing. A tuple: one for every read."""

    records: Buffer
    next_offset: int
    """Where to go on reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSegment:
    """A segment that retention took out of a log."""

    base_offset: int
    end_offset: int
    size_bytes: int
    reason: DeletionReason
