"""The questions of planning to the brokers: which partitions exist, and which offsets they span."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import NoNewerRecord
from odradek.spark.options.options import TopicSelection
from odradek.spark.options.positions import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffsets,
    KnownPosition,
    Position,
    RequestedPosition,
    option_name,
    requested_positions,
)

NO_SUCH_RECORD: Final = -1
"""ListOffsets' answer to a time after the last record."""


class Catalog(Protocol):
    """The brokers, as planning sees them. Every call is a round trip, and raises KafkaError when that
    fails.
    """

    def topics(self) -> list[str]:
        """Returns the names of all topics, internal ones left out."""

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic that exists; the others are left out."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Returns the id of each topic that exists; empty where brokers have no topic ids."""

    def offsets(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the offset of each partition for EARLIEST, LATEST or a time in ms; NO_SUCH_RECORD where no record is so
        new.

        Partitions that no longer exist are left out.
        """

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, int]:
        """Returns the next offset of each partition that a group has committed; others are left out. Waits for open
        transactions.

        What the group has committed for topics with other ids than in `topic_ids` is left out, too.
        """


def subscribed(topics: TopicSelection, catalog: Catalog) -> list[TopicPartition]:
    """Returns the partitions to read at present, in order. A topic or partition that was named but is missing is
    left out.
    """
    names = topics.names
    if topics.pattern is not None:
        pattern = re.compile(topics.pattern)
        names = tuple(name for name in catalog.topics() if pattern.fullmatch(name))
    elif topics.partitions:
        names = tuple({partition.topic for partition in topics.partitions})
    counts = catalog.partition_counts(sorted(names)) if names else {}
    if topics.partitions:
        return [
            partition
            for partition in topics.partitions
            if partition.partition < counts.get(partition.topic, 0)
        ]
    return [TopicPartition(name, number) for name in sorted(counts) for number in range(counts[name])]


def subscribed_at_start(topics: TopicSelection, catalog: Catalog) -> list[TopicPartition]:
    """Returns the partitions of `subscribed`; ConfigError when something that was named does not exist."""
    partitions = subscribed(topics, catalog)
    missing_topics = sorted(set(topics.names) - {partition.topic for partition in partitions})
    if missing_topics:
        raise ConfigError(f"option subscribe: there is no topic {', '.join(missing_topics)}")
    missing = sorted(set(topics.partitions) - set(partitions))
    if missing:
        raise ConfigError(
            f"option assign: there is no partition {', '.join(str(partition) for partition in missing)}"
        )
    return partitions


def resolve(
    position: Position,
    partitions: Iterable[TopicPartition],
    catalog: Catalog,
    side: str,
    *,
    topic_ids: Mapping[str, UUID] | None = None,
    no_newer_record: NoNewerRecord = NoNewerRecord.LATEST,
) -> dict[TopicPartition, int]:
    """Turns a position into offsets. Where no record is as new as asked: the end of the log, or
    ConfigError.

    `topic_ids`: the topics of `partitions`. What a group has committed for others of their names does not count.
    """
    partitions = list(partitions)
    known = (
        _resolved(position, partitions, catalog, topic_ids or {})
        if isinstance(position, AtGroup)
        else position
    )
    option = option_name(known, side)
    wanted = requested_positions(known, partitions, option)
    answers = _list_offsets(wanted, catalog)
    too_new = sorted(partition for partition, offset in answers.items() if offset == NO_SUCH_RECORD)
    if too_new and no_newer_record is NoNewerRecord.ERROR:
        first = too_new[0]
        raise ConfigError(
            f"option {option}: {first} holds no record at or after {wanted[first].question} ms; set"
            " startingOffsetsByTimestampStrategy=latest to start at its end"
        )
    ends = catalog.offsets(dict.fromkeys(too_new, LATEST)) if too_new else {}
    offsets = {
        partition: position.offset for partition, position in wanted.items() if position.offset is not None
    }
    return offsets | answers | ends


def _resolved(
    position: AtGroup,
    partitions: Iterable[TopicPartition],
    catalog: Catalog,
    topic_ids: Mapping[str, UUID],
) -> KnownPosition:
    committed = catalog.committed(position.group, partitions, topic_ids)
    if committed:
        return AtOffsets(offsets={partition: committed.get(partition, EARLIEST) for partition in partitions})
    if position.otherwise is None:
        raise ConfigError(
            f"option startingOffsets: group {position.group!r} has committed no offset of what is read;"
            " `odradek group list` shows which groups there are"
        )
    return position.otherwise


def _list_offsets(
    wanted: Mapping[TopicPartition, RequestedPosition], catalog: Catalog
) -> dict[TopicPartition, int]:
    questions = {
        partition: position.question
        for partition, position in wanted.items()
        if position.question is not None
    }
    return catalog.offsets(questions) if questions else {}


def log_ranges(
    partitions: Iterable[TopicPartition], catalog: Catalog
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Returns the first offset of each partition and the one after its last, as of now."""
    listed = list(partitions)
    if not listed:
        return {}, {}
    return catalog.offsets(dict.fromkeys(listed, EARLIEST)), catalog.offsets(dict.fromkeys(listed, LATEST))
