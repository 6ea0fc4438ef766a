"""A source's offset: what Spark journals in its checkpoint, and the ranges to read that follow from two of them.

The document has the form of Spark's Kafka connector, `{"topic": {"0": 23, "1": 42}}`: for each partition the
offset of the next record to read. So every tool that reads checkpoints or progress events for lag understands
it.

One member may be added, `"@from"`: where this batch begins in partitions that the offset before it does not
tell. Spark does not journal a stream's initial offset; it asks for it again when the first batch is replayed
after a crash. With `startingOffsets=latest` the answer has moved by then, and all records between the two
answers would be lost. So the first batch journals its beginning together with its end, and so does the
batch in which a new partition appears. A topic's name cannot hold an `@`.

A second one, `"@ids"`, holds the id of each topic: `{"topic": "5f0c…"}`. A topic that was deleted and made again under its
name is another topic, whose offsets begin again. Offsets of former versions have no ids; their batches adopt the present ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from odradek.model.aliases import Json
from odradek.model.errors import ConfigError
from odradek.model.ids import ZERO_UUID, TopicPartition

BEGINNINGS_KEY: Final = "@from"
IDS_KEY: Final = "@ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """The next offset of each partition, and the beginnings that this batch carries with it."""

    next_offsets: Mapping[TopicPartition, int]
    beginnings: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The topics that the offsets are of, as far as that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The records of one partition from `start` up to, but without, `end`."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: UUID = field(default=ZERO_UUID, compare=False)
    """The topic that holds the records; ZERO_UUID: the one that has the name when it is read."""

    @property
    def size(self) -> int:
        return self.end - self.start


def to_document(offset: StreamOffset) -> dict[str, Json]:
    """Returns the JSON object to journal; topics and partitions in order, so that equal offsets are equal text."""
    document: dict[str, Any] = _nested(offset.next_offsets)
    if offset.beginnings:
        document[BEGINNINGS_KEY] = _nested(offset.beginnings)
    if offset.topic_ids:
        document[IDS_KEY] = {topic: str(topic_id) for topic, topic_id in sorted(offset.topic_ids.items())}
    return document


def from_document(document: Mapping[str, Any]) -> StreamOffset:
    """Reads what `to_document` made (or Spark's own Kafka connector); ConfigError when it is something
    else.
    """
    try:
        beginnings = _flat(document.get(BEGINNINGS_KEY, {}))
        topic_ids = {topic: UUID(topic_id) for topic, topic_id in document.get(IDS_KEY, {}).items()}
        others = (BEGINNINGS_KEY, IDS_KEY)
        next_offsets = _flat({topic: inner for topic, inner in document.items() if topic not in others})
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"the checkpoint holds an offset of another source: {document!r}") from None
    return StreamOffset(next_offsets=next_offsets, beginnings=beginnings, topic_ids=topic_ids)


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """Returns the ranges that a batch reads, in order: a pure function of the two journaled offsets.

    A partition whose end is before its start has nothing to read: its topic was created again, which was
    reported when the end was chosen.
    """
    ranges = [
        OffsetRange(
            partition=partition,
            start=_beginning(start, end, partition),
            end=next_offset,
            topic_id=end.topic_ids.get(partition.topic, ZERO_UUID),
        )
        for partition, next_offset in sorted(end.next_offsets.items())
    ]
    return [span for span in ranges if span.size > 0]


def _beginning(start: StreamOffset, end: StreamOffset, partition: TopicPartition) -> int:
    if partition in end.beginnings:
        return end.beginnings[partition]
    return start.next_offsets.get(partition, 0)


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(offsets.items()):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, inner in nested.items()
        for partition, offset in inner.items()
    }
