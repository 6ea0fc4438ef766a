"""The core that the asynchronous and the synchronous share consumer have in common: everything but waiting for records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Generic

from odradek.client.consumer.consumer_record import K, V
from odradek.client.consumer.core import Deserializer
from odradek.client.consumer.waiting import LoopWaiting
from odradek.client.groups.coordinator import GROUP, Coordinator
from odradek.client.groups.member import MemberSettings
from odradek.client.groups.membership import LEAVING_S, GroupMembership
from odradek.client.groups.sharing import SharingMember
from odradek.client.groups.values import Subscription
from odradek.client.network.backoff import Backoff
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import IllegalStateError, PartialFailureError, TimedOutError
from odradek.client.settings.settings import ShareConsumerSettings
from odradek.client.share.acknowledgements import AcknowledgedOffsets
from odradek.client.share.acquired_chunk import AcquiredChunk
from odradek.client.share.deliveries import Deliveries, record_id_of
from odradek.client.share.share_fetcher import ShareFetcher
from odradek.client.share.share_metrics import ShareConsumerMetrics
from odradek.client.share.share_record import ShareRecord
from odradek.model.errors import KafkaError
from odradek.model.exception_text import add_note, represent
from odradek.model.ids import TopicPartition, kafka_id
from odradek.model.lazy import lazy
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.records import Record
from odradek.runtime.ports import Clock, Entropy
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.client.consumer import spans
else:
    spans = lazy("odradek.client.consumer.spans")

_NS_PER_MS: Final = 1_000_000

_log = events.get("client")

SHUTDOWN_S: Final = 5.0
"""The seconds for which a consumer that closes tries to send its last acknowledgements, and to leave the group."""

AcknowledgementCallback = Callable[[AcknowledgedOffsets], object]


class _ReadChunk(Generic[K, V]):
    """A chunk, what was taken from it, and the records that the user gets."""

    __slots__ = ("chunk", "records", "taken")

    def __init__(self, chunk: AcquiredChunk) -> None:
        self.chunk: Final = chunk
        self.taken: list[tuple[Record, int]] = []
        self.records: list[ShareRecord[K, V]] = []


class ShareConsumerCore(Generic[K, V]):
    """The state and decisions of a share consumer, without its way to wait. It may be made on any thread; `start`, `finish`,
    `joined`, `polled` and the coroutines run on the event loop."""

    def __init__(
        self,
        settings: ShareConsumerSettings,
        *,
        key_deserializer: Deserializer[K] | None,
        value_deserializer: Deserializer[V] | None,
        clock: Clock | None,
        entropy: Entropy | None,
    ) -> None:
        self.settings: Final = settings
        self.clock: Final = clock or SystemClock()
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        entropy = entropy or SystemEntropy()
        self.cluster: Final = ClusterClient(settings, self.clock, entropy)
        self.deliveries: Final = Deliveries(is_explicit=settings.share_acknowledgement_mode == "explicit")
        self.fetcher: Final = ShareFetcher(settings, self.cluster, self.deliveries)
        self.member: Final = SharingMember(
            MemberSettings(
                group_id=settings.group_id,
                heartbeat_interval_s=5.0,
                max_poll_interval_s=settings.max_poll_interval_ms / 1000,
                request_timeout_s=settings.request_timeout_ms / 1000,
                rack_id=settings.client_rack or None,
            ),
            Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, entropy),
            member_id=kafka_id(entropy.uuid()),
            on_assigned=self.fetcher.turn_soon,
        )
        self.fetcher.read_for(self.member)
        self.membership: Final = GroupMembership(
            self.member,
            self.cluster,
            Coordinator(self.cluster, settings.group_id, GROUP),
            on_change=self._group_changed,
        )
        self.cluster.metadata.on_news = self._metadata_changed
        self.metrics: Final = ShareConsumerMetrics(self.fetcher, self.cluster, self.membership, self.member)
        if settings.enable_metrics_push:
            self.cluster.push_metrics(
                lambda: self.metrics.read(settings.client_id), {"group_id": settings.group_id}
            )
        self._spans = (
            spans.ConsumerSpans(settings.client_id, settings.group_id)
            if settings.enable_opentelemetry
            else None
        )
        self.api_timeout_s: Final = settings.default_api_timeout_ms / 1000
        self._waiting: Final = LoopWaiting(self.deliveries.news, self.clock)
        self._callback: AcknowledgementCallback | None = None
        self._wanted_after_poll = 0
        """Records that are still to be fetched when a poll has returned renewed ones alone: a user who renews is busy with
        some records, and has room for others."""
        self.subscription: Subscription | None = None

    def start(self) -> None:
        """Begins to fetch. Idempotent; called on the loop."""
        self.cluster.start()

    async def finish(self, failure: Exception) -> None:
        """Ends everything: decisions are sent, records without one are released, and the member leaves its group. `poll`
        raises `failure` from now on."""
        self.deliveries.fail(failure)
        async with AsyncExitStack() as steps:  # each step happens, also when those before it fail
            steps.push_async_callback(self.cluster.close)
            steps.push_async_callback(self.membership.stop)
            steps.push_async_callback(self.fetcher.stop)
            self.fetcher.end_turns()
            self.deliveries.end_decisions(self.clock.monotonic())
            await self.fetcher.close_sessions(SHUTDOWN_S, ends_links=True)
            await self.membership.leave(LEAVING_S)

    # -- the group

    def subscribe(self, topics: Iterable[str] | str) -> Subscription:
        """Returns the subscription, which the caller passes to `joined`."""
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        if not names:
            raise ValueError("subscribe to at least one topic; unsubscribe() reads nothing")
        self.subscription = Subscription(topics=names)
        return self.subscription

    def joined(self, subscription: Subscription) -> None:
        """Subscribes on the loop."""
        self.membership.subscribe(subscription)

    async def unsubscribe(self) -> None:
        """Leaves the group and reads nothing."""
        self.subscription = None
        self.deliveries.end_decisions(self.clock.monotonic())
        try:
            await self.membership.leave(LEAVING_S)
        finally:
            await self.fetcher.close_sessions(SHUTDOWN_S, ends_links=False)

    def assignment(self) -> tuple[TopicPartition, ...]:
        names = self.member.names
        return tuple(
            sorted(
                TopicPartition(names[topic_id], number)
                for topic_id, numbers in self.member.assigned.items()
                if topic_id in names
                for number in numbers
            )
        )

    # -- polling, on the user's side

    def begin_poll(self, record_count_wanted: int) -> bool:
        """Ends the user's time with earlier records; returns whether the loop must hear of it (`polled`)."""
        if self.subscription is None and self.deliveries.failure is None:
            raise IllegalStateError("this consumer reads nothing yet: subscribe() first")
        self.member.user.in_poll = True
        now = self.member.user.polled_at = self.clock.monotonic()
        has_to_send = self.deliveries.begin_poll(now)
        self.fetcher.record_count_wanted = record_count_wanted
        return has_to_send or not self.deliveries.chunks() or self.member.awaits_poll

    def polled(self) -> None:
        """The user waits for records."""
        self.membership.polled()
        self.fetcher.turn_soon()

    def is_ready(self) -> bool | None:
        """*locked.* True if records can be returned, False if the user must be woken; raises the error that
        prevents reads."""
        self.deliveries.check()
        if self.membership.failure is not None:
            raise self.membership.failure
        problem = self.member.problem
        if problem is not None:
            self.member.problem = None  # raised once; the next poll tries again
            raise problem
        if self.deliveries.has_records(self.clock.monotonic()):
            return True
        if self.deliveries.is_woken:
            self.deliveries.is_woken = False
            return False
        return None

    def end_poll(self) -> None:
        self.fetcher.record_count_wanted, self._wanted_after_poll = self._wanted_after_poll, 0
        self.member.user.polled_at = self.clock.monotonic()
        self.member.user.in_poll = False

    def collect(self, record_count_max: int) -> list[ShareRecord[K, V]]:
        """Returns buffered records: those whose locks were renewed first. On the caller's thread.

        A record that cannot be deserialized, or a batch that cannot be read, is released and raises its error, unless there is
        something to return: then the next poll raises it."""
        began_ms = self.clock.wall_ms() if self._spans is not None else 0
        again_count = min(record_count_max, self.deliveries.renewed_count)
        read: list[_ReadChunk[K, V]] = []
        problem: Exception | None = None
        left = record_count_max - again_count
        try:
            for chunk in self.deliveries.chunks():
                if left <= 0 or problem is not None:
                    break
                part = _ReadChunk[K, V](chunk)
                read.append(part)
                is_first = again_count == 0 and not any(earlier.records for earlier in read)
                problem = self._read(part, left, is_first=is_first)
                left -= len(part.records)
        except BaseException:  # an interrupt: nothing was returned, so nothing may be acknowledged
            for part in read:
                part.chunk.put_back(part.taken)
            raise
        has_new = any(part.records for part in read)
        self._wanted_after_poll = record_count_max - again_count if again_count and not has_new else 0
        if again_count or has_new:  # before the buffer looks empty to the loop
            self.fetcher.record_count_wanted = self._wanted_after_poll
        self.deliveries.hand_out(((part.chunk, part.records) for part in read), self.clock.monotonic())
        records: list[ShareRecord[K, V]] = self.deliveries.renewed(again_count)
        records += [record for part in read for record in part.records]
        self.metrics.records.add(len(records))
        if problem is not None and not records:
            raise problem
        if isinstance(problem, KafkaError):
            self.deliveries.report(problem)
        if self._spans is not None:
            self._spans.received(records[again_count:], began_ms * _NS_PER_MS)
        return records

    def _read(self, part: _ReadChunk[K, V], record_count_max: int, *, is_first: bool) -> Exception | None:
        """Reads records of a chunk; returns the error that ended it early."""
        chunk, taken = part.chunk, part.taken
        problem: KafkaError | None = None
        try:
            while len(taken) < record_count_max and (
                more := chunk.next_records(record_count_max - len(taken))
            ):
                taken += more
        except KafkaError as error:
            problem = error
        for index, (record, delivery_count) in enumerate(taken):
            try:
                key, value = self._decoded(record)
            except Exception as error:  # noqa: BLE001 - the user's deserializer: `poll` raises it
                if part.records or not is_first:
                    chunk.put_back(taken[index:])
                    del taken[index:]
                    return problem
                chunk.put_back(taken[1:])
                taken.clear()
                self.deliveries.release_unread(chunk, record.offset, self.clock.monotonic())
                place = f"offset {record.offset} of {chunk.partition}"
                add_note(error, f"while deserializing the record at {place}, which was released")
                if problem is not None:
                    self.deliveries.report(problem)
                return error
            part.records.append(
                ShareRecord(
                    chunk.partition.topic,
                    chunk.partition.partition,
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    key,
                    value,
                    record.headers,
                    record.leader_epoch,
                    delivery_count,
                )
            )
        return problem

    def _decoded(self, record: Record) -> tuple[Any, Any]:
        key: Any = record.key
        value: Any = record.value
        if self._key_deserializer is not None and key is not None:
            key = self._key_deserializer(key)
        if self._value_deserializer is not None and value is not None:
            value = self._value_deserializer(value)
        return key, value

    # -- acknowledgements

    def acknowledge(
        self, record: ShareRecord[Any, Any] | tuple[TopicPartition, int], kind: AcknowledgeType
    ) -> None:
        self.deliveries.acknowledge(record_id_of(record), AcknowledgeType(kind))

    async def commit(self, timeout_s: float | None) -> None:
        """Sends all decisions and waits for their outcome."""
        limit_s = self.api_timeout_s if timeout_s is None else timeout_s
        waiter = self.deliveries.begin_commit(self.clock.monotonic())
        self.fetcher.turn_soon()
        if not waiter.is_done and not await self._waiting.until(lambda: waiter.is_done or None, limit_s):
            raise TimedOutError(
                f"brokers did not acknowledge the commit within {limit_s:g} s", self.cluster.metadata.problem
            )
        if waiter.errors:
            raise PartialFailureError("the acknowledgement of records", waiter.errors, waiter.offset_counts)

    def commit_soon(self) -> None:
        """Has all decisions sent, without waiting. From any thread; `fetcher.turn_soon` follows on the loop."""
        self.deliveries.begin_commit(self.clock.monotonic())

    def on_acknowledged(self, callback: AcknowledgementCallback | None) -> None:
        self._callback = callback
        self.deliveries.keeps_outcomes = callback is not None

    def call_back(self) -> None:
        """Calls the user's callback for outcomes since the last time. What it raises is logged."""
        callback = self._callback
        if callback is None:
            return
        for outcome in self.deliveries.drain_outcomes():
            try:
                callback(outcome)
            except Exception:  # noqa: BLE001 - the user's code: it must not stop the client
                _log.exception("acknowledgement_callback_failed", callback=represent(callback))

    # -- inside

    def _group_changed(self) -> None:
        with self.deliveries.lock:
            self.deliveries.news.publish()
        self.fetcher.turn_soon()

    def _metadata_changed(self) -> None:
        self.membership.metadata_changed()
        self.fetcher.turn_soon()
