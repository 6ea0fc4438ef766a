"""Opening the logs of data directories: those that are found, those that are made, and those that lack something."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Runtime
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.directory_failures import DirectoryFailures
from odradek.storage.directories.imperfect_logs import ImperfectLogs
from odradek.storage.directories.log_creation import LogCreationBatch
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.placement import LogDirPlacement
from odradek.storage.directories.uncertain_logs import UncertainLogs
from odradek.storage.files import naming
from odradek.storage.files.checkpoints import BadCheckpointError, parse_partition_metadata
from odradek.storage.files.damage import AbsentLogError, DamagedBatchError, OnDamaged, lost_replica
from odradek.storage.files.lack_notes import LackNote, remove_note, write_note
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.files.steps import Steps, carry_out
from odradek.storage.log.log import Log
from odradek.storage.recovery.context import Opening
from odradek.telemetry import events

log = events.get("storage")


class MissingLogAction(Enum):
    """The action for a log that is not found."""

    MAKE = "make"
    """Make an empty one: it is new, or no one counts on it."""
    DOUBTED = "doubted"
    """Make an empty one, and let another replica lead if there is one: nothing says that it was here, or that it was not."""
    LACKS = "lacks"
    """Make an empty one, and note that it lacks what others have."""
    LOST = "lost"
    """Refuse it: it had records, and no one else has them."""


class LogOpenings:
    """Opens and creates logs. The contracts of `LogManager`'s methods of the same names apply."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        files: OpenFiles,
        placement: LogDirPlacement,
        logs: dict[TopicPartition, Log],
        checkpoints: Checkpointing,
        failures: DirectoryFailures,
        uncertain: UncertainLogs,
        imperfect: ImperfectLogs,
    ) -> None:
        self._runtime = runtime
        self._uncertain = uncertain
        self._files = files
        self._placement = placement
        self._logs = logs
        self._checkpoints = checkpoints
        self._failures = failures
        self._imperfect = imperfect
        self._creation = LogCreationBatch(runtime.offload)
        self._named: set[TopicPartition] = set()
        """Logs that were found at the start; their directories' names were then made durable, all at once."""
        self.has_made_logs = False
        """True if logs were made since this was last written to disk."""
        self.on_damaged: OnDamaged | None = None
        """Called when a reader met the first damaged batch of a log: its replica should not lead any longer."""

    def found(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Notes a directory of the partition that was there at the start."""
        self._placement.found(name, directory)
        self._named.add(name)

    def forget_name(self, name: TopicPartition) -> None:
        """Forgets the name: another directory has it now."""
        self._named.discard(name)

    # ---- opening -----------------------------------------------------------------------------------------------------

    async def open_log(
        self,
        name: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        is_new: bool,
        repairable: bool,
        lack: LackNote | None,
        if_absent: MissingLogAction | None,
        is_counted_on: bool,
        is_uncertain: bool,
    ) -> Log:
        directory = self._placement.usable(name)
        if directory is not None:
            try:
                if lack is not None:
                    await self._note_lack(directory, name, lack)
                must_exist = if_absent in (MissingLogAction.LACKS, MissingLogAction.LOST)
                return await self.open_in(
                    directory,
                    name,
                    topic_id,
                    config,
                    repairable=repairable,
                    must_exist=must_exist,
                    is_uncertain=is_uncertain,
                )
            except AbsentLogError:
                pass
            except KafkaError as error:
                if error.code is not ErrorCode.INCONSISTENT_TOPIC_ID:
                    raise
                await self._set_aside(directory, name)
                directory = None
        elif not is_new and not self._placement.all_online:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{name} may be in a log directory that is offline"
            )
        return await self._make(
            directory or self._placement.emptiest(),
            name,
            topic_id,
            config,
            if_absent or MissingLogAction.MAKE,
            is_counted_on,
        )

    async def _make(
        self,
        directory: LogDirectory,
        name: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        absent: MissingLogAction,
        is_counted_on: bool,
    ) -> Log:
        """Makes an empty log, unless the missing one is lost."""
        if absent is MissingLogAction.LOST:
            self._keep_in_mind(directory, name, topic_id)
            raise lost_replica(name, "its log is not in any log directory, though it was there")
        if absent is MissingLogAction.LACKS:
            reason = f"{name} was not found in a log directory, though it should be there"
            note = LackNote(reason=reason, is_counted_on=is_counted_on)
            await self._note_lack(directory, name, note)
        directory.forget(name)
        if directory.is_stale(name):
            # The files must not go on speaking of an older partition of this name: recovery would miss its records.
            await self._checkpoints.write(directory)
        opened = await self.open_in(directory, name, topic_id, config)
        if absent is MissingLogAction.DOUBTED:
            opened.lacked.doubt(1, f"{name} was not found in a log directory, and may have been there")
        return opened

    def _keep_in_mind(self, directory: LogDirectory, name: TopicPartition, topic_id: UUID) -> None:
        """Makes the next checkpoint contain the log, whatever happens to the evidence elsewhere."""
        if not any(online.held.get(name) == topic_id for online in self._placement.online()):
            directory.hold(name, topic_id)
            directory.has_unwritten_losses = True

    async def open_in(
        self,
        directory: LogDirectory,
        name: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        repairable: bool = False,
        must_exist: bool = False,
        is_uncertain: bool = False,
    ) -> Log:
        """Opens the log in this directory, or makes it there."""
        if is_uncertain:
            self._uncertain.expect(name, directory)
        is_new = name not in self._placement
        if is_new:
            self._named.discard(name)
        self._placement.opening(name, directory)
        try:
            steps = self._steps(directory, name, topic_id, config, is_new, repairable, must_exist)
            if is_new:
                opened = await self._creation.carry_out(steps)
            else:
                opened = await self._runtime.offload.run(carry_out, steps)
        except KafkaError as error:
            if is_new:
                self._placement.forget(name)
            if isinstance(error.__cause__, OSError):
                log.error("log_not_opened", partition=name, error=error.__cause__)
            raise
        self._logs[name] = opened
        self._imperfect.opened(opened)
        opened.share_descriptors()
        directory.hold(name, topic_id)
        if is_new:
            self.has_made_logs = True
        self._checkpoints.moved(opened)
        self._check_high_watermark(directory, opened)
        if is_uncertain:
            self._uncertain.opened(opened)
        return opened

    def _check_high_watermark(self, directory: LogDirectory, opened: Log) -> None:
        """Checks the high watermark: everything below it was durable here, so a log that ends before it lost something."""
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
            on_failed=self._failures.log_failed,
            on_damaged=self._met_damage,
            on_moved=self._checkpoints.moved,
            on_lack=self._imperfect.add,
        )

    def _met_damage(self, name: TopicPartition, damage: DamagedBatchError) -> None:
        if self.on_damaged is not None:
            self.on_damaged(name, damage)

    # ---- notes of what is lacking ------------------------------------------------------------------------------------

    async def _note_lack(self, directory: LogDirectory, name: TopicPartition, note: LackNote) -> None:
        path = naming.join(directory.path, str(name))
        await self._failures.blocking(directory, write_note, self._runtime.disk, path, note)

    async def settle_lack(self, opened: Log, note: LackNote | None) -> None:
        name = opened.topic_partition
        if self._logs.get(name) is not opened:
            return
        home = self._failures.home(name)
        if note is None:
            await self._failures.blocking(home, remove_note, self._runtime.disk, opened.directory)
        else:
            await self._note_lack(home, name, note)
        opened.lacked.note = note
        self._imperfect.opened(opened)

    # ---- strays ------------------------------------------------------------------------------------------------------

    def strays(self, known: Iterable[TopicPartition]) -> list[TopicPartition]:
        return list(dict.fromkeys(name for name, _ in self._placement.strays(known)))

    async def set_stray_aside(
        self, name: TopicPartition, is_placed_here: Callable[[UUID, int], bool]
    ) -> None:
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
        """Reads the topic id in a partition's directory; None when there is none that can be read. May be called on any
        thread."""
        try:
            return parse_partition_metadata(
                self._runtime.disk.read(naming.join(path, naming.PARTITION_METADATA))
            )
        except (OSError, BadCheckpointError):
            return None

    async def _set_aside(self, directory: LogDirectory, name: TopicPartition) -> None:
        """Renames the directory of another topic's partition, so that a person can look into it."""
        path = naming.join(directory.path, str(name))
        target = self.retired_path(directory, name, naming.STRAY_DIRECTORY)
        log.warning(
            "stray_log_set_aside",
            path=path,
            target=target,
            meaning="the cluster keeps no such replica here; if no one needs its records, delete it",
        )
        await self._failures.rename(directory, path, target)
        self._placement.forget(name)

    def retired_path(self, directory: LogDirectory, name: TopicPartition, suffix: str) -> str:
        """Returns a new name for the directory of a partition that is not to be opened any more."""
        unique = self._runtime.entropy.uuid()
        return naming.join(directory.path, naming.retired_directory(name, unique, suffix))
