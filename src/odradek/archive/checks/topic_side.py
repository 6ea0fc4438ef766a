"""Asks the brokers about archived topics: where partitions begin and end, and which offsets hold records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

import numpy as np

from odradek.archive.checks.offset_runs import OffsetRuns
from odradek.client import Admin, Consumer, PartialFailureError
from odradek.client.admin.types import ConfigResource, TopicDescription
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.runtime.real import SystemClock

EARLIEST: Final = -2
LATEST: Final = -1
READ_COMMITTED: Final = 1
SILENCE_MAX_S: Final = 60.0
"""The longest silence of a partition before its end; then the read fails."""
_POLL_S: Final = 0.1
_ROWS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """The offsets that a partition spans at present; `end` without transactions that are open."""

    start: int
    end: int


class TopicSide(Protocol):
    """The brokers, as archives see them. Every call may raise KafkaError."""

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Returns the partitions of those topics that exist."""

    def names(self, named: Iterable[str], pattern: str | None) -> list[str]:
        """Returns the names, or the names of all topics that match the regular expression wholly."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Returns the ids of those topics that exist, where brokers have ids."""

    def extents(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogExtent]:
        """Returns the first and the next offset of each partition that exists."""

    def offsets(self, partition: TopicPartition, within: LogExtent, *, committed: bool) -> OffsetRuns:
        """Returns the offsets that hold records; with `committed`, records of committed transactions only."""

    def is_compacted(self, topic: str) -> bool: ...


class BrokerTopics:
    """A `TopicSide` of a cluster. `settings`: the clients' settings, without bootstrap.servers."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._settings = dict(settings or {})

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        descriptions = self._described(topics)
        return sorted(partition for topic in descriptions.values() for partition in topic.topic_partitions)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        ids = {name: topic.topic_id for name, topic in self._described(topics).items()}
        return {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}

    def _described(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        with self._admin() as admin, _naming("DESCRIBE"):
            try:
                return admin.describe_topics(topics)
            except PartialFailureError as failure:
                _refuse_others(failure)
                return dict(failure.results)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                return {}

    def names(self, named: Iterable[str], pattern: str | None) -> list[str]:
        """Returns the names, or the names of all topics that match the regular expression wholly."""
        if pattern is None:
            return list(named)
        expression = re.compile(pattern)
        with self._admin() as admin:
            return [name for name in admin.list_topics() if expression.fullmatch(name)]

    def check_rights(self, named: Iterable[str], pattern: str | None) -> list[str]:
        """Returns the names of the topics. KafkaError names the right that a reader of them lacks.

        An empty topic does not show whether it may be read: there is nothing to read yet.
        """
        names = self.names(named, pattern)
        first_filled: dict[str, tuple[TopicPartition, int]] = {}
        for partition, extent in self.extents(self.partitions(names)).items():
            if extent.start < extent.end:
                first_filled.setdefault(partition.topic, (partition, extent.start))
        for partition, start in first_filled.values():
            self.offsets(partition, LogExtent(start=start, end=start + 1), committed=False)
        return names

    def extents(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogExtent]:
        there = set(self.partitions({partition.topic for partition in partitions}))
        wanted = [partition for partition in partitions if partition in there]
        if not wanted:
            return {}
        with self._admin() as admin:
            starts = admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
            ends = admin.list_offsets(dict.fromkeys(wanted, LATEST), isolation=READ_COMMITTED)
        return {
            partition: LogExtent(start=starts[partition].offset, end=ends[partition].offset)
            for partition in wanted
        }

    def offsets(self, partition: TopicPartition, within: LogExtent, *, committed: bool) -> OffsetRuns:
        clock = SystemClock()
        runs: list[OffsetRuns] = []
        with self._consumer(committed=committed) as consumer, _naming("READ"):
            consumer.assign([partition])
            consumer.seek(partition, within.start)
            position, heard_at = within.start, clock.monotonic()
            while position < within.end:
                rows = consumer.poll_arrow(_POLL_S, _ROWS_MAX)
                reached = consumer.position(partition)
                if reached > position:
                    position, heard_at = reached, clock.monotonic()
                elif clock.monotonic() - heard_at > SILENCE_MAX_S:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"{partition}: no record came from offset {position} on for {SILENCE_MAX_S:.0f} s, though it ends"
                        f" at {within.end}",
                    )
                if rows.num_rows:
                    numbers = rows["offset"].to_numpy()
                    runs.append(OffsetRuns.of(numbers[numbers < within.end].astype(np.int64)))
        return OffsetRuns.union(runs)

    def is_compacted(self, topic: str) -> bool:
        with self._admin() as admin, _naming("DESCRIBE_CONFIGS"):
            entries = admin.describe_configs([ConfigResource.topic(topic)])[ConfigResource.topic(topic)]
        return "compact" in (entries["cleanup.policy"].value or "")

    def _admin(self) -> Admin:
        return Admin.from_config({**self._settings, "bootstrap.servers": self._bootstrap})

    def _consumer(self, *, committed: bool) -> Consumer:
        return Consumer.from_config(
            {
                **self._settings,
                "bootstrap.servers": self._bootstrap,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": "false",
            }
        )


@contextmanager
def _naming(operation: str) -> Iterator[None]:
    """A context for requests to brokers: the error of a refusal names the right that is missing."""
    try:
        yield
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        raise KafkaError(
            error.code, f"{error.message}: this user needs the right {operation} on the topic"
        ) from None


def extents_of_archived(
    topics: TopicSide, partitions: Iterable[TopicPartition], archived_ids: Mapping[str, UUID]
) -> dict[TopicPartition, LogExtent]:
    """Returns the extents of archived partitions. A topic that was made again has none: another topic has its name."""
    wanted = list(partitions)
    present = topics.topic_ids(sorted({partition.topic for partition in wanted})) if archived_ids else {}
    others = {topic for topic, topic_id in present.items() if archived_ids.get(topic, topic_id) != topic_id}
    return topics.extents([partition for partition in wanted if partition.topic not in others])


def _refuse_others(failure: PartialFailureError) -> None:
    for error in failure.errors.values():
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error from None
