"""Input offsets in a decision: which of them the sink's cluster can hold, and whether a query goes on where they end."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.spark.exactly_once.checkpoint import BatchInput
from odradek.spark.exactly_once.decision import Decision
from odradek.spark.exactly_once.task import BatchName

log: Final = logging.getLogger("odradek.spark")

TOPICS_KNOWN_FOR_S: Final = 30.0
Offsets = Mapping[TopicPartition, int]


class TopicCounts(Protocol):
    """The sink's cluster."""

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each topic that exists; the others are left out."""


@dataclass(slots=True)
class KnownTopics:
    """Which topics the sink's cluster has; asked again after some time, since topics come and go, and when one has grown."""

    _counts: dict[str, int] = field(default_factory=dict)
    _asked: frozenset[str] = frozenset()
    _asked_at: float = 0.0
    _missing: frozenset[str] = frozenset()

    def held(self, offsets: Offsets, cluster: TopicCounts, clock: Clock) -> dict[TopicPartition, int]:
        """The offsets that a group of the cluster can commit: a query may read topics of another cluster, or deleted ones."""
        topics = frozenset(offset.topic for offset in offsets)
        has_grown = any(
            offset.partition >= self._counts.get(offset.topic, offset.partition + 1) for offset in offsets
        )
        if has_grown or not topics <= self._asked or clock.monotonic() - self._asked_at > TOPICS_KNOWN_FOR_S:
            self._counts = cluster.partition_counts(sorted(topics))
            self._asked, self._asked_at = topics, clock.monotonic()
            missing = topics - self._counts.keys()
            if missing > self._missing:
                log.warning(
                    "the sink's cluster has no topic %s: what is read of it is not in the decision",
                    ", ".join(sorted(missing)),
                )
            self._missing = missing
        return {
            partition: offset
            for partition, offset in offsets.items()
            if partition.partition < self._counts.get(partition.topic, 0)
        }


def check_resumed(sink_id: str, ends_at: Offsets, begins_at: Offsets | None) -> None:
    """ConfigError unless a new query begins where the last decision ends.

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
    """ConfigError when a batch that is in the output by its number has read what is not, or may have.

    That is so after a checkpoint was restored from a backup, and Spark cuts the batches since then otherwise. `ends_at`: the
    input offsets of the decision. It has the fingerprint of its own batch only, so what an earlier batch has read must lie
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
    way_on = f"with resume=true and sinkId={decided.sink_id} on readStream and writeStream: it goes on where the output ends"
    if unknown or not read.is_whole:
        way_on = (
            "at the right offsets or files, with takeOver=true: the sink does not know where its input ends"
        )
    raise ConfigError(
        f"batch {name.batch} of query {name.query} is in the output of sink {decided.sink_id!r} already, up to batch"
        f" {decided.batch}, but {difference}: the checkpoint is older than the sink's last decision, as one from a backup is."
        f" Nothing was written. Start the query with a new checkpoint, {way_on}"
    )
