"""Opens the segments after a clean close: only the end of the last segment is read."""

from __future__ import annotations

from odradek.storage.files import naming
from odradek.storage.recovery.context import LoadContext, log
from odradek.storage.recovery.loaded_segments import LoadedSegments
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.index_checks import BuiltIndex, build_index, resume_index
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.transaction_index import is_sound


class AfterCleanShutdown:
    """Opens a log after a clean shutdown: trusts its files as far as they fit together."""

    def __init__(self, context: LoadContext, segments: LoadedSegments) -> None:
        self._context = context
        self._segments = segments
        self.index_is_written = False
        """The active segment's index files are as a clean close leaves them."""

    def open_active(self) -> bool:
        """Opens the last segment without reading more of it than its end. Returns False when it is not as a clean close
        leaves it."""
        self._segments.drop_empty(self._segments[:-1])
        if not self._follows_on():
            return False
        active = self._segments.active
        active.records.open_writer()
        try:
            built = self._resume(active)
            transactions = self._context.read_if_there(active.path(naming.TRANSACTION_INDEX))
            if not is_sound(transactions, active.base_offset, built.next_offset):
                raise BrokenChain(0, "the transaction index is not of this segment")
        except BrokenChain as damage:
            log.warning("clean_close_doubted", directory=self._context.directory, reason=str(damage))
            active.close_writer()
            return False
        self._segments.activate(built)
        return True

    def _follows_on(self) -> bool:
        """Returns whether the last segment, if it is empty, begins where the one before it ends; removes a leftover."""
        segments = self._segments
        if len(segments) < 2 or segments[-1].size_bytes:
            return True
        last = segments[-2].search.last_batch()
        if last is None or last.last_offset + 1 < segments[-1].base_offset:
            return False
        if last.last_offset + 1 > segments[-1].base_offset:
            segments.drop_empty(segments[-1:])
        segments.last_epoch = last.leader_epoch
        return True

    def _resume(self, active: Segment) -> BuiltIndex:
        file, interval = active.records.log_file, active.index.interval_bytes
        offsets, times = (
            self._context.read_if_there(active.path(kind))
            for kind in (naming.OFFSET_INDEX, naming.TIME_INDEX)
        )
        built = resume_index(file, active.base_offset, active.size_bytes, interval, offsets, times)
        if built is not None:
            self.index_is_written = True
            return built
        log.warning(
            "index_rebuilt",
            directory=self._context.directory,
            base_offset=active.base_offset,
            reason="in doubt",
        )
        return build_index(file, active.base_offset, active.size_bytes, interval)
