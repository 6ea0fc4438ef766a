"""The asynchronous producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Generic, Self, Unpack

from odradek.client.groups.values import GroupMetadata, OffsetsToCommit
from odradek.client.network.cancellation import to_its_end
from odradek.client.network.errors import ClientClosedError, explain
from odradek.client.network.metrics import MetricName
from odradek.client.network.own_loop import OwnLoop
from odradek.client.producer.core import SHUTDOWN_S, PartitionNotKnownError, ProducerCore
from odradek.client.producer.delivery import Delivery, RecordMetadata
from odradek.client.producer.partitioner import Partitioner
from odradek.client.producer.record_input import HeaderInput, K, Serializer, TracedHeaders, V
from odradek.client.settings.options import ProducerOptions
from odradek.client.settings.settings import ProducerSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.exception_text import add_note
from odradek.model.public import public
from odradek.runtime.ports import Clock, Entropy


@public("odradek")
class AsyncProducer(Generic[K, V]):
    """Sends records from one event loop.

        async with AsyncProducer("127.0.0.1:9092") as producer:
            delivery = await producer.send("flights", b"...")  # in a batch now
            metadata = await delivery                          # acknowledged

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
        loop = self._loop = OwnLoop("odradek-producer")
        self._closed = False
        core = self._core = ProducerCore(
            ProducerSettings.of(bootstrap_servers, dict(settings)),
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            clock=clock,
            entropy=entropy,
            wake=lambda: loop.post(core.sender.turn_soon),
        )

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

    async def start(self) -> None:
        """Begin to work on the running loop; `send` does so by itself."""
        if self._closed:
            raise ClientClosedError("producer")
        if self._loop.begin():
            self._core.start()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: HeaderInput = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Put a record into a batch; await the returned delivery to know that it is acknowledged.

        Waits, up to max.block.ms, for the topic's metadata and while buffer.memory is full.
        """
        core = self._core
        if core.spans is not None and headers.__class__ is not TracedHeaders:
            with core.spans.sending(topic, headers) as span:
                delivery = await self.send(
                    topic,
                    value,
                    key=key,
                    headers=span.headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                )
                span.follow(delivery)
                return delivery
        if not self._loop.is_current or self._closed:
            await self.start()
        if core.transactions is not None:
            core.transactions.core.check_sendable()
        key_bytes, value_bytes, pairs = core.content(key, value, headers)
        queues = core.accumulator.topics.get(topic) or await core.learn(topic)
        try:
            queue = core.choose(queues, key_bytes, partition)
        except PartitionNotKnownError:
            queues, queue = await core.choose_again(topic, key_bytes, partition)
        if timestamp_ms is None:
            timestamp_ms = core.clock.wall_ms()
        deadline: float | None = None
        while True:
            with core.accumulator.lock:
                appended = core.accumulator.append(queues, queue, timestamp_ms, key_bytes, value_bytes, pairs)
            if appended is not None:
                return appended
            now = core.clock.monotonic()
            deadline = deadline or now + core.max_block_s
            await self._wait_for_room(deadline - now)

    async def send_arrow(self, topic: str, rows: object) -> None:
        """Put the rows of a frame into batches of their own: many times as fast as one record after another.

        `rows`: a pyarrow RecordBatch or Table, a polars or pandas DataFrame, or any object with
        `__arrow_c_stream__`. Columns: `value` and `key` (one of them at least; binary or text, null for none)
        and, where they are there, `headers` (a list of structs of key and value), `timestamp` and `partition`
        (a number); others are not looked at. Rows of a key keep their order. Serializers are not used.
        `flush` raises DeliveryError for those that were not acknowledged. Waits as `send` does.

        ValueError for a column of another type, TypeError for another object.
        """
        core = self._core
        if not self._loop.is_current or self._closed:  # async
            await self.start()  # async
        if core.transactions is not None:
            core.transactions.core.check_sendable()
        queues = core.accumulator.topics.get(topic) or await core.learn(topic)
        with core.sending_rows(topic) as span:
            for batch in core.batches_of(queues, rows):
                if batch is None:
                    await core.learn_again(topic)
                    continue
                queue, written = batch
                deadline = core.clock.monotonic() + core.max_block_s
                while True:
                    with core.accumulator.lock:
                        delivery = core.accumulator.add(queues, queue, written)
                    if delivery is not None:
                        break
                    await self._wait_for_room(deadline - core.clock.monotonic())
                if span is not None:
                    span.follow(delivery, written.record_count)

    async def send_and_wait(
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
        delivery = await self.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        # sync: return delivery.result()
        return await delivery  # async

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send everything now and wait until all of it is acknowledged or has failed.

        Raises TimeoutError after `timeout_s` seconds, and DeliveryError for failures that no one has looked at.
        """
        self._loop.check()
        async with asyncio.timeout(timeout_s):
            for batch in self._core.accumulator.hurry():
                await batch.wait_async()
        self._raise_undelivered()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end. Whatever is not delivered within `timeout_s` seconds fails. Idempotent."""
        if self._closed:
            return
        if self._loop.is_gone:
            self._closed = True
            return
        self._loop.check()
        self._closed = True
        try:
            if self._loop.has_begun and self._core.accumulator.failure is None:
                await self._core.end_open_transaction(SHUTDOWN_S)
                await self.flush(timeout_s)
        finally:
            await to_its_end(self._core.finish(), grace_s=SHUTDOWN_S)
        self._raise_undelivered()

    # -- transactions

    async def init_transactions(self, timeout_s: float | None = None) -> None:
        """Fences older producers of this transactional id, and aborts their open transaction. Call it before anything else."""
        await self.start()
        await self._core.need_transactions().init(timeout_s)

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

    async def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Send what waits, and make all of the transaction visible at once.

        ProducerFencedError: another producer has taken over, close this one. Other errors: `abort_transaction`. After
        TimedOutError the outcome is open: call it again.
        """
        await self.start()
        await self._core.need_transactions().commit(timeout_s)

    async def prepare_transaction(self, timeout_s: float | None = None) -> TransactionIdentity:
        """Send what waits and leave the transaction open: the holder of the returned identity can end it (KIP-939).

        `Admin.end_transactions` does so, from any process. Here `commit_transaction` and `abort_transaction` do;
        `init_transactions` lets go of it, and aborts it unless it was ended. It is open until transaction.timeout.ms is over.
        """
        await self.start()
        return await self._core.need_transactions().prepare(timeout_s)

    async def resume_transactions(self, committed: TransactionIdentity) -> bool:
        """Replaces `init_transactions` where the transaction that was prepared last is known to be committed. It asks no
        broker.

        Returns False when another one was prepared, or when a broker must be asked (before transaction.version 2, or when
        epochs are nearly used up, or by a producer that has asked none yet): then call `init_transactions`. If `committed` is
        open or aborted, brokers refuse what is sent next. After `change_transactional_id`, it is the last of that id. The id
        keeps the timeout with which it was initialized last, whatever this producer's own setting is.
        """
        await self.start()
        return await self._core.need_transactions().resume(committed)

    async def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Undo it: readers of committed records see nothing of it. What was not sent yet is dropped."""
        await self.start()
        await self._core.abort_transaction(timeout_s)

    async def send_offsets_to_transaction(
        self, offsets: OffsetsToCommit, group: GroupMetadata, timeout_s: float | None = None
    ) -> None:
        """Commit a group's offsets if and when the transaction is committed; `group` is `AsyncConsumer.group_metadata()`."""
        await self.start()
        await self._core.need_transactions().send_offsets(offsets, group, timeout_s)

    @asynccontextmanager
    async def transaction(self, timeout_s: float | None = None) -> AsyncIterator[Self]:
        """Yields a transaction that is committed at the end of the block, and aborted if the block, or the commit, fails.

        When the commit itself is cancelled, the transaction is ended, one way or the other, before the cancellation is raised.
        """
        await self.start()
        await self._core.begin_block(timeout_s)
        try:
            yield self
        except BaseException as error:
            await self._core.end_block(error, timeout_s)
            raise
        await self._core.end_block(None, timeout_s)

    def metrics(self) -> dict[MetricName, float]:
        """Returns the figures of this producer now, under Kafka's names; docs/client.md lists them. May be called at any
        time."""
        return self._core.metrics()

    async def client_instance_id(self, timeout_s: float | None = None) -> str:
        """Returns the id with which brokers show this producer's metrics (KIP-714), as `odradek broker clients` prints it."""
        await self.start()
        return await self._core.cluster.instance_id(
            self._core.max_block_s if timeout_s is None else timeout_s
        )

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Returns the partitions of a topic, in order."""
        await self.start()
        return tuple(range((await self._core.learn(topic)).partition_count))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except Exception as second:  # noqa: BLE001 - must not hide the error that ended the block
            add_note(error, f"closing the producer failed, too: {explain(second)}")

    def _raise_undelivered(self) -> None:
        error = self._core.undelivered()
        if error is not None:
            raise error

    async def _wait_for_room(self, timeout_s: float) -> None:  # async
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def notify_room() -> None:
            if not future.done():
                future.set_result(None)

        with self._core.accumulator.lock:
            self._core.accumulator.watch_for_room(notify_room)
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await future
        except TimeoutError:
            raise self._core.no_room() from None
        finally:
            with self._core.accumulator.lock:
                self._core.accumulator.unwatch(notify_room)
