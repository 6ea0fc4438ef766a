"""Turns Spark's message about a failed query into one line, and finds the record at which it failed. Does not import Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.model.exception_text import ERROR_OF_OURS
from odradek.model.ids import TopicPartition
from odradek.pipelines.status import RecordCoordinates

LINE_CHARS_MAX: Final = 500
_COMMITTED: Final = "Current Committed Offsets:"
_AVAILABLE: Final = "Current Available Offsets:"
_BEGINNINGS: Final = "@from"
"""The member of a stream's offset that holds where its batch begins, if no batch before it does."""
_NOT_TOPICS: Final = (_BEGINNINGS, "@ids")
"""Members of an offset whose names are no topics."""
_DECODER: Final = json.JSONDecoder()
_PYTHON: Final = re.compile(r"^(?:[\w.]*\.)?(\w+(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_RAISED_BY_JAVA: Final = re.compile(
    r"^An error occurred while calling [^\n]*\n: (?:[\w$]+\.)*([\w$]+(?:Error|Exception)): ([^\n]+)"
)
"""Matches PySpark's text for an exception for which it has no class."""
_TRACEBACK: Final = "Traceback (most recent call last)"
_JAVA: Final = re.compile(r"^\s+at [\w.$]+\(", re.MULTILINE)
_COORDINATES: Final = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]+)(?: at)? offset (?P<offset>[0-9]+)"
)
_STARTS_TOLD: Final = 3


def failure_line(text: str) -> str:
    """Returns our own error's line if there is one; else the last line of a traceback; else the first line."""
    ours = ERROR_OF_OURS.search(text)
    if ours is not None:
        return _cut(ours["message"])
    if _TRACEBACK in text:
        raised = _PYTHON.findall(_JAVA.split(text[text.rindex(_TRACEBACK) :])[0])
        if raised:
            kind, message = raised[-1]
            return _cut(f"{kind}: {message}")
    by_java = _RAISED_BY_JAVA.match(text)
    if by_java is not None:
        return _cut(f"{by_java[1]}: {by_java[2]}")
    lines = [line for line in text.splitlines() if line.strip()]
    return _cut(lines[0]) if lines else "it failed without a word"


def coordinates_in(line: str) -> RecordCoordinates | None:
    """Returns the record that a line names."""
    match = _COORDINATES.search(line)
    if match is None:
        return None
    return RecordCoordinates(
        topic=match["topic"], partition=int(match["partition"]), offset=int(match["offset"])
    )


def batch_positions(text: str) -> dict[TopicPartition, int]:
    """Returns where the failed batch begins, by the offsets that Spark adds to its error. Empty when it adds none.

    These are the ends of the batch before; for the first batch, and for new partitions, the beginnings in its own offsets.
    """
    positions: dict[TopicPartition, int] = {}
    for label, member in ((_COMMITTED, None), (_AVAILABLE, _BEGINNINGS)):
        line = next((line for line in text.splitlines() if line.startswith(label)), "")
        for document in _objects(line):
            topics = document if member is None else document.get(member, {})
            positions |= _positions_in(topics)
    return positions


def _objects(line: str) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects in a line of Spark's own form."""
    start = line.find('{"')
    while start >= 0:
        try:
            content, end = _DECODER.raw_decode(line, start)
        except ValueError:
            return
        yield content
        start = line.find('{"', end)


def _positions_in(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)  # digits: a number of our own JSON
            for topic, partitions in topics.items()
            if topic not in _NOT_TOPICS
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):  # a source of another kind
        return {}


def batch_start(positions: Mapping[TopicPartition, int]) -> str:
    """Returns a text about where the failed batch begins, for an error that does not name a record."""
    beginnings = [f"{tp} at offset {offset}" for tp, offset in sorted(positions.items())]
    more = f" and {len(beginnings) - _STARTS_TOLD} more" if len(beginnings) > _STARTS_TOLD else ""
    return f"the batch begins at {', '.join(beginnings[:_STARTS_TOLD])}{more}"


def _cut(line: str) -> str:
    return " ".join(line.split())[:LINE_CHARS_MAX]
