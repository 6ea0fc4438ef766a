"""Pipelines as text for people. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from odradek.cli.moments import time_text
from odradek.model.aliases import Json
from odradek.pipelines.document import PipelineDocument, PipelineVersion, run_key, runs_of
from odradek.pipelines.status import PipelineStatus

Statuses = Mapping[str, PipelineStatus]

COLUMNS: Final = ("pipeline", "wanted", "state", "for", "version", "rows", "failures", "last failure")


def rows(document: PipelineDocument, statuses: Statuses, now_ms: int) -> list[tuple[object, ...]]:
    """Returns the lines of the table: the pipeline, and a version that is being rebuilt."""
    return [
        _row(key, wanted.current.number, wanted.desired.value, statuses.get(key), now_ms)
        for key, wanted in runs_of(document).items()
    ]


def unreadable_row(name: str, reason: str) -> tuple[object, ...]:
    """Returns the line of a pipeline whose document cannot be read: nothing is known of what is wanted."""
    return (name, None, "unreadable", None, None, None, None, reason)


def _row(
    key: str, version: int, desired: str, status: PipelineStatus | None, now_ms: int
) -> tuple[object, ...]:
    if status is None:
        return (key, desired, None, None, version, None, None, None)
    return (
        key,
        desired,
        status.phase.value,
        age(now_ms - status.since_ms),
        version,
        status.rows_count,
        status.failures_in_a_row,
        None if status.failure is None else status.failure.text,
    )


def as_json(document: PipelineDocument, statuses: Statuses) -> dict[str, object]:
    """Returns everything that is known, except the log. `candidate_status` is of a version that is being rebuilt."""
    content = dataclasses.asdict(document)
    content["conf"] = list(document.shown_conf)
    known = [_status_json(statuses.get(key)) for key in runs_of(document)]
    content["status"], content["candidate_status"] = known[0], known[1] if known[1:] else None
    return content


def _status_json(status: PipelineStatus | None) -> dict[str, Json] | None:
    if status is None:
        return None
    content = dataclasses.asdict(status)
    del content["log"]
    return content


def description(
    document: PipelineDocument, statuses: Statuses, owner: str | None, now_ms: int
) -> Iterator[str]:
    """Describes a pipeline for people, one thing in each line."""
    version, status = document.current, statuses.get(document.name)
    yield f"pipeline    {document.name}"
    yield f"wanted      {document.desired.value} (revision {document.revision})"
    yield f"state       {_state(status, now_ms)}"
    if status is not None and status.failure is not None:
        yield f"failure     {status.failure.text} ({time_text(status.failure.at_ms)})"
    yield f"supervisor  {owner or 'none'}"
    yield f"program     {' '.join((version.program, *version.args))}"
    settings = "".join(f", {key}={value}" for key, value in document.shown_conf)
    yield f"spark       {document.master or 'this machine'}, delivery {document.delivery}{settings}"
    if document.sleep_after_s is not None:
        yield f"sleeps      after {document.sleep_after_s:g} s without input"
    if status is not None and status.outline is not None:
        for output in status.outline.outputs:
            read = ", ".join(source.topic for source in output.sources)
            yield f"output      {output.name}: {read} -> {output.topic or 'by each record'}"
            for state in output.states:
                yield f"state       {state.name} ({state.kind}) of {output.name}"
    for version in document.versions:
        yield f"version {version.number:<3} {_version(version)}"
    candidate = document.candidate
    if candidate is not None:
        yield f"rebuilt {candidate.number:<3} {_version(candidate)}"
        beside = statuses.get(run_key(document.name, candidate.number))
        yield f"            {_state(beside, now_ms)}; it swaps when {document.swap_lag} records are left"
        if beside is not None and beside.failure is not None:
            yield f"            {beside.failure.text} ({time_text(beside.failure.at_ms)})"
    for change in document.history:
        yield f"history     {time_text(change.at_ms)}  {change.what}  by {change.by}"


def _version(version: PipelineVersion) -> str:
    suffix = f"  outputs end in {version.suffix}" if version.suffix else ""
    return f"{time_text(version.made_ms)}  {version.way}  {version.program}  checkpoint {version.checkpoint}{suffix}"


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


def age(age_ms: int) -> str:
    """Writes an age in its largest unit: 3 s, 5 min, 2 h, 4 d."""
    seconds = max(0, age_ms) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def behind(position: int, end: int | None) -> int | None:
    """Returns the number of records from `position` to `end`; None where the partition does not exist."""
    return None if end is None else max(0, end - position)
