"""An archive as it was when it was last looked at. A look reads the table's log, so it serves for some time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.archive.store.values import DataFile
from odradek.archive.tables.port import ArchiveTable
from odradek.model.ids import TopicPartition
from odradek.runtime.real import SystemClock
from odradek.spark.reading.offsets import OffsetRange

RECENT_S: Final = 60.0
"""Compaction replaces files, and expiry removes them no sooner than an hour after that: a plan must not name older ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSnapshot:
    """The content of an archive at one moment."""

    archived: Mapping[TopicPartition, OffsetRange]
    files: Sequence[DataFile]
    """All rows of `archived`, and perhaps rows after it."""
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The topics that the rows are of, as far as the archive knows."""


class ArchiveView:
    """The looks of one process at a table. It may be pickled; a copy looks for itself."""

    def __init__(self, table: ArchiveTable) -> None:
        self.table = table
        self._last: ArchiveSnapshot | None = None
        self._looked_at = 0.0

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}

    def last(self) -> ArchiveSnapshot:
        """Returns the last snapshot, of any age."""
        return self._last or self.renewed()

    def recent(self) -> ArchiveSnapshot:
        """Returns a snapshot that is at most `RECENT_S` old."""
        if SystemClock().monotonic() - self._looked_at > RECENT_S:
            return self.renewed()
        return self.last()

    def renewed(self) -> ArchiveSnapshot:
        """Reads the table once more, and returns it as it is now."""
        self._looked_at = SystemClock().monotonic()
        state = self.table.state()  # before the files: these may only be more
        self._last = ArchiveSnapshot(
            archived=state.archived, files=self.table.files(), topic_ids=state.topic_ids
        )
        return self._last
