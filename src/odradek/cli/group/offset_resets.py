"""Where a group's offsets are to go, as people say it, and what that means for each partition. No I/O."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.cli.records.moments import parse_moment
from odradek.model.durations import iso_duration_ms
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition

_SCOPE: Final = re.compile(r"(?P<topic>[^:]+)(?::(?P<partitions>\d+(?:,\d+)*))?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """What a partition holds now, and what the group has committed there."""

    begin: int
    end: int
    committed: int | None = None
    at_time: int | None = None
    """The first offset at the time asked for, or the end if all records are older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Exactly one way to say where to."""

    word: str = ""
    """earliest, latest or current."""
    offset: int | None = None
    shift: int | None = None
    timestamp_ms: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None

    def offset_for(self, tp: TopicPartition, facts: PartitionFacts) -> int | None:
        """Within what the partition holds; None where there is nothing to shift, or to keep."""
        wanted = self._wanted(tp, facts)
        return None if wanted is None else max(facts.begin, min(wanted, facts.end))

    def _wanted(self, tp: TopicPartition, facts: PartitionFacts) -> int | None:
        if self.by_partition is not None:
            return self.by_partition.get(tp)
        if self.offset is not None:
            return self.offset
        if self.shift is not None:
            return None if facts.committed is None else facts.committed + self.shift
        if self.timestamp_ms is not None:
            return facts.at_time
        return {"earliest": facts.begin, "latest": facts.end, "current": facts.committed}[self.word]


def parse_scopes(scopes: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    """`flights` or `flights:0,2`: partitions by topic, None for all of them."""
    wanted: dict[str, tuple[int, ...] | None] = {}
    for scope in scopes:
        match = _SCOPE.match(scope)
        if match is None:
            raise ConfigError(f"{scope!r} is no topic: expected NAME, or NAME:0,1 for some of its partitions")
        numbers = match["partitions"]
        wanted[match["topic"]] = tuple(int(number) for number in numbers.split(",")) if numbers else None
    return wanted


def parse_moment_or_duration(text: str, *, now_ms: int) -> int:
    """A time, or how long ago: 15m, PT15M."""
    ago = iso_duration_ms(text)
    moment = now_ms - ago if ago is not None else parse_moment(text, now_ms=now_ms)
    if moment is None:
        raise ConfigError(
            f"{text!r} is no time: expected 2013-07-04T12:00:00Z, or how long ago: 15m, 2h, P1DT6H"
        )
    return moment


def parse_plan(text: str) -> dict[TopicPartition, int]:
    """What `--json` prints, or lines `topic,partition,offset` as Kafka's tool exports them."""
    try:
        if text.lstrip().startswith(("{", "[")):
            return _from_json(json.loads(text))
        rows = [row for row in csv.reader(text.splitlines()) if row]
        return {
            TopicPartition(topic.strip(), int(partition)): int(offset) for topic, partition, offset in rows
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the file holds no offsets that can be read: {error}") from error


def _from_json(content: object) -> dict[TopicPartition, int]:
    """A list of objects, or an object with such a list under `offsets`."""
    listed = content.get("offsets") if isinstance(content, dict) else content
    if not isinstance(listed, list):
        raise ConfigError("the file holds no list of offsets")
    plan = {}
    for entry in listed:
        offset = entry["after"] if "after" in entry else entry["offset"]
        if offset is not None:
            plan[TopicPartition(str(entry["topic"]), int(entry["partition"]))] = int(offset)
    return plan
