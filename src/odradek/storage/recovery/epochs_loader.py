"""The leader epochs of a log that is being opened: from their checkpoint where it can be believed, else from the batches."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.storage.files import checkpoints, naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.files.leader_epochs import EpochHistory, EpochStart
from odradek.storage.recovery.context import LoadContext, log
from odradek.storage.recovery.loaded_segments import LoadedSegments


class EpochsLoader:
    """Loads the leader epochs of a log: `load` when the names are known, `complete` when the segments are."""

    def __init__(self, context: LoadContext, segments: LoadedSegments) -> None:
        self._context = context
        self._segments = segments
        self._saved: tuple[EpochStart, ...] = ()
        """The checkpoint's entries; empty when it is missing or damaged."""
        self.epochs = EpochHistory()

    def load(self, names: Sequence[str]) -> None:
        """Loads the leader epochs from the checkpoint."""
        if naming.LEADER_EPOCHS in names:
            try:
                data = self._context.disk.read(self._context.path(naming.LEADER_EPOCHS))
                self.epochs = EpochHistory(checkpoints.parse_epochs(data))
            except BadCheckpointError as error:
                log.warning("epochs_ignored", directory=self._context.directory, reason=str(error))
        self._saved = self.epochs.entries

    def complete(self) -> None:
        """Adds the leader epochs that only the batches contain."""
        if self._segments.last_epoch > (self._saved[-1].epoch if self._saved else -1):
            self._rebuild()
        elif self._segments.scanned:
            self._find_first()

    def _rebuild(self) -> None:
        """Rebuilds the epochs from all batches, because the log has a later epoch than the checkpoint."""
        self.epochs = EpochHistory()
        next_offset = self._segments.base_offset
        for segment in self._segments:
            for mark in segment.records.marks():
                self.epochs.assign(mark.leader_epoch, next_offset)
                next_offset = mark.last_offset + 1

    def _find_first(self) -> None:
        """Adds epochs before the checkpoint's first: the log may begin earlier, if a crash undid a deletion."""
        entries = self.epochs.entries
        if not entries or self._segments.base_offset >= entries[0].start_offset:
            return
        self.epochs = EpochHistory()
        next_offset = self._segments.base_offset
        for segment in self._segments:
            if next_offset >= entries[0].start_offset:
                break
            for mark in segment.records.marks():
                if next_offset >= entries[0].start_offset:
                    break
                self.epochs.assign(mark.leader_epoch, next_offset)
                next_offset = mark.last_offset + 1
        for epoch, start_offset in entries:
            self.epochs.assign(epoch, start_offset)

    def trim(self, start_offset: int) -> None:
        """Removes leader epochs outside of what the log holds."""
        # One that begins at the very end is of a leader that had written nothing yet.
        self.epochs.truncate_from_end(self._segments.end_offset + 1)
        self.epochs.truncate_from_start(start_offset)

    @property
    def changed(self) -> bool:
        """The checkpoint differs from the leader epochs."""
        return self.epochs.entries != self._saved
