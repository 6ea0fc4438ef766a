"""Defines where a read starts and ends: in the four forms that Spark's Kafka connector has, or by a consumer group's offsets.

A position is turned into one `RequestedPosition` per partition, and a wish is either an offset already or a question for
the brokers (earliest, latest, first record at or after a time). Nothing here talks to a broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.java_numbers import is_digits

EARLIEST: Final = -2
LATEST: Final = -1
"""Spark's numbers in offset JSON, which Kafka's ListOffsets has, too."""

PartitionNumbers = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedPosition:
    """The start or end of one partition: exactly one of the two is set."""

    offset: int | None = None
    question: int | None = None
    """EARLIEST, LATEST, or a time in milliseconds: what ListOffsets answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPosition:
    """The earliest or the latest offset, in every partition."""

    bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """An offset (or EARLIEST or LATEST) for each partition, every one of them."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first record at or after one moment, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimes:
    """The first record at or after a moment of each partition's own, every one of them."""

    timestamps_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtGroup:
    """The offsets that a consumer group has committed; a partition without one is read from its first record.

    `otherwise` is where to start when the group has committed none of the partitions; None: that is an error.
    """

    group: str
    otherwise: KnownPosition | None = None


KnownPosition = UniformPosition | AtOffsets | AtTime | AtTimes
Position = KnownPosition | AtGroup


def option_name(position: KnownPosition, side: str) -> str:
    """Returns the option that the user gave; `side` is "starting" or "ending"."""
    if isinstance(position, AtTime):
        return f"{side}Timestamp"
    return f"{side}OffsetsByTimestamp" if isinstance(position, AtTimes) else f"{side}Offsets"


def requested_positions(
    position: KnownPosition, partitions: Iterable[TopicPartition], option: str
) -> dict[TopicPartition, RequestedPosition]:
    """Returns one position per partition; ConfigError when the position names too few partitions, or others."""
    if isinstance(position, UniformPosition):
        return {partition: RequestedPosition(question=position.bound) for partition in partitions}
    if isinstance(position, AtTime):
        return {partition: RequestedPosition(question=position.timestamp_ms) for partition in partitions}
    if isinstance(position, AtTimes):
        _must_match(position.timestamps_ms, partitions, option)
        return {
            partition: RequestedPosition(question=moment)
            for partition, moment in position.timestamps_ms.items()
        }
    _must_match(position.offsets, partitions, option)
    return {
        partition: RequestedPosition(question=offset) if offset < 0 else RequestedPosition(offset=offset)
        for partition, offset in position.offsets.items()
    }


def _must_match(named: Iterable[TopicPartition], subscribed: Iterable[TopicPartition], option: str) -> None:
    missing = sorted(set(subscribed) - set(named))
    if missing:
        raise ConfigError(
            f"option {option} must name every partition that is read; it leaves out {_spell(missing)}"
            " (use -2 for earliest, -1 for latest)"
        )
    unknown = sorted(set(named) - set(subscribed))
    if unknown:
        raise ConfigError(
            f"option {option} names partitions that are not read or do not exist: {_spell(unknown)}"
        )


def _spell(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in partitions)


def partition_numbers(text: str, option: str) -> PartitionNumbers:
    """Reads `{"topic": {"0": 23, "1": -1}}`."""
    document = _json_object(text, option, '{"topic": {"0": 23, "1": 42}}')
    numbers: PartitionNumbers = {}
    for topic, inner in document.items():
        if not isinstance(inner, dict):
            raise ConfigError(f"option {option}: topic {topic!r} must hold an object of partition to number")
        for partition, number in inner.items():
            if not is_digits(partition) or not isinstance(number, int) or isinstance(number, bool):
                raise ConfigError(
                    f"option {option}: {topic!r} holds {partition!r}: {number!r}, which is not a"
                    " partition and a whole number"
                )
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def partition_lists(text: str, option: str) -> tuple[TopicPartition, ...]:
    """Reads `{"topic": [0, 1]}`, sorted."""
    document = _json_object(text, option, '{"topic": [0, 1]}')
    chosen: set[TopicPartition] = set()
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not all(
            isinstance(partition, int) and not isinstance(partition, bool) and partition >= 0
            for partition in partitions
        ):
            raise ConfigError(f"option {option}: topic {topic!r} must hold a list of partition numbers")
        chosen.update(TopicPartition(topic, partition) for partition in partitions)
    if not chosen:
        raise ConfigError(f"option {option} names no partition")
    return tuple(sorted(chosen))


def _json_object(text: str, option: str, example: str) -> dict[str, object]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"option {option} is not JSON ({error}); it looks like {example}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"option {option} must be a JSON object like {example}")
    return document
