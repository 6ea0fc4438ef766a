"""All data directories of a broker and the logs in them.

Used on the event loop; what blocks goes through the runtime's offload. A directory that fails takes its own logs offline
and nobody else's. A name is never taken for proof: a log belongs to a topic if its `partition.metadata` has the topic's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Runtime
from odradek.storage import naming
from odradek.storage.checkpoints import kafka_id
from odradek.storage.durability import DISK_FULL, NO_DESCRIPTORS
from odradek.storage.faults import FaultKind
from odradek.storage.interrupted_moves import InterruptedMoves
from odradek.storage.log import Log
from odradek.storage.log_directory import Checkpoint, LogDirectory
from odradek.storage.open_files import OpenFiles
from odradek.storage.relocation import (
    FUTURE,
    REPLACED,
    FolderCopy,
    moving_directory,
    put_in_place,
    take_away,
)
from odradek.storage.results import DeletedSegment
from odradek.telemetry import events

log = events.get("storage")

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000


class LogDirectories:
    """See the module. `open`, then `open_log` for every partition; at the end `close_logs` and `close`."""

    def __init__(
        self,
        runtime: Runtime,
        directories: list[LogDirectory],
        cluster_id: str,
        *,
        producer_expiration_ms: int,
        open_files_max: int,
    ) -> None:
        self._runtime = runtime
        self._directories = directories
        self._producer_expiration_ms = producer_expiration_ms
        self._files = OpenFiles(runtime.disk, open_files_max)
        self._homes: dict[TopicPartition, list[LogDirectory]] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._not_closed: dict[TopicPartition, bool] = {}
        """Partitions whose files may not be as a clean close leaves them; True for those that this start touched."""
        self._doomed: list[str] = []
        self._checkpointing = asyncio.Lock()
        self.cluster_id: Final = cluster_id
        self.on_failure: Callable[[str, OSError], None] | None = None
        """Called with the path of a directory that went offline because a log met a disk error."""

    @classmethod
    def open(
        cls,
        runtime: Runtime,
        paths: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        new_cluster_id: Callable[[], str] | None = None,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        open_files_max: int = 1024,
    ) -> LogDirectories:
        """Lock the directories and check whose they are. Blocks; no log is opened yet.

        `cluster_id`: the cluster that they must belong to; without it, the one that they do belong to, or a new one.
        Raises ConfigError when one is in use, belongs to another cluster or broker, or none is usable. One that merely
        fails is offline, unless it is the first: the broker keeps its own state there.
        """
        if not paths or len(set(paths)) != len(paths):
            raise ConfigError(f"log.dirs must name at least one directory, each once, not {list(paths)}")
        opened: list[LogDirectory] = []
        try:
            opened += [LogDirectory.open(runtime.disk, path) for path in paths]
            found = _cluster_of(opened, cluster_id, node_id)
            name = found or cluster_id or (new_cluster_id or (lambda: kafka_id(runtime.entropy.uuid())))()
            self = cls(
                runtime,
                opened,
                name,
                producer_expiration_ms=producer_expiration_ms,
                open_files_max=open_files_max,
            )
            self._load(node_id)
        except BaseException:
            for directory in opened:
                directory.unlock()
            raise
        return self

    def _load(self, node_id: int) -> None:
        first, moves = self._directories[0], InterruptedMoves()
        for directory in self._online():
            if first.offline is not None:
                break  # before others get an identity that the first one, once it is back, does not share
            try:
                if directory.read_identity() is None:
                    directory.write_identity(self.cluster_id, node_id, self._runtime.entropy.uuid())
                self._take_in(directory, directory.load(), moves)
            except OSError as error:
                directory.failed(error)
        moves.settle(self._runtime.disk, self._homes, self._moved_in, self._doomed.append)
        for directory in self._directories:
            if directory.offline is not None:
                log.error("log_directory_offline", path=directory.path, reason=directory.offline)
        if first.offline is not None:
            raise ConfigError(f"data directory {first.path} cannot be used: {first.offline}")

    def _take_in(self, directory: LogDirectory, names: Iterable[str], moves: InterruptedMoves) -> None:
        for name in names:
            if moves.note(directory, name):
                continue
            if name.endswith(naming.DELETED_DIRECTORY):
                self._doomed.append(naming.join(directory.path, name))
                continue
            partition = naming.parse_partition_directory(name)
            if partition is not None and self._runtime.disk.is_directory(naming.join(directory.path, name)):
                self._homes.setdefault(partition, []).append(directory)
                self._not_closed[partition] = False

    def _moved_in(self, name: TopicPartition, directory: LogDirectory) -> None:
        self._homes[name] = [directory]
        self._not_closed[name] = False

    # ---- what there is ---------------------------------------------------------------------------------------------

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.offline is None]

    @property
    def home(self) -> str:
        """The first directory, where the broker keeps what belongs to no partition."""
        return self._directories[0].path

    @property
    def all_failed(self) -> bool:
        return not self._online()

    def all(self) -> list[LogDirectory]:
        return list(self._directories)

    def home_of(self, name: TopicPartition) -> str | None:
        """The directory that holds a partition."""
        homes = self._homes.get(name)
        return homes[0].path if homes else None

    def get(self, name: TopicPartition) -> Log | None:
        """An open log."""
        return self._logs.get(name)

    def strays(self, known: Iterable[TopicPartition]) -> list[str]:
        """Partition directories of partitions that are not `known`."""
        wanted = set(known)
        return [
            naming.join(directory.path, str(name))
            for name, directories in sorted(self._homes.items(), key=lambda entry: entry[0])
            for directory in directories
            if name not in wanted
        ]

    # ---- logs come and go ------------------------------------------------------------------------------------------

    async def open_log(
        self, name: TopicPartition, topic_id: UUID, config: LogConfig, *, is_new: bool = False
    ) -> Log:
        """Open a partition's log, or create it in the directory with the fewest. Only one call at a time for a name.

        Files of another topic that once had the name are set aside. KAFKA_STORAGE_ERROR when the log is damaged below
        its recovery point, or when it is not found while a directory is offline that may have it; `is_new` says that
        it cannot be there.
        """
        directory = self._existing(name)
        if directory is not None:
            try:
                return await self._open(directory, name, topic_id, config)
            except KafkaError as error:
                if error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
                    raise
            await self._set_aside(directory, name)
        elif not is_new and len(self._online()) < len(self._directories):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{name} may be in a log directory that is offline"
            )
        directory = self._emptiest()
        directory.forget(name)
        if directory.is_stale(name):
            # The files must not go on speaking of an older partition of this name: recovery would miss its records.
            await self._write_checkpoints_of(directory)
        return await self._open(directory, name, topic_id, config)

    def _existing(self, name: TopicPartition) -> LogDirectory | None:
        homes = self._homes.get(name)
        if not homes:
            return None
        if len(homes) > 1:
            paths = ", ".join(directory.path for directory in homes)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is in several log directories: {paths}; keep one"
            )
        if homes[0].offline is not None:
            message = f"{name}: log directory {homes[0].path} is offline: {homes[0].offline}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        return homes[0]

    def _emptiest(self) -> LogDirectory:
        online = self._online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        counts = {directory.path: 0 for directory in online}
        for homes in self._homes.values():
            for directory in homes:
                if directory.path in counts:
                    counts[directory.path] += 1
        return min(online, key=lambda directory: counts[directory.path])

    async def _open(
        self, directory: LogDirectory, name: TopicPartition, topic_id: UUID, config: LogConfig
    ) -> Log:
        is_new = name not in self._homes
        self._homes.setdefault(name, [directory])
        self._not_closed[name] = True
        try:
            opened = await self._runtime.offload.run(
                self._open_blocking, directory, name, topic_id, config, is_new
            )
        except KafkaError as error:
            if is_new:
                del self._homes[name]
            if isinstance(error.__cause__, OSError):
                log.error("log_not_opened", partition=name, error=error.__cause__)
            raise
        self._logs[name] = opened
        return opened

    def _open_blocking(
        self, directory: LogDirectory, name: TopicPartition, topic_id: UUID, config: LogConfig, is_new: bool
    ) -> Log:
        return Log.open(
            self._runtime,
            naming.join(directory.path, str(name)),
            config,
            topic_partition=name,
            clean=directory.was_clean or is_new,
            recovery_point=directory.recovery_points.get(name, 0),
            start_offset=directory.start_offsets.get(name, 0),
            cleaned_offset=directory.cleaned_offsets.get(name, 0),
            topic_id=topic_id,
            files=self._files,
            on_broken=self._broken,
        )

    async def _set_aside(self, directory: LogDirectory, name: TopicPartition) -> None:
        """Rename the directory of another topic's partition; a person may look into it."""
        path = naming.join(directory.path, str(name))
        target = self._retired_path(directory, name, naming.STRAY_DIRECTORY)
        log.warning("stray_log_set_aside", path=path, target=target)
        await self._rename(directory, path, target)
        self._forget(name)

    async def delete_log(self, name: TopicPartition) -> None:
        """Take a partition's files out of sight, durably; `remove_deleted` removes them. Nothing happens without any."""
        opened = self._logs.pop(name, None)
        if opened is not None:
            await self._runtime.offload.run(opened.abandon)
            opened.close()
        for directory in list(self._homes.get(name, ())):
            if directory.offline is None:
                path = naming.join(directory.path, str(name))
                target = self._retired_path(directory, name, naming.DELETED_DIRECTORY)
                await self._rename(directory, path, target)
                self._doomed.append(target)
                directory.forget(name)
        self._forget(name)

    # ---- moves -----------------------------------------------------------------------------------------------------

    def begin_move(self, name: TopicPartition, path: str) -> FolderCopy:
        """A copy of an open log into the directory at `path`, to be filled (`FolderCopy`) and given to `move_log`.

        LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR when the directory is offline.
        """
        target = next((directory for directory in self._directories if directory.path == path), None)
        if target is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among this broker's log.dirs")
        if target.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {target.offline}")
        future = moving_directory(name, self._runtime.entropy.uuid().hex, FUTURE)
        source = naming.join(self._homes[name][0].path, str(name))
        return FolderCopy(self._runtime.disk, source, naming.join(path, future))

    async def give_up_move(self, copy: FolderCopy) -> None:
        """Remove what was copied."""
        self._doomed.append(copy.target)
        await self.remove_deleted()

    async def move_log(
        self, name: TopicPartition, copy: FolderCopy, topic_id: UUID, config: LogConfig
    ) -> Log:
        """Close the log, copy what is missing, and open it at its new place. Nobody may use the old `Log` meanwhile.

        KAFKA_STORAGE_ERROR when that fails; the log is then closed, where it was or where it should be, and `open_log`
        finds it. Whatever happens, all that was appended is durable in one of the two places before this returns.
        """
        opened, source = self._logs.pop(name), self._homes[name][0]
        target = next(one for one in self._directories if copy.target.startswith(f"{one.path}/"))
        start_offset, flushed_offset = opened.start_offset, opened.end_offset
        await self._blocking(source, opened.close)
        source.recovery_points[name] = flushed_offset
        await self._blocking(target, copy.run, flushed_offset)
        target.recovery_points[name] = flushed_offset
        if start_offset > 0:
            target.start_offsets[name] = start_offset
        if name in source.cleaned_offsets:
            target.cleaned_offsets[name] = source.cleaned_offsets[name]
        await self._write_checkpoints_of(target)
        disk, replaced = (
            self._runtime.disk,
            copy.source
            + copy.target.removeprefix(naming.join(target.path, str(name))).removesuffix(FUTURE)
            + REPLACED,
        )
        await self._blocking(source, take_away, disk, copy, replaced)
        self._forget(name)
        source.forget(name)
        await self._blocking(target, put_in_place, disk, copy.target, naming.join(target.path, str(name)))
        self._doomed.append(replaced)
        log.info("log_moved", partition=name, path=target.path)
        return await self._open(target, name, topic_id, config)

    async def _blocking(
        self, directory: LogDirectory, work: Callable[..., object], *arguments: object
    ) -> None:
        """Work on another thread whose disk errors, but for those that pass, are this directory's."""
        try:
            await self._runtime.offload.run(work, *arguments)
        except OSError as error:
            called_off = isinstance(error, InterruptedError)
            if not called_off and error.errno not in DISK_FULL | NO_DESCRIPTORS:
                self._fail_directory(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path}: {error}") from error

    def _retired_path(self, directory: LogDirectory, name: TopicPartition, suffix: str) -> str:
        unique = self._runtime.entropy.uuid()
        return naming.join(directory.path, naming.retired_directory(name, unique, suffix))

    async def _rename(self, directory: LogDirectory, path: str, target: str) -> None:
        def rename() -> None:
            if self._runtime.disk.exists(path):
                self._runtime.disk.rename(path, target)
                self._runtime.disk.sync_directory(directory.path)

        try:
            await self._runtime.offload.run(rename)
        except OSError as error:
            self._fail_directory(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot rename {path}: {error}") from error

    def _forget(self, name: TopicPartition) -> None:
        self._homes.pop(name, None)
        self._not_closed.pop(name, None)

    # ---- the clockwork ---------------------------------------------------------------------------------------------

    async def apply_retention(
        self, opened: Log, now_ms: int, *, below: int | None = None
    ) -> list[DeletedSegment]:
        """Delete what a log's settings no longer keep, its files included, and forget producers that are idle."""
        if opened.failed is not None and opened.failed.kind is FaultKind.BROKEN:
            return []
        opened.producers.expire(now_ms, self._producer_expiration_ms)
        deleted = opened.apply_retention(now_ms, below=below)
        job = opened.removal_job(now_ms)
        if job is not None:
            try:
                await self._runtime.offload.run(job.run)
            except OSError as error:
                self.fail(opened, error)
            else:
                opened.removed(job, now_ms)
        return deleted

    async def remove_deleted(self) -> None:
        """Remove the directories of deleted partitions."""
        while self._doomed:
            path = self._doomed.pop()
            try:
                await self._runtime.offload.run(self._runtime.disk.remove_directory, path)
            except OSError as error:
                log.warning("directory_not_removed", path=path, error=error)

    async def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write down from where recovery would start, and where logs begin. Without `high_watermarks`, what is durable
        stands in for them.
        """
        for directory in self._online():
            try:
                await self._write_checkpoints_of(directory, high_watermarks)
            except KafkaError as error:
                log.warning("checkpoint_not_written", path=directory.path, reason=error.message)

    async def _write_checkpoints_of(
        self, directory: LogDirectory, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> None:
        async with self._checkpointing:
            checkpoint = self._checkpoint(directory, high_watermarks)
            try:
                if checkpoint.files:
                    await self._runtime.offload.run(directory.write, checkpoint)
                directory.written(checkpoint)
            except OSError as error:
                message = f"cannot write the checkpoints of {directory.path}: {error}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    def _checkpoint(
        self, directory: LogDirectory, high_watermarks: Mapping[TopicPartition, int] | None
    ) -> Checkpoint:
        for name, opened in self._logs.items():
            if self._homes[name][0] is not directory:
                continue
            directory.recovery_points[name] = opened.recovery_point
            # Never ahead of what is durable: after a crash a log must not end before it begins.
            start_offset = min(opened.start_offset, opened.flushed_offset)
            if start_offset > 0:
                directory.start_offsets[name] = start_offset
        marks = directory.recovery_points if high_watermarks is None else high_watermarks
        own = {name: mark for name, mark in marks.items() if directory in self._homes.get(name, ())}
        return directory.checkpoint(own)

    async def checkpoint(self, opened: Log) -> None:
        """Write the checkpoints of a log's directory now. KAFKA_STORAGE_ERROR when that fails."""
        homes = self._homes.get(opened.topic_partition)
        if homes and self._logs.get(opened.topic_partition) is opened:
            await self._write_checkpoints_of(homes[0])

    def cleaned_offset(self, name: TopicPartition) -> int | None:
        """Up to where the last compaction of the partition got; None when it is not known."""
        homes = self._homes.get(name)
        return homes[0].cleaned_offsets.get(name) if homes else None

    def note_cleaned(self, opened: Log, offset: int) -> None:
        """A compaction got so far; the next checkpoint says so."""
        homes = self._homes.get(opened.topic_partition)
        if homes and self._logs.get(opened.topic_partition) is opened:
            homes[0].cleaned_offsets[opened.topic_partition] = offset

    # ---- failures --------------------------------------------------------------------------------------------------

    def failed_logs(self) -> list[Log]:
        """Logs that a full disk stopped: `repair` may bring them back."""
        return [
            one for one in self._logs.values() if one.failed is not None and one.failed.kind is FaultKind.FULL
        ]

    async def repair(self, opened: Log) -> bool:
        """Give a log back whose disk was full, if there is space again."""
        job = opened.repair_job()
        if job is None:
            return False
        try:
            await self._runtime.offload.run(job.run)
        except OSError as error:
            self.fail(opened, error)
            return False
        opened.repaired(job)
        return opened.failed is None

    def fail(self, opened: Log, error: OSError) -> str:
        """A disk error that is final: take the log's whole directory offline; return its path."""
        directory = self._homes[opened.topic_partition][0]
        self._fail_directory(directory, error)
        return directory.path

    def _fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        was_online = directory.offline is None
        directory.failed(error)
        for name, opened in self._logs.items():
            if self._homes[name][0] is directory:
                opened.disk_failed(error)
        if was_online and self.on_failure is not None:
            self.on_failure(directory.path, error)

    def _broken(self, name: TopicPartition, error: OSError) -> None:
        """A log met an error in reading or writing."""
        homes = self._homes.get(name)
        if homes:
            self._fail_directory(homes[0], error)

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def close_logs(self) -> None:
        """Make every log durable and close it."""
        for name in list(self._logs):
            await self._runtime.offload.run(self._close_log, name)

    def _close_log(self, name: TopicPartition) -> None:
        opened = self._logs[name]
        try:
            clean = opened.failed is None
            opened.close()
        except OSError as error:
            log.error("log_not_closed", partition=name, error=error)
        else:
            if clean:
                self._not_closed.pop(name, None)

    def close(self) -> None:
        """Write the checkpoints, mark the directories whose logs are all closed cleanly, release the locks. Blocks."""
        for name in self._logs:
            if not self._logs[name].closed:
                self._close_log(name)
        for directory in self._online():
            # A directory that was clean stays so where a log was never opened; one that was not may hide damage there.
            left = [name for name in self._not_closed if directory in self._homes.get(name, ())]
            touched = [name for name in left if self._not_closed[name]]
            try:
                directory.write(self._checkpoint(directory, None))
                if not left or (directory.was_clean and not touched):
                    directory.mark_clean()
            except OSError as error:
                log.error("log_directory_not_closed", path=directory.path, error=error)
        for directory in self._directories:
            directory.unlock()
        self._files.close()


def _cluster_of(directories: list[LogDirectory], cluster_id: str | None, node_id: int) -> str | None:
    """The cluster that the directories belong to; None when all are new. ConfigError when they do not agree."""
    found: dict[str, str] = {}
    for directory in directories:
        if directory.offline is not None:
            continue
        try:
            identity = directory.read_identity()
        except OSError as error:
            directory.failed(error)
            continue
        if identity is None:
            continue
        if identity.node_id != node_id:
            raise ConfigError(
                f"data directory {directory.path} belongs to broker {identity.node_id}, this is broker {node_id}: "
                f"set node.id={identity.node_id} or use another directory"
            )
        if cluster_id is not None and identity.cluster_id != cluster_id:
            raise ConfigError(
                f"data directory {directory.path} belongs to cluster {identity.cluster_id}, not to {cluster_id}: "
                "a broker cannot change its cluster; use another directory"
            )
        found[identity.cluster_id] = directory.path
    if len(found) > 1:
        where = " and ".join(f"{path} to {cluster}" for cluster, path in found.items())
        raise ConfigError(f"the data directories belong to different clusters: {where}")
    return next(iter(found), None)
