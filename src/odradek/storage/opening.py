"""From a directory to an open log: lazily after a clean close, by recovery after a crash."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID
from zlib import crc32

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk, Runtime
from odradek.storage import checkpoints, naming
from odradek.storage.batch_walk import BrokenChain
from odradek.storage.checkpoints import BadCheckpointError
from odradek.storage.damage import DamagedBatchError, LostRecordsError
from odradek.storage.epochs import EpochHistory, EpochStart
from odradek.storage.index_checks import BuiltIndex, build_index, resume_index
from odradek.storage.leftovers import clear_leftovers
from odradek.storage.open_files import OpenFiles
from odradek.storage.producer_replay import replay_log
from odradek.storage.producer_snapshot import BadSnapshotError, decode_snapshot
from odradek.storage.producers import Producers
from odradek.storage.recovery import ScannedSegment, cut, rewrite, scan_file, set_aside
from odradek.storage.segment import OFFSET_MAX, Segment, write_index_files
from odradek.storage.segments import SegmentList
from odradek.storage.steps import Steps
from odradek.storage.transaction_index import is_sound
from odradek.storage.truncation import TruncationPlan, carry_out, read_plan, write_plan
from odradek.telemetry import events

log = events.get("storage")

_OPEN_FILES_MAX: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is to be opened; see `Log.open`."""

    directory: str
    parents: tuple[str, ...]
    """Directories whose names change when `directory` is created; none if its name is durable already."""
    config: LogConfig
    topic_partition: TopicPartition
    clean: bool
    recovery_point: int
    start_offset: int
    topic_id: UUID | None
    """None: whatever topic the directory belongs to."""
    files: OpenFiles
    cleaned_offset: int = 0
    """Up to where compaction got: below it offsets may be missing between segments. Ours leave none, Kafka's do."""
    repairable: bool = False
    """Another replica can give back what is damaged or missing: open with what is left."""
    start_is_checkpointed: bool = True
    """`start_offset` is what a checkpoint says, or would say if it was not 0: the file is there, and sound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """The parts of an open log."""

    segments: SegmentList
    epochs: EpochHistory
    epochs_changed: bool
    """They differ from the file."""
    topic_id: UUID | None
    topic_id_changed: bool
    """The file does not have it."""
    producers: Producers
    transaction_sums: dict[int, int] | None
    """What the file says of the transaction indexes; None when that cannot be read."""
    snapshot_offset: int
    """Of the newest snapshot; 0 without any."""
    index_is_written: bool
    """The active segment's index files are as a clean close leaves them."""
    snapshot_due: bool
    """No snapshot is as new as the active segment: with the others gone the producers could not be known again."""
    start_offset: int
    start_is_doubted: bool
    """Another replica may know of records that were deleted by request and are here again."""
    end_offset: int
    flushed_offset: int
    names_changed: bool
    """Something was created that no `sync_directory` has made durable yet."""
    cut_at_recovery: bool
    truncation_noted: bool
    """A file says that checkpoints do not know of a truncation yet."""
    high_watermark_max: int
    """What a checkpoint says above it is of a time before such a truncation."""
    damage: str | None
    """What is not here any more, though it was durable; None when nothing is known to be missing."""


def open_log(runtime: Runtime, opening: Opening) -> Steps[OpenedLog]:
    """Blocks. Raises OSError, or LostRecordsError for damage below the recovery point of what is not repairable."""
    try:
        return (yield from _Opener(runtime, opening).run())
    except (LostRecordsError, DamagedBatchError) as lost:
        if not opening.repairable:
            raise
        log.error("log_opened_damaged", partition=opening.topic_partition, reason=lost.message)
        all_doubted = replace(opening, clean=False, recovery_point=0)
        return (yield from _Opener(runtime, all_doubted, damage=lost.message).run())


