"""Writing down from where recovery would start, and where logs begin: the checkpoint files of each data directory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Offload
from odradek.storage.homes import Homes
from odradek.storage.log import Log
from odradek.storage.log_directory import Checkpoint, LogDirectory
from odradek.storage.truncation import NoteRemoval
from odradek.telemetry import events

log = events.get("storage")

HighWatermarks = Mapping[TopicPartition, int] | None
"""Without them, what is durable stands in for them."""


class Checkpointing:
    """One write at a time: a file must not go back to what an earlier write knew."""

    def __init__(self, offload: Offload, homes: Homes, logs: Mapping[TopicPartition, Log]) -> None:
        self._offload: Final = offload
        self._homes: Final = homes
        self._logs: Final = logs
        self._writing = asyncio.Lock()

    async def write_all(self, high_watermarks: HighWatermarks) -> None:
        """In every directory that works; what goes wrong is logged."""
        for directory in self._homes.online():
            try:
                await self.write(directory, high_watermarks, is_asked=True)
            except KafkaError as error:
                log.warning("checkpoint_not_written", path=directory.path, reason=error.message)

    async def write_online(self) -> None:
        """What is known now, in every directory that works; what goes wrong is logged."""
        for directory in self._homes.online():
            try:
                await self.write(directory)
            except KafkaError as error:
                log.warning("checkpoint_not_written", path=directory.path, reason=error.message)

    async def write(
        self, directory: LogDirectory, high_watermarks: HighWatermarks = None, *, is_asked: bool = False
    ) -> None:
        """KAFKA_STORAGE_ERROR when that fails."""
        async with self._writing:
            if is_asked:
                self._note_high_watermarks(directory, high_watermarks)
            checkpoint = self.of(directory)
            notes = self._truncation_notes(directory)
            try:
                if checkpoint.files or notes:
                    gone = await self._offload.run(_write, directory, checkpoint, list(notes.values()))
                    for name in [name for name, note in notes.items() if note in gone]:
                        if name in self._logs:
                            self._logs[name].truncation_forgotten(notes[name])
                directory.written(checkpoint)
            except OSError as error:
                message = f"cannot write the checkpoints of {directory.path}: {error}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    def of(self, directory: LogDirectory) -> Checkpoint:
        """What is to be written now."""
        for name, opened in self._logs.items():
            if self._homes.first(name) is not directory:
                continue
            directory.recovery_points[name] = opened.recovery_point
            # Never ahead of what is durable: after a crash a log must not end before it begins.
            start_offset = min(opened.start_offset, opened.flushed_offset)
            if start_offset > 0:
                directory.start_offsets[name] = start_offset
            else:
                directory.start_offsets.pop(name, None)
            if directory.cleaned_offsets.get(name, 0) > opened.truncated_to:
                directory.cleaned_offsets[name] = opened.truncated_to
            if directory.high_watermarks.get(name, 0) > opened.high_watermark_max:
                directory.high_watermarks[name] = opened.high_watermark_max
        return directory.checkpoint()

    def _note_high_watermarks(self, directory: LogDirectory, told: HighWatermarks) -> None:
        for name, opened in self._logs.items():
            if self._homes.first(name) is not directory:
                continue
            known = directory.high_watermarks.get(name)
            mark = told.get(name) if told is not None else opened.recovery_point if known is None else known
            if mark is None:
                continue
            # Never ahead of what is durable: a log that ends below it after a crash lost something.
            mark = min(mark, opened.flushed_offset, opened.high_watermark_max)
            if opened.damage is not None and known is not None:
                mark = max(mark, known)  # what is missing stays known until it is here again
            directory.high_watermarks[name] = mark

    def forget_truncations(self, directory: LogDirectory) -> None:
        """All logs are closed, and the checkpoints were written. Blocks."""
        for name, note in self._truncation_notes(directory).items():
            if self._logs[name].closed and self._homes.is_closed(name):
                note.remove()

    def _truncation_notes(self, directory: LogDirectory) -> dict[TopicPartition, NoteRemoval]:
        """Of logs that were truncated since the checkpoints were written."""
        found = {
            name: note
            for name, opened in self._logs.items()
            if (note := opened.truncation_note()) is not None
        }
        return {name: note for name, note in found.items() if self._homes.first(name) is directory}


def _write(
    directory: LogDirectory, checkpoint: Checkpoint, notes: Sequence[NoteRemoval]
) -> list[NoteRemoval]:
    """Runs on a worker thread. Returns the notes that are not needed any more."""
    directory.write(checkpoint)
    return [note for note in notes if note.run()]
