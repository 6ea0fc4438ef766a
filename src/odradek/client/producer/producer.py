"""The synchronous producer: it sends on a thread of its own.

Written by `make faces` from `aio.py`: change that one.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, Unpack, cast

from odradek.client.groups.values import GroupMetadata, OffsetsToCommit
from odradek.client.network.errors import TimedOutError, explain
from odradek.client.network.loop_thread import LoopThread
from odradek.client.network.metrics import MetricName
from odradek.client.producer.accumulator import TopicQueues
from odradek.client.producer.core import SHUTDOWN_S, PartitionNotKnownError, ProducerCore
from odradek.client.producer.delivery import Delivery, RecordMetadata
from odradek.client.producer.partition_queue import PartitionQueue
from odradek.client.producer.partitioner import Partitioner
from odradek.client.producer.record_input import HeaderInput, K, Serializer, TracedHeaders, V
from odradek.client.settings.options import ProducerOptions
from odradek.client.settings.settings import ProducerSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.exception_text import add_note
from odradek.model.public import public
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events

_log = events.get("client")

_AT_EXIT_S: Final = 10.0


@public("odradek")
class Producer(Generic[K, V]):
    """Sends records from any thread.

        with Producer("127.0.0.1:9092", compression_type="zstd") as producer:
            delivery = producer.send("flights", b"...", key=b"JFK")
            print(delivery.result().offset)

    `send` only puts the record into a batch in memory: a background thread sends batches and reads responses.
    Look at the returned `Delivery`, or call `flush`, to learn its outcome: failures no one looked at are
    raised there.

    Settings are Kafka's, as keyword arguments; `help` explains each below `__init__`. `K` and `V` are what the serializers
    take, and so the types of keys and values to send.
    """

    @with_settings(ProducerSettings, ProducerOptions)
    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        partitioner: Partitioner | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        checked = ProducerSettings.of(bootstrap_servers, dict(settings))
        core = self._core = ProducerCore(
            checked,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            clock=clock,
            entropy=entropy,
            wake=lambda: loop.post(core.sender.turn),
        )
        loop = self._loop = LoopThread("odradek-producer")
        loop.post(core.start)
        self._closed = False
        self._close_lock = threading.Lock()
        # What `send` touches for every record, one attribute away.
        self._wall_ms = core.clock.wall_ms
        self._topics = core.accumulator.topics
        self._lock = core.accumulator.lock
        self._content: Any = core.content
        self._append: Any = core.accumulator.append
        self._choose: Any = core.choose
        self._plain = core.plain
        self._sticky = core.sticky
        self._spans = core.spans
        transactions = core.transactions
        self._check_sendable = transactions.core.check_sendable if transactions is not None else None
        _open_producers.add(self)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_serializer: Serializer[K] | None = None,
        value_serializer: Serializer[V] | None = None,
        **more: Unpack[ProducerOptions],
    ) -> Self:
        """Returns a producer for a mapping with Kafka's names: `{"bootstrap.servers": "...", "linger.ms": 20}`."""
        return cls(
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            **ProducerSettings.arguments(config),
            **more,
        )

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeaderInput = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Put a record into a batch, and return at once unless something is missing.

        Key and value are bytes, str (sent as UTF-8) or None, or whatever the serializers take. Without `partition` the
        key decides (murmur2, as in Java), or, without a key, the batch under way. `timestamp_ms` is now by default.

        Blocks up to max.block.ms for the topic's metadata and while buffer.memory is full; raises KafkaError then, at
        once for a record that is too large, and whatever ended the producer in the background.
        """
        if self._spans is not None and headers.__class__ is not TracedHeaders:
            with self._spans.sending(topic, headers) as span:
                traced = self.send(
                    topic,
                    value,
                    key=key,
                    headers=span.headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                )
                span.follow(traced)
                return traced
        if self._check_sendable is not None:
            self._check_sendable()
        is_plain = (value.__class__ is bytes or value is None) and (key.__class__ is bytes or key is None)
        if headers or not self._plain or not is_plain:
            key, value, headers = self._content(key, value, headers)
        queues = self._topics.get(topic) or self._learn(topic)
        try:
            queue = (
                None
                if key is None and partition is None and self._sticky
                else self._choose(queues, key, partition)
            )
        except PartitionNotKnownError:
            queues, queue = self._choose_again(topic, key, partition)
        if timestamp_ms is None:
            timestamp_ms = self._wall_ms()
        with self._lock:
            delivery = self._append(queues, queue, timestamp_ms, key, value, headers)
        if delivery is None:
            append = partial(self._append, queues, queue, timestamp_ms, key, value, headers)
            delivery = self._when_there_is_room(append)
        return cast(Delivery, delivery)

    def send_arrow(self, topic: str, rows: object) -> None:
        """Put the rows of a frame into batches of their own: many times as fast as one record after another.

        `rows`: a pyarrow RecordBatch or Table, a polars or pandas DataFrame, or any object with
        `__arrow_c_stream__`. Columns: `value` and `key` (one of them at least; binary or text, null for none)
        and, where they are there, `headers` (a list of structs of key and value), `timestamp` and `partition`
        (a number); others are not looked at. Rows of a key keep their order. Serializers are not used.
        `flush` raises DeliveryError for those that were not acknowledged. Waits as `send` does.

        ValueError for a column of another type, TypeError for another object.
        """
        if self._check_sendable is not None:
            self._check_sendable()
        queues = self._topics.get(topic) or self._learn(topic)
        with self._core.sending_rows(topic) as span:
            for batch in self._core.batches_of(queues, rows):
                if batch is None:
                    self._refuse_own_thread()
                    self._loop.call(self._core.learn_again(topic))
                    continue
                queue, written = batch
                append = partial(self._core.accumulator.add, queues, queue, written)
                with self._lock:
                    delivery = append()
                if delivery is None:
                    delivery = self._when_there_is_room(append)
                if span is not None:
                    span.follow(delivery, written.record_count)

    def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeaderInput = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged: simple, and slow when done one by one."""
        delivery = self.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return delivery.result()

    def flush(self, timeout_s: float | None = None) -> None:
        """Send everything now and wait until all of it is acknowledged or has failed.

        Raises TimedOutError after `timeout_s` seconds, and DeliveryError for failures that no one has looked at.
        """
        self._loop.check()
        self._refuse_own_thread()
        clock = self._core.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        for batch in self._core.accumulator.hurry():
            left = None if deadline is None else max(0.0, deadline - clock.monotonic())
            if not batch.wait(left):
                raise TimedOutError(
                    f"flush did not finish within {timeout_s} s", self._core.cluster.metadata.problem
                )
        self._raise_undelivered()

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end. Whatever is not delivered within `timeout_s` seconds fails. Idempotent."""
        self._refuse_own_thread()
        if self._loop.is_gone:  # a lock that was held at the fork stays so
            self._closed = True
            return
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        _open_producers.discard(self)
        try:
            if self._core.accumulator.failure is None:
                self._loop.call(self._core.end_open_transaction(SHUTDOWN_S))
                self.flush(timeout_s)
        finally:
            try:
                self._loop.call(self._core.finish())
            finally:
                self._loop.stop()
        self._raise_undelivered()

    # -- transactions

    def init_transactions(self, timeout_s: float | None = None) -> None:
        """Fences older producers of this transactional id, and aborts their open transaction. Call it before anything else."""
        self._loop.call(self._core.need_transactions().init(timeout_s))

    def change_transactional_id(self, transactional_id: str) -> None:
        """Gives the producer another transactional id, for the next transactions: one producer can write under many names, one
        after another. No transaction may be open. One that was prepared is left to the holder of its identity.

        Then `init_transactions`, or `resume_transactions` where the last transaction of the new id is known to be committed.
        """
        self._loop.check()
        self._core.change_transactional_id(transactional_id)

    def begin_transaction(self) -> None:
        """Begins a transaction: records sent, and offsets committed through this producer, are part of it from now on."""
        self._loop.check()
        self._core.begin_transaction()

    def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Send what waits, and make all of the transaction visible at once.

        ProducerFencedError: another producer has taken over, close this one. Other errors: `abort_transaction`. After
        TimedOutError the outcome is open: call it again.
        """
        self._loop.call(self._core.need_transactions().commit(timeout_s))

    def prepare_transaction(self, timeout_s: float | None = None) -> TransactionIdentity:
        """Send what waits and leave the transaction open: the holder of the returned identity can end it (KIP-939).

        `Admin.end_transactions` does so, from any process. Here `commit_transaction` and `abort_transaction` do;
        `init_transactions` lets go of it, and aborts it unless it was ended. It is open until transaction.timeout.ms is over.
        """
        return self._loop.call(self._core.need_transactions().prepare(timeout_s))

    def resume_transactions(self, committed: TransactionIdentity) -> bool:
        """Replaces `init_transactions` where the transaction that was prepared last is known to be committed. It asks no
        broker.

        Returns False when another one was prepared, or when a broker must be asked (before transaction.version 2, or when
        epochs are nearly used up, or by a producer that has asked none yet): then call `init_transactions`. If `committed` is
        open or aborted, brokers refuse what is sent next. After `change_transactional_id`, it is the last of that id. The id
        keeps the timeout with which it was initialized last, whatever this producer's own setting is.
        """
        return self._loop.call(self._core.need_transactions().resume(committed))

    def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Undo it: readers of committed records see nothing of it. What was not sent yet is dropped."""
        self._loop.call(self._core.abort_transaction(timeout_s))

    def send_offsets_to_transaction(
        self, offsets: OffsetsToCommit, group: GroupMetadata, timeout_s: float | None = None
    ) -> None:
        """Commit a group's offsets if and when the transaction is committed; `group` is `Consumer.group_metadata()`."""
        self._loop.call(self._core.need_transactions().send_offsets(offsets, group, timeout_s))

    @contextmanager
    def transaction(self, timeout_s: float | None = None) -> Iterator[Self]:
        """Yields a transaction that is committed at the end of the block, and aborted if the block, or the commit, fails.

        When the commit itself is cancelled, the transaction is ended, one way or the other, before the cancellation is raised.
        """
        self._loop.call(self._core.begin_block(timeout_s))
        try:
            yield self
        except BaseException as error:
            self._loop.call(self._core.end_block(error, timeout_s))
            raise
        self._loop.call(self._core.end_block(None, timeout_s))

    def metrics(self) -> dict[MetricName, float]:
        """Returns the figures of this producer now, under Kafka's names; docs/client.md lists them. May be called at any
        time."""
        return self._core.metrics()

    def client_instance_id(self, timeout_s: float | None = None) -> str:
        """Returns the id with which brokers show this producer's metrics (KIP-714), as `odradek broker clients` prints it."""
        return self._loop.call(
            self._core.cluster.instance_id(self._core.max_block_s if timeout_s is None else timeout_s)
        )

    def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Returns the partitions of a topic, in order."""
        return tuple(range(self._learn(topic).partition_count))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except Exception as second:  # noqa: BLE001 - must not hide the error that ended the block
            add_note(error, f"closing the producer failed, too: {explain(second)}")

    def _raise_undelivered(self) -> None:
        error = self._core.undelivered()
        if error is not None:
            raise error

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            warnings.warn(
                f"{self!r} was not closed: records may be lost", ResourceWarning, source=self, stacklevel=1
            )
            self._loop.stop_after(self._core.finish_forgotten)

    def _learn(self, topic: str) -> TopicQueues:
        self._loop.check()
        self._core.check_usable()
        return self._loop.call(self._core.learn(topic))

    def _choose_again(
        self, topic: str, key: Any, partition: int | None
    ) -> tuple[TopicQueues, PartitionQueue | None]:
        self._refuse_own_thread()
        return self._loop.call(self._core.choose_again(topic, key, partition))

    def _when_there_is_room(self, append: Callable[[], Delivery | None]) -> Delivery:
        self._refuse_own_thread()
        core = self._core
        deadline = core.clock.monotonic() + core.max_block_s
        with self._lock:
            while True:
                delivery = append()
                if delivery is not None:
                    return delivery
                left_s = deadline - core.clock.monotonic()
                if left_s <= 0 or not core.accumulator.wait_for_room(left_s):
                    raise core.no_room()

    def _leave_behind(self) -> None:
        """Forgets the topics in a forked process: the next `send` finds none, asks the thread, and is refused."""
        self._topics = {}

    def _refuse_own_thread(self) -> None:
        if self._loop.is_current:
            raise RuntimeError("a delivery callback must not wait for its own producer")


_open_producers: weakref.WeakSet[Producer[Any, Any]] = weakref.WeakSet()


def _close_forgotten() -> None:
    """Delivers, at the end of the process, the records of producers that were not closed, for at most `_AT_EXIT_S` each."""
    for producer in list(_open_producers):
        try:
            producer.close(timeout_s=_AT_EXIT_S)
        except Exception as error:  # noqa: BLE001 - the process ends: only the log is left
            _log.error("records_lost_at_exit", reason=explain(error))


def _leave_behind() -> None:
    """Detaches producers in a forked child: it does not have their threads, so `send` must not fill their batches."""
    for producer in list(_open_producers):
        producer._leave_behind()
    _open_producers.clear()


atexit.register(_close_forgotten)


os.register_at_fork(after_in_child=_leave_behind)
