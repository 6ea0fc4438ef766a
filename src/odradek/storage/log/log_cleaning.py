"""The part of a log for compaction. Most logs are never compacted, so little of it exists before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.config.topic import LogConfig
from odradek.model.lazy import lazy
from odradek.storage.cleaning.choice import roll_due
from odradek.storage.log.active_segment import LogFiles
from odradek.storage.log.context import LogContext
from odradek.storage.segment.rolling import RollReason

if TYPE_CHECKING:
    from odradek.storage.cleaning import access
    from odradek.storage.cleaning.access import CleaningAccess
else:
    access = lazy("odradek.storage.cleaning.access")


class LogCleaning:
    """A log's compaction access, made when it is needed first. Used on the event loop only."""

    __slots__ = ("_access", "_context", "_durability", "_small_files", "_tail")

    def __init__(
        self,
        context: LogContext,
        files: LogFiles,
    ) -> None:
        self._context = context
        self._tail = files.tail
        self._durability = files.durability
        self._small_files = files.small_files
        self._access: CleaningAccess | None = None

    @property
    def access(self) -> access.CleaningAccess:
        """The face of the log for compaction."""
        if self._access is None:
            self._access = access.CleaningAccess(
                disk=self._context.runtime.disk,
                directory=self._context.directory,
                segments=self._context.segments,
                files=self._context.files,
                life=self._context.life,
                on_replaced=self._small_files.write_transaction_sums,
            )
        return self._access

    def abort(self) -> bool:
        """Ends the compaction under way, if there is one; see `CleaningAccess.abort`."""
        return self._access is not None and self._access.abort()

    def roll(self, config: LogConfig, now_ms: int) -> bool:
        """Ends the active segment if its oldest record must be compacted by now (max.compaction.lag.ms); returns whether it
        did."""
        active = self._context.segments.active
        if (
            self._context.health.fault is not None
            or not active.size_bytes
            or self._durability.truncation is not None
        ):
            return False
        if not roll_due(active.first_append_ms, config, now_ms):
            return False
        self._tail.roll(RollReason.AGE)
        return True