class _Opener:
    """The steps of opening one log, and what they found so far."""

    def __init__(self, runtime: Runtime, opening: Opening, damage: str | None = None) -> None:
        """`damage`: why an opening that believed the checkpoints was given up."""
        self._disk: Disk = runtime.disk
        self._now_ms = runtime.clock.wall_ms()
        self._opening = opening
        self._directory = opening.directory
        # Readers elsewhere share the broker's open files; this may run on a thread of its own.
        self._files = OpenFiles(runtime.disk, _OPEN_FILES_MAX)
        self._segments: list[Segment] = []
        self._epochs = EpochHistory()
        self._end_offset = 0
        self._last_epoch = -1
        self._cut_aside = False
        self._start_is_doubted = False
        self._truncation_noted = False
        self._high_watermark_max = OFFSET_MAX
        self._damage = damage
        self._sums: dict[int, int] | None = {}
        self._snapshot_offset = 0
        self._index_is_written = False
        self._recovered: list[Segment] = []
        """What was scanned: its transaction indexes are made again."""

    def run(self) -> Steps[OpenedLog]:
        try:
            return (yield from self._run())
        except BaseException:
            for segment in self._segments:
                if segment.writer is not None:
                    segment.writer.close()
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
        names = clear_leftovers(self._disk, self._directory, names)
        self._remove_old_cuts(names)
        self._segments = self._list_segments(names)
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
            segment.trust.epoch_max = self._epochs.latest
        return OpenedLog(
            segments=SegmentList(self._segments),
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
            recovery_point, end_offset = plan.recovery_point, plan.end_offset
            self._high_watermark_max = plan.high_watermark_max
        self._opening = replace(
            opening,
            clean=False,
            recovery_point=min(opening.recovery_point, recovery_point),
            cleaned_offset=min(opening.cleaned_offset, end_offset),
        )

    def _void_checkpoints(self, start_offset: int) -> None:
        """What is appended from now on must not be taken for what they say was durable here. The high watermark stands: as
        long as the log does not reach it again, something is missing.
        """
        plan = TruncationPlan(
            base_offset=self._segments[-1].base_offset,
            position=self._segments[-1].size_bytes,
            end_offset=self._end_offset,
            start_offset=start_offset,
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

    def _segment(self, base_offset: int, size_bytes: int) -> Segment:
        segment = Segment(
            self._disk,
            self._files,
            self._directory,
            base_offset,
            size_bytes,
            index_interval_bytes=self._opening.config.index_interval_bytes,
        )
        segment.trust.gaps_below = self._opening.cleaned_offset
        return segment

    def _drop_empty(self, segments: list[Segment]) -> None:
        """Remove empty segments that others follow: a roll that did not succeed, after which the log went on."""
        for segment in segments:
            if not segment.size_bytes:
                log.warning("empty_segment_removed", path=segment.path(naming.LOG))
                self._disk.remove(segment.path(naming.LOG))
                self._segments.remove(segment)

    def _create(self, topic_id: UUID | None) -> Steps[None]:
        if self._opening.recovery_point > self._opening.start_offset:
            raise self._lost(f"no segments are left, the recovery point is {self._opening.recovery_point}")
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
        if self._end_offset < self._opening.recovery_point:
            raise self._lost(
                f"it ends at {self._end_offset}, the recovery point is {self._opening.recovery_point}"
            )
        if start_offset > self._end_offset:
            raise self._lost(f"it ends at {self._end_offset}, its start offset is {start_offset}")

    def _lost(self, problem: str) -> LostRecordsError:
        name = self._opening.topic_partition
        log.error("log_damaged", partition=name, directory=self._directory, problem=problem)
        message = (
            f"{name}: records that were on disk are damaged or missing: {problem}. To go on with what is left, take the "
            f"line of {name} out of {naming.RECOVERY_POINTS} and {naming.START_OFFSETS} while the broker is stopped"
        )
        return LostRecordsError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    # ---- after a clean close ---------------------------------------------------------------------------------------

    def _open_active(self) -> bool:
        """Open the last segment without reading more of it than its end. False when it is not as a clean close leaves it."""
        self._drop_empty(self._segments[:-1])
        if not self._follows_on():
            return False
        active = self._segments[-1]
        active.open_writer()
        try:
            built = self._resume(active)
            transactions = self._read_if_there(active.path(naming.TRANSACTION_INDEX))
            if not is_sound(transactions, active.base_offset, built.next_offset):
                raise BrokenChain(0, "the transaction index is not of this segment")
        except BrokenChain as damage:
            log.warning("clean_close_doubted", directory=self._directory, reason=str(damage))
            if active.writer is not None:
                active.writer.close()
                active.writer = None
            return False
        self._activate(active, built)
        return True

    def _follows_on(self) -> bool:
        """Whether the last segment, if it is empty, begins where the one before it ends; a leftover goes."""
        if len(self._segments) < 2 or self._segments[-1].size_bytes:
            return True
        last = self._segments[-2].last_batch()
        if last is None or last.last_offset + 1 < self._segments[-1].base_offset:
            return False
        if last.last_offset + 1 > self._segments[-1].base_offset:
            self._drop_empty(self._segments[-1:])
        self._last_epoch = last.leader_epoch
        return True

    def _resume(self, active: Segment) -> BuiltIndex:
        file, interval = active.log_file, active.index_interval_bytes
        offsets, times = (
            self._read_if_there(active.path(kind)) for kind in (naming.OFFSET_INDEX, naming.TIME_INDEX)
        )
        built = resume_index(file, active.base_offset, active.size_bytes, interval, offsets, times)
        if built is not None:
            self._index_is_written = True
            return built
        log.warning(
            "index_rebuilt", directory=self._directory, base_offset=active.base_offset, reason="in doubt"
        )
        return build_index(file, active.base_offset, active.size_bytes, interval)

    def _read_if_there(self, path: str) -> bytes:
        return self._disk.read(path) if self._disk.exists(path) else b""

    def _activate(self, active: Segment, built: BuiltIndex) -> None:
        active.index = built.index
        self._end_offset = built.next_offset
        self._last_epoch = max(self._last_epoch, built.leader_epoch)
        if active.size_bytes:
            active.first_append_ms = self._first_append_ms(active)

    def _first_append_ms(self, active: Segment) -> int:
        """When the segment before was last written, or what the first batch says, if that is not after the last write."""
        number = self._segments.index(active)
        if number > 0:
            return self._segments[number - 1].last_append_ms()
        written_ms, claimed_ms = active.last_append_ms(), active.mark(0).max_timestamp
        return min(claimed_ms, written_ms) if claimed_ms >= 0 else written_ms

    # ---- after a crash ---------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Scan from the recovery point on, cut at the first bad batch, make everything durable."""
        point = self._opening.recovery_point
        first = max(
            (n for n, segment in enumerate(self._segments) if segment.base_offset <= point), default=0
        )
        while first > 0 and not self._segments[first].size_bytes:
            first -= 1  # does the one before it end where it begins?
        segment = self._segments[first]
        self._drop_empty(self._segments[:first])
        first = number = self._segments.index(segment)
        scanned = self._scan(segment)
        while scanned.problem is None and number + 1 < len(self._segments):
            following, expected = self._segments[number + 1], scanned.next_offset
            if following.base_offset < expected:
                if following.size_bytes:
                    self._drop_from(
                        number + 1, expected, f"segment {following.base_offset} overlaps {expected - 1}"
                    )
                else:
                    self._drop_empty([following])
                continue
            if following.base_offset > max(expected, self._opening.cleaned_offset):
                self._drop_from(
                    number + 1, expected, f"offsets {expected} to {following.base_offset - 1} are missing"
                )
                break
            self._keep_sealed(segment, scanned)
            number += 1
            segment, scanned = following, self._scan(following)
        if scanned.problem is not None:
            problem = f"segment {segment.base_offset}: {scanned.problem}"
            self._drop_from(number + 1, scanned.next_offset, problem)
            self._cut_aside |= cut(self._disk, segment, scanned)
        if number > 0 and scanned.last_epoch < 0:
            before = self._segments[number - 1].last_batch()
            self._last_epoch = max(self._last_epoch, before.leader_epoch if before is not None else -1)
        self._keep_active(segment, scanned)
        self._recovered = self._segments[first:]
        for path in self._opening.parents:
            self._disk.sync_directory(path)  # the log's own follows with its producers
        log.debug(
            "log_scanned",
            partition=self._opening.topic_partition,
            recovery_point=point,
            end_offset=self._end_offset,
            segment_count=number + 1 - first,
        )

    def _scan(self, segment: Segment) -> ScannedSegment:
        file = self._disk.open(segment.path(naming.LOG), write=False)
        try:
            return scan_file(
                file,
                segment.base_offset,
                segment.size_bytes,
                index_interval_bytes=segment.index_interval_bytes,
            )
        finally:
            file.close()

    def _drop_from(self, number: int, end_offset: int, problem: str) -> None:
        """Take segments out of the log, the newest first, durably, before the one in front of them is cut."""
        if end_offset < self._opening.recovery_point:
            raise self._lost(problem)
        dropped = self._segments[number:]
        for segment in reversed(dropped):
            self._cut_aside |= set_aside(self._disk, segment)
        if dropped:
            self._disk.sync_directory(self._directory)
            del self._segments[number:]

    def _keep_sealed(self, segment: Segment, scanned: ScannedSegment) -> None:
        """Sync a scanned segment that others follow: what was read may have been in the page cache only."""
        self._last_epoch = scanned.last_epoch
        segment.trust.all()
        scanned.index.seal()
        write_index_files(self._disk, self._files, segment, scanned.index)
        rewrite(self._disk, segment, scanned, self._opening.recovery_point)
        for kind in (naming.LOG, naming.OFFSET_INDEX, naming.TIME_INDEX):
            file = self._disk.open(segment.path(kind))
            try:
                file.sync()
            finally:
                file.close()

    def _keep_active(self, segment: Segment, scanned: ScannedSegment) -> None:
        """Sync the last scanned segment and make it the active one."""
        segment.trust.all()
        rewrite(self._disk, segment, scanned, self._opening.recovery_point)
        writer = segment.open_writer()
        writer.log_file.sync()
        self._activate(segment, BuiltIndex(scanned.index, scanned.next_offset, scanned.last_epoch))

    # ---- what belongs to the log -----------------------------------------------------------------------------------

    def _load_epochs(self, names: list[str]) -> tuple[EpochStart, ...]:
        """What the checkpoint says: nothing when it is missing or damaged."""
        if naming.LEADER_EPOCHS in names:
            try:
                entries = checkpoints.parse_epochs(
                    self._disk.read(naming.join(self._directory, naming.LEADER_EPOCHS))
                )
                self._epochs = EpochHistory(entries)
            except BadCheckpointError as error:
                log.warning("epochs_ignored", directory=self._directory, reason=str(error))
        return self._epochs.entries

    def _rebuild_epochs(self) -> None:
        """The log has a later epoch than the checkpoint: read them off all batches."""
        self._epochs = EpochHistory()
        next_offset = self._segments[0].base_offset
        for segment in self._segments:
            for mark in segment.marks():
                self._epochs.assign(mark.leader_epoch, next_offset)
                next_offset = mark.last_offset + 1

    def _find_first_epochs(self) -> None:
        """The log may begin earlier than it did when the checkpoint was written: a deletion that a crash undid."""
        entries = self._epochs.entries
        if not entries or self._segments[0].base_offset >= entries[0].start_offset:
            return
        self._epochs = EpochHistory()
        next_offset = self._segments[0].base_offset
        for segment in self._segments:
            if next_offset >= entries[0].start_offset:
                break
            for mark in segment.marks():
                if next_offset >= entries[0].start_offset:
                    break
                self._epochs.assign(mark.leader_epoch, next_offset)
                next_offset = mark.last_offset + 1
        for epoch, start_offset in entries:
            self._epochs.assign(epoch, start_offset)

    def _trim_epochs(self, start_offset: int) -> None:
        # One that begins at the very end is of a leader that had written nothing yet.
        self._epochs.truncate_from_end(self._end_offset + 1)
        self._epochs.truncate_from_start(start_offset)

    def _load_start_offset(self, names: list[str]) -> int:
        """What the log's own directory says of it: the checkpoint may be lost, or older. 0 when that is nothing.

        If it cannot be read, the checkpoint is believed after a clean close alone. If it is not there, most likely nothing was
        ever deleted; but if the checkpoint is lost, too, nobody knows.
        """
        if naming.START_OFFSET not in names:
            self._doubt_start(self._opening.start_is_checkpointed)
            return 0
        path = naming.join(self._directory, naming.START_OFFSET)
        try:
            offset = checkpoints.parse_start_offset(self._read_if_there(path))
        except BadCheckpointError as error:
            log.warning("start_offset_ignored", path=path, reason=str(error))
            self._doubt_start(self._opening.start_is_checkpointed and self._opening.clean)
            return 0
        return offset if offset <= self._end_offset else 0

    def _doubt_start(self, is_known: bool) -> None:
        if self._opening.repairable and not is_known:
            log.warning("log_start_doubted", partition=self._opening.topic_partition)
            self._start_is_doubted = True

    def _load_topic_id(self, names: list[str]) -> UUID | None:
        if naming.PARTITION_METADATA not in names:
            return None
        path = naming.join(self._directory, naming.PARTITION_METADATA)
        try:
            return checkpoints.parse_partition_metadata(self._disk.read(path))
        except BadCheckpointError as error:
            log.warning("topic_id_unreadable", path=path, reason=str(error))
            return None

    def _load_producers(self, names: list[str]) -> Producers:
        """From the newest good snapshot, and the batches behind it: what retention took is nowhere else.

        The transaction indexes of segments that were scanned are made again, for which all of their batches are gone through.
        """
        self._sums = self._load_sums(names)
        scanned = min(
            self._recovered[0].base_offset if self._recovered else OFFSET_MAX, self._first_doubtful()
        )
        is_remade = scanned < OFFSET_MAX
        loaded = self._load_snapshots(names, scanned)
        if loaded:
            self._snapshot_offset = loaded[0][0]
        if not loaded or loaded[-1][0] > scanned:
            loaded.append((self._segments[0].base_offset, Producers()))
        if len(loaded) > 1:
            self._replay(*loaded[-1], index_from=scanned)
            scanned = OFFSET_MAX
        self._replay(*loaded[0], index_from=scanned)
        if is_remade:
            self._disk.sync_directory(self._directory)
        return loaded[0][1]

    def _load_sums(self, names: list[str]) -> dict[int, int] | None:
        """Of the transaction indexes; None when the file cannot be read, so that all of them are in doubt."""
        if naming.TRANSACTION_SUMS not in names:
            return {}
        path = naming.join(self._directory, naming.TRANSACTION_SUMS)
        try:
            return checkpoints.parse_transaction_sums(self._read_if_there(path))
        except BadCheckpointError as error:
            log.warning("transaction_sums_ignored", path=path, reason=str(error))
            return None

    def _first_doubtful(self) -> int:
        """The first segment whose transaction index is not what was written down of it. Kafka writes nothing down."""
        for segment in self._segments:
            if segment in self._recovered:
                break
            if (
                self._sums is None
                or self._sums.get(segment.base_offset, segment.aborted.sum) != segment.aborted.sum
            ):
                log.warning("transaction_index_doubted", path=segment.path(naming.TRANSACTION_INDEX))
                return segment.base_offset
        return OFFSET_MAX

    def _load_snapshots(self, names: list[str], scanned: int) -> list[tuple[int, Producers]]:
        """The newest good one, and, if that is behind the offset `scanned`, the newest that is not. Others may go."""
        bases = {segment.base_offset for segment in self._segments}
        offsets = [
            file.offset
            for name in names
            if (file := naming.parse_offset_file(name)) and file.kind == naming.SNAPSHOT
        ]
        loaded: list[tuple[int, Producers]] = []
        for offset in sorted(offsets, reverse=True):
            path = naming.join(self._directory, naming.offset_file(offset, naming.SNAPSHOT))
            is_wanted = not loaded or loaded[-1][0] > scanned >= offset
            if offset > self._end_offset or not (is_wanted or offset in bases):
                self._disk.remove(path)
            elif is_wanted:
                try:
                    loaded.append((offset, Producers(decode_snapshot(self._disk.read(path), self._now_ms))))
                except BadSnapshotError as error:
                    log.warning("snapshot_ignored", path=path, reason=str(error))
                    self._disk.remove(path)
        return loaded

    def _replay(self, offset: int, producers: Producers, *, index_from: int) -> None:
        try:
            replay_log(
                self._disk,
                producers,
                self._segments,
                end_offset=self._end_offset,
                from_offset=offset,
                index_from=index_from,
                now_ms=self._now_ms,
            )
        except BrokenChain as damage:
            raise self._lost(str(damage)) from None
