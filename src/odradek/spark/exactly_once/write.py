"""The exactly-once half of both writers: what Spark pickles, runs in tasks, and commits."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.spark.exactly_once.checkpoint import input_offsets
from odradek.spark.exactly_once.decision import Participant, group_of
from odradek.spark.exactly_once.driver import BatchTerms, SinkDriver, memory_of
from odradek.spark.exactly_once.task import BatchName, is_written
from odradek.spark.options import ExactlyOnceOptions, WriteOptions
from odradek.spark.outgoing import Marks, RowFormat, outgoing_records

if TYPE_CHECKING:
    import pyarrow as pa
    import pyspark

    from odradek.spark import connections
else:
    connections = lazy("odradek.spark.connections")
    pyspark = lazy("pyspark")

log: Final = logging.getLogger("odradek.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTask(WriterCommitMessage):
    """What a task did, and what the commit needs to know of its batch."""

    record_count: int
    name: BatchName
    terms: BatchTerms
    participant: Participant | None
    """None: the task had no rows, or the batch is part of the output already."""
    is_skipped: bool


class TwoPhaseWrite:
    """One batch. Spark pickles it in the driver before the tasks run: that is when the batch begins."""

    def __init__(self, options: WriteOptions, delivery: ExactlyOnceOptions, layout: RowFormat) -> None:
        self.options = options
        self._delivery = delivery
        self._layout = layout
        self._terms: BatchTerms | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._terms is None:
            self._terms = self._with_driver(lambda driver: driver.begin())
        return self.__dict__

    def write(self, batches: Iterator[pa.RecordBatch], marks: Marks | None) -> PreparedTask:
        """Send the rows in a transaction that stays open; rows of a batch that is written already are passed over."""
        terms = self._terms
        if terms is None:
            raise ConfigError("the batch has not begun: this writer was not made by Spark's driver")
        place = _task_place()
        name = self._name_of(place)
        if is_written(name, terms.decided, self._delivery.sink_id, taking_over=self._delivery.taking_over):
            for _ in batches:  # operators before this one commit their state when they have given all
                pass
            return PreparedTask(record_count=0, name=name, terms=terms, participant=None, is_skipped=True)
        count, participant = self._send(batches, terms, place, marks)
        return PreparedTask(
            record_count=count, name=name, terms=terms, participant=participant, is_skipped=False
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Decide the batch. An error leaves the decision open; the next batch to begin finds out."""
        done = [each for each in messages if isinstance(each, PreparedTask)]
        if len(done) < len(messages) or not done:
            raise ConfigError(f"{len(messages) - len(done)} of {len(messages)} tasks gave no result")
        first = done[0]
        if all(each.is_skipped for each in done):
            log.info("batch %d of query %s is in the output already", first.name.batch, first.name.query)
            return
        if any(each.name != first.name or each.terms.driver != first.terms.driver for each in done):
            raise ConfigError("the tasks of one batch do not agree on the batch that they wrote")
        participants = [each.participant for each in done if each.participant is not None]
        progress = self._progress(first.name)
        self._with_driver(
            lambda driver: driver.decide(
                first.terms, first.name.query, first.name.batch, participants, progress
            )
        )

    # -- inside

    def _with_driver(self, use: Any) -> Any:
        sink_id = self._delivery.sink_id
        memory = memory_of(self.options.client["bootstrap.servers"], sink_id)
        with connections.administering(self.options.client) as admin:
            return use(
                SinkDriver(admin, sink_id, failing_on_loss=self._delivery.fail_on_data_loss, memory=memory)
            )

    def _name_of(self, place: _TaskPlace) -> BatchName:
        if self._delivery.idempotence_key is not None:
            return BatchName(query=self._delivery.idempotence_key, batch=0, is_keyed=True)
        if place.query is None or place.batch is None:
            raise ConfigError(
                "delivery=exactly_once of a batch write needs the option idempotenceKey, by which a repeated write is"
                " recognised (inside foreachBatch the query and its batch serve)"
            )
        return BatchName(query=place.query, batch=place.batch)

    def _send(
        self, batches: Iterator[pa.RecordBatch], terms: BatchTerms, place: _TaskPlace, marks: Marks | None
    ) -> tuple[int, Participant | None]:
        batches = (batch for batch in batches if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return 0, None
        count = 0
        name = terms.namespace.transactional_id(place.partition, place.attempt)
        with connections.preparing(self.options.client, name) as task:
            for batch in _all(first, batches):
                for record in outgoing_records(batch, self._layout, marks=marks, first_sequence=count):
                    task.send(record)
                count += batch.num_rows
            identity = task.prepare()
        return count, Participant(
            partition=place.partition,
            attempt=place.attempt,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
        )

    def _progress(self, name: BatchName) -> Mapping[str, Mapping[TopicPartition, int]]:
        """What the batch has read, by group: the sink's own, and the one that the user wants it published as."""
        delivery = self._delivery
        if name.is_keyed or delivery.checkpoint is None:
            if delivery.publish_group is not None:
                raise ConfigError(
                    "publishOffsets needs a streaming write with the option checkpointLocation: what a batch has read"
                    " stands in its checkpoint"
                )
            return {}
        try:
            offsets = input_offsets(delivery.checkpoint, name.batch)
        except ConfigError:
            if delivery.publish_group is not None:
                raise
            log.warning("the sink's decision has no input offsets", exc_info=True)
            return {}
        groups = [group_of(delivery.sink_id)] + ([delivery.publish_group] if delivery.publish_group else [])
        return {group: offsets for group in groups if offsets}


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskPlace:
    partition: int
    attempt: int
    query: str | None
    batch: int | None


def _task_place() -> _TaskPlace:
    context = pyspark.TaskContext.get()
    if context is None:
        raise ConfigError("delivery=exactly_once writes in Spark's tasks only")
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return _TaskPlace(
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        query=query,
        batch=None if batch is None else int(batch),
    )


def _all(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
