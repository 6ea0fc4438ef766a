"""All data directories of a broker and the logs in them.

Used on the event loop; what blocks goes through the runtime's offload. A directory that fails takes its own logs offline
and nobody else's. A name is never taken for proof: a log belongs to a topic if its `partition.metadata` has the topic's id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Runtime
from odradek.storage.directories import naming
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.checkpoints import BadCheckpointError, kafka_id, parse_partition_metadata
from odradek.storage.directories.deleted_directories import DeletedDirectories
from odradek.storage.directories.identity import cluster_of
from odradek.storage.directories.interrupted_moves import InterruptedMoves
from odradek.storage.directories.lack_notes import LackNote, remove_note, write_note
from odradek.storage.directories.log_creation import LogCreationBatch
from odradek.storage.directories.log_dir_move import (
    FUTURE,
    REPLACED,
    FolderCopy,
    moving_directory,
    put_in_place,
    take_away,
)
from odradek.storage.directories.log_directory import LogDirectory, refuse_without_descriptors
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.directories.steps import Steps, carry_out
from odradek.storage.log.damage import AbsentLogError, DamagedBatchError, OnDamaged, lost_replica
from odradek.storage.log.health import FaultKind
from odradek.storage.log.lifetime import DISK_FULL, NO_DESCRIPTORS
from odradek.storage.log.log import Log
from odradek.storage.log.results import DeletedSegment
from odradek.storage.recovery.context import Opening
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.telemetry import events

log = events.get("storage")
_lacks = events.caused_by_peers("storage")
"""Of descriptors, which strangers can take."""

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
_CLOSED_AT_ONCE: Final = 4
_CLOSED_IN_A_ROW: Final = 64


class Absent(Enum):
    """What to do about a log that is not found."""

    MAKE = "make"
    """Make an empty one: it is new, or nobody counts on it."""
    DOUBTED = "doubted"
    """Make an empty one, and let another replica lead if there is one: nothing says that it was here, or that it was not."""
    LACKS = "lacks"
    """Make an empty one, and note that it lacks what others have."""
    LOST = "lost"
    """Refuse it: it had records, and nobody else has them."""


class LogManager:
    """See the module. `open`, then `open_log` for every partition; at the end `close_logs` and `close`."""

    def __init__(
        self,
        runtime: Runtime,
        directories: list[LogDirectory],
        cluster_id: str,
        *,
        producer_expiration_ms: int,
        open_files_max: int,
        writers_max: int,
    ) -> None:
        self._runtime = runtime
        self._directories = directories
        self.producer_expiration_ms = producer_expiration_ms
        self._files = OpenFiles(runtime.disk, open_files_max, writers_max)
        self._placement = LogDirPlacement(directories)
        self._logs: dict[TopicPartition, Log] = {}
        self._has_made_logs = False
        self._warned_of_losses: dict[LogDirectory, None] = {}
        self._named: set[TopicPartition] = set()
        """Logs that were found at the start, when their directories' names were made durable, all at once."""
        self._deleted = DeletedDirectories(runtime.disk, runtime.offload)
        self._checkpoints = Checkpointing(runtime.offload, self._placement, self._logs, self.own_file_failed)
        self._making = LogCreationBatch(runtime.offload)
        self.cluster_id: Final = cluster_id
        self.directory_id = ""
        """Of the first directory, for as long as it exists: who has it is this broker, and no other with the same number."""
        self.on_failure: Callable[[str, OSError], None] | None = None
        """Called with the path of a directory that went offline because a log met a disk error."""
        self.on_damaged: OnDamaged | None = None
        """Called when a reader met the first damaged batch of a log: its replica should not lead any longer."""

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
    ) -> LogManager:
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
            found = cluster_of(opened, cluster_id, node_id)
            name = found or cluster_id or (new_cluster_id or (lambda: kafka_id(runtime.entropy.uuid())))()
            self = cls(
                runtime,
                opened,
                name,
                producer_expiration_ms=producer_expiration_ms,
                open_files_max=runtime.descriptors.readers,
                writers_max=runtime.descriptors.writers,
            )
            self._load(node_id)
        except BaseException:
            for directory in opened:
                directory.unlock()
            raise
        return self

    def _load(self, node_id: int) -> None:
        first, moves = self._directories[0], InterruptedMoves()
        for directory in self._placement.online():
            if first.offline is not None:
                break  # before others get an identity that the first one, once it is back, does not share
            try:
                directory_id = directory.identify(self.cluster_id, node_id, self._runtime.entropy.uuid)
                if directory is first:
                    self.directory_id = directory_id
                self._take_in(directory, directory.load(), moves)
            except OSError as error:
                refuse_without_descriptors(directory.path, error)
                directory.failed(error)
        moves.settle(self._runtime.disk, self._placement, self._placement.moved_in, self._deleted.add)
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
                self._deleted.add(naming.join(directory.path, name))
                continue
            partition = naming.parse_partition_directory(name)
            if partition is not None and self._runtime.disk.is_directory(naming.join(directory.path, name)):
                self._placement.found(partition, directory)
                self._named.add(partition)

    # ---- what there is ---------------------------------------------------------------------------------------------

    @property
    def home(self) -> str:
        """The first directory, where the broker keeps what belongs to no partition."""
        return self._directories[0].path

    @property
    def all_failed(self) -> bool:
        return not self._placement.online()

    def all(self) -> list[LogDirectory]:
        return list(self._directories)

    def log_directory_of(self, name: TopicPartition) -> str | None:
        """The directory that holds a partition."""
        home = self._placement.first(name)
        return home.path if home is not None else None

    def get(self, name: TopicPartition) -> Log | None:
        """An open log."""
        return self._logs.get(name)

    # ---- logs come and go ------------------------------------------------------------------------------------------

    async def open_log(
        self,
        name: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        is_new: bool = False,
        repairable: bool = False,
        lack: str | None = None,
        if_absent: Absent | None = None,
        is_counted_on: bool = True,
    ) -> Log:
        """Open a partition's log, or create it in the directory with the fewest. Only one call at a time for a name.

        `repairable`: there are other replicas, or somebody accepted the loss, so a log that lost something durable is
        opened with what it has, see `damaged`. `lack` is why the log that is found has not all that it had, in one line: a
        note says so before it is opened, and whether the cluster counts on the replica (`is_counted_on`). `if_absent` is
        what to do about one that is not found, or has no segment. Files of another topic that once had the name are set
        aside. KAFKA_STORAGE_ERROR when the log is damaged below its recovery point, or when it is not found while a
        directory is offline that may have it; `is_new` says that it cannot be there.
        """
        directory = self._placement.usable(name)
        if directory is not None:
            try:
                if lack is not None:
                    await self._note_lack(directory, name, LackNote(reason=lack, is_counted_on=is_counted_on))
                must_exist = if_absent in (Absent.LACKS, Absent.LOST)
                return await self._open(
                    directory, name, topic_id, config, repairable=repairable, must_exist=must_exist
                )
            except AbsentLogError:
                pass
            except KafkaError as error:
                if error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
                    raise
                await self._set_aside(directory, name)
                directory = None
        elif not is_new and len(self._placement.online()) < len(self._directories):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{name} may be in a log directory that is offline"
            )
        directory = directory or self._placement.emptiest()
        what = if_absent or Absent.MAKE
        if what is Absent.LOST:
            self._keep_in_mind(directory, name, topic_id)
            raise lost_replica(name, "its log is not in any log directory, though it was there")
        if what is Absent.LACKS:
            reason = f"{name} was not found in a log directory, though it should be there"
            note = LackNote(reason=reason, is_counted_on=is_counted_on)
            await self._note_lack(directory, name, note)
        directory.forget(name)
        if directory.is_stale(name):
            # The files must not go on speaking of an older partition of this name: recovery would miss its records.
            await self._checkpoints.write(directory)
        opened = await self._open(directory, name, topic_id, config)
        if what is Absent.DOUBTED:
            opened.lacked.is_only_doubted = True
            opened.lacks(1, f"{name} was not found in a log directory, and may have been there")
        return opened

    def was_held(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Whether a log of the partition was made in one of the directories, as far as anything there tells."""
        return any(directory.held_once(name, topic_id) for directory in self._placement.online())

    def _keep_in_mind(self, directory: LogDirectory, name: TopicPartition, topic_id: UUID) -> None:
        """The next checkpoint says that the log was here, whatever becomes of the evidence elsewhere."""
        if not any(online.held.get(name) == topic_id for online in self._placement.online()):
            directory.hold(name, topic_id)
            directory.has_unwritten_losses = True

    # ---- logs that lack something ----------------------------------------------------------------------------------

    async def _note_lack(self, directory: LogDirectory, name: TopicPartition, note: LackNote) -> None:
        path = naming.join(directory.path, str(name))
        await self._blocking(directory, write_note, self._runtime.disk, path, note)

    @property
    def lack_notes(self) -> Mapping[TopicPartition, LackNote]:
        """Of open logs."""
        return {name: one.lack_note for name, one in self._logs.items() if one.lack_note is not None}

    async def settle_lack(self, opened: Log, note: LackNote | None) -> None:
        """Replace the note of a log, or take it away. KAFKA_STORAGE_ERROR when that fails: the note stays as it is."""
        name = opened.topic_partition
        if self._logs.get(name) is not opened:
            return
        if note is None:
            await self._blocking(self._home(name), remove_note, self._runtime.disk, opened.directory)
        else:
            await self._note_lack(self._home(name), name, note)
        opened.lacked.note = note

    async def _open(
        self,
        directory: LogDirectory,
        name: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        repairable: bool = False,
        must_exist: bool = False,
    ) -> Log:
        is_new = name not in self._placement
        if is_new:
            self._named.discard(name)
        self._placement.opening(name, directory)
        try:
            steps = self._steps(directory, name, topic_id, config, is_new, repairable, must_exist)
            if is_new:
                opened = await self._making.carry_out(steps)
            else:
                opened = await self._runtime.offload.run(carry_out, steps)
        except KafkaError as error:
            if is_new:
                self._placement.forget(name)
            if isinstance(error.__cause__, OSError):
                log.error("log_not_opened", partition=name, error=error.__cause__)
            raise
        self._logs[name] = opened
        opened.share_descriptors()
        directory.hold(name, topic_id)
        if is_new:
            self._has_made_logs = True
        self._checkpoints.moved(opened)
        self._check_high_watermark(directory, opened)
        return opened

    def _check_high_watermark(self, directory: LogDirectory, opened: Log) -> None:
        """Everything below it was durable here: a log that ends before it lost something."""
        name = opened.topic_partition
        mark = min(directory.high_watermarks.get(name, 0), opened.truncation.high_watermark_max)
        if name in directory.high_watermarks:
            directory.high_watermarks[name] = mark
        if opened.end_offset < mark:
            opened.lacks(mark, f"{name} ends at {opened.end_offset}, below its high watermark {mark}")

    def _steps(
        self,
        directory: LogDirectory,
        name: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        is_new: bool,
        repairable: bool,
        must_exist: bool,
    ) -> Steps[Log]:
        extent = None if is_new else directory.extents.get(name)
        opening = Opening(
            directory=naming.join(directory.path, str(name)),
            config=config,
            topic_partition=name,
            files=self._files,
            clean=directory.was_clean or is_new,
            recovery_point=directory.recovery_points.get(name, 0),
            checkpointed_offset=directory.checkpointed_points.get(name, 0),
            durable_offset=extent.end_offset if extent is not None else 0,
            first_offset=extent.first_offset if extent is not None else None,
            start_offset=directory.start_offsets.get(name, 0),
            start_is_checkpointed=directory.knows_starts or is_new,
            cleaned_offset=directory.cleaned_offsets.get(name, 0),
            topic_id=topic_id,
            is_named=name in self._named,
            repairable=repairable,
            must_exist=must_exist,
        )
        return Log.opening(
            self._runtime,
            opening,
            on_broken=self._broken,
            on_damaged=self._met_damage,
            on_moved=self._checkpoints.moved,
        )

    async def _set_aside(self, directory: LogDirectory, name: TopicPartition) -> None:
        """Rename the directory of another topic's partition; a person may look into it."""
        path = naming.join(directory.path, str(name))
        target = self._retired_path(directory, name, naming.STRAY_DIRECTORY)
        log.warning(
            "stray_log_set_aside",
            path=path,
            target=target,
            meaning="the cluster keeps no such replica here; if nobody needs its records, delete it",
        )
        await self._rename(directory, path, target)
        self._placement.forget(name)

    def strays(self, known: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Partitions that are not `known`, and that have files here."""
        return list(dict.fromkeys(name for name, _ in self._placement.strays(known)))

    async def set_stray_aside(
        self, name: TopicPartition, is_placed_here: Callable[[UUID, int], bool]
    ) -> None:
        """Rename the directories of a partition that is not known here, so that they are met once; nothing of them is deleted.

        A directory stays that does not say which topic it belongs to, or whose topic and partition are placed here.
        """
        for directory in list(self._placement.of(name)):
            if directory.offline is not None or name in self._logs:
                continue
            path = naming.join(directory.path, str(name))
            topic_id = await self._runtime.offload.run(self._topic_id_in, path)
            if topic_id is None:
                log.warning(
                    "stray_log_left_alone", path=path, reason="nothing in it says which topic it is of"
                )
            elif is_placed_here(topic_id, name.partition):
                log.warning("stray_log_left_alone", path=path, reason="its topic has another name now")
            else:
                await self._set_aside(directory, name)
                directory.forget(name)

    def _topic_id_in(self, path: str) -> UUID | None:
        """On any thread."""
        try:
            return parse_partition_metadata(
                self._runtime.disk.read(naming.join(path, naming.PARTITION_METADATA))
            )
        except (OSError, BadCheckpointError):
            return None

    async def delete_log(self, name: TopicPartition) -> None:
        """Take a partition's files out of sight, durably; they are removed in the background. Nothing happens without any."""
        opened = self._logs.pop(name, None)
        if opened is not None:
            await self._runtime.offload.run(opened.abandon)
            opened.close()
        for directory in list(self._placement.of(name)):
            if directory.offline is None:
                path = naming.join(directory.path, str(name))
                target = self._retired_path(directory, name, naming.DELETED_DIRECTORY)
                try:
                    await self._rename(directory, path, target)
                except KafkaError as error:
                    if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in DISK_FULL:
                        raise
                    # Even a name needs space, and deleting is what makes some.
                    await self._runtime.offload.run(self._runtime.disk.remove_directory, path)
                else:
                    self._deleted.add(target)
                directory.forget(name)
        for directory in self._placement.online():
            if name in directory.held:  # it was lost, and is wanted no longer
                directory.forget(name)
        self._placement.forget(name)

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
        source = naming.join(self._home(name).path, str(name))
        copy = FolderCopy(self._runtime.disk, source, naming.join(path, future))
        copy.truncation_count = self._logs[name].truncation.count
        return copy

    async def give_up_move(self, copy: FolderCopy) -> None:
        """Remove what was copied."""
        self._deleted.add(copy.target)
        await self.remove_deleted()

    async def move_log(
        self, name: TopicPartition, copy: FolderCopy, topic_id: UUID, config: LogConfig
    ) -> Log:
        """Close the log, copy what is missing, and open it at its new place. Nobody may use the old `Log` meanwhile.

        KAFKA_STORAGE_ERROR when that fails; the log is then closed, where it was or where it should be, and `open_log`
        finds it. Whatever happens, all that was appended is durable in one of the two places before this returns.
        """
        opened, source = self._logs.pop(name), self._home(name)
        target = next(one for one in self._directories if copy.target.startswith(f"{one.path}/"))
        start_offset, flushed_offset = opened.start_offset, opened.end_offset
        await self._blocking(source, opened.close)
        if opened.truncation.count != copy.truncation_count:
            await self._blocking(target, copy.forget_copied)
        source.recovery_points[name] = flushed_offset
        await self._blocking(target, copy.run, flushed_offset)
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
        disk, replaced = (
            self._runtime.disk,
            copy.source
            + copy.target.removeprefix(naming.join(target.path, str(name))).removesuffix(FUTURE)
            + REPLACED,
        )
        await self._blocking(source, take_away, disk, copy, replaced)
        self._placement.forget(name)
        self._named.discard(name)
        source.forget(name)
        await self._blocking(target, put_in_place, disk, copy.target, naming.join(target.path, str(name)))
        self._deleted.add(replaced)
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
            if error.errno not in DISK_FULL:
                self._fail_directory(directory, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot rename {path}: {error}") from error

    # ---- the clockwork ---------------------------------------------------------------------------------------------

    async def apply_retention(
        self, opened: Log, now_ms: int, *, below: int | None = None
    ) -> list[DeletedSegment]:
        """Delete what a log's settings no longer keep, its files included, and forget producers that are idle."""
        if opened.failed is not None and opened.failed.kind is FaultKind.BROKEN:
            return []
        opened.producers.expire(now_ms, self.producer_expiration_ms)
        deleted = opened.apply_retention(now_ms, below=below)
        job = opened.jobs.removal_job(now_ms)
        if job is not None:
            try:
                await self._runtime.offload.run(job.run)
            except OSError as error:
                self.fail(opened, error)
            else:
                opened.jobs.removed(job, now_ms + opened.config.file_delete_delay_ms)
        return deleted

    def remove_deleted_soon(self) -> None:
        """Remove the directories of deleted partitions in the background, those that a crash left, too."""
        self._deleted.remove_soon()

    async def remove_deleted(self) -> None:
        """Return when the directories of deleted partitions are gone."""
        await self._deleted.remove()

    async def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write down from where recovery would start, where logs begin, and their high watermarks. Of a log whose high
        watermark nobody ever told, what is durable stands in for it.
        """
        self._has_made_logs = False
        if not await self._checkpoints.write_all(high_watermarks):
            self._has_made_logs = True

    async def note_evidence(self) -> None:
        """Write down now what was found to be lost. What cannot be written is logged, and stays among `owes_evidence`."""
        for directory in self._placement.online():
            if directory.has_unwritten_losses:
                try:
                    await self._checkpoints.write(directory)
                except KafkaError as error:
                    if directory not in self._warned_of_losses:
                        log.error(
                            "losses_not_noted",
                            path=directory.path,
                            reason=error.message,
                            meaning="the broker goes on, and takes its disks for what they were until this is "
                            "written; make space",
                        )
                    self._warned_of_losses[directory] = None
                else:
                    directory.has_unwritten_losses = False
                    self._warned_of_losses.pop(directory, None)

    @property
    def owes_evidence(self) -> bool:
        """Something was found to be lost, and no disk says so yet."""
        return any(directory.has_unwritten_losses for directory in self._directories)

    async def record_created_logs(self) -> None:
        """Write down which logs there are, if some were made since that was done: one that is lost later is missed then."""
        if self._has_made_logs:
            self._has_made_logs = False  # a log that is made meanwhile sets it again
            if not await self._checkpoints.write_online():
                self._has_made_logs = True
        if self.owes_evidence:
            await self.note_evidence()

    async def write_extents(self) -> None:
        """Write down what of each log became durable since the last time. What goes wrong is logged."""
        await self._checkpoints.write_extents()

    async def checkpoint(self, opened: Log) -> None:
        """Write the checkpoints of a log's directory now. KAFKA_STORAGE_ERROR when that fails."""
        home = self._placement.first(opened.topic_partition)
        if home is not None and self._logs.get(opened.topic_partition) is opened:
            await self._checkpoints.write(home)

    def cleaned_offset(self, name: TopicPartition) -> int | None:
        """Up to where the last compaction of the partition got; None when it is not known."""
        home = self._placement.first(name)
        cleaned = home.cleaned_offsets.get(name) if home is not None else None
        opened = self._logs.get(name)
        return (
            cleaned if cleaned is None or opened is None else min(cleaned, opened.truncation.end_offset_min)
        )

    def note_cleaned(self, opened: Log, offset: int) -> None:
        """A compaction got so far; the next checkpoint says so."""
        home = self._placement.first(opened.topic_partition)
        if home is not None and self._logs.get(opened.topic_partition) is opened:
            home.cleaned_offsets[opened.topic_partition] = offset
            opened.truncation.end_offset_min = OFFSET_MAX

    def checkpointed_high_watermark(self, name: TopicPartition) -> int | None:
        """As it was last written down, or is about to be; None when it is not known. Never above the end of an open log."""
        home, opened = self._placement.first(name), self._logs.get(name)
        mark = home.high_watermarks.get(name) if home is not None else None
        return mark if mark is None or opened is None else min(mark, opened.end_offset)

    # ---- failures --------------------------------------------------------------------------------------------------

    @property
    def damaged(self) -> Mapping[TopicPartition, str]:
        """Open logs that lack, or hold damaged, what was durable once; and how. Another replica must give it back."""
        return {name: one.damage for name, one in self._logs.items() if one.damage is not None}

    @property
    def doubtful(self) -> list[TopicPartition]:
        """Open logs of which nothing here says where they begin: another replica must."""
        return [name for name, one in self._logs.items() if one.start_is_doubted]

    def _met_damage(self, name: TopicPartition, damage: DamagedBatchError) -> None:
        if self.on_damaged is not None:
            self.on_damaged(name, damage)

    def failed_logs(self) -> list[Log]:
        """Logs that a full disk stopped: `repair` may bring them back."""
        return [
            one for one in self._logs.values() if one.failed is not None and one.failed.kind is FaultKind.FULL
        ]

    async def repair(self, opened: Log) -> bool:
        """Give a log back whose disk was full, if there is space again."""
        job = opened.jobs.repair_job()
        if job is None:
            return False
        try:
            await self._runtime.offload.run(job.run)
        except OSError as error:
            self.fail(opened, error)
            return False
        opened.jobs.repaired(job)
        return opened.failed is None

    def fail(self, opened: Log, error: OSError) -> str:
        """A disk error that is final: take the log's whole directory offline; return its path."""
        directory = self._home(opened.topic_partition)
        self._fail_directory(directory, error)
        return directory.path

    def own_file_failed(self, directory: LogDirectory, error: OSError) -> None:
        """A file of ours, which belongs to no log, could not be written: the directory is offline, unless the disk is full."""
        if error.errno not in DISK_FULL and not isinstance(error, InterruptedError):
            self._fail_directory(directory, error)

    def _fail_directory(self, directory: LogDirectory, error: OSError) -> None:
        if error.errno in NO_DESCRIPTORS:  # the process has none left: that says nothing of the disk
            _lacks.error("too_many_open_files", path=directory.path, error=error)
            return
        was_online = directory.offline is None
        directory.failed(error)
        for name, opened in self._logs.items():
            if self._placement.first(name) is directory:
                opened.disk_failed(error)
        if was_online and self.on_failure is not None:
            self.on_failure(directory.path, error)

    def _broken(self, name: TopicPartition, error: OSError) -> None:
        """A log met an error in reading or writing."""
        home = self._placement.first(name)
        if home is not None:
            self._fail_directory(home, error)

    def _home(self, name: TopicPartition) -> LogDirectory:
        """Where a log is that is open."""
        home = self._placement.first(name)
        assert home is not None, f"{name} is open and has no directory"
        return home

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def close_logs(self) -> None:
        """Make every log durable and close it, several at a time: their syncs share what the disk does for one."""
        await self._deleted.close()
        waiting = deque(self._logs)
        await asyncio.gather(*(self._close_waiting(waiting) for _ in range(_CLOSED_AT_ONCE)))

    async def _close_waiting(self, waiting: deque[TopicPartition]) -> None:
        while waiting:
            name = waiting.popleft()
            opened = self._logs[name]
            clean, done = opened.failed is None, None
            try:
                await self._let_files_follow(opened)
                job = opened.jobs.begin_close()
                if job is not None:
                    await self._runtime.offload.run(job.run)
                    done = job
                elif not opened.abandon_now():
                    await self._runtime.offload.run(opened.abandon)
            except (OSError, KafkaError) as error:
                await self._runtime.offload.run(opened.abandon)
                clean = False
                log.error("log_not_closed", partition=name, error=error)
            opened.jobs.end_close(done)
            if clean:
                self._placement.closed_cleanly(name)
            if len(waiting) % _CLOSED_IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def _let_files_follow(self, opened: Log) -> None:
        """A log that was truncated a moment ago is closed when its files are those that it says it has."""
        if opened.awaits_truncation and (job := opened.flush_job()) is not None:
            await self._runtime.offload.run(job.run)
            opened.flushed(job)

    def _close_log(self, name: TopicPartition) -> None:
        opened = self._logs[name]
        try:
            clean = opened.failed is None
            opened.close()
        except (OSError, KafkaError) as error:
            log.error("log_not_closed", partition=name, error=error)
        else:
            if clean:
                self._placement.closed_cleanly(name)

    def close(self) -> None:
        """Write the checkpoints, mark the directories whose logs are all closed cleanly, release the locks. Blocks."""
        for name in self._logs:
            if not self._logs[name].closed:
                self._close_log(name)
        for directory in self._placement.online():
            try:
                directory.write(self._checkpoints.of(directory))
                self._checkpoints.forget_truncations(directory)
                if self._placement.is_clean(directory):
                    directory.mark_clean()
            except OSError as error:
                log.error("log_directory_not_closed", path=directory.path, error=error)
        for directory in self._directories:
            directory.unlock()
        self._files.close()
