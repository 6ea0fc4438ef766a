"""Two answers to one document: the same final value of each key, and the same sequence of updates."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.streams.oracle.documents import exactness_of_sinks
from tests.streams.oracle.generator import Document

Output = list[Any]
"""[key, value, timestamp in ms]; the key of a window is [key, start, end]."""
Outputs = dict[str, list[Output]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputDifference:
    """What one topic has for one key."""

    topic: str
    key: str
    ours: list[Output]
    theirs: list[Output]

    @property
    def final(self) -> bool:
        """Does even the last value differ?"""
        return [record[1:] for record in self.ours[-1:]] != [record[1:] for record in self.theirs[-1:]]

    def __str__(self) -> str:
        ours, theirs = (
            ", ".join(f"{value}@{at}" for _, value, at in side) for side in (self.ours, self.theirs)
        )
        return f"{self.topic} {self.key}: ours [{ours}], theirs [{theirs}]"


def compare_written(document: Document, ours: Outputs, theirs: Outputs) -> list[OutputDifference]:
    """As `compare`, of what is determined (`exactness_of_sinks`)."""
    mine, other = dict(ours), dict(theirs)
    for topic, exactness in exactness_of_sinks(document).items():
        if exactness == "open":
            mine.pop(topic, None)
            other.pop(topic, None)
        elif exactness == "last":
            mine[topic], other[topic] = last_values(mine.get(topic, [])), last_values(other.get(topic, []))
    return compare(mine, other)


def last_values(records: list[Output]) -> list[Output]:
    """The last value of each key that has one, without its time: whose updates are left out may lack the latest time."""
    last = {json.dumps(record[0]): record for record in records}
    return [[key, value, 0] for key, value, _ in last.values() if value is not None]


def compare(ours: Outputs, theirs: Outputs) -> list[OutputDifference]:
    """Every key of every topic whose sequences differ."""
    output_differences: list[OutputDifference] = []
    for topic in sorted({*ours, *theirs}):
        mine, other = _by_key(ours.get(topic, [])), _by_key(theirs.get(topic, []))
        output_differences += [
            OutputDifference(topic=topic, key=key, ours=mine.get(key, []), theirs=other.get(key, []))
            for key in sorted({*mine, *other})
            if mine.get(key, []) != other.get(key, [])
        ]
    return output_differences


def _by_key(records: list[Output]) -> dict[str, list[Output]]:
    sequences: dict[str, list[Output]] = {}
    for record in records:
        sequences.setdefault(json.dumps(record[0]), []).append(record)
    return sequences
