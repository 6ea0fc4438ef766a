"""The common state of the parts of one open log: its identity, its files, and its contents."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Runtime
from odradek.storage.files.leader_epochs import EpochHistory
from odradek.storage.files.lifetime import LogLifetime
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.log.health import Health, OnFailed
from odradek.storage.producers.producer_state import Producers
from odradek.storage.recovery.context import OpenedLog, Opening
from odradek.storage.segment.segment_list import SegmentList


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    """The parts of one log. Its objects stay the same as long as the log is open. Each of them guards its own fields."""

    runtime: Runtime
    topic_partition: TopicPartition
    directory: str
    files: OpenFiles
    """Open files for reading, which all logs of a broker share."""
    life: LogLifetime
    health: Health
    segments: SegmentList
    epochs: EpochHistory
    producers: Producers

    @classmethod
    def of(
        cls, runtime: Runtime, opening: Opening, opened: OpenedLog, on_failed: OnFailed | None
    ) -> LogContext:
        """Makes the parts of an opened log. `on_failed` is called after an error in reading or writing; a full disk passes."""
        return cls(
            runtime=runtime,
            topic_partition=opening.topic_partition,
            directory=opening.directory,
            files=opening.files,
            life=LogLifetime(),
            health=Health(opening.topic_partition, on_failed),
            segments=opened.segments,
            epochs=opened.epochs,
            producers=opened.producers,
        )
