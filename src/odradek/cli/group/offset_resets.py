"""Targets of a group's offsets, as people write them, and the offset that each partition gets. No I/O."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.cli.records.moments import parse_moment
from odradek.model.durations import iso_duration_ms
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.java_numbers import trimmed, whole_number

_SCOPE: Final = re.compile(r"(?P<topic>[^:]+)(?::(?P<partitions>[0-9]{1,9}(?:,[0-9]{1,9})*))?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """The offsets that a partition holds now, and the group's committed one."""

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
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The topics that `by_partition` is of, where the file names their ids."""

    def check_topics(self, present: Mapping[str, UUID]) -> None:
        """Raises ConfigError when another topic has the name now: the file's offsets mean nothing in it."""
        for topic, topic_id in sorted(self.topic_ids.items()):
            now = present.get(topic, topic_id)
            if now != topic_id:
                raise ConfigError(
                    f"topic {topic!r} was deleted and made again since the file was written: its offsets are of the topic with"
                    f" id {topic_id}, and the name now belongs to id {now}. Take {topic!r} out of the file"
                )

    def offset_for(self, tp: TopicPartition, facts: PartitionFacts) -> int | None:
        """Returns the offset, limited to what the partition holds; None where there is none to shift or to keep."""
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
            raise ConfigError(
                f"{scope!r:.80} is no topic: expected NAME, or NAME:0,1 for some of its partitions"
            )
        numbers = match["partitions"]
        wanted[match["topic"]] = tuple(int(number) for number in numbers.split(",")) if numbers else None
    return wanted


def parse_moment_or_duration(text: str, *, now_ms: int) -> int:
    """Parses a time, or how long ago: 15m, PT15M."""
    ago = iso_duration_ms(text)
    moment = now_ms - ago if ago is not None else parse_moment(text, now_ms=now_ms)
    if moment is None:
        raise ConfigError(
            f"{text!r:.80} is no time: expected 2013-07-04T12:00:00Z, or how long ago: 15m, 2h, P1DT6H"
        )
    return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPlan:
    """The contents of a file of offsets."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The ids of its topics, where the file names them: `--json` prints them, Kafka's tool does not."""


def parse_plan(text: str) -> OffsetPlan:
    """Parses the output of `--json`, or lines `topic,partition,offset` as Kafka's tool exports them."""
    try:
        if text.lstrip().startswith(("{", "[")):
            return _from_json(json.loads(text))
        rows = [row for row in csv.reader(text.splitlines()) if row]
        offsets = {
            _partition_of(topic.strip(), trimmed(partition)): _whole(trimmed(offset))
            for topic, partition, offset in rows
        }
        return OffsetPlan(offsets=offsets)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the file holds no offsets that can be read: {error}") from error


def _from_json(content: object) -> OffsetPlan:
    """Parses a list of objects, or an object with such a list under `offsets`."""
    listed = content.get("offsets") if isinstance(content, dict) else content
    if not isinstance(listed, list):
        raise ConfigError("the file holds no list of offsets")
    offsets: dict[TopicPartition, int] = {}
    ids: dict[str, UUID] = {}
    for entry in listed:
        offset = entry["after"] if "after" in entry else entry["offset"]
        if offset is None:
            continue
        offsets[_partition_of(str(entry["topic"]), entry["partition"])] = _whole(offset)
        if entry.get("topic_id"):
            ids[str(entry["topic"])] = UUID(entry["topic_id"])
    return OffsetPlan(offsets=offsets, topic_ids=ids)


def _partition_of(topic: str, number: object) -> TopicPartition:
    return TopicPartition(topic, _whole(number, bits=31))


def _whole(value: object, bits: int = 63) -> int:
    """Accepts a number of JSON, and its digits as text. Raises ValueError for anything else, and for too large a number."""
    number = value if type(value) is int else whole_number(str(value))
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(f"{value!r:.80} is too large")
    return number
