"""The freshness of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ViewStatus(Enum):
    """The state of a view."""

    RESTORING = "restoring"
    """The rows do not show one moment yet: the view does not answer."""
    LIVE = "live"
    """The view answers, and applies new records."""
    FAILED = "failed"
    """The view neither answers nor continues."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFreshness:
    """The freshness of the rows from one partition. Times are milliseconds since 1970, None where there is none."""

    partition: int
    applied_offset: int
    """Every record below this one is in the answer."""
    end_offset: int | None
    """The last stable offset at the last look: the offset after the last record that may be read."""
    record_timestamp_ms: int | None
    """The own timestamp of the last record applied."""
    applied_at_ms: int | None
    """The time when the last record was applied."""
    looked_at_ms: int | None
    """The time when `end_offset` was requested."""

    @property
    def lag(self) -> int | None:
        """The number of offsets that were still to be applied at the last look; markers of transactions count."""
        return None if self.end_offset is None else max(0, self.end_offset - self.applied_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """The freshness of a view."""

    topic: str
    status: ViewStatus
    partitions: tuple[PartitionFreshness, ...]
    skipped_count: int = 0
    """Records left out because their keys cannot be read, since the view was opened."""
    problem: str | None = None
    """The problem that prevents newer rows; None without one."""

    @property
    def lag(self) -> int | None:
        """The lag of all partitions together; None before the first look."""
        lags = [partition.lag for partition in self.partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    def as_json(self) -> dict[str, object]:
        """Returns the freshness as JSON, for HTTP and the command line."""
        return {
            "status": self.status.value,
            "lag": self.lag,
            "partitions": [
                {
                    "partition": partition.partition,
                    "applied_offset": partition.applied_offset,
                    "end_offset": partition.end_offset,
                    "lag": partition.lag,
                    "record_timestamp_ms": partition.record_timestamp_ms,
                    "applied_at_ms": partition.applied_at_ms,
                    "looked_at_ms": partition.looked_at_ms,
                }
                for partition in self.partitions
            ],
            "skipped": self.skipped_count,
            "problem": self.problem,
        }
