"""The exactly-once sink, and the sink's commit of each micro-batch.

Spark pickles this write in the driver, which is when a batch begins, and runs it in tasks, which leave their transactions open.
The commit writes the decision: from then on the batch is part of the output.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from odradek.client.groups.values import OffsetAndMetadata, OffsetsToCommit
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.spark.dead_letters.left_out import LeftOutRecords
from odradek.spark.engine.plain_errors import errors_in_one_line
from odradek.spark.exactly_once.checkpoint import BatchInput, batch_input, beginnings, read_topic_ids
from odradek.spark.exactly_once.decision import Participant
from odradek.spark.exactly_once.driver import BatchTerms, SinkDriver, memory_of
from odradek.spark.exactly_once.inputs import KnownTopics, check_repeated, check_resumed
from odradek.spark.exactly_once.task import BatchName, is_written
from odradek.spark.options.options import ExactlyOnceOptions, WriteOptions
from odradek.spark.options.sink_ids import group_of
from odradek.spark.writing.outgoing import Marks, RowFormat

T = TypeVar("T")

if TYPE_CHECKING:
    import pyarrow as pa
    import pyspark

    from odradek.client import Admin
    from odradek.runtime import real
    from odradek.spark.clients import connections
    from odradek.spark.exactly_once import prepare
    from odradek.spark.writing import outgoing_rows, row_traces
else:
    connections = lazy("odradek.spark.clients.connections")
    outgoing_rows = lazy("odradek.spark.writing.outgoing_rows")
    prepare = lazy("odradek.spark.exactly_once.prepare")
    pyspark = lazy("pyspark")
    real = lazy("odradek.runtime.real")
    row_traces = lazy("odradek.spark.writing.row_traces")

log: Final = logging.getLogger("odradek.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTask(WriterCommitMessage):
    """The result of a task, and the facts about its batch that the commit needs."""

    record_count: int
    name: BatchName
    terms: BatchTerms
    participant: Participant | None
    """The task's transaction; None: it had no rows, or the batch is part of the output already."""
    is_skipped: bool
    was_tried_before: bool
    """An earlier attempt of the task may have left a transaction open."""


