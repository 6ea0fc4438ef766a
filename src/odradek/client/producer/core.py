"""The core that the asynchronous and the synchronous producer share: everything but waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import TYPE_CHECKING, Any, Final

from odradek.client.network.cancellation import has_ended, to_its_end
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import BufferFullError, ClientClosedError, explain
from odradek.client.network.metrics import MetricName, read
from odradek.client.producer.accumulator import Accumulator, TopicQueues
from odradek.client.producer.partition_queue import PartitionQueue
from odradek.client.producer.partitioner import Partitioner
from odradek.client.producer.producer_metrics import rows
from odradek.client.producer.record_input import HeaderInput, Serializer, to_bytes, to_headers
from odradek.client.producer.sender import Sender
from odradek.client.settings.settings import ProducerSettings
from odradek.client.transactions.core import TransactionalState
from odradek.client.transactions.error_actions import FatalTransactionError, TransactionError
from odradek.client.transactions.service import ProducerTransactions
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.model.exception_text import add_note
from odradek.model.lazy import lazy
from odradek.records import partition_of
from odradek.records.frame import Written
from odradek.runtime.ports import Buffer, Clock, Entropy
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.client.producer import arrow_rows, spans
else:
    arrow_rows = lazy("odradek.client.producer.arrow_rows")
    spans = lazy("odradek.client.producer.spans")

_log = events.get("client")

SHUTDOWN_S: Final = 5.0
"""The seconds for which `close` tries to abort an open transaction."""

_TO_ABORT: Final = (TransactionalState.OPEN, TransactionalState.BROKEN, TransactionalState.ABORTING)

Headers = tuple[tuple[str, bytes | None], ...]


class PartitionNotKnownError(KafkaError):
    """A record is for a partition that the topic does not have, as far as the producer knows."""

    def __init__(self, topic: str, count: int, partition: int) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}",
        )


class ProducerCore:
    """The state and decisions of a producer, without its way to wait. It may be made on any thread; `start` and `finish` run
    on the event loop. `wake` asks for a turn of the sender, from any thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        key_serializer: Serializer[Any] | None,
        value_serializer: Serializer[Any] | None,
        partitioner: Partitioner | None,
        clock: Clock | None,
        entropy: Entropy | None,
        wake: Callable[[], None],
    ) -> None:
        self.settings: Final = settings
        self.clock: Final = clock or SystemClock()
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        entropy = entropy or SystemEntropy()
        self.cluster: Final = ClusterClient(settings, self.clock, entropy, auto_create=True)
        self.accumulator: Final = Accumulator(settings, self.clock, entropy, wake=wake)
        self.sender: Final = Sender(settings, self.cluster, self.accumulator)
        self.transactions: Final = self._transactions() if settings.transactional_id else None
        self.sender.transactions = self.transactions
        if settings.enable_metrics_push:
            self.cluster.push_metrics(self.metrics, _labels(settings.transactional_id))
        self.spans: Final = spans.ProducerSpans(settings.client_id) if settings.enable_opentelemetry else None
        self._ending: asyncio.Task[None] | None = None
        """The end of a transaction's block, under way."""
        self.max_block_s: Final = settings.max_block_ms / 1000
        self.plain: Final = key_serializer is None and value_serializer is None
        """No serializers: bytes need no look."""
        self.sticky: Final = partitioner is None
        """Records without key and partition need no choice."""

    def start(self) -> None:
        """Begins to send. Idempotent; called on the loop."""
        self.cluster.start()

    async def finish(self) -> None:
        """End everything; what is not settled fails. Idempotent; on the loop."""
        async with AsyncExitStack() as steps:  # each step happens, also when those before it fail
            steps.callback(self.sender.give_up, ClientClosedError("producer"))
            steps.push_async_callback(self.cluster.close)
            if self.transactions is not None:
                steps.push_async_callback(self.transactions.stop)
            await self.sender.stop()

    async def finish_forgotten(self) -> None:
        """Ends a producer that was not closed: its records are sent, or fail after delivery.timeout.ms; then everything stops.

        Called on the loop.
        """
        try:
            if self.accumulator.failure is None:
                await self.end_open_transaction(SHUTDOWN_S)
                for batch in self.accumulator.hurry():
                    await batch.wait_async()
        finally:
            await self.finish()

    def metrics(self) -> dict[MetricName, float]:
        """Returns the producer's metrics. Called from any thread."""
        table = rows(self.sender.figures, self.accumulator, self.cluster)
        return read(table, self.settings.client_id)

    async def learn(self, topic: str) -> TopicQueues:
        """Make a topic known; KafkaError when the cluster does not have it within max.block.ms."""
        image = await self.cluster.metadata.topic(topic, self.max_block_s)
        return self.accumulator.learn(topic, len(image.partitions), image.available)

    async def choose_again(
        self, topic: str, key: Buffer | None, partition: int | None
    ) -> tuple[TopicQueues, PartitionQueue | None]:
        """Asks the cluster for the topic's partitions once, and chooses among these: it may have got more, or be made again.

        Raises PartitionNotKnownError if the partition is not there either.
        """
        queues = await self.learn_again(topic)
        return queues, self.choose(queues, key, partition)

    async def learn_again(self, topic: str) -> TopicQueues:
        """Returns the topic as the cluster has it now. KafkaError when it has not within max.block.ms."""
        await self.cluster.metadata.refresh(self.max_block_s)
        return await self.learn(topic)

    def content(
        self, key: object, value: object, headers: HeaderInput
    ) -> tuple[Buffer | None, Buffer | None, Headers]:
        """Returns the user's key, value and headers as they are sent."""
        return (
            to_bytes(key, self._key_serializer, "key"),
            to_bytes(value, self._value_serializer, "value"),
            to_headers(headers) if headers else (),
        )

    def choose(self, topic: TopicQueues, key: Buffer | None, partition: int | None) -> PartitionQueue | None:
        """Returns the queue that a record goes to; None leaves it to the sticky partition. Raises PartitionNotKnownError."""
        queues, count = topic.queues, topic.partition_count
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(topic.topic, bytes(key) if key is not None else None, count)
        if partition is None:
            if key is None or self.settings.partitioner_ignore_keys:
                return None
            return queues[partition_of(bytes(key), count)]
        if partition < 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"a partition is 0 or more, not {partition}"
            )
        if partition >= count:
            raise PartitionNotKnownError(topic.topic, count, partition)
        return queues[partition]

    def batches_of(
        self, topic: TopicQueues, rows: object
    ) -> Iterator[tuple[PartitionQueue | None, Written] | None]:
        """Yields the batches of a frame in order, with their queues; a queue of None leaves it to the sticky partition.

        Yields None before rows of partitions that are not known: `learn_again` is due before the next step.
        """

        def chosen(key: bytes | None) -> int | None:
            queue = self.choose(topic, key, None)
            return None if queue is None else queue.topic_partition.partition

        is_usual = self._partitioner is None and not self.settings.partitioner_ignore_keys
        now_ms = self.clock.wall_ms()
        rule = None if is_usual else chosen
        for columns in arrow_rows.record_batches(rows):
            if arrow_rows.highest_partition(columns) >= topic.partition_count:
                yield None
            for group in arrow_rows.by_partition(topic.topic, columns, topic.partition_count, rule):
                queue = None if group.partition is None else topic.queues[group.partition]
                for written in group.batches(self.accumulator.batch_bytes_max, now_ms):
                    yield queue, written

    def sending_rows(self, topic: str) -> AbstractContextManager[spans.RowsSpan | None]:
        """Returns the span of a frame that is about to be sent; None without tracing."""
        return nullcontext() if self.spans is None else self.spans.sending_rows(topic)

    def need_transactions(self) -> ProducerTransactions:
        if self.transactions is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions need the setting transactional_id")
        return self.transactions

    def change_transactional_id(self, transactional_id: str) -> None:
        """Takes another transactional id, where no transaction is open."""
        self.check_usable()
        if not transactional_id:
            raise ConfigError("a transactional id has at least one character")
        self.need_transactions().change_id(transactional_id)
        self.cluster.relabel_metrics(_labels(transactional_id))

    def begin_transaction(self) -> None:
        """Begins a transaction: records and offsets are part of it from now on."""
        self.check_usable()
        self.need_transactions().core.begin()

    async def abort_transaction(self, timeout_s: float | None) -> None:
        await self.need_transactions().abort(timeout_s)
        self.sender.failures.pop()  # the failed call has raised it, and none of it counts

    async def end_open_transaction(self, timeout_s: float) -> None:
        """Aborts an open transaction at the end: it is never committed, and readers should not wait for its timeout.

        A commit that was begun, and was cancelled or timed out, is completed: it may have happened.
        """
        transactions = self.transactions
        if transactions is None:
            return
        try:
            if transactions.core.state is TransactionalState.COMMITTING:
                await transactions.commit(timeout_s)
            elif transactions.core.state in _TO_ABORT:
                await self.abort_transaction(timeout_s)
        except OdradekError as error:
            _log.info("transaction_not_ended", reason=explain(error))

    async def begin_block(self, timeout_s: float | None) -> None:
        """Begins a `with` block; the abort of the last one is seen through first, if it was cancelled or too late."""
        self.check_usable()
        transactions = self.need_transactions()
        if self._ending is not None:
            await has_ended(self._ending)
        if transactions.core.state is TransactionalState.ABORTING:
            await self.abort_transaction(timeout_s)
        transactions.core.begin()

    async def end_block(self, error: BaseException | None, timeout_s: float | None) -> None:
        """Ends a `with` block: commits, or aborts if something failed. Raises what the caller does not know yet. Raises what
        the caller does not know yet.

        A caller that is cancelled meanwhile waits for the end: a commit that has not been asked for becomes an abort, one
        that has is seen through. `SHUTDOWN_S` later it is given up, and the next block sees an abort through."""
        ending = asyncio.get_running_loop().create_task(
            self._end_block(error, timeout_s), name="odradek-transaction-end"
        )
        self._ending = ending
        core = self.need_transactions().core
        try:
            # Cancelled while nothing is decided, `_end_block` aborts.
            await to_its_end(
                ending, grace_s=SHUTDOWN_S, may_stop=lambda: core.state is TransactionalState.OPEN
            )
        finally:
            if ending.done():
                self._ending = None

    async def _end_block(self, error: BaseException | None, timeout_s: float | None) -> None:
        transactions = self.need_transactions()
        if error is None:
            try:
                await transactions.commit(timeout_s)
            except (KafkaError, asyncio.CancelledError) as failure:
                if transactions.core.state in _TO_ABORT:
                    await self._abort_after(failure, timeout_s)
                raise
        elif transactions.core.state in _TO_ABORT:
            await self._abort_after(error, timeout_s)

    async def _abort_after(self, error: BaseException, timeout_s: float | None) -> None:
        """Aborts the transaction after `error`. Raises the fence of this producer, if only the abort shows it."""
        try:
            await self.abort_transaction(timeout_s)
        except OdradekError as second:
            if isinstance(second, FatalTransactionError) and isinstance(error, TransactionError):
                raise second from error
            add_note(error, f"aborting the transaction failed, too: {explain(second)}")

    def _transactions(self) -> ProducerTransactions:
        return ProducerTransactions(
            self.settings,
            self.cluster,
            self.accumulator,
            identify=self.sender.identified,
            go_on=self.sender.turn_soon,
        )

    def check_usable(self) -> None:
        """Raise what ended the producer, if anything did."""
        failure = self.accumulator.failure
        if failure is not None:
            raise failure

    def no_room(self) -> BufferFullError:
        """Returns the error for a wait for memory that was too long."""
        return BufferFullError(
            f"buffer.memory ({self.settings.buffer_memory} bytes) stayed full for {self.max_block_s:g} s",
            self.cluster.metadata.problem,
        )

    def undelivered(self) -> Exception | None:
        """Returns the error that flush and close must raise."""
        return self.sender.failures.pop()


def _labels(transactional_id: str) -> dict[str, str]:
    """Returns the labels of the metrics that are pushed to brokers."""
    return {"transactional_id": transactional_id}
