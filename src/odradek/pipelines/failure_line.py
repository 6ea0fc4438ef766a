"""From what Spark says of a failed query to one line, and the record that it failed at. No Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from odradek.model.ids import TopicPartition
from odradek.pipelines.status import RecordPlace

LINE_CHARS_MAX: Final = 500
_OURS: Final = re.compile(r"odradek\.[\w.]+\.(?:CommitConflict|\w+Error): (.+)")
_PYTHON: Final = re.compile(r"^(?:[\w.]*\.)?(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"
_JAVA: Final = re.compile(r"^\s+at [\w.$]+\(", re.MULTILINE)
_PLACE: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)(?: at)? offset (?P<offset>\d+)")
_STARTS_TOLD: Final = 3


def failure_line(text: str) -> str:
    """Our own error's line where there is one; of a traceback, its last line; else the first line."""
    ours = _OURS.search(text)
    if ours is not None:
        return _cut(ours[1])
    if _TRACEBACK in text:
        raised = _PYTHON.findall(_JAVA.split(text[text.rindex(_TRACEBACK) :])[0])
        if raised:
            kind, message = raised[-1]
            return _cut(f"{kind}: {message}")
    lines = [line for line in text.splitlines() if line.strip()]
    return _cut(lines[0]) if lines else "it failed without a word"


def place_in(line: str) -> RecordPlace | None:
    """The record that a line names."""
    match = _PLACE.search(line)
    if match is None:
        return None
    return RecordPlace(topic=match["topic"], partition=int(match["partition"]), offset=int(match["offset"]))


def batch_start(positions: Mapping[TopicPartition, int]) -> str:
    """Where the batch that failed begins: the best that is known when the error does not name a record."""
    places = [f"{tp} at offset {offset}" for tp, offset in sorted(positions.items())]
    more = f" and {len(places) - _STARTS_TOLD} more" if len(places) > _STARTS_TOLD else ""
    return f"the batch begins at {', '.join(places[:_STARTS_TOLD])}{more}"


def _cut(line: str) -> str:
    return " ".join(line.split())[:LINE_CHARS_MAX]
