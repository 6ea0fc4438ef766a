"""All data directories of a broker and the logs in them.

Used on the event loop; what blocks goes through the runtime's offload. A directory that fails takes its own logs offline
and no one else's. A name is never taken for proof: a log belongs to a topic if its `partition.metadata` has the topic's id.

`LogManager` is the face of `log_openings.py` (logs that are found and made), `checkpointing.py` (what is written down about
them), `log_relocation.py` (moves to another directory), `directory_failures.py` (disk errors), `deleted_directories.py` and
`logs_shutdown.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import TopicPartition, kafka_id
from odradek.runtime.descriptors import DescriptorBudget
from odradek.runtime.ports import Runtime
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.deleted_directories import DeletedDirectories
from odradek.storage.directories.directory_failures import DirectoryFailures
from odradek.storage.directories.disk_watch import DiskWatch
from odradek.storage.directories.identity import cluster_of
from odradek.storage.directories.imperfect_logs import ImperfectLogs
from odradek.storage.directories.interrupted_moves import InterruptedMoves
from odradek.storage.directories.log_dir_move import FolderCopy
from odradek.storage.directories.log_directory import LogDirectory, refuse_without_descriptors
from odradek.storage.directories.log_openings import LogOpenings, MissingLogAction
from odradek.storage.directories.log_relocation import LogRelocation
from odradek.storage.directories.logs_shutdown import LogsShutdown
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.directories.uncertain_logs import UncertainLogs
from odradek.storage.files import naming
from odradek.storage.files.damage import OnDamaged
from odradek.storage.files.lack_notes import LackNote
from odradek.storage.files.lifetime import DISK_FULL
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.log.health import FaultKind
from odradek.storage.log.log import Log
from odradek.storage.log.results import DeletedSegment
from odradek.storage.segment.sparse_index import OFFSET_MAX
from odradek.telemetry import events

__all__ = ["PRODUCER_ID_EXPIRATION_MS", "LogManager", "MissingLogAction"]

log = events.get("storage")

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000


class LogManager:
    """The data directories of a broker and their logs. `open`, then `open_log` for every partition; at the end `close_logs`
    and `close`."""

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
        self._warned_of_losses: dict[LogDirectory, None] = {}
        self._deleted = DeletedDirectories(runtime.disk, runtime.offload)
        self._failures = DirectoryFailures(runtime, self._placement, self._logs)
        self.disks: Final = DiskWatch(runtime, self._placement, self._failures)
        self._checkpoints = Checkpointing(
            runtime.offload, self._placement, self._logs, self._failures.own_file_failed
        )
        self._imperfect = ImperfectLogs(self._logs)
        self._uncertain = UncertainLogs(runtime.boot_id, self._placement, self._logs)
        self._openings = LogOpenings(
            runtime,
            uncertain=self._uncertain,
            files=self._files,
            placement=self._placement,
            logs=self._logs,
            checkpoints=self._checkpoints,
            failures=self._failures,
            imperfect=self._imperfect,
        )
        self._relocation = LogRelocation(
            runtime,
            placement=self._placement,
            logs=self._logs,
            checkpoints=self._checkpoints,
            failures=self._failures,
            openings=self._openings,
            deleted=self._deleted,
        )
        self._shutdown = LogsShutdown(runtime.offload, self._placement, self._logs, self._checkpoints)
        self.cluster_id: Final = cluster_id
        self.directory_id = ""
        """The id of the first directory. While it exists, its holder is this broker, and no other with the same number."""

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
        """Locks the directories and checks whose they are. Blocks; no log is opened yet.

        `cluster_id`: the cluster that they must belong to; without it, the one that they do belong to, or a new one.
        Raises ConfigError when one is in use, belongs to another cluster or broker, or none is usable. One that merely
        fails is offline, unless it is the first: the broker keeps its own state there.
        """
        if not paths or len(set(paths)) != len(paths):
            raise ConfigError(f"log.dirs must name at least one directory, each once, not {list(paths)}")
        opened: list[LogDirectory] = []
        try:
            opened += [LogDirectory.open(runtime.disk, path) for path in paths]
            stored_id = cluster_of(opened, cluster_id, node_id)
            name = stored_id or cluster_id or (new_cluster_id or (lambda: kafka_id(runtime.entropy.uuid())))()
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
                self._note_entries(directory, directory.load(), moves)
            except OSError as error:
                refuse_without_descriptors(directory.path, error)
                directory.failed(error)
        moves.settle(self._runtime.disk, self._placement, self._placement.moved_in, self._deleted.add)
        for directory in self._directories:
            if directory.offline is not None:
                log.error("log_directory_offline", path=directory.path, reason=directory.offline)
        if first.offline is not None:
            raise ConfigError(f"data directory {first.path} cannot be used: {first.offline}")

    def _note_entries(self, directory: LogDirectory, names: Iterable[str], moves: InterruptedMoves) -> None:
        for name in names:
            if moves.note(directory, name):
                continue
            if name.endswith(naming.DELETED_DIRECTORY):
                self._deleted.add(naming.join(directory.path, name))
                continue
            partition = naming.parse_partition_directory(name)
            if partition is not None and self._runtime.disk.is_directory(naming.join(directory.path, name)):
                self._openings.found(partition, directory)

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
        """Returns the directory that holds a partition."""
        home = self._placement.first(name)
        return home.path if home is not None else None

    def get(self, name: TopicPartition) -> Log | None:
        """Returns an open log."""
        return self._logs.get(name)

    @property
    def writer_file_count(self) -> int:
        """Files of logs that are open for writing."""
        return self._files.writer_file_count

    def share_descriptors(self, budget: DescriptorBudget) -> None:
        """Opens no more files of logs from now on than the budget has descriptors for."""
        self._files.resize(budget.readers, budget.writers)

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
        if_absent: MissingLogAction | None = None,
        is_counted_on: bool = True,
        is_uncertain: bool = False,
    ) -> Log:
        """Opens a partition's log, or creates it in the directory with the fewest. Only one call at a time for a name.

        `repairable`: there are other replicas, or someone accepted the loss, so a log that lost something durable is
        opened with what it has, see `damaged`. `lack` is why the log that is found has not all that it had, in one line: a
        note says so before it is opened, and whether the cluster counts on the replica (`is_counted_on`). With `is_uncertain`
        it is unknown whether it has. `if_absent` is what to do about one that is not found, or has no segment. Files of another
        topic that once had the name are set
        aside. KAFKA_STORAGE_ERROR when the log is damaged below its recovery point, or when it is not found while a
        directory is offline that may have it; `is_new` says that it cannot be there.
        """
        note = None if lack is None else LackNote(reason=lack, is_counted_on=is_counted_on)
        return await self._openings.open_log(
            name,
            topic_id,
            config,
            is_new=is_new,
            repairable=repairable,
            lack=note,
            if_absent=if_absent,
            is_counted_on=is_counted_on,
            is_uncertain=is_uncertain,
        )

    def may_have_forgotten(self, name: TopicPartition) -> bool:
        """Returns whether the machine lost its memory since the log was written, and the broker had not stopped before."""
        return self._uncertain.may_have_forgotten(name)

    def boot_id_to_note(self, directory: LogDirectory) -> str:
        """Returns the boot id for the directory's generation; see `UncertainLogs`."""
        return self._uncertain.boot_id_to_note(directory)

    def was_held(self, name: TopicPartition, topic_id: UUID) -> bool:
        """Returns whether any record in the directories shows that a log of the partition was made in one of them."""
        return any(directory.held_once(name, topic_id) for directory in self._placement.online())

    @property
    def lack_notes(self) -> Mapping[TopicPartition, LackNote]:
        """Notes of records that open logs lack."""
        return {name: opened.lack_note for name, opened in self._imperfect if opened.lack_note is not None}

    async def settle_lack(self, opened: Log, note: LackNote | None) -> None:
        """Replaces a log's note, or removes it if `note` is None. If that fails, raises KAFKA_STORAGE_ERROR and keeps the
        note."""
        await self._openings.settle_lack(opened, note)

    def strays(self, known: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns partitions that are not `known` and that have files here."""
        return self._openings.strays(known)

    async def set_stray_aside(
        self, name: TopicPartition, is_placed_here: Callable[[UUID, int], bool]
    ) -> None:
        """Renames the directories of a partition that is not known here, so that they are met once; nothing of them is deleted.

        A directory stays if its topic is unknown, or if its topic and partition are placed here.
        """
        await self._openings.set_stray_aside(name, is_placed_here)

    async def delete_log(self, name: TopicPartition) -> None:
        """Renames a partition's files durably; they are removed in the background. Does nothing without files."""
        self._uncertain.forget(name)
        opened = self._logs.pop(name, None)
        if opened is not None:
            if not opened.abandon_now():
                await self._runtime.offload.run(opened.abandon)
            opened.close()
        for directory in list(self._placement.of(name)):
            if directory.offline is None:
                path = naming.join(directory.path, str(name))
                target = self._openings.retired_path(directory, name, naming.DELETED_DIRECTORY)
                try:
                    await self._failures.rename(directory, path, target)
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
        """Returns a copy of an open log into the directory at `path`, to be filled (`FolderCopy`) and given to `move_log`.

        LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR when the directory is offline.
        """
        return self._relocation.begin_move(name, path)

    async def give_up_move(self, copy: FolderCopy) -> None:
        """Removes the copy."""
        await self._relocation.give_up_move(copy)

    async def move_log(
        self, name: TopicPartition, copy: FolderCopy, topic_id: UUID, config: LogConfig
    ) -> Log:
        """Closes the log, copies what is missing, and opens it at its new place. No one may use the old `Log` meanwhile.

        KAFKA_STORAGE_ERROR when that fails; the log is then closed, where it was or where it should be, and `open_log`
        finds it. Whatever happens, all that was appended is durable in one of the two places before this returns.
        """
        return await self._relocation.move_log(name, copy, topic_id, config)

    # ---- the clockwork ---------------------------------------------------------------------------------------------

    async def apply_retention(
        self, opened: Log, now_ms: int, *, below: int | None = None
    ) -> list[DeletedSegment]:
        """Deletes what a log's settings no longer keep, its files included, and expires producer ids that are idle."""
        if opened.failed is not None and opened.failed.kind is FaultKind.BROKEN:
            return []
        opened.producers.expire_idle_producers(now_ms, self.producer_expiration_ms)
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
        """Removes the directories of deleted partitions in the background, including those that a crash left."""
        self._deleted.remove_soon()

    async def remove_deleted(self) -> None:
        """Returns when the directories of deleted partitions are removed."""
        await self._deleted.remove()

    async def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Writes the offsets at which recovery would start, at which logs begin, and their high watermarks.
        For a log whose high watermark was never given, the durable end offset is written.
        """
        self._openings.has_made_logs = False
        if not await self._checkpoints.write_all(high_watermarks):
            self._openings.has_made_logs = True

    async def note_evidence(self) -> None:
        """Writes which logs were found to be lost. What cannot be written is logged, and stays in `owes_evidence`."""
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
                            meaning="the broker continues, and a restart does not know these losses until they "
                            "are written; free some space",
                        )
                    self._warned_of_losses[directory] = None
                else:
                    directory.has_unwritten_losses = False
                    self._warned_of_losses.pop(directory, None)

    @property
    def owes_evidence(self) -> bool:
        """True if a loss was detected that no disk records yet."""
        return any(directory.has_unwritten_losses for directory in self._directories)

    async def record_created_logs(self) -> None:
        """Writes the list of logs if some were made since the last time, so that a later loss is noticed."""
        if self._openings.has_made_logs:
            self._openings.has_made_logs = False  # a log that is made meanwhile sets it again
            if not await self._checkpoints.write_held():
                self._openings.has_made_logs = True
        if self.owes_evidence:
            await self.note_evidence()

    async def write_extents(self) -> bool:
        """Writes what of each log became durable since the last time. Errors are logged. Returns whether no directory was left
        out because it failed meanwhile."""
        return await self._checkpoints.write_extents()

    async def checkpoint(self, opened: Log) -> None:
        """Writes the checkpoints of a log's directory now. Raises KAFKA_STORAGE_ERROR when that fails."""
        home = self._placement.first(opened.topic_partition)
        if home is not None and self._logs.get(opened.topic_partition) is opened:
            await self._checkpoints.write(home)

    def cleaned_offset(self, name: TopicPartition) -> int | None:
        """Returns the end of the last compaction of the partition; None when it is unknown."""
        home = self._placement.first(name)
        cleaned = home.cleaned_offsets.get(name) if home is not None else None
        opened = self._logs.get(name)
        return (
            cleaned if cleaned is None or opened is None else min(cleaned, opened.truncation.end_offset_min)
        )

    def note_cleaned(self, opened: Log, offset: int) -> None:
        """Notes how far a compaction got, for the next checkpoint."""
        home = self._placement.first(opened.topic_partition)
        if home is not None and self._logs.get(opened.topic_partition) is opened:
            home.cleaned_offsets[opened.topic_partition] = offset
            opened.truncation.end_offset_min = OFFSET_MAX

    def checkpointed_high_watermark(self, name: TopicPartition) -> int | None:
        """Returns the high watermark that was last written or is about to be; None when unknown. Never above an open log's
        end."""
        home, opened = self._placement.first(name), self._logs.get(name)
        mark = home.high_watermarks.get(name) if home is not None else None
        return mark if mark is None or opened is None else min(mark, opened.end_offset)

    # ---- failures --------------------------------------------------------------------------------------------------

    def on_failure(self, hear: Callable[[str, OSError], None]) -> None:
        """Sets the callback for a directory that goes offline because a log met a disk error; it gets the path."""
        self._failures.on_failure = hear

    def on_damaged(self, hear: OnDamaged) -> None:
        """Sets the callback for the first damaged batch of a log that a reader meets: its replica should not lead any
        longer."""
        self._openings.on_damaged = hear

    def on_crowding(self, hear: Callable[[], None]) -> None:
        """Sets the callback for when there are logs to flush: see `drain_crowding_logs`. It is called inside appends."""
        self._files.on_crowding = hear

    def review_crowding(self) -> None:
        """Checks whether appends that wait for a descriptor can go on; see `OpenFiles.review_crowding`."""
        self._files.review_crowding()

    @property
    def damaged(self) -> Mapping[TopicPartition, str]:
        """Open logs that lack, or hold damaged, what was durable once; and how. Another replica must give it back."""
        return {name: opened.damage for name, opened in self._imperfect if opened.damage is not None}

    @property
    def doubtful(self) -> list[TopicPartition]:
        """Open logs whose start offset is unknown here: it must come from another replica."""
        return [name for name, opened in self._imperfect if opened.start_is_doubted]

    def drain_crowding_logs(self) -> list[TopicPartition]:
        """Logs that need a flush, though nothing waits for it: others need their descriptors. Each log is
        named once."""
        writers = self._files.drain_crowding()
        return (
            [name for name, open_log in self._logs.items() if open_log.writes_to(writers)] if writers else []
        )

    def failed_logs(self) -> list[Log]:
        """Logs that a full disk stopped: `repair` may bring them back."""
        return [
            opened
            for opened in self._logs.values()
            if opened.failed is not None and opened.failed.kind is FaultKind.FULL
        ]

    async def repair(self, opened: Log) -> bool:
        """Repairs a log whose disk was full, if there is space again."""
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
        """Takes the log's whole directory offline after a disk error that is final; returns its path."""
        return self._failures.fail(opened, error)

    def own_file_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Puts the directory offline, unless the disk is full, after a failed write to a file that belongs to no log."""
        self._failures.own_file_failed(directory, error)

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def close_logs(self) -> None:
        """Makes every log durable and closes it, several at a time: their syncs share the disk's work."""
        await self._deleted.close()
        await self._shutdown.close_logs()

    def close(self) -> None:
        """Writes the checkpoints, marks the directories whose logs are all closed cleanly, releases the locks. Blocks."""
        self._shutdown.close()
        for directory in self._directories:
            directory.unlock()
        self._files.close()
