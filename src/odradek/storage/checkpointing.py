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
                await self.write(directory, high_watermarks)
            except KafkaError as error:
                log.warning("checkpoint_not_written", path=directory.path, reason=error.message)

    async def write(self, directory: LogDirectory, high_watermarks: HighWatermarks = None) -> None:
        """KAFKA_STORAGE_ERROR when that fails."""
        async with self._writing:
            checkpoint = self.of(directory, high_watermarks)
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

    def of(self, directory: LogDirectory, high_watermarks: HighWatermarks = None) -> Checkpoint:
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
        marks = directory.recovery_points if high_watermarks is None else high_watermarks
        own = {name: mark for name, mark in marks.items() if directory in self._homes.of(name)}
        return directory.checkpoint(own)

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
