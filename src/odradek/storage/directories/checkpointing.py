"""Writes where recovery would start, and where logs begin: the checkpoint files of each data directory.

Checkpoints are written now and then, and speak of every log. In between, every second, `log-extents` follows
(`extents.py`) with the logs of which something became durable. A truncation is different: until the
checkpoints are written once more its note marks them as out of date (decision 0025), so they are written
soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Offload
from odradek.runtime.turns import slices
from odradek.storage.directories.log_directory import Checkpoint, LogDirectory
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.files.checkpoints import format_held_lines, held_lines
from odradek.storage.files.extents import Extent
from odradek.storage.log.log import Log
from odradek.storage.recovery.file_truncation import NoteRemoval
from odradek.telemetry import events

log = events.get("storage")

LOOKED_AT_ONCE: Final = 500
_ROUNDS_BETWEEN_CHECKPOINTS: Final = 10
"""How many rounds of the extents pass between two checkpoints. Checkpoints cover every log, so they follow truncations no
sooner."""

HighWatermarks = Mapping[TopicPartition, int] | None
"""High watermarks by partition; when None, the durable offset of each log replaces them."""


class Checkpointing:
    """Writes one file at a time: a file must not go back to what an earlier write knew."""

    def __init__(
        self,
        offload: Offload,
        placement: LogDirPlacement,
        logs: Mapping[TopicPartition, Log],
        on_error: Callable[[LogDirectory, OSError], None],
    ) -> None:
        """`on_error` is called with each error of a directory's disk, and takes the directory offline unless the error
        passes."""
        self._offload: Final = offload
        self._on_error: Final = on_error
        self._placement: Final = placement
        self._logs: Final = logs
        self._writing = asyncio.Lock()
        self._moved: dict[Log, None] = {}
        """Logs whose durable part differs from what was last written."""
        self._truncated: dict[LogDirectory, None] = {}
        """Directories whose checkpoints do not know of a truncation yet."""
        self._round = 0
        self._unwritten: dict[LogDirectory, None] = {}
        """Their extents could not be written the last time."""
        self._without_checkpoint: dict[LogDirectory, None] = {}
        """Their checkpoints could not be written the last time."""

    def moved(self, opened: Log) -> None:
        """Notes that something of the log became durable, or that it was truncated or opened."""
        self._moved[opened] = None

    async def write_extents(self) -> bool:
        """Writes what became durable since the last time. Errors are logged; the next round tries again. Returns whether no
        directory was left out because it failed meanwhile."""
        self._round += 1
        is_whole = True
        after_truncations = self._round % _ROUNDS_BETWEEN_CHECKPOINTS == 0
        for directory in self._placement.online():
            if after_truncations and directory in self._truncated:
                await self._succeeds(directory, self.write(directory))
                is_whole = is_whole and directory.offline is None
            elif self._moved or directory.has_unwritten_extents or self._writing.locked():
                # A checkpoint that is being written has extents that are not in the file yet: this waits for its end.
                is_whole = await self._write_extents(directory) and is_whole
        return is_whole

    async def _write_extents(self, directory: LogDirectory) -> bool:
        """Returns whether the directory was there to be written to."""
        async with self._writing:
            if directory.offline is not None:  # it failed under the write that we waited for
                return False
            changed = await self._changed_extents(directory)
            if not changed and not directory.has_unwritten_extents:
                return True
            try:
                await self._offload.run(directory.extents_job(changed))
            except OSError as error:
                if directory not in self._unwritten:
                    log.warning("extents_not_written", path=directory.path, error=error)
                self._unwritten[directory] = None
                self._on_error(directory, error)
            else:
                self._unwritten.pop(directory, None)
            return True

    async def _changed_extents(self, directory: LogDirectory) -> dict[TopicPartition, Extent]:
        """Returns the changed extents of a directory's logs."""
        changed: dict[TopicPartition, Extent] = {}
        for number, opened in enumerate(list(self._moved)):
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            extent = self._changed_extent(directory, opened)
            if extent is not None:
                changed[opened.topic_partition] = extent
        return changed

    def _changed_extent(self, directory: LogDirectory, opened: Log) -> Extent | None:
        """Returns the extent of a log that moved, if it is in the directory and not what was written down."""
        name = opened.topic_partition
        home = self._placement.first(name)
        if self._logs.get(name) is not opened or home is None or home.offline is not None:
            self._moved.pop(opened, None)
            return None
        if home is not directory:
            return None
        extent, known = opened.extent, directory.extents.get(name)
        if extent is None:  # its files do not follow yet
            return None
        self._moved.pop(opened, None)
        if opened.truncation.note() is not None:
            self._truncated[directory] = None
        if extent == known:
            return None
        directory.extents[name] = extent
        return extent

    async def write_all(self, high_watermarks: HighWatermarks) -> bool:
        """Writes the checkpoints of every online directory and logs what fails. Returns True when nothing failed."""
        written = [
            await self._succeeds(directory, self.write(directory, high_watermarks, is_asked=True))
            for directory in self._placement.online()
        ]
        return all(written)

    async def _succeeds(self, directory: LogDirectory, writing: Awaitable[None]) -> bool:
        """Returns whether files were written; logs what fails, once."""
        try:
            await writing
        except KafkaError as error:
            if directory not in self._without_checkpoint:
                log.warning("checkpoint_not_written", path=directory.path, reason=error.message)
            self._without_checkpoint[directory] = None
            return False
        self._without_checkpoint.pop(directory, None)
        return True

    async def write_held(self) -> bool:
        """Writes which logs were made, for every online directory, and logs what fails. Returns True when nothing failed.

        The other files can wait for the next checkpoint: about a new log they know nothing that its own files
        do not know.
        """
        written = [
            await self._succeeds(directory, self._write_held(directory))
            for directory in self._placement.online()
        ]
        return all(written)

    async def _write_held(self, directory: LogDirectory) -> None:
        """Raises KAFKA_STORAGE_ERROR when that fails, or the directory is offline."""
        async with self._writing:
            _check_online(directory)
            lines: list[str] = []
            for some in slices(list(directory.held.items()), LOOKED_AT_ONCE):
                if lines:
                    await asyncio.sleep(0)
                lines += held_lines(some)
            try:
                await self._offload.run(directory.write_held, format_held_lines(lines))
            except OSError as error:
                raise self._failed(directory, error) from error

    def _failed(self, directory: LogDirectory, error: OSError) -> KafkaError:
        self._on_error(directory, error)
        message = f"cannot write the checkpoints of {directory.path}: {error}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    async def write(
        self, directory: LogDirectory, high_watermarks: HighWatermarks = None, *, is_asked: bool = False
    ) -> None:
        """Raises KAFKA_STORAGE_ERROR when that fails, or the directory is offline."""
        async with self._writing:
            _check_online(directory)
            notes = await self._note_logs(directory, high_watermarks, is_asked=is_asked)
            _check_online(directory)
            self._truncated.pop(directory, None)
            checkpoint = await self._formatted(directory)
            try:
                if notes or not checkpoint.is_empty:
                    gone = await self._offload.run(_write, directory, checkpoint, list(notes.values()))
                    for name in [name for name, note in notes.items() if note in gone]:
                        if name in self._logs:
                            self._logs[name].truncation.forgotten(notes[name])
                directory.written(checkpoint)
            except OSError as error:
                raise self._failed(directory, error) from error

    async def _note_logs(
        self, directory: LogDirectory, high_watermarks: HighWatermarks, *, is_asked: bool
    ) -> dict[TopicPartition, NoteRemoval]:
        """Notes the state of each log, a few at a time. Returns the notes of those that were truncated since the checkpoints
        were written."""
        await self._changed_extents(directory)
        notes: dict[TopicPartition, NoteRemoval] = {}
        for number, (name, opened) in enumerate(list(self._logs.items())):
            if number % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
            if self._logs.get(name) is not opened or self._placement.first(name) is not directory:
                continue
            # What follows is one step: the note of a later truncation is not answered by this checkpoint.
            if is_asked:
                self._note_high_watermark(directory, name, opened, high_watermarks)
            self._note_log(directory, name, opened)
            if (note := opened.truncation.note()) is not None:
                notes[name] = note
        return notes

    async def _formatted(self, directory: LogDirectory) -> Checkpoint:
        """Returns the files to write. For many logs, formatting one takes milliseconds."""
        steps = directory.checkpoint_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                checkpoint: Checkpoint = end.value
                return checkpoint
            if len(self._logs) > LOOKED_AT_ONCE:
                await asyncio.sleep(0)

    def of(self, directory: LogDirectory) -> Checkpoint:
        """Returns the contents to write now."""
        for opened in list(self._moved):
            self._changed_extent(directory, opened)
        for name, opened in self._logs.items():
            if self._placement.first(name) is directory:
                self._note_log(directory, name, opened)
        return directory.checkpoint()

    def _note_log(self, directory: LogDirectory, name: TopicPartition, opened: Log) -> None:
        directory.recovery_points[name] = opened.recovery_point
        # Never ahead of what is durable: after a crash a log must not end before it begins.
        start_offset = min(opened.start_offset, opened.flushed_offset)
        if opened.damage_offset is not None:  # segments are missing in front of what is here
            start_offset = min(start_offset, opened.damage_offset)
        if start_offset > 0:
            directory.start_offsets[name] = start_offset
        else:
            directory.start_offsets.pop(name, None)
        if directory.cleaned_offsets.get(name, 0) > opened.truncation.end_offset_min:
            directory.cleaned_offsets[name] = opened.truncation.end_offset_min
        if directory.high_watermarks.get(name, 0) > opened.truncation.high_watermark_max:
            directory.high_watermarks[name] = opened.truncation.high_watermark_max

    def _note_high_watermark(
        self, directory: LogDirectory, name: TopicPartition, opened: Log, noted: HighWatermarks
    ) -> None:
        known = directory.high_watermarks.get(name)
        mark = noted.get(name) if noted is not None else opened.recovery_point if known is None else known
        if mark is None:
            return
        # Never ahead of what is durable: a log that ends below it after a crash lost something.
        mark = min(mark, opened.flushed_offset, opened.truncation.high_watermark_max)
        if opened.damage is not None and known is not None:
            mark = max(mark, known)  # what is missing stays known until it is here again
        directory.high_watermarks[name] = mark

    def forget_truncations(self, directory: LogDirectory) -> None:
        """Removes the truncation notes of closed logs. All logs must be closed and the checkpoints written. Blocks."""
        for name, note in self._truncation_notes(directory).items():
            if self._logs[name].closed and self._placement.is_closed(name):
                note.remove()

    def _truncation_notes(self, directory: LogDirectory) -> dict[TopicPartition, NoteRemoval]:
        """Returns the notes of logs that were truncated since the checkpoints were written."""
        notes = {
            name: note
            for name, opened in self._logs.items()
            if (note := opened.truncation.note()) is not None
        }
        return {name: note for name, note in notes.items() if self._placement.first(name) is directory}


def _check_online(directory: LogDirectory) -> None:
    if directory.offline is not None:
        message = f"{directory.path} is offline: {directory.offline}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)


def _write(
    directory: LogDirectory, checkpoint: Checkpoint, notes: Sequence[NoteRemoval]
) -> list[NoteRemoval]:
    """Runs on a worker thread. Returns the notes that are not needed any more."""
    directory.write(checkpoint)
    return [note for note in notes if note.run()]
