"""The effect of disk errors on a log.

A full disk passes: the log refuses appends until `RepairJob` has cut what a failed write may have left and
made the cut durable. Every other error of the operating system is final until a restart: after a failed fsync
or write the content of the disk is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files.lifetime import DISK_FULL, NO_DESCRIPTORS, LogLifetime
from odradek.storage.files.open_files import CrowdedError
from odradek.storage.recovery.file_truncation import Truncation
from odradek.telemetry import events

log = events.caused_by_peers("storage")


OnFailed: TypeAlias = Callable[[TopicPartition, OSError], None]


class CrowdedLogsError(KafkaError):
    """Refuses an append, which may be tried again once another log is flushed: see `Log.when_room`. Nothing was appended."""


class FaultKind(Enum):
    FULL = "disk full"
    BROKEN = "disk error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFault:
    """The reasons why a log takes no appends. One that is BROKEN cannot be read either."""

    kind: FaultKind
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairJob:
    """The disk work that repairs a log after a full disk: `run` it on any thread, then call `Log.repaired(job)` on the loop.

    The cut is synced before the next append: a batch that was refused must not come back after it in a power
    cut."""

    file: DiskFile
    good_length: int
    disk: Disk
    leftover: str | None
    """The empty file of a segment whose creation failed."""
    life: LogLifetime
    truncation_count: int
    """The log's truncation count when the job was made; see `FlushJob`."""
    truncation: Truncation | None
    """A truncation that could not be carried out, and that cuts the file itself."""

    def run(self) -> None:
        self.life.run(self._work)

    def _work(self) -> None:
        if self.truncation_count < self.life.truncation_count:
            return
        if self.leftover is not None and self.disk.exists(self.leftover):
            self.disk.remove(self.leftover)
        if self.truncation is not None:
            self.truncation.run()
            return
        self.file.truncate(self.good_length)
        self.file.sync()


class Health:
    """Whether a log can be used, and the error that its callers get when it cannot."""

    __slots__ = ("_on_failed", "_topic_partition", "fault")

    def __init__(self, topic_partition: TopicPartition, on_failed: OnFailed | None = None) -> None:
        self._topic_partition = topic_partition
        self._on_failed = on_failed
        self.fault: LogFault | None = None

    def check_writable(self) -> None:
        if self.fault is not None:
            raise self._refusal(self.fault)

    def check_readable(self) -> None:
        if self.fault is not None and self.fault.kind is FaultKind.BROKEN:
            raise self._refusal(self.fault)

    def failed(self, error: OSError) -> KafkaError:
        """Notes the error; returns the one to raise."""
        if isinstance(error, CrowdedError):
            return CrowdedLogsError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._topic_partition}: {error.strerror}"
            )
        if error.errno in NO_DESCRIPTORS:
            log.error("too_many_open_files", partition=self._topic_partition, error=error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._topic_partition}: {error}")
        kind = FaultKind.FULL if error.errno in DISK_FULL else FaultKind.BROKEN
        if self.fault is None or self.fault.kind is FaultKind.FULL:
            self.fault = LogFault(kind=kind, reason=str(error))
        log.error("log_failed", partition=self._topic_partition, kind=kind.value, error=error)
        if self._on_failed is not None:
            self._on_failed(self._topic_partition, error)
        return self._refusal(self.fault)

    def broken(self, reason: str) -> None:
        """Makes every later operation fail with this error."""
        if not self.is_broken:
            self.fault = LogFault(kind=FaultKind.BROKEN, reason=reason)

    def recovered(self) -> None:
        if self.fault is not None and self.fault.kind is FaultKind.FULL:
            self.fault = None
            log.info("log_recovered", partition=self._topic_partition)

    @property
    def is_broken(self) -> bool:
        return self.fault is not None and self.fault.kind is FaultKind.BROKEN

    @property
    def is_full(self) -> bool:
        return self.fault is not None and self.fault.kind is FaultKind.FULL

    def _refusal(self, fault: LogFault) -> KafkaError:
        message = f"{self._topic_partition}: {fault.kind.value}: {fault.reason}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
