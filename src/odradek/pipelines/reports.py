"""The messages between a runner and its supervisor: JSON, one object a line, on two pipes.

The supervisor's pipe is the runner's lifeline, too: when it closes, the runner ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from odradek.pipelines.outline import ProgramOutline
from odradek.pipelines.status import Offsets, RecordCoordinates, offsets_in

LINE_BYTES_MAX: Final = 1 << 20


class Command(StrEnum):
    """A command from a supervisor to a runner."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The queries run."""

    outline: ProgramOutline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The queries have ended; what they had begun is finished, or will be done again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress since the last report."""

    rows_count: int
    batch_ms: float | None
    inputs: Offsets | None
    """The next offsets of all sources; None when one of them does not report them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run is over."""

    line: str
    place: RecordCoordinates | None = None
    is_final: bool = False
    """The program itself is wrong: to start it again would change nothing."""


Report = Running | Paused | RunProgress | Failed


def command_line(command: Command) -> bytes:
    return json.dumps({"do": command}).encode() + b"\n"


def command_in(line: bytes) -> Command | None:
    """Returns the command in a line; None if there is none."""
    try:
        return Command(json.loads(line)["do"])
    except (ValueError, TypeError, KeyError):
        return None


def report_line(report: Report) -> bytes:
    match report:
        case Running():
            outline = report.outline
            content: dict[str, object] = {
                "state": "running",
                "outline": None if outline is None else outline.as_json(),
            }
        case Paused():
            content = {"state": "paused"}
        case RunProgress():
            content = {"rows": report.rows_count, "batch_ms": report.batch_ms, "inputs": report.inputs}
        case Failed():
            coordinates = report.place
            content = {
                "failed": report.line,
                "final": report.is_final,
                "place": None
                if coordinates is None
                else [coordinates.topic, coordinates.partition, coordinates.offset],
            }
    return json.dumps(content).encode() + b"\n"


def report_in(line: bytes) -> Report | None:
    """Returns the report in a line; None if there is none: a program may write to the wrong pipe."""
    try:
        content: Mapping[str, Any] = json.loads(line)
        if "state" in content:
            return _state_in(content)
        if "failed" in content:
            return Failed(
                line=str(content["failed"]),
                is_final=bool(content.get("final")),
                place=_coordinates_in(content),
            )
        return RunProgress(
            rows_count=int(content["rows"]),  # digits: a number of our own JSON
            batch_ms=content.get("batch_ms"),
            inputs=offsets_in(content.get("inputs")),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None


def _coordinates_in(content: Mapping[str, Any]) -> RecordCoordinates | None:
    coordinates = content.get("place")
    if coordinates is None:
        return None
    return RecordCoordinates(topic=coordinates[0], partition=int(coordinates[1]), offset=int(coordinates[2]))


def _state_in(content: Mapping[str, Any]) -> Report:
    if content["state"] == "paused":
        return Paused()
    if content["state"] != "running":
        raise ValueError(f"there is no state {content['state']!r}")
    outline = content.get("outline")
    return Running(outline=None if outline is None else ProgramOutline.from_json(outline))
