"""Writing down from where recovery would start, and where logs begin: the checkpoint files of each data directory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Offload
from odradek.storage.homes import Homes
from odradek.storage.log import Log
from odradek.storage.log_directory import Checkpoint, LogDirectory
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
            try:
                if checkpoint.files:
                    await self._offload.run(directory.write, checkpoint)
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
        marks = directory.recovery_points if high_watermarks is None else high_watermarks
        own = {name: mark for name, mark in marks.items() if directory in self._homes.of(name)}
        return directory.checkpoint(own)
