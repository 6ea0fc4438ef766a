"""Records that were durable in a log and are missing, as far as that is known, until they are durable again."""

from __future__ import annotations

from typing import Final

from odradek.storage.files.damage import DamagedBatchError, OnDamaged, OnLack
from odradek.storage.files.lack_notes import LackNote
from odradek.storage.log.context import LogContext
from odradek.storage.recovery.context import OpenedLog
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.telemetry import events

log = events.caused_by_peers("storage")


class LackedRecords:
    """Tracks which durable records a log lacks, or may lack. Used on the event loop only."""

    __slots__ = (
        "_lost_below",
        "_on_damaged",
        "_on_lack",
        "_segments",
        "_topic_partition",
        "damage",
        "damage_offset",
        "is_only_doubted",
        "note",
    )

    def __init__(
        self,
        context: LogContext,
        opened: OpenedLog,
        *,
        durable_offset: int,
        on_damaged: OnDamaged | None,
        on_lack: OnLack | None,
    ) -> None:
        """`durable_offset`: up to there the log was durable once. `on_lack` is called when something is found to lack."""
        self._topic_partition: Final = context.topic_partition
        self._segments: Final = context.segments
        self._on_damaged: Final = on_damaged
        self._on_lack: Final = on_lack
        self._lost_below = durable_offset if opened.damage_offset is None else OFFSET_MAX
        """Nothing is lacking any more when everything below this offset is durable."""
        self.damage = opened.damage
        """Describes records that are missing or wrong; None when none are known to be."""
        self.damage_offset = opened.damage_offset
        """The offset from which records must be fetched again, because a reader met damage; None without such damage."""
        self.is_only_doubted = False
        """It is unknown whether the log lacks anything; see `doubt`."""
        self.note: LackNote | None = opened.lack_note
        """The note in the log's directory about records that it had and lacks."""
        if self.note is not None and self.note.is_counted_on:
            self.lacks(OFFSET_MAX, self.note.reason)

    def lacks(self, below: int, damage: str) -> None:
        """Notes that the log lacks records that were durable here, until everything below `below` is durable again."""
        self._lost_below = below if self.damage is None else max(below, self._lost_below)
        self.damage = damage
        if self._on_lack is not None:
            self._on_lack(self._topic_partition)
        log.error("log_damaged", partition=self._topic_partition, problem=damage)

    def doubt(self, below: int, reason: str) -> None:
        """Notes that the log may lack something: any other replica is better. Changes nothing if the log is known to."""
        if self.damage is None:
            self.is_only_doubted = True
            self.lacks(below, reason)

    def met(self, damage: DamagedBatchError) -> None:
        """Notes that a reader met a batch that differs from what was written."""
        if self.damage_offset is not None and self.damage_offset <= damage.offset:
            return
        self.damage_offset = damage.offset
        self.lacks(OFFSET_MAX, damage.message)
        if self._on_damaged is not None:
            self._on_damaged(self._topic_partition, damage)

    def truncated(self, end_offset: int) -> None:
        """Notes that the log will end at `end_offset`: damage after that is removed, and the records come
        again from the leader."""
        if self.damage_offset is not None and end_offset <= self.damage_offset:
            self.damage_offset, self._lost_below = None, self._segments.end_offset

    def flushed(self, flushed_offset: int) -> None:
        """Notes that everything below `flushed_offset` is durable."""
        if self.damage is not None and flushed_offset >= self._lost_below:
            self.mended()

    def mended(self) -> None:
        """Notes that the log has all that it lacked again."""
        self.damage, self.damage_offset, self.is_only_doubted = None, None, False
        log.info("log_mended", partition=self._topic_partition, end_offset=self._segments.end_offset)

    @property
    def lacks_records(self) -> bool:
        """Whether the log ends before its former end, begins after it, or is an older copy: it must not lead.
        Damage that a reader met does not count here."""
        if self.damage is None or self.is_only_doubted:
            return False
        return self.damage_offset is None or self.damage_offset < self._segments.base_offset