class TwoPhaseWrite:
    """The exactly-once write of one micro-batch. Spark pickles it in the driver before the tasks run: that is when the batch
    begins."""

    def __init__(self, options: WriteOptions, delivery: ExactlyOnceOptions, layout: RowFormat) -> None:
        self.options = options
        self._delivery = delivery
        self._layout = layout
        self._servers = options.client["bootstrap.servers"]
        self._terms: BatchTerms | None = None

    @errors_in_one_line()
    def __getstate__(self) -> dict[str, object]:
        if self._terms is None:
            self._terms = self._with_driver(lambda driver: driver.begin(fence_again=self._delivery.resuming))
        return self.__dict__

    def write(self, batches: Iterator[pa.RecordBatch], marks: Marks | None) -> PreparedTask:
        """Sends the rows in a transaction that stays open; rows of a batch that is written already are passed over."""
        terms = self._terms
        if terms is None:
            raise ConfigError("the batch has not begun: this writer was not made by Spark's driver")
        task = current_task()
        name = self._name_of(task)
        sink_id = self._delivery.sink_id
        is_skipped = is_written(name, terms.decided, sink_id, taking_over=self._may_take_over(name))
        left_out = LeftOutRecords(self.options.left_out_log, self.options.client)
        traces = row_traces.RowTraces(self.options.tracing_endpoint, marks)
        rows = outgoing_rows.OutgoingRows(batches, self._layout, marks, left_out, traces.traced)
        participant = None
        if is_skipped:
            for _ in batches:  # operators before this one commit their state when they have given all
                pass
        else:
            with traces:
                participant = prepare.prepare(self.options.client, sink_id, terms, rows)
        left_out.close()
        return PreparedTask(
            record_count=rows.count,
            name=name,
            terms=terms,
            participant=participant,
            is_skipped=is_skipped,
            was_tried_before=task.attempt > 0,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the micro-batch: its decision, then its transactions.

        An error leaves the decision open; the next batch to begin finds out.
        """
        done = [message for message in messages if isinstance(message, PreparedTask)]
        if len(done) < len(messages) or not done:
            raise ConfigError(f"{len(messages) - len(done)} of {len(messages)} tasks gave no result")
        first = done[0]
        if all(task.is_skipped for task in done):
            self._check_repeated(first)
            log.info("batch %d of query %s is in the output already", first.name.batch, first.name.query)
            return
        if any(task.name != first.name or task.terms.driver != first.terms.driver for task in done):
            raise ConfigError("the tasks of one batch do not agree on the batch that they wrote")
        self._check_resumed(first)
        participants = [task.participant for task in done if task.participant is not None]
        read = self._input(first.name)
        progress = self._progress(first.name, read)

        def decide(driver: SinkDriver) -> None:
            fingerprint = None if read is None else read.fingerprint
            driver.decide(first.terms, first.name, participants, progress, fingerprint)
            if any(task.was_tried_before for task in done):
                driver.sweep()

        left: list[Callable[[Admin], None]] = []
        self._with_driver(decide, later=left.append)
        for work in left:
            connections.administer_soon(self.options.client, work)

    # -- inside

    def _with_driver(
        self,
        use: Callable[[SinkDriver], T],
        *,
        later: Callable[[Callable[[Admin], None]], None] | None = None,
    ) -> T:
        sink_id = self._delivery.sink_id
        memory = memory_of(self._servers, sink_id)
        with memory.lock, connections.administering(self.options.client) as admin:
            return use(
                SinkDriver(
                    admin,
                    sink_id,
                    transaction_timeout_s=connections.transaction_timeout_s(self.options.client),
                    failing_on_loss=self._delivery.fail_on_data_loss,
                    memory=memory,
                    later=later,
                )
            )

    def _name_of(self, task: TaskAttempt) -> BatchName:
        if self._delivery.idempotence_key is not None:
            return BatchName(query=self._delivery.idempotence_key, batch=0, is_keyed=True)
        if task.query is None or task.batch is None:
            raise ConfigError(
                "delivery=exactly_once of a batch write needs the option idempotenceKey, by which a repeated write is"
                " recognised (inside foreachBatch the query and its batch serve)"
            )
        return BatchName(query=task.query, batch=task.batch)

    def _input(self, name: BatchName) -> BatchInput | None:
        """Returns what the batch has read; None where it is unknown."""
        delivery = self._delivery
        if name.is_keyed or delivery.checkpoint is None:
            if delivery.publish_group is not None:
                raise ConfigError(
                    "publishOffsets needs a streaming write with the option checkpointLocation: the checkpoint holds"
                    " what a batch has read"
                )
            return None
        try:
            return batch_input(delivery.checkpoint, name.batch)
        except ConfigError:
            if delivery.publish_group is not None:
                raise
            log.warning("the sink's decision has no input offsets", exc_info=True)
            return None

    def _progress(self, name: BatchName, read: BatchInput | None) -> Mapping[str, OffsetsToCommit]:
        """Returns the offsets that the batch has read, by group: the sink's own, and the one for publishing them."""
        if read is None:
            return {}
        delivery = self._delivery
        held = self._held(read)
        is_first = name.batch == 0  # later on its topics were there, and were deleted since
        if is_first and delivery.publish_group is not None and read.next_offsets and not held:
            raise ConfigError(
                f"publishOffsets: the query reads {min(read.next_offsets)}, and the sink's cluster does not have it; give"
                " publishOffsets to readStream, so that the offsets are committed to the cluster that is read"
            )
        groups = [group_of(delivery.sink_id)] + ([delivery.publish_group] if delivery.publish_group else [])
        return {group: held for group in groups if held}

    def _held(self, read: BatchInput) -> dict[TopicPartition, OffsetAndMetadata]:
        known = _topics_of(self._servers, frozenset(at.topic for at in read.next_offsets))
        catalog = connections.catalog(self.options.client)
        return known.held(read.next_offsets, read.topic_ids, catalog, real.SystemClock())

    def _check_repeated(self, first: PreparedTask) -> None:
        """Checks that a batch that is passed over has read what the decided one had."""
        decided, read = first.terms.decided, self._input(first.name)
        if decided is None or read is None:
            return
        catalog = connections.catalog(self.options.client)
        ends_at = catalog.committed(group_of(self._delivery.sink_id), read.next_offsets, read.topic_ids)
        check_repeated(first.name, decided, read, ends_at)

    def _may_take_over(self, name: BatchName) -> bool:
        """Tells whether a query with a new checkpoint may write: with `resume`. Its start is checked at the commit."""
        delivery = self._delivery
        return delivery.taking_over or (delivery.resuming and name.batch == 0 and not name.is_keyed)

    def _check_resumed(self, first: PreparedTask) -> None:
        delivery, decided = self._delivery, first.terms.decided
        if not delivery.resuming or delivery.taking_over or first.name.is_keyed or decided is None:
            return
        if decided.query == first.name.query:
            return
        if delivery.checkpoint is None:
            raise ConfigError("resume=true needs a streaming write with the option checkpointLocation")
        begins_at = beginnings(delivery.checkpoint, first.name.batch)
        ids = read_topic_ids(delivery.checkpoint, first.name.batch)
        catalog = connections.catalog(self.options.client)
        ends_at = catalog.committed(group_of(delivery.sink_id), begins_at or (), ids)
        check_resumed(delivery.sink_id, ends_at, begins_at)


_known_topics: Final[dict[tuple[str, frozenset[str]], KnownTopics]] = {}
"""By servers and the topics that a query reads."""


def _topics_of(servers: str, topics: frozenset[str]) -> KnownTopics:
    return _known_topics.setdefault((servers, topics), KnownTopics())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    attempt: int
    query: str | None
    batch: int | None


def current_task() -> TaskAttempt:
    context = pyspark.TaskContext.get()
    if context is None:
        raise ConfigError("delivery=exactly_once writes in Spark's tasks only")
    if (context.getLocalProperty("spark.speculation") or "").strip().lower() == "true":
        raise ConfigError(
            "delivery=exactly_once does not go with spark.speculation=true: the attempts that lose leave transactions open, and"
            " these hold back readers. Set spark.speculation=false"
        )
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return TaskAttempt(
        attempt=context.attemptNumber(),
        query=query,
        batch=None if batch is None else int(batch),
    )
