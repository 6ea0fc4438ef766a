"""How pipelines are shown. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from odradek.cli.records.moments import time_text
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PipelineDocument
from odradek.pipelines.status import Offsets, PipelineStatus, RunFailure

COLUMNS: Final = ("pipeline", "wanted", "state", "for", "version", "rows", "failures", "last failure")


def row(document: PipelineDocument, status: PipelineStatus | None, now_ms: int) -> tuple[object, ...]:
    """A line of the table."""
    if status is None:
        return (document.name, document.desired.value, None, None, document.current.number, None, None, None)
    return (
        document.name,
        document.desired.value,
        status.phase.value,
        age(now_ms - status.since_ms),
        document.current.number,
        status.rows_count,
        status.failures_in_a_row,
        None if status.failure is None else failure_text(status.failure),
    )


def as_json(document: PipelineDocument, status: PipelineStatus | None) -> dict[str, Any]:
    """Everything that is known, but the log."""
    content = dataclasses.asdict(document)
    content["status"] = None
    if status is not None:
        content["status"] = dataclasses.asdict(status)
        del content["status"]["log"]
    return content


def description(
    document: PipelineDocument, status: PipelineStatus | None, owner: str | None, now_ms: int
) -> Iterator[str]:
    """For people, a line for each thing."""
    version = document.current
    yield f"pipeline    {document.name}"
    yield f"wanted      {document.desired.value} (revision {document.revision})"
    yield f"state       {_state(status, now_ms)}"
    if status is not None and status.failure is not None:
        yield f"failure     {failure_text(status.failure)} ({time_text(status.failure.at_ms)})"
    yield f"supervisor  {owner or 'nobody'}"
    yield f"program     {' '.join((version.program, *version.args))}"
    yield f"spark       {document.master or 'this machine'}, delivery {document.delivery}"
    if document.sleep_after_s is not None:
        yield f"sleeps      after {document.sleep_after_s:g} s without input"
    for version in document.versions:
        yield f"version {version.number:<3} {time_text(version.made_ms)}  {version.program}  checkpoint {version.checkpoint}"
    for change in document.history:
        yield f"history     {time_text(change.at_ms)}  {change.what}  by {change.by}"


def _state(status: PipelineStatus | None, now_ms: int) -> str:
    if status is None:
        return "unknown: no supervisor has seen it"
    text = f"{status.phase.value} for {age(now_ms - status.since_ms)}"
    if status.pid is not None:
        text += f", process {status.pid}, {status.rows_count} rows"
    if status.batch_ms is not None:
        text += f", the last batch took {status.batch_ms:g} ms"
    if status.restart_in_s is not None:
        text += f", started again {status.restart_in_s:.1f} s after it failed"
    return text


def failure_text(failure: RunFailure) -> str:
    """One line, with the record where it is known."""
    if failure.place is None or str(failure.place) in failure.line:
        return failure.line
    return f"{failure.line} [{failure.place}]"


def age(age_ms: int) -> str:
    """As people say it: 3 s, 5 min, 2 h, 4 d."""
    seconds = max(0, age_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def positions(inputs: Offsets) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, parts in inputs.items()
        for partition, offset in parts.items()
    }


def behind(position: int, end: int | None) -> int | None:
    """Records between; None where the partition is gone."""
    return None if end is None else max(0, end - position)
