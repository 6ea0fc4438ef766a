"""The status of a pipeline, published by its supervisor: one JSON document for each, the value of a record of its own topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import is_candidate
from odradek.pipelines.outline import ProgramOutline
from odradek.telemetry.metrics import Family, gauge, labels

STATUS_TOPIC: Final = "__odradek_pipeline_status"
"""Key: the pipeline's name, or, of a candidate, `run_key`. Value: its status; none when it was removed."""
LOG_LINES_MAX: Final = 100
LOG_LINE_CHARS_MAX: Final = 500

Offsets = Mapping[str, Mapping[int, int]]
"""Topic, partition: the next offset to read."""


class Phase(StrEnum):
    """Names the states that a pipeline goes through."""

    WAITING = "waiting"
    """It waits for a place: as many processes start, or run, as may."""
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    BACKING_OFF = "backing-off"
    """It failed, and is started again in a while."""
    FAILED = "failed"
    """It cannot run as it is: a change of its document starts it again."""
    SLEEPING = "sleeping"
    """It has no process until offsets of its inputs move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCoordinates:
    """A record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """Why a run ended."""

    line: str
    at_ms: int
    place: RecordCoordinates | None = None
    """The record that it failed at, where that is known."""

    @property
    def text(self) -> str:
        """The failure in one line, with its record where that is known."""
        if self.place is None or str(self.place) in self.line:
            return self.line
        return f"{self.line} [{self.place}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """The status of a pipeline."""

    name: str
    phase: Phase
    revision: int
    """The revision of the document that it follows."""
    version: int
    since_ms: int
    """The time when the phase began, by the wall clock."""
    supervisor: str
    pid: int | None = None
    failure: RunFailure | None = None
    """The last one."""
    failures_in_a_row: int = 0
    restart_in_s: float | None = None
    """The time from `since_ms` to the next start, while it backs off."""
    rows_count: int = 0
    """The number of rows that this process has read."""
    batch_ms: float | None = None
    """The duration of the last batch."""
    inputs: Offsets | None = None
    """The next offsets that it will read; None where its sources do not report them."""
    outline: ProgramOutline | None = None
    """The outline of the program that ran last."""
    log: tuple[str, ...] = field(default=())
    """The last lines of its process."""

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each input partition; empty where its sources do not report them."""
        return {
            TopicPartition(topic, partition): offset
            for topic, parts in (self.inputs or {}).items()
            for partition, offset in parts.items()
        }

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, name: str, value: bytes) -> Self:
        """Parses a status. KafkaError INVALID_RECORD for other bytes."""
        try:
            content: dict[str, Any] = json.loads(value)
            content["phase"] = Phase(content["phase"])
            content["inputs"] = offsets_in(content["inputs"])
            content["log"] = tuple(content["log"])
            outline = content.get("outline")
            content["outline"] = None if outline is None else ProgramOutline.from_json(outline)
            failure = content["failure"]
            if failure is not None:
                content["failure"] = failure_in(failure)
            return cls(**content)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the status of pipeline {name!r} in {STATUS_TOPIC} is unreadable: {error}",
            ) from None


def offsets_in(content: Mapping[str, Mapping[str, int]] | None) -> Offsets | None:
    """Returns the offsets in a JSON object, whose keys are strings."""
    if content is None:
        return None
    return {
        topic: {int(number): int(offset) for number, offset in parts.items()}
        for topic, parts in content.items()
    }


def failure_in(content: Mapping[str, Any]) -> RunFailure:
    """Returns the failure that parsed JSON describes."""
    coordinates = content["place"]
    return RunFailure(
        line=content["line"],
        at_ms=int(content["at_ms"]),
        place=None if coordinates is None else RecordCoordinates(**coordinates),
    )


def pipeline_families(statuses: Iterable[tuple[str, PipelineStatus]], now_ms: int) -> list[Family]:
    """Returns the families of the pipelines with these keys. A candidate of an upgrade has the label candidate="true".

    `now_ms`: milliseconds since 1970.
    """
    phases = gauge("odradek_pipeline_phase", "1 for the phase that a pipeline is in.")
    in_phase = gauge("odradek_pipeline_phase_seconds", "Time for which a pipeline has been in its phase.")
    failures = gauge("odradek_pipeline_failures_in_a_row", "Runs that failed, one after another, until now.")
    failed_ago = gauge("odradek_pipeline_seconds_since_failure", "Time since the last failure of a pipeline.")
    batch = gauge("odradek_pipeline_batch_seconds", "Duration of the last batch.")
    rows = gauge("odradek_pipeline_rows", "Rows that the present process of a pipeline has read.")
    counts = dict.fromkeys(Phase, 0)
    for key, status in statuses:
        text = labels(pipeline=status.name, candidate=str(is_candidate(key)).lower())
        counts[status.phase] += 1
        phase = labels(
            pipeline=status.name, candidate=str(is_candidate(key)).lower(), phase=status.phase.value
        )
        phases.add(1, phase)
        in_phase.add(max(now_ms - status.since_ms, 0) / 1_000, text)
        failures.add(status.failures_in_a_row, text)
        rows.add(status.rows_count, text)
        if status.failure is not None:
            failed_ago.add(max(now_ms - status.failure.at_ms, 0) / 1_000, text)
        if status.batch_ms is not None:
            batch.add(status.batch_ms / 1_000, text)
    total = gauge("odradek_pipelines", "Pipelines by phase.")
    for known, count in counts.items():
        total.add(count, labels(phase=known.value))
    return [total, phases, in_phase, failures, failed_ago, batch, rows]


def supervised(works: bool) -> Family:
    """Returns whether this supervisor is the one of its cluster that works."""
    family = gauge("odradek_pipelines_supervised", "1 if this supervisor is the one that works.")
    family.add(int(works))
    return family
