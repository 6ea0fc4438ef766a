"""The asynchronous share consumer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Self, Unpack, overload

from odradek.client.consumer.consumer_record import K, KeyT, V, ValueT
from odradek.client.consumer.core import GRACE_S, Deserializer
from odradek.client.consumer.sole_use import TaskUse, by_one_task, on_own_loop
from odradek.client.consumer.waiting import LoopWaiting
from odradek.client.network.cancellation import to_its_end
from odradek.client.network.errors import ClientClosedError
from odradek.client.network.metrics import MetricName
from odradek.client.network.own_loop import OwnLoop
from odradek.client.settings.options import ShareConsumerOptions
from odradek.client.settings.settings import ShareConsumerSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.client.share.share_core import SHUTDOWN_S, AcknowledgementCallback, ShareConsumerCore
from odradek.client.share.share_record import ShareRecord
from odradek.model.ids import TopicPartition
from odradek.model.public import public
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.runtime.ports import Clock, Entropy


@public("odradek")
class AsyncShareConsumer(Generic[K, V]):
    """Reads topics as queues from one event loop (KIP-932).

        async with AsyncShareConsumer("127.0.0.1:9092", group_id="mailers") as consumer:
            await consumer.subscribe(["mails"])
            async for record in consumer:
                await send(record.value)

    All members of a share group may read the same partitions: a record is with one member at a time, locked
    for the group's setting share.record.lock.duration.ms. What is not acknowledged by then, or by a member
    that dies, is delivered again, to any member. So records are handled at least once, in no certain order,
    by as many members as the work needs.

    With share.acknowledgement.mode=implicit (the default) the next `poll` or `commit` accepts what the last `poll` returned.
    With explicit, `acknowledge` decides about each record. Use it from one task at a time: a second one that polls gets
    ConcurrentUseError.

    Settings are Kafka's, as keyword arguments; `help` explains each below `__init__`. `K` and `V` are what the
    deserializers return: a record's key is a `K` or None, its value a `V` or None.
    """

    @with_settings(ShareConsumerSettings, ShareConsumerOptions)
    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[ShareConsumerOptions],
    ) -> None:
        checked = ShareConsumerSettings.of(bootstrap_servers, dict(settings))
        core = self._core = ShareConsumerCore[K, V](
            checked,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            entropy=entropy,
        )
        self._loop = OwnLoop("odradek-share-consumer")
        # sync: self._loop.post(core.start)
        self._waiting = LoopWaiting(core.deliveries.news, core.clock)
        self._use = TaskUse()
        self._closed = False

    @overload
    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **more: Unpack[ShareConsumerOptions],
    ) -> Self: ...

    @overload
    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[KeyT] | None = None,
        value_deserializer: Deserializer[ValueT] | None = None,
        **more: Unpack[ShareConsumerOptions],
    ) -> AsyncShareConsumer[KeyT, ValueT]: ...

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
        **more: Unpack[ShareConsumerOptions],
    ) -> AsyncShareConsumer[Any, Any]:
        """Makes a consumer from a mapping with Kafka's names: `{"bootstrap.servers": "...", "group.id": "mailers"}`."""
        return cls(
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **ShareConsumerSettings.arguments(config),
            **more,
        )

    async def start(self) -> None:
        """Begin to work on the running loop; other methods do so by themselves."""
        if self._closed:
            raise ClientClosedError("share consumer")
        if self._loop.begin():
            self._core.start()

    async def close(self) -> None:
        """Send what was decided, release every other record, and leave the group.

        Also with implicit acknowledgement: what the last `poll` returned is delivered again unless `commit` came first.
        Idempotent. A `poll` that waits raises ClientClosedError. In a forked process this does nothing.
        """
        if self._closed:
            return
        if self._loop.is_gone:
            self._closed = True
            return
        self._loop.check()
        self._closed = True
        try:
            await to_its_end(self._core.finish(ClientClosedError("share consumer")), grace_s=GRACE_S)
        finally:
            self._loop.stop()
            self._core.call_back()

    # -- the group

    @by_one_task
    async def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics, as a member of the share group. Replaces an earlier subscription."""
        await self.start()
        subscription = self._core.subscribe(topics)
        self._loop.post(lambda: self._core.joined(subscription))

    @by_one_task
    async def unsubscribe(self) -> None:
        """Send what was decided, release every other record, leave the group, and read nothing."""
        await self.start()
        await to_its_end(self._core.unsubscribe(), grace_s=SHUTDOWN_S)
        self._core.call_back()

    def subscription(self) -> frozenset[str]:
        """Returns the topics of the last `subscribe`; empty without one."""
        subscription = self._core.subscription
        return frozenset(subscription.topics if subscription is not None else ())

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Returns the partitions that the group has this member read; others may read them at the same time."""
        return self._core.assignment()

    # -- reading

    @by_one_task
    async def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[ShareRecord[K, V]]:
        """Returns records, at most max.poll.records or `max_records`; waits up to `timeout_s` for the first.

        First it ends the time with the records of the last `poll`: implicitly all are accepted; with explicit acknowledgement
        the decisions are sent, and IllegalStateError is raised if there is none for some record. A record that was renewed is
        returned again.
        """
        limit = max_records or self._core.settings.max_poll_records
        return await self._poll(timeout_s, limit, limit)

    async def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        """Yields records one by one, without an end. To ask for the next record acknowledges the last one, as
        `poll` does."""
        while True:
            # sync: yield from self._next_record()
            for record in await self._next_record():  # async
                yield record  # async

    def wakeup(self) -> None:
        """Have a `poll` that waits, or the next one that would wait, return no records at once. From any task."""
        self._core.deliveries.wakeup()

    # -- acknowledgements

    def acknowledge(
        self,
        record: ShareRecord[Any, Any] | tuple[TopicPartition, int],
        kind: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Decide about a record that the last `poll` returned: the record, or its partition and offset.

        The decision is sent by the next `poll`, `commit`, `commit_async` or `close`, and may be changed until then. ACCEPT: it
        is done. RELEASE: it is delivered again, until the group's limit of deliveries. REJECT: it is never delivered again.
        RENEW: its lock begins again; after a `commit` it may be decided about, or else the next `poll` returns it.

        IllegalStateError without share.acknowledgement.mode=explicit, and for a record that the user does not have.
        """
        self._core.acknowledge(record, kind)

    @on_own_loop
    async def commit(self, timeout_s: float | None = None) -> None:
        """Send all decisions, and wait until brokers have stored them. Implicitly all records of the last `poll` are accepted.

        PartialFailureError names the partitions whose acknowledgements were refused, for instance because a lock had ended:
        those records are delivered again. TimedOutError: some are still on their way, or will be refused.
        """
        await self.start()
        try:
            await self._core.commit(timeout_s)
        finally:
            self._core.call_back()

    def commit_async(self) -> None:
        """Sends all decisions without waiting. `on_acknowledged` hears their outcome."""
        self._core.commit_soon()
        self._loop.post(self._core.fetcher.turn_soon)

    def on_acknowledged(self, callback: AcknowledgementCallback | None) -> None:
        """Have `callback(outcome)` called for the acknowledgements of a partition, once brokers have stored or refused them.

        It is called inside `poll`, `commit`, `unsubscribe` and `close`. `outcome.error` is None, or the
        reason; refused records are delivered again. Without a callback refusals are logged, unless `commit`
        raises them.
        """
        self._core.on_acknowledged(callback)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The time for which the group locks a record for a member, in ms; None before the first answer of a broker."""
        return self._core.fetcher.lock_timeout_ms

    # -- about this client

    def metrics(self) -> dict[MetricName, float]:
        """The figures of this consumer now, under Kafka's names; docs/client.md lists them. May be called at any time."""
        return self._core.metrics.read(self._core.settings.client_id)

    async def client_instance_id(self, timeout_s: float | None = None) -> str:
        """Returns the id with which brokers show this consumer's metrics (KIP-714), as `odradek broker clients` prints it."""
        await self.start()
        return await self._core.cluster.instance_id(
            self._core.api_timeout_s if timeout_s is None else timeout_s
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @by_one_task
    async def _next_record(self) -> list[ShareRecord[K, V]]:
        """Returns the next record, from what is buffered or from as many as a poll would bring."""
        return await self._poll(1.0, 1, self._core.settings.max_poll_records)

    async def _poll(
        self, timeout_s: float, record_count_max: int, record_count_wanted: int
    ) -> list[ShareRecord[K, V]]:
        """Returns at most `record_count_max` records; brokers are asked for `record_count_wanted` when none are buffered."""
        await self.start()
        core = self._core
        deadline = core.clock.monotonic() + timeout_s
        if core.begin_poll(record_count_wanted):
            self._loop.post(core.polled)
        try:
            records: list[ShareRecord[K, V]] = []
            while not records:
                left_s = deadline - core.clock.monotonic()
                is_ready: bool | None = await self._waiting.until(core.is_ready, left_s)
                if not is_ready:
                    break
                records = core.collect(record_count_max)
                if not records:  # offsets without records: more is needed
                    self._loop.post(core.polled)
            return records
        finally:
            core.end_poll()
            core.call_back()
