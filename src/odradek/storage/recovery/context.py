"""What is to be opened, what came of it, and what the steps in between share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk, Runtime
from odradek.storage.directories import naming
from odradek.storage.directories.lack_notes import LackNote
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.log.damage import LostRecordsError, lost_replica
from odradek.storage.log.leader_epochs import EpochHistory
from odradek.storage.log.segment_list import SegmentList
from odradek.storage.producers.producer_state import Producers
from odradek.storage.segment.index_checks import BuiltIndex
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.sparse_index import OFFSET_MAX
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
    """Below it nothing has to be looked at."""
    checkpointed_offset: int
    """From there to the recovery point segments may have been written just before a crash: is none of them missing?"""
    durable_offset: int
    """Everything below it was durable, so that it must be here; at least the recovery point."""
    first_offset: int | None
    """Where the first segment began; None when nobody knows."""
    start_offset: int
    topic_id: UUID | None
    """None: whatever topic the directory belongs to."""
    files: OpenFiles
    cleaned_offset: int = 0
    """Up to where compaction got: below it offsets may be missing between segments. Ours leave none, Kafka's do."""
    repairable: bool = False
    """Another replica can give back what is damaged or missing: open with what is left."""
    must_exist: bool = False
    """A log without any segment is not there, and is not made."""
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
    lack_note: LackNote | None
    """What a note says of that, which outlives a crash."""
    damage_offset: int | None
    """From where on it must be fetched again, in front of what is here; None when what is missing comes behind that."""


class OpeningState:
    """One log that is being opened, and what was found so far."""

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
        self._damage_offset: int | None = None
        self._sums: dict[int, int] | None = {}
        self._snapshot_offset = 0
        self._index_is_written = False
        self._recovered: list[Segment] = []
        """What was scanned: its transaction indexes are made again."""

    def _segment(self, base_offset: int, size_bytes: int) -> Segment:
        segment = Segment(
            self._disk,
            self._files,
            self._directory,
            base_offset,
            size_bytes,
            index_interval_bytes=self._opening.config.index_interval_bytes,
        )
        segment.reader.checked.gaps_below = self._opening.cleaned_offset
        return segment

    def _drop_empty(self, segments: list[Segment]) -> None:
        """Remove empty segments that others follow: a roll that did not succeed, after which the log went on."""
        for segment in segments:
            if not segment.size_bytes:
                log.warning("empty_segment_removed", path=segment.path(naming.LOG))
                self._disk.remove(segment.path(naming.LOG))
                self._segments.remove(segment)

    def _activate(self, active: Segment, built: BuiltIndex) -> None:
        active.index.keep_in_memory(built.index)
        self._end_offset = built.next_offset
        self._last_epoch = max(self._last_epoch, built.leader_epoch)
        if active.size_bytes:
            active.first_append_ms = self._first_append_ms(active)

    def _first_append_ms(self, active: Segment) -> int:
        """When the segment before was last written, or what the first batch says, if that is not after the last write."""
        number = self._segments.index(active)
        if number > 0:
            return self._segments[number - 1].records.last_append_ms()
        written_ms, claimed_ms = active.records.last_append_ms(), active.records.mark(0).max_timestamp
        return min(claimed_ms, written_ms) if claimed_ms >= 0 else written_ms

    def _read_if_there(self, path: str) -> bytes:
        return self._disk.read(path) if self._disk.exists(path) else b""

    def _lost(self, problem: str) -> LostRecordsError:
        name = self._opening.topic_partition
        log.error("log_damaged", partition=name, directory=self._directory, problem=problem)
        return lost_replica(name, f"records that were on disk are damaged or missing: {problem}")
