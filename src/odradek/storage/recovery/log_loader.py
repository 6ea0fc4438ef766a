"""Opens the log in a directory: lazily after a clean close, by recovery after a crash. Kafka calls it LogLoader.

The steps, in their order; each makes a part of the result:

    interrupted_truncation.py    what a crash interrupted is done; older checkpoints do not count
    start_loader.py              deletions that could not be written down; later where the log begins
    leftovers.py                 files of unfinished work go
    loaded_segments.py            the segments by their names
    after_clean_shutdown.py      the last one is opened by its end; if that is in doubt, or after a crash:
    after_crash.py               everything from the recovery point on is scanned, cut and synced, and read once for all of this
    epochs_loader.py             leader epochs
    producers_loader.py          producers, and the transaction indexes that must be made again
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Disk, DiskFile, Runtime
from odradek.storage.files import checkpoints, naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.files.damage import AbsentLogError, DamagedBatchError, LostRecordsError
from odradek.storage.files.lack_notes import read_note
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.files.steps import Steps
from odradek.storage.recovery.after_clean_shutdown import AfterCleanShutdown
from odradek.storage.recovery.after_crash import AfterCrash
from odradek.storage.recovery.context import LoadContext, OpenedLog, Opening, log
from odradek.storage.recovery.epochs_loader import EpochsLoader
from odradek.storage.recovery.file_truncation import TruncationPlan, write_plan
from odradek.storage.recovery.interrupted_truncation import TruncationNoted, finish_truncation
from odradek.storage.recovery.leftovers import clear_leftovers
from odradek.storage.recovery.loaded_segments import LoadedSegments
from odradek.storage.recovery.producers_loader import ProducersLoader
from odradek.storage.recovery.start_loader import StartLoader
from odradek.storage.segment.segment_list import SegmentList
from odradek.storage.segment.sparse_index import OFFSET_MAX

_OPEN_FILES_MAX: Final = 16


def load_log(runtime: Runtime, opening: Opening) -> Steps[OpenedLog]:
    """Loads the log. Blocks. Raises OSError, or LostRecordsError for damage to durable records that is not repairable."""
    try:
        return (yield from _load(runtime, opening, damage=None))
    except (LostRecordsError, DamagedBatchError) as lost:
        if not opening.repairable:
            raise
        log.error("log_opened_damaged", partition=opening.topic_partition, reason=lost.message)
        all_doubted = replace(opening, clean=False, recovery_point=0, durable_offset=0)
        return (yield from _load(runtime, all_doubted, damage=lost.message))


def _load(runtime: Runtime, opening: Opening, *, damage: str | None) -> Steps[OpenedLog]:
    """Loads a log. `damage`: why an opening that believed the checkpoints was given up."""
    disk, directory = runtime.disk, opening.directory
    if disk.exists(directory):
        names = disk.list_directory(directory)
    else:
        disk.make_directory(directory)
        names = []
    topic_id = _load_topic_id(disk, directory, names)
    if None not in (topic_id, opening.topic_id) and topic_id != opening.topic_id:
        message = f"{directory} belongs to topic id {topic_id}, not to {opening.topic_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, message)
    noted = None
    if naming.TRUNCATION in names:
        noted = finish_truncation(disk, opening)
        names = disk.list_directory(directory)
    files = OpenFiles(disk, _OPEN_FILES_MAX)
    context = LoadContext(
        disk=disk,
        files=files,
        now_ms=runtime.clock.wall_ms(),
        opening=noted.opening if noted is not None else opening,
    )
    loader = LogLoader(context, noted, topic_id=topic_id, damage=damage)
    try:
        return (yield from loader.run(names))
    except BaseException:
        loader.close()
        raise
    finally:
        files.close()


def _load_topic_id(disk: Disk, directory: str, names: Sequence[str]) -> UUID | None:
    """Returns the topic id in the directory; None when there is none, or when it cannot be read."""
    if naming.PARTITION_METADATA not in names:
        return None
    path = naming.join(directory, naming.PARTITION_METADATA)
    try:
        return checkpoints.parse_partition_metadata(disk.read(path))
    except BadCheckpointError as error:
        log.warning("topic_id_unreadable", path=path, reason=str(error))
        return None


class LogLoader:
    """The steps of opening one log, once it is known which topic it belongs to. `run` it once."""

    def __init__(
        self,
        context: LoadContext,
        truncation: TruncationNoted | None,
        *,
        topic_id: UUID | None,
        damage: str | None,
    ) -> None:
        """`truncation`: the checkpoints do not know of it. `topic_id`: the id in the directory. `damage`: see
        `OpenedLog`."""
        self._context = context
        self._topic_id = topic_id
        self._damage = damage
        self._damage_offset: int | None = None
        self._truncation_noted = truncation is not None
        self._high_watermark_max = truncation.high_watermark_max if truncation is not None else OFFSET_MAX
        self._segments = LoadedSegments(context)
        self._start = StartLoader(context, self._segments)
        self._after_clean_shutdown = AfterCleanShutdown(context, self._segments)
        self._epochs = EpochsLoader(context, self._segments)
        self._producers = ProducersLoader(context, self._segments)
        self._after_crash = AfterCrash(context, self._segments, self._producers)

    def close(self) -> None:
        """Closes the files after `run` failed."""
        self._segments.close()

    def run(self, names: list[str]) -> Steps[OpenedLog]:
        """Opens the log. `names`: the names of the files in its directory."""
        opening, segments = self._context.opening, self._segments
        names = self._tidy(names)
        segments.find(names)
        self._check_first(names)
        self._epochs.load(names)
        names_changed = not segments
        if names_changed:
            yield from self._create(names)
        else:
            if not (opening.clean and self._after_clean_shutdown.open_active()):
                self._after_crash.recover(names)
            if self._may_be_half_made:
                yield from self._make_names_durable(names)
                names_changed = True
        self._epochs.complete()
        start_offset = self._load_start_offset(names)
        if self._damage is not None:
            self._void_checkpoints(start_offset)
        producers = self._producers.load(names)
        self._epochs.trim(start_offset)
        snapshot_offset = self._producers.snapshot_offset
        note = read_note(self._context.disk, opening.directory) if naming.LACK_NOTE in names else None
        return OpenedLog(
            segments=SegmentList(
                segments.hand_over(self._epochs.epochs.latest),
                start_offset=start_offset,
                end_offset=segments.end_offset,
            ),
            epochs=self._epochs.epochs,
            epochs_changed=self._epochs.changed,
            topic_id=opening.topic_id or self._topic_id,
            topic_id_changed=not names_changed and self._topic_id is None and opening.topic_id is not None,
            producers=producers,
            transaction_sums=self._producers.transaction_sums,
            snapshot_offset=snapshot_offset,
            index_is_written=self._after_clean_shutdown.index_is_written,
            snapshot_due=snapshot_offset < segments.active.base_offset,
            start_is_doubted=self._start.is_doubted,
            names_changed=names_changed,
            cut_at_recovery=self._after_crash.cut_aside,
            truncation_noted=self._truncation_noted,
            high_watermark_max=self._high_watermark_max,
            damage=self._damage,
            lack_note=note,
            damage_offset=self._damage_offset,
        )

    @property
    def _may_be_half_made(self) -> bool:
        """Whether the log may be what was left when it could not be made: no name was synced after its first segment was there.
        Each checkpoint has the extent of a log that was made, also if it is empty."""
        segments = self._segments
        return (
            self._context.opening.first_offset is None and len(segments) == 1 and not segments[0].size_bytes
        )

    # ---- files -------------------------------------------------------------------------------------------------------

    def _tidy(self, names: list[str]) -> list[str]:
        """Removes what unfinished work left; returns the names that are there afterwards."""
        disk, directory = self._context.disk, self._context.directory
        if self._start.note_deletions(names):
            names = disk.list_directory(directory)
        names = clear_leftovers(disk, directory, names)
        keep_ms = self._context.opening.config.retention_ms
        for name in names:  # what recovery set aside is kept as long as records are
            path = naming.join(directory, name)
            if name.endswith(naming.CUT) and 0 <= keep_ms < self._context.now_ms - disk.modified_ms(path):
                log.info("cut_bytes_removed", path=path)
                disk.remove(path)
        return names

    def _create(self, names: Sequence[str]) -> Steps[None]:
        """Creates an empty log."""
        context, opening = self._context, self._context.opening
        if opening.must_exist:
            raise AbsentLogError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{opening.directory} holds no segment of a log"
            )
        if opening.durable_offset > opening.start_offset:
            raise context.lost(
                f"no segments are left, and it was durable up to offset {opening.durable_offset}"
            )
        # If later segments could outlive the name of the first, a log would seem to begin with them.
        self._segments.create(opening.start_offset)
        yield from self._make_names_durable(names)

    def _make_names_durable(self, names: Sequence[str]) -> Steps[None]:
        """Makes the topic id and the names of an empty log durable, before there is a record."""
        metadata = self._write_topic_id(names)
        if metadata is not None:
            try:
                yield metadata.sync
            finally:
                metadata.close()
        yield partial(self._context.disk.sync_directory, self._context.directory)

    def _write_topic_id(self, names: Sequence[str]) -> DiskFile | None:
        """Writes the topic id in its place and returns the file, which is not durable yet; None if the id is unknown.

        A crash meanwhile leaves a log without records, which any topic may claim. What is there already is written
        again: the sync of an earlier try may have failed, and a second one would wrongly succeed.
        """
        topic_id = self._context.opening.topic_id
        if topic_id is None:
            return None
        file = self._context.disk.open(self._context.path(naming.PARTITION_METADATA), create=True)
        try:
            if naming.PARTITION_METADATA in names:
                file.truncate(0)
            file.pwrite(checkpoints.format_partition_metadata(topic_id), 0)
            file.begin_sync()
        except BaseException:
            file.close()
            raise
        return file

    # ---- what is missing ---------------------------------------------------------------------------------------------

    def _check_first(self, names: Sequence[str]) -> None:
        """Checks that segments are not missing where the log begins."""
        began_at = self._start.missing_from(names)
        if began_at is None:
            return
        if self._damage is None:
            first = self._segments.base_offset
            problem = f"its first segment is {first}, and it began at offset {began_at} or before"
            raise self._context.lost(problem)
        self._damage_offset = began_at

    def _load_start_offset(self, names: Sequence[str]) -> int:
        """Returns the offset at which the log begins. Raises LostRecordsError when records that must be there are not."""
        opening, segments = self._context.opening, self._segments
        start_offset = max(opening.start_offset, segments.base_offset, self._start.load(names))
        if self._truncation_noted or self._damage is not None:
            # It may have begun inside of a batch that never came; or the batches after its start are lost.
            start_offset = min(start_offset, segments.end_offset)
        if segments.end_offset < opening.durable_offset:
            raise self._context.lost(
                f"it ends at {segments.end_offset}, and was durable up to offset {opening.durable_offset}"
            )
        if start_offset > segments.end_offset:
            raise self._context.lost(f"it ends at {segments.end_offset}, its start offset is {start_offset}")
        return start_offset

    def _void_checkpoints(self, start_offset: int) -> None:
        """Makes the checkpoints void: they must not make later appends look durable. The high watermark stays: as
        long as the log does not reach it again, something is missing.
        """
        active, end_offset = self._segments.active, self._segments.end_offset
        plan = TruncationPlan(
            base_offset=active.base_offset,
            position=active.size_bytes,
            end_offset=end_offset,
            start_offset=start_offset if self._damage_offset is None else self._damage_offset,
            recovery_point=end_offset,
            high_watermark_max=self._high_watermark_max,
            starts_empty=False,
            sweeps=False,
            is_done=True,
        )
        write_plan(self._context.disk, self._context.directory, plan)
        self._truncation_noted = True
