"""What is to be opened, the outcome, and what the steps in between share."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk
from odradek.storage.directories import naming
from odradek.storage.directories.lack_notes import LackNote
from odradek.storage.directories.open_files import OpenFiles
from odradek.storage.log.damage import LostRecordsError, lost_replica
from odradek.storage.log.leader_epochs import EpochHistory
from odradek.storage.log.segment_list import SegmentList
from odradek.storage.producers.producer_state import Producers
from odradek.telemetry import events

log = events.get("storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is to be opened, and what is known of it.

    A log that was closed cleanly is opened without reading it. Otherwise everything from `recovery_point` on is scanned, cut at
    the last good batch, and synced.
    """

    directory: str
    """It is created, with an empty log, if it is not there."""
    config: LogConfig
    topic_partition: TopicPartition
    files: OpenFiles
    """Through them the open log is read."""
    clean: bool
    """The log was closed cleanly."""
    recovery_point: int
    """Below it nothing has to be looked at."""
    checkpointed_offset: int = -1
    """From there to the recovery point segments may have been written just before a crash: one that is missing is found. By
    default the recovery point."""
    durable_offset: int = 0
    """Everything below it was durable: KAFKA_STORAGE_ERROR when it is damaged or missing. No log is better than one that lost
    records and does not say so. At least the recovery point."""
    first_offset: int | None = None
    """Where the first segment began; None when it is unknown. KAFKA_STORAGE_ERROR when it begins behind that, unless the log's
    start moved since."""
    start_offset: int = 0
    """Of a checkpoint."""
    start_is_checkpointed: bool = True
    """`start_offset` is what a checkpoint says, or would say if it was not 0: the file is there, and sound."""
    cleaned_offset: int = 0
    """Up to where compaction got: below it offsets may be missing between segments. Ours leave none, Kafka's do."""
    topic_id: UUID | None = None
    """INCONSISTENT_TOPIC_ID, and nothing is touched, when the directory is of another; None: whatever topic it belongs to."""
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
    start_is_doubted: bool
    """Another replica may know of records that were deleted by request and are here again."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """What the steps of one opening share."""

    disk: Disk
    files: OpenFiles
    """Of this opening alone, which may run on a thread of its own; readers elsewhere share the broker's open files."""
    now_ms: int
    opening: Opening

    @property
    def directory(self) -> str:
        return self.opening.directory

    def path(self, name: str) -> str:
        """Of a file in the log's directory."""
        return naming.join(self.opening.directory, name)

    def read_if_there(self, path: str) -> bytes:
        return self.disk.read(path) if self.disk.exists(path) else b""

    def lost(self, problem: str) -> LostRecordsError:
        """What to raise: records that were durable are not here, or not right."""
        name = self.opening.topic_partition
        log.error("log_damaged", partition=name, directory=self.directory, problem=problem)
        return lost_replica(name, f"records that were on disk are damaged or missing: {problem}")
