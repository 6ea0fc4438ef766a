"""Decides whether stored rows can be continued from the topic as it is now. No I/O.

While it is read, the log tells, too: an offset that it does not hold, an epoch that ended earlier. Here is what shows before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.views.store import ViewState

CLOCK_TOLERANCE_MS: Final = 60_000
"""The milliseconds that a clock may go back unnoticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExtent:
    """A topic, at one moment."""

    topic_id: UUID
    key_format: str
    """The key format that the view is opened with."""
    starts: Mapping[int, int]
    """The first offset of each partition's log."""
    epoch_ends: Mapping[int, int]
    """The end offset, by partition, of the leader epoch under which it was applied last; -1 if the leader does not have it."""
    tombstone_retention_ms: int | None
    """The topic's delete.retention.ms; None where nothing is compacted."""


def reason_to_rebuild(stored: ViewState, look: TopicExtent, now_ms: int) -> str | None:
    """Returns why the rows must be read again from the beginning; None if they can be continued."""
    if stored.key_format != look.key_format:
        return f"keys are stored as {stored.key_format}, and wanted as {look.key_format}"
    if stored.topic_id != look.topic_id:
        return "the topic was deleted, and made again"
    for partition, position in stored.positions.items():
        start = look.starts.get(partition)
        if start is None:
            return f"the topic has no partition {partition} any more"
        if position.offset < start:
            return f"the log of partition {partition} begins at offset {start}, the view ends at {position.offset}"
        epoch_end = look.epoch_ends.get(partition, position.offset)
        if epoch_end < position.offset:
            return (
                f"the log of partition {partition} lost its end: leader epoch {position.leader_epoch} ends at {epoch_end},"
                f" the view at {position.offset}"
            )
        late = tombstones_may_be_gone(position.complete_at_ms, look.tombstone_retention_ms, now_ms)
        if late is not None:
            return late
    return None


def tombstones_may_be_gone(complete_at_ms: int, retention_ms: int | None, now_ms: int) -> str | None:
    """Compaction removes a tombstone delete.retention.ms after it has removed what was before it. A view that reads on
    after a longer pause may never see it, and would never remove the row."""
    if retention_ms is None:
        return None
    age_ms = now_ms - complete_at_ms
    if age_ms >= retention_ms:
        return f"the last complete look is {age_ms / 1000:.0f} s old, tombstones are kept for {retention_ms / 1000:.0f} s"
    if age_ms < -CLOCK_TOLERANCE_MS:
        return "the clock was set back: how old the rows are is unknown"
    return None
