"""Finds the offset at which a log that is being opened begins, from its files and the traces of deletions, and whether
segments are missing there."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.storage.files import checkpoints, naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.recovery.context import LoadContext, log
from odradek.storage.recovery.loaded_segments import LoadedSegments
from odradek.storage.segment.batch_walk import BrokenChain, walk


class StartLoader:
    """Finds the start offset of a log that is being opened: `note_deletions` before anything is tidied, `missing_from` when
    the segments are known, `load` when the log's end is."""

    def __init__(self, context: LoadContext, segments: LoadedSegments) -> None:
        self._context = context
        self._segments = segments
        self.is_doubted = False
        """Another replica may know of records that were deleted by request and are here again."""

    def note_deletions(self, names: Sequence[str]) -> bool:
        """Writes the offset at which the log begins, if segments were renamed to be deleted and there was no
        space yet to note it: once they are removed, nothing else shows the reason. Returns whether it was
        written: the directory has another file then.
        """
        logs = [
            file for name in names if (file := naming.parse_offset_file(name)) and file.kind == naming.LOG
        ]
        known, left = self._known_first(names), [file.offset for file in logs if not file.state]
        renamed = [file.offset for file in logs if file.state == naming.DELETED]
        renamed = [offset for offset in renamed if left and offset < left[0]]
        if known is None or not renamed or left[0] <= known:
            return False
        if self._renamed_end(max(renamed), left[0]) < left[0]:
            return False  # what is missing is not what was deleted
        disk = self._context.disk
        for offset in renamed:  # this makes space
            renamed_file = disk.open(self._renamed_path(offset))
            try:
                renamed_file.truncate(0)
            finally:
                renamed_file.close()
        disk.replace(self._context.path(naming.START_OFFSET), checkpoints.format_start_offset(left[0]))
        return True

    def _renamed_path(self, offset: int) -> str:
        return self._context.path(naming.offset_file(offset, naming.LOG) + naming.DELETED)

    def _renamed_end(self, offset: int, following: int) -> int:
        """Returns the offset at which a renamed segment ends; `following` where its space was needed, so that no one can
        see that."""
        file, end_offset = self._context.disk.open(self._renamed_path(offset)), offset
        try:
            size_bytes = file.length()
            for mark in walk(file, 0, size_bytes):
                end_offset = mark.last_offset + 1
        except BrokenChain:
            return following
        finally:
            file.close()
        return end_offset if size_bytes else following

    def _known_first(self, names: Sequence[str]) -> int | None:
        """Returns the base offset of the first segment, or an earlier offset; None when it is unknown."""
        opening = self._context.opening
        if opening.first_offset is None:
            return None
        moved_to = self._moved_start() if naming.START_OFFSET in names else None
        return max(opening.first_offset, opening.start_offset, moved_to or 0)

    def missing_from(self, names: Sequence[str]) -> int | None:
        """Returns the offset at which the log began if segments are missing there; None when none are. Deletions are noted
        before they remove segments."""
        known = self._known_first(names)
        if known is None or not self._segments or self._segments.base_offset <= known:
            return None
        return known

    def load(self, names: Sequence[str]) -> int:
        """Returns the start offset in the log's own directory, or 0 without one: the checkpoint may be lost, or older.

        If it cannot be read, the checkpoint is believed after a clean close alone. If it is not there, most likely nothing was
        ever deleted; but if the checkpoint is lost, too, no one knows.
        """
        opening = self._context.opening
        if naming.START_OFFSET not in names:
            self._doubt_unless(opening.start_is_checkpointed)
            return 0
        offset = self._moved_start()
        if offset is None:
            self._doubt_unless(opening.start_is_checkpointed and opening.clean)
            return 0
        return offset if offset <= self._segments.end_offset else 0

    def _moved_start(self) -> int | None:
        """Returns the start offset in the log's own directory; None when it is not reliable."""
        path = self._context.path(naming.START_OFFSET)
        try:
            return checkpoints.parse_start_offset(self._context.read_if_there(path))
        except BadCheckpointError as error:
            log.warning("start_offset_ignored", path=path, reason=str(error))
            return None

    def _doubt_unless(self, is_known: bool) -> None:
        opening = self._context.opening
        if opening.repairable and not is_known:
            log.warning("log_start_doubted", partition=opening.topic_partition)
            self.is_doubted = True
