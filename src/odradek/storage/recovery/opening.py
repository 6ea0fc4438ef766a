"""From a directory to an open log: lazily after a clean close, by recovery after a crash."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID
from zlib import crc32

from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Runtime
from odradek.storage.directories import checkpoints, naming
from odradek.storage.directories.checkpoints import BadCheckpointError
from odradek.storage.directories.lack_notes import read_note
from odradek.storage.directories.steps import Steps
from odradek.storage.log.damage import AbsentLogError, DamagedBatchError, LostRecordsError
from odradek.storage.log.segment_list import SegmentList
from odradek.storage.log.truncation import TruncationPlan, carry_out, read_plan, write_plan
from odradek.storage.recovery.after_clean_shutdown import AfterClose
from odradek.storage.recovery.after_crash import AfterCrash
from odradek.storage.recovery.context import OpenedLog, Opening, log
from odradek.storage.recovery.leftovers import clear_leftovers
from odradek.storage.recovery.log_state import Contents
from odradek.storage.segment.batch_walk import BrokenChain, walk
from odradek.storage.segment.segment import Segment


def open_log(runtime: Runtime, opening: Opening) -> Steps[OpenedLog]:
    """Blocks. Raises OSError, or LostRecordsError for damage to what was durable, and is not repairable."""
    try:
        return (yield from Opener(runtime, opening).run())
    except (LostRecordsError, DamagedBatchError) as lost:
        if not opening.repairable:
            raise
        log.error("log_opened_damaged", partition=opening.topic_partition, reason=lost.message)
        all_doubted = replace(opening, clean=False, recovery_point=0, durable_offset=0)
        return (yield from Opener(runtime, all_doubted, damage=lost.message).run())


class Opener(AfterClose, AfterCrash, Contents):
    """The steps of opening one log, in their order."""

    def run(self) -> Steps[OpenedLog]:
        try:
            return (yield from self._run())
        except BaseException:
            for segment in self._segments:
                segment.close_writer()
            raise
        finally:
            self._files.close()

    def _run(self) -> Steps[OpenedLog]:
        names = self._names()
        topic_id = self._load_topic_id(names)
        if None not in (topic_id, self._opening.topic_id) and topic_id != self._opening.topic_id:
            message = f"{self._directory} belongs to topic id {topic_id}, not to {self._opening.topic_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, message)
        self._finish_truncation(names)
        self._note_deletions(names)
        names = clear_leftovers(self._disk, self._directory, names)
        self._remove_old_cuts(names)
        self._segments = self._list_segments(names)
        self._check_first(names)
        created = not self._segments
        saved_epochs = self._load_epochs(names)
        if created:
            yield from self._create(topic_id)
        elif not (self._opening.clean and self._open_active()):
            self._recover()
        if self._last_epoch > (saved_epochs[-1].epoch if saved_epochs else -1):
            self._rebuild_epochs()
        elif self._recovered:
            self._find_first_epochs()
        start_offset = max(
            self._opening.start_offset, self._segments[0].base_offset, self._load_start_offset(names)
        )
        if self._truncation_noted or self._damage is not None:
            # It may have begun inside of a batch that never came; or the batches behind its start are lost.
            start_offset = min(start_offset, self._end_offset)
        self._check_range(start_offset)
        if self._damage is not None:
            self._void_checkpoints(start_offset)
        producers = self._load_producers(names)
        self._trim_epochs(start_offset)
        for segment in self._segments:
            segment.share(self._opening.files)
            segment.reader.checked.epoch_max = self._epochs.latest
        return OpenedLog(
            segments=SegmentList(self._segments, start_offset=start_offset, end_offset=self._end_offset),
            epochs=self._epochs,
            epochs_changed=self._epochs.entries != saved_epochs,
            topic_id=self._opening.topic_id or topic_id,
            topic_id_changed=not created and topic_id is None and self._opening.topic_id is not None,
            producers=producers,
            transaction_sums=self._sums,
            snapshot_offset=self._snapshot_offset,
            index_is_written=self._index_is_written,
            snapshot_due=self._snapshot_offset < self._segments[-1].base_offset,
            start_offset=start_offset,
            start_is_doubted=self._start_is_doubted,
            end_offset=self._end_offset,
            flushed_offset=self._end_offset,
            names_changed=created,
            cut_at_recovery=self._cut_aside,
            truncation_noted=self._truncation_noted,
            high_watermark_max=self._high_watermark_max,
            damage=self._damage,
            lack_note=read_note(self._disk, self._directory) if naming.LACK_NOTE in names else None,
            damage_offset=self._damage_offset,
        )

    # ---- files -----------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        if not self._disk.exists(self._directory):
            self._disk.make_directory(self._directory)
        return self._disk.list_directory(self._directory)

    def _finish_truncation(self, names: list[str]) -> None:
        """What a crash interrupted is done; what checkpoints may say of the time before does not count."""
        if naming.TRUNCATION not in names:
            return
        self._truncation_noted = True
        self._high_watermark_max = 0
        opening, recovery_point, end_offset = self._opening, 0, 0
        try:
            plan = read_plan(self._disk, self._directory)
        except BadCheckpointError as error:
            log.warning("truncation_unreadable", directory=self._directory, reason=str(error))
            plan = None
        if plan is not None:
            if not plan.is_done:
                log.info("truncation_finished", directory=self._directory, end_offset=plan.end_offset)
                carry_out(self._disk, self._directory, plan)
                write_plan(self._disk, self._directory, replace(plan, is_done=True))
                names[:] = self._disk.list_directory(self._directory)
            opening = replace(opening, start_offset=plan.start_offset)
            if plan.is_anew:
                opening = replace(opening, first_offset=plan.base_offset)
            recovery_point, end_offset = plan.recovery_point, plan.end_offset
            self._high_watermark_max = plan.high_watermark_max
        else:
            opening = replace(opening, first_offset=None)
        self._opening = replace(
            opening,
            clean=False,
            recovery_point=min(opening.recovery_point, recovery_point),
            durable_offset=min(opening.durable_offset, recovery_point),
            cleaned_offset=min(opening.cleaned_offset, end_offset),
        )

    def _note_deletions(self, names: list[str]) -> None:
        """Write down where the log begins, if segments were renamed to be deleted and there was no space yet to say so: when
        they are gone, nothing else shows that they went for a reason.
        """
        logs = [
            file for name in names if (file := naming.parse_offset_file(name)) and file.kind == naming.LOG
        ]
        known, left = self._known_first(names), [file.offset for file in logs if not file.state]
        renamed = [file.offset for file in logs if file.state == naming.DELETED]
        renamed = [offset for offset in renamed if left and offset < left[0]]
        if known is None or not renamed or left[0] <= known:
            return
        if self._renamed_end(max(renamed), left[0]) < left[0]:
            return  # what is missing is not what was deleted
        for offset in renamed:  # this makes space
            name = naming.offset_file(offset, naming.LOG) + naming.DELETED
            renamed_file = self._disk.open(naming.join(self._directory, name))
            try:
                renamed_file.truncate(0)
            finally:
                renamed_file.close()
        path = naming.join(self._directory, naming.START_OFFSET)
        self._disk.replace(path, checkpoints.format_start_offset(left[0]))
        names[:] = self._disk.list_directory(self._directory)

    def _renamed_end(self, offset: int, following: int) -> int:
        """The offset at which a renamed segment ends; `following` where its space was needed, so that nobody can see that."""
        name = naming.offset_file(offset, naming.LOG) + naming.DELETED
        file, end_offset = self._disk.open(naming.join(self._directory, name)), offset
        try:
            size_bytes = file.length()
            for mark in walk(file, 0, size_bytes):
                end_offset = mark.last_offset + 1
        except BrokenChain:
            return following
        finally:
            file.close()
        return end_offset if size_bytes else following

    def _known_first(self, names: list[str]) -> int | None:
        """Where the first segment begins, or before; None when nobody knows."""
        if self._opening.first_offset is None:
            return None
        moved_to = self._moved_start() if naming.START_OFFSET in names else None
        return max(self._opening.first_offset, self._opening.start_offset, moved_to or 0)

    def _check_first(self, names: list[str]) -> None:
        """That segments are not missing where the log begins. Deletions say in advance that they will be."""
        known = self._known_first(names)
        if known is None or not self._segments or self._segments[0].base_offset <= known:
            return
        if self._damage is None:
            problem = f"its first segment is {self._segments[0].base_offset}, and it began at offset {known} or before"
            raise self._lost(problem)
        self._damage_offset = known

    def _void_checkpoints(self, start_offset: int) -> None:
        """What is appended from now on must not be taken for what they say was durable here. The high watermark stands: as
        long as the log does not reach it again, something is missing.
        """
        plan = TruncationPlan(
            base_offset=self._segments[-1].base_offset,
            position=self._segments[-1].size_bytes,
            end_offset=self._end_offset,
            start_offset=start_offset if self._damage_offset is None else self._damage_offset,
            recovery_point=self._end_offset,
            high_watermark_max=self._high_watermark_max,
            is_anew=False,
            sweeps=False,
            is_done=True,
        )
        write_plan(self._disk, self._directory, plan)
        self._truncation_noted = True

    def _remove_old_cuts(self, names: list[str]) -> None:
        """What recovery set aside is kept as long as records are."""
        keep_ms = self._opening.config.retention_ms
        for name in names:
            path = naming.join(self._directory, name)
            if name.endswith(naming.CUT) and 0 <= keep_ms < self._now_ms - self._disk.modified_ms(path):
                log.info("cut_bytes_removed", path=path)
                self._disk.remove(path)

    def _list_segments(self, names: list[str]) -> list[Segment]:
        """By name and size; only transaction indexes, which few have, are read."""
        segments: list[Segment] = []
        present = frozenset(names)
        for name in names:
            file = naming.parse_offset_file(name)
            if file is not None and file.kind == naming.LOG and not file.state:
                size_bytes = self._disk.length(naming.join(self._directory, name))
                segments.append(self._segment(file.offset, size_bytes))
                index = naming.offset_file(file.offset, naming.TRANSACTION_INDEX)
                if index in present:
                    data = self._disk.read(naming.join(self._directory, index))
                    segments[-1].aborted.found(len(data), crc32(data))
        return segments

    def _create(self, topic_id: UUID | None) -> Steps[None]:
        if self._opening.must_exist:
            raise AbsentLogError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._directory} holds no segment of a log"
            )
        if self._opening.durable_offset > self._opening.start_offset:
            raise self._lost(
                f"no segments are left, and it was durable up to offset {self._opening.durable_offset}"
            )
        if topic_id is None and self._opening.topic_id is not None:
            yield from self._write_topic_id(self._opening.topic_id)
        segment = self._segment(self._opening.start_offset, 0)
        segment.begin()
        # If later segments could outlive the name of the first, a log would seem to begin with them. The topic's id becomes
        # durable with it, before there is a record.
        self._segments.append(segment)
        self._end_offset = segment.base_offset
        yield partial(self._disk.sync_directory, self._directory)

    def _write_topic_id(self, topic_id: UUID) -> Steps[None]:
        """Whole, or not there; its name is not durable yet."""
        path = naming.join(self._directory, naming.PARTITION_METADATA)
        file = self._disk.open(path + naming.TEMPORARY, create=True)
        try:
            file.truncate(0)
            file.pwrite(checkpoints.format_partition_metadata(topic_id), 0)
            yield file.sync
        finally:
            file.close()
        self._disk.rename(path + naming.TEMPORARY, path)

    def _check_range(self, start_offset: int) -> None:
        if self._end_offset < self._opening.durable_offset:
            raise self._lost(
                f"it ends at {self._end_offset}, and was durable up to offset {self._opening.durable_offset}"
            )
        if start_offset > self._end_offset:
            raise self._lost(f"it ends at {self._end_offset}, its start offset is {start_offset}")
