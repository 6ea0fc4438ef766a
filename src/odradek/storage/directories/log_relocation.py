"""Moves an open log to another data directory (KIP-113); `log_dir_move.py` explains how that stays safe."""

from __future__ import annotations

from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Runtime
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.deleted_directories import DeletedDirectories
from odradek.storage.directories.directory_failures import DirectoryFailures
from odradek.storage.directories.log_dir_move import (
    FUTURE,
    REPLACED,
    FolderCopy,
    moving_directory,
    put_in_place,
    rename_source,
)
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_openings import LogOpenings
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.files import naming
from odradek.storage.log.log import Log
from odradek.telemetry import events

log = events.get("storage")


class LogRelocation:
    """Moves logs between directories. The contracts of `LogManager`'s methods of the same names apply."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        placement: LogDirPlacement,
        logs: dict[TopicPartition, Log],
        checkpoints: Checkpointing,
        failures: DirectoryFailures,
        openings: LogOpenings,
        deleted: DeletedDirectories,
    ) -> None:
        self._runtime = runtime
        self._placement = placement
        self._logs = logs
        self._checkpoints = checkpoints
        self._failures = failures
        self._openings = openings
        self._deleted = deleted

    def begin_move(self, name: TopicPartition, path: str) -> FolderCopy:
        target = next(
            (directory for directory in self._placement.directories if directory.path == path), None
        )
        if target is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among this broker's log.dirs")
        if target.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {target.offline}")
        future = moving_directory(name, self._runtime.entropy.uuid().hex, FUTURE)
        source = naming.join(self._failures.home(name).path, str(name))
        copy = FolderCopy(self._runtime.disk, source, naming.join(path, future))
        copy.truncation_count = self._logs[name].truncation.count
        return copy

    async def give_up_move(self, copy: FolderCopy) -> None:
        self._deleted.add(copy.target)
        await self._deleted.remove()

    async def move_log(
        self, name: TopicPartition, copy: FolderCopy, topic_id: UUID, config: LogConfig
    ) -> Log:
        opened, source = self._logs.pop(name), self._failures.home(name)
        target = next(
            directory
            for directory in self._placement.directories
            if copy.target.startswith(f"{directory.path}/")
        )
        start_offset, flushed_offset = opened.start_offset, opened.end_offset
        await self._failures.blocking(source, opened.close)
        if opened.truncation.count != copy.truncation_count:
            await self._failures.blocking(target, copy.forget_copied)
        source.recovery_points[name] = flushed_offset
        await self._failures.blocking(target, copy.run, flushed_offset)
        target.recovery_points[name] = flushed_offset
        if opened.extent is not None:
            target.extents[name] = opened.extent
        if start_offset > 0:
            target.start_offsets[name] = start_offset
        if name in source.high_watermarks:
            target.high_watermarks[name] = source.high_watermarks[name]
        if name in source.cleaned_offsets:
            target.cleaned_offsets[name] = source.cleaned_offsets[name]
        await self._checkpoints.write(target)
        await self._change_places(name, copy, source, target)
        log.info("log_moved", partition=name, path=target.path)
        return await self._openings.open_in(target, name, topic_id, config)

    async def _change_places(
        self, name: TopicPartition, copy: FolderCopy, source: LogDirectory, target: LogDirectory
    ) -> None:
        """Makes the two renames. The replaced directory is deleted in the background."""
        final = naming.join(target.path, str(name))
        replaced = copy.source + copy.target.removeprefix(final).removesuffix(FUTURE) + REPLACED
        await self._failures.blocking(source, rename_source, self._runtime.disk, copy, replaced)
        self._placement.forget(name)
        self._openings.forget_name(name)
        source.forget(name)
        await self._failures.blocking(target, put_in_place, self._runtime.disk, copy.target, final)
        self._deleted.add(replaced)
