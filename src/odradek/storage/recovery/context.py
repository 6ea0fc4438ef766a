"""The log to open, the result, and the state that the steps in between share."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk
from odradek.storage.files import naming
from odradek.storage.files.damage import LostRecordsError, lost_replica
from odradek.storage.files.lack_notes import LackNote
from odradek.storage.files.leader_epochs import EpochHistory
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.producers.producer_state import Producers
from odradek.storage.segment.segment_list import SegmentList
from odradek.telemetry import events

log = events.get("storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The log to open, and the known facts about it.

    A log that was closed cleanly is opened without reading it. Otherwise everything from `recovery_point` on is scanned, cut at
    the last good batch, and synced.
    """

    directory: str
    """It is created, with an empty log, if it is not there."""
    config: LogConfig
    topic_partition: TopicPartition
    files: OpenFiles
    """Files through which the open log is read."""
    clean: bool
    """The log was closed cleanly."""
    recovery_point: int
    """Recovery reads nothing below this offset."""
    checkpointed_offset: int = -1
    """Between this offset and the recovery point, segments may have been written just before a crash; a missing one is
    noticed. By default the recovery point."""
    durable_offset: int = 0
    """Everything below this offset was durable: KAFKA_STORAGE_ERROR when it is damaged or missing. No log is better than one
    that lost records and does not say so. At least the recovery point."""
    first_offset: int | None = None
    """The base offset of the first segment; None when it is unknown. Opening raises KAFKA_STORAGE_ERROR when the first
    segment begins after it, unless the log's start moved since."""
    start_offset: int = 0
    """The start offset in the checkpoint."""
    start_is_checkpointed: bool = True
    """True if `start_offset` is from a checkpoint that is there and sound; a checkpoint contains no offset that is 0."""
    cleaned_offset: int = 0
    """The end of the compacted part: below it offsets may be missing between segments. Ours leave none, Kafka's do."""
    topic_id: UUID | None = None
    """Opening raises INCONSISTENT_TOPIC_ID, and touches nothing, when the directory has another topic's id. None accepts any
    topic."""
    is_named: bool = False
    """The directory's name is durable."""
    repairable: bool = False
    """Another replica can give back what is damaged or missing: open with what is left, cut at the first bad batch."""
    must_exist: bool = False
    """A log without any segment is not there, and is not made: AbsentLogError."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "durable_offset", max(self.durable_offset, self.recovery_point))
        if self.checkpointed_offset < 0:
            object.__setattr__(self, "checkpointed_offset", self.recovery_point)

    @property
    def parents(self) -> tuple[str, ...]:
        """Directories whose names change when `directory` is created; none if its name is durable already."""
        return () if self.is_named else (self.directory.rpartition("/")[0],)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """The parts of an open log."""

    segments: SegmentList
    epochs: EpochHistory
    epochs_changed: bool
    """They differ from the file."""
    topic_id: UUID | None
    topic_id_changed: bool
    """True if the file does not contain the topic id."""
    producers: Producers
    transaction_sums: dict[int, int] | None
    """The file's sums of the transaction indexes; None when it cannot be read."""
    snapshot_offset: int
    """The offset of the newest snapshot; 0 without any."""
    index_is_written: bool
    """The active segment's index files are as a clean close leaves them."""
    snapshot_due: bool
    """No snapshot is as new as the active segment: with the others gone the producers could not be known again."""
    start_is_doubted: bool
    """Another replica may know of records that were deleted by request and are here again."""
    names_changed: bool
    """The log was created, now or by an opening that failed. The names in its own directory are durable, the name of that
    directory need not be."""
    cut_at_recovery: bool
    truncation_noted: bool
    """A file says that checkpoints do not know of a truncation yet."""
    high_watermark_max: int
    """A checkpoint's high watermark above this offset is older than such a truncation."""
    damage: str | None
    """Describes records that were durable and are missing; None when none are known to be."""
    lack_note: LackNote | None
    """The note about these records, which outlives a crash."""
    damage_offset: int | None
    """The offset from which missing records must be fetched again, before those that are here; None when they come after
    these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """The parts that the steps of one opening share."""

    disk: Disk
    files: OpenFiles
    """Open files of this opening alone, which may run on its own thread; readers elsewhere share the broker's open files."""
    now_ms: int
    opening: Opening

    @property
    def directory(self) -> str:
        return self.opening.directory

    def path(self, name: str) -> str:
        """Returns the path of a file in the log's directory."""
        return naming.join(self.opening.directory, name)

    def read_if_there(self, path: str) -> bytes:
        return self.disk.read(path) if self.disk.exists(path) else b""

    def lost(self, problem: str) -> LostRecordsError:
        """Logs and returns the error to raise: records that were durable are missing or wrong."""
        name = self.opening.topic_partition
        log.error("log_damaged", partition=name, directory=self.directory, problem=problem)
        return lost_replica(name, f"records that were on disk are damaged or missing: {problem}")
