"""Targets of a group's offsets, as people write them. No I/O."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.java_numbers import trimmed, whole_number

_SCOPE: Final = re.compile(r"(?P<topic>[^:]+)(?::(?P<partitions>[0-9]{1,9}(?:,[0-9]{1,9})*))?\Z")


def parse_scopes(scopes: Iterable[str]) -> dict[str, tuple[int, ...] | None]:
    """Parses `flights` or `flights:0,2`: partitions by topic, None for all of them."""
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
