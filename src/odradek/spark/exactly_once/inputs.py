"""Input offsets in a decision: which of them the sink's cluster can hold, and whether a query continues where they end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from odradek.client.groups.values import OffsetAndMetadata
from odradek.model.errors import ConfigError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.runtime.ports import Clock
from odradek.spark.exactly_once.checkpoint import BatchInput
from odradek.spark.exactly_once.decision import Decision
from odradek.spark.exactly_once.task import BatchName

log: Final = logging.getLogger("odradek.spark")

TOPICS_KNOWN_FOR_S: Final = 30.0
Offsets = Mapping[TopicPartition, int]
TopicIds = Mapping[str, UUID]


class SinkTopics(Protocol):
    """The topics of the sink's cluster."""

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the number of partitions of each topic that exists; the others are left out."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Returns the id of each topic that exists; empty where brokers have no topic ids."""


@dataclass(slots=True)
class KnownTopics:
    """The topics of the sink's cluster. It is asked again after some time, and when a topic has grown or has a new id.
    For any thread: the others wait while one asks.
    """

    _counts: dict[str, int] = field(default_factory=dict)
    _ids: dict[str, UUID] = field(default_factory=dict)
    _asked: frozenset[str] = frozenset()
    _asked_at: float = 0.0
    _missing: frozenset[str] = frozenset()
    _others: frozenset[tuple[str, UUID]] = frozenset()
    """Topics that were read, and whose names belong to other topics in the sink's cluster."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def held(
        self, offsets: Offsets, topic_ids: TopicIds, cluster: SinkTopics, clock: Clock
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that a group of the cluster can commit, with the ids of their topics where these are known.

        A query may read topics of another cluster, or topics that were deleted. The cluster may have others of their names.
        """
        with self._lock:
            return self._held(offsets, topic_ids, cluster, clock)

    def _held(
        self, offsets: Offsets, topic_ids: TopicIds, cluster: SinkTopics, clock: Clock
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        topics = frozenset(offset.topic for offset in offsets)
        read = {topic: topic_ids[topic] for topic in topics if topic in topic_ids}
        if self._must_look(offsets, topics, read, clock.monotonic()):
            self._look_up(topics, cluster, clock.monotonic())
        self._note_others(read)
        others = {topic for topic, _ in self._others_of(read)}
        return {
            partition: OffsetAndMetadata(offset, topic_id=read.get(partition.topic, ZERO_UUID))
            for partition, offset in offsets.items()
            if partition.partition < self._counts.get(partition.topic, 0) and partition.topic not in others
        }

    def _must_look(self, offsets: Offsets, topics: frozenset[str], read: TopicIds, now: float) -> bool:
        has_grown = any(
            offset.partition >= self._counts.get(offset.topic, offset.partition + 1) for offset in offsets
        )
        has_new_id = not self._others_of(read) <= self._others
        return (
            has_grown or has_new_id or not topics <= self._asked or now - self._asked_at > TOPICS_KNOWN_FOR_S
        )

    def _look_up(self, topics: frozenset[str], cluster: SinkTopics, now: float) -> None:
        self._counts = cluster.partition_counts(sorted(topics))
        self._ids = cluster.topic_ids(sorted(topics))
        self._asked, self._asked_at = topics, now
        missing = topics - self._counts.keys()
        if missing > self._missing:
            log.warning(
                "the sink's cluster has no topic %s: what is read of it is not in the decision",
                ", ".join(sorted(missing)),
            )
        self._missing = missing

    def _others_of(self, read: TopicIds) -> frozenset[tuple[str, UUID]]:
        return frozenset(
            (topic, topic_id)
            for topic, topic_id in read.items()
            if self._ids.get(topic, topic_id) != topic_id
        )

    def _note_others(self, read: TopicIds) -> None:
        others = self._others_of(read)
        if not others <= self._others:
            log.warning(
                "topics %s of the sink's cluster are not the ones that the query has read (it reads another cluster, or they"
                " were made again): what is read of them is not in the decision",
                ", ".join(sorted(topic for topic, _ in others)),
            )
        self._others = others


def check_resumed(sink_id: str, ends_at: Offsets, begins_at: Offsets | None) -> None:
    """Raises ConfigError unless a new query begins where the last decision ends.

    `ends_at`: the input offsets of the decision. `begins_at`: where the query's first batch begins; None when one of its
    sources does not tell.
    """
    if begins_at is None:
        raise ConfigError(
            f"resume=true: the query has a source that does not tell where it begins, so it may double rows of sink"
            f' {sink_id!r}; only sources of format("odradek") can resume'
        )
    if not ends_at:
        raise ConfigError(
            f"resume=true: the last decision of sink {sink_id!r} holds no offsets of what the query reads, so no one can tell"
            " where to go on: start the query at the right offsets, with takeOver=true in place of resume=true"
        )
    for partition, offset in sorted(begins_at.items()):
        expected = ends_at.get(partition, offset)
        if expected != offset:
            raise ConfigError(
                f"resume=true: the query begins at offset {offset} of {partition}, and the last decision of sink"
                f" {sink_id!r} ends at {expected}. Give readStream resume=true and sinkId={sink_id}, too, and the query a new"
                " checkpoint"
            )


def check_repeated(name: BatchName, decided: Decision, read: BatchInput, ends_at: Offsets) -> None:
    """Raises ConfigError when a batch that is in the output by its number has read what is not, or may have.

    That is so after a checkpoint was restored from a backup, and Spark cuts the batches since then otherwise. `ends_at`: the
    input offsets of the decision. It has the fingerprint of its own batch only, so what an earlier batch has read must be
    below these offsets: where there are none, as for files and topics of another cluster, no one can tell.
    """
    is_last = decided.batch == name.batch
    read_to = sorted(read.next_offsets.items())
    beyond = [partition for partition, offset in read_to if offset > ends_at.get(partition, offset)]
    unknown = [partition for partition, offset in read_to if offset > 0 and partition not in ends_at]
    if beyond:
        difference = (
            f"it reads {beyond[0]} up to offset {read.next_offsets[beyond[0]]}, and the output has it up to"
            f" {ends_at[beyond[0]]}"
        )
    elif is_last and decided.input_fingerprint not in (None, read.fingerprint, read.former_fingerprint):
        difference = "it has read other records than the one that was decided"
    elif not is_last and unknown:
        difference = f"no one can tell whether that has what it reads of {unknown[0]}, which the decision does not hold"
    elif not is_last and not read.is_whole:
        difference = "no one can tell whether that has what it reads: one of its sources is no Kafka topic"
    else:
        return
    way_on = f"with resume=true and sinkId={decided.sink_id} on readStream and writeStream: it continues where the output ends"
    if unknown or not read.is_whole:
        way_on = (
            "at the right offsets or files, with takeOver=true: the sink does not know where its input ends"
        )
    raise ConfigError(
        f"batch {name.batch} of query {name.query} is in the output of sink {decided.sink_id!r} already, up to batch"
        f" {decided.batch}, but {difference}: the checkpoint is older than the sink's last decision, as one from a backup is."
        f" Nothing was written. Start the query with a new checkpoint, {way_on}"
    )
