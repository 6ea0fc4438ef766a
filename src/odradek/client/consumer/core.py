"""The core that the asynchronous and the synchronous consumer share: everything but waiting."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import UUID

from odradek.client.consumer.completed_fetch import FetchedChunk
from odradek.client.consumer.consumer_metrics import ConsumerMetrics
from odradek.client.consumer.consumer_record import ConsumerRecord, K, V
from odradek.client.consumer.fetcher import ISOLATION, Fetcher
from odradek.client.consumer.offset_lookup import OffsetAndTimestamp, find_offsets
from odradek.client.consumer.participation import Participation, no_group
from odradek.client.consumer.subscription_state import Assignment
from odradek.client.groups.values import (
    GroupMetadata,
    Handover,
    OffsetAndMetadata,
    OffsetsToCommit,
    RebalanceListener,
    Subscription,
    as_committable,
)
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import IllegalStateError, TimedOutError
from odradek.client.settings.settings import ConsumerSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.exception_text import add_note
from odradek.model.ids import NO_EPOCH, ZERO_UUID, TopicPartition
from odradek.model.lazy import lazy
from odradek.records import Record, engine
from odradek.records.columns import Columns
from odradek.runtime.ports import Clock, Entropy
from odradek.runtime.real_clock import SystemClock, SystemEntropy

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.consumer import arrow_places, spans
    from odradek.client.consumer.arrow_places import PlaceColumns
    from odradek.records import arrow
else:
    arrow = lazy("odradek.records.arrow")
    arrow_places = lazy("odradek.client.consumer.arrow_places")
    pa = lazy("pyarrow")
    spans = lazy("odradek.client.consumer.spans")

_NS_PER_MS: Final = 1_000_000
R = TypeVar("R")
Deserializer = Callable[[bytes], R]
"""Is not called for null, as in Java."""

GRACE_S: Final = 2.0
"""A cancelled `close` or `unsubscribe` has so long to tell the group."""


class BufferedRecords(Enum):
    """The event that stops `poll` while an iteration over records holds some that its user has not received."""

    RECORDS = auto()


Event = FetchedChunk | Handover | BufferedRecords
"""The next thing that `poll` has to do."""


class ConsumerCore(Generic[K, V]):
    """The state and decisions of a consumer, without its way to wait. It may be made on any thread; `start`, `finish` and
    the coroutines run on the event loop.

    `wake` asks for a turn of the fetcher, from any thread."""

    def __init__(
        self,
        settings: ConsumerSettings,
        *,
        key_deserializer: Deserializer[K] | None,
        value_deserializer: Deserializer[V] | None,
        clock: Clock | None,
        entropy: Entropy | None,
        wake: Callable[[], None],
    ) -> None:
        self.settings: Final = settings
        self.clock: Final = clock or SystemClock()
        self._wake = wake
        self._plain = key_deserializer is None and value_deserializer is None
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        entropy = entropy or SystemEntropy()
        self.cluster: Final = ClusterClient(
            settings, self.clock, entropy, auto_create=settings.allow_auto_create_topics
        )
        self.assignment: Final = Assignment(settings)
        self.group: Final = self._participation(entropy) if settings.group_id else None
        find_committed = self.group.find_committed if self.group is not None else None
        self.fetcher: Final = Fetcher(settings, self.cluster, self.assignment, find_committed)
        self.cluster.metadata.on_news = self._metadata_changed
        self.metrics: Final = ConsumerMetrics(
            self.assignment, self.fetcher, self.cluster, self.group, kept_starts=self._kept_starts
        )
        if settings.enable_metrics_push:
            labels = {"group_id": settings.group_id, "group_instance_id": settings.group_instance_id}
            self.cluster.push_metrics(lambda: self.metrics.read(settings.client_id), labels)
        self._spans = (
            spans.ConsumerSpans(settings.client_id, settings.group_id)
            if settings.enable_opentelemetry
            else None
        )
        self._kept: deque[ConsumerRecord[K, V]] = deque()
        self._returned_ids: dict[TopicPartition, UUID] = {}
        """The topics of the records that the user was given last."""
        self.api_timeout_s: Final = settings.default_api_timeout_ms / 1000
        self._place_columns: PlaceColumns | None = None

    def start(self) -> None:
        """Begins to fetch. Idempotent; called on the loop."""
        self.cluster.start()

    async def finish(self, failure: Exception, *, commit: bool = True) -> None:
        """End everything; `poll` raises `failure` from now on. `commit`: if commits are automatic, with a last one."""
        async with AsyncExitStack() as steps:  # each step happens, also when those before it fail
            steps.callback(self.assignment.fail, failure)
            steps.push_async_callback(self.cluster.close)
            steps.push_async_callback(self.fetcher.stop)
            if self.group is not None:
                steps.push_async_callback(self.group.stop)
                await self.group.leave(commit=commit)

    # -- where to read

    def assign(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """Take over an assignment; returns the topics in it, for `want`."""
        if self.group is not None and self.group.subscribed:
            raise IllegalStateError("this consumer has subscribed: unsubscribe before you assign partitions")
        chosen = _each(partitions)
        self.drop_kept([record_tp for record_tp in self.assignment.states if record_tp not in chosen])
        self.assignment.assign(chosen, committed=self.group is not None)
        return list(dict.fromkeys(tp.topic for tp in chosen))

    def subscribe(
        self, topics: Iterable[str] | str | None, pattern: str | None, listener: RebalanceListener | None
    ) -> Subscription:
        """Notes the listener and returns the subscription, which the caller passes to `join`."""
        group = self.need_group()
        if self.assignment.states and not group.subscribed:
            raise IllegalStateError("this consumer was assigned partitions: unsubscribe before you subscribe")
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics or ()))
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe to topics by name, or to all that match a pattern")
        if pattern is not None:
            _check_pattern(pattern)
        group.listener = listener or RebalanceListener()
        group.subscribed = True
        group.subscription = Subscription(
            topics=names, pattern=pattern, resolved_by_broker=self.settings.group_protocol == "consumer"
        )
        return group.subscription

    def join(self, subscription: Subscription) -> None:
        """Subscribes on the loop."""
        self.need_group().membership.subscribe(subscription)
        self.fetcher.turn_soon()

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing."""
        try:
            if self.group is not None and self.group.subscribed:
                await self.group.leave(commit=True)
        finally:
            if self.group is not None and self.group.subscribed:
                self.group.membership.leave_soon()
                self.group.subscribed = False
            self.assignment.assign([])
            self._kept.clear()
            self.want([])

    def need_group(self) -> Participation:
        if self.group is None:
            raise no_group()
        return self.group

    def want(self, topics: Iterable[str]) -> None:
        """Keeps the topics' metadata up to date and fetches their records. Called on the loop."""
        self.cluster.metadata.want_only(topics)
        self.fetcher.turn_soon()

    def seek(
        self,
        tp: TopicPartition,
        offset: int | None,
        reset_to: int | None = None,
        *,
        leader_epoch: int = NO_EPOCH,
        topic_id: UUID = ZERO_UUID,
    ) -> None:
        """Moves the position to `offset`, or to the offset that ListOffsets returns for `reset_to`.

        `leader_epoch` is the epoch of the record before `offset`: if the log was truncated below it since,
        the position goes back there. `topic_id` is the topic that `offset` belongs to, if that is known."""
        if offset is not None and offset < 0:
            raise ValueError(
                f"an offset is 0 or more, not {offset}: seek_to_beginning and seek_to_end go to the ends"
            )
        self.drop_kept([TopicPartition(*tp)])
        self.assignment.seek(
            TopicPartition(*tp), offset, reset_to, leader_epoch=leader_epoch, topic_id=topic_id
        )
        self._returned_ids.pop(TopicPartition(*tp), None)
        self._wake()

    def seek_all(self, partitions: Iterable[TopicPartition], reset_to: int) -> None:
        """Seeks to the start or the end of the log, in these partitions, or in all that are assigned."""
        for tp in _each(partitions) or list(self.assignment.states):
            self.drop_kept([tp])
            self.assignment.seek(tp, None, reset_to)
            self._returned_ids.pop(tp, None)
        self._wake()

    def stop_at(self, tp: TopicPartition, offset: int | None) -> None:
        self.assignment.stop_at(TopicPartition(*tp), offset)
        self._wake()

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        chosen = _each(partitions)
        if paused:
            self._rewind_kept(chosen)
        self.assignment.pause(chosen, paused)
        self._wake()

    def known_position(self, tp: TopicPartition) -> int | None:
        """*locked.* Returns the offset of the next record to be returned, once it is known. Raises the error
        that prevents it."""
        if self.assignment.failure is not None:
            raise self.assignment.failure
        state = self.assignment.state_of(TopicPartition(*tp))
        if state.position is None and state.problem is not None:
            raise state.problem
        return self._kept_starts().get(TopicPartition(*tp), state.position)

    def positions(self) -> dict[TopicPartition, int]:
        """Returns the position of each partition as the user sees it: the offset after the last returned
        record."""
        return self.assignment.positions() | self._kept_starts()

    def to_commit(self, offsets: OffsetsToCommit | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets to commit: `offsets`, or all positions. Each belongs to the topic that its records were read
        from, not to a topic that is created again under the same name."""
        if offsets is not None:
            return as_committable(offsets, self._returned_ids)
        tied = {
            tp: OffsetAndMetadata(offset, topic_id=topic_id)
            for tp, (offset, topic_id) in self.assignment.tied_positions().items()
        }
        for tp, offset in self._kept_starts().items():
            tied[tp] = OffsetAndMetadata(offset, topic_id=self._returned_ids.get(tp, ZERO_UUID))
        return tied

    def group_metadata(self) -> GroupMetadata:
        """Returns this member's identity and the topics that it has read."""
        return replace(self.need_group().metadata, topic_ids=dict(self._returned_ids))

    def no_position(self, tp: TopicPartition, timeout_s: float) -> TimedOutError:
        return TimedOutError(f"no position for {tp} within {timeout_s:g} s", self.cluster.metadata.problem)

    # -- reading

    def collect(self, first: FetchedChunk, record_count_max: int) -> list[ConsumerRecord[K, V]]:
        """Returns the records from `first` and, up to the limit, from whatever else is buffered. On the caller's thread."""
        records: list[ConsumerRecord[K, V]] = []
        began_ns = self.clock.wall_ms() * _NS_PER_MS if self._spans is not None else 0
        chunk: FetchedChunk | None = first
        ids: dict[TopicPartition, UUID] = {}
        while chunk is not None and len(records) < record_count_max:
            if ids.setdefault(chunk.topic_partition, chunk.topic_id) != chunk.topic_id:
                break  # a topic of the same name: its records come with the next poll
            try:
                taken = chunk.next_records(record_count_max - len(records))
            except KafkaError:
                if records:  # these first; the batch stays where it is, and is raised next time
                    break
                raise
            if self._plain:
                records += engine.active.placed(taken, ConsumerRecord, tuple(chunk.topic_partition))
            elif not self._deserialize(chunk, taken, records):
                self._used(chunk)
                break
            chunk = self._go_on(chunk)
        self._returned_ids.update(ids)
        self.metrics.records.add(len(records))
        if self._spans is not None:
            self._spans.received(records, began_ns)
        return records

    def collect_arrow(self, chunk: FetchedChunk, record_count_max: int) -> pa.RecordBatch | None:
        """Returns a pyarrow.RecordBatch from `chunk`, or None if it holds no record after all."""
        rows = chunk.next_arrow(record_count_max)
        self._used(chunk)
        self._returned_ids[chunk.topic_partition] = chunk.topic_id
        if rows is None or not rows.num_rows:
            return None
        self.metrics.records.add(rows.num_rows)
        return self._placed(rows, chunk.topic_partition)

    def collect_columns(self, chunk: FetchedChunk, record_count_max: int) -> Columns | None:
        """Returns the records of `chunk` as columns, or None if it holds none (any more)."""
        columns = chunk.next_columns(record_count_max)
        self._used(chunk)
        self._returned_ids[chunk.topic_partition] = chunk.topic_id
        if columns is not None:
            self.metrics.records.add(columns.row_count)
        return columns

    def no_arrow(self) -> pa.RecordBatch:
        """Returns an empty batch with the right columns."""

        return self._placed(pa.RecordBatch.from_pylist([], schema=arrow.SCHEMA), TopicPartition("", 0))

    def _placed(self, rows: pa.RecordBatch, tp: TopicPartition) -> pa.RecordBatch:
        if self._place_columns is None:
            self._place_columns = arrow_places.PlaceColumns()
        return self._place_columns.prepend(rows, tp)

    def next_event(self) -> Event | None:
        """*locked.* Returns what `poll` must do next. Raises the error that prevents further reads."""
        if self.group is not None and self.assignment.failure is None:
            handover = self.group.next_handover()
            if handover is not None:
                return handover
        if self._kept:
            return BufferedRecords.RECORDS
        return self._next_chunk()

    def _next_chunk(self) -> FetchedChunk | None:
        return self._begun(self.assignment.next_chunk())

    # -- records taken for someone who iterates

    def keep(self, records: list[ConsumerRecord[K, V]]) -> None:
        self._kept.extend(records)

    def next_kept(self) -> ConsumerRecord[K, V] | None:
        """Returns the next record, unless there is something that `poll` must do first."""
        if not self._kept:
            return None
        if self.group is not None:
            if self.group.has_handover:
                return None
            self.group.poll_ended()
        return self._kept.popleft()

    def collect_kept(self, record_count_max: int) -> list[ConsumerRecord[K, V]]:
        return [self._kept.popleft() for _ in range(min(record_count_max, len(self._kept)))]

    def drop_kept(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        if self._kept and gone:
            self._kept = deque(
                consumer_record
                for consumer_record in self._kept
                if (consumer_record.topic, consumer_record.partition) not in gone
            )

    def rewind_all_kept(self) -> None:
        """Rewinds all records that were taken but not returned: they are fetched again, in another form."""
        self._rewind_kept(list(self._kept_starts()))

    def _rewind_kept(self, partitions: Iterable[TopicPartition]) -> None:
        starts = self._kept_starts()
        for tp in partitions:
            if tp in starts and tp in self.assignment.states:
                self.assignment.seek(tp, starts[tp], topic_id=self._returned_ids.get(tp, ZERO_UUID))
        self.drop_kept(partitions)

    def _kept_starts(self) -> dict[TopicPartition, int]:
        starts: dict[TopicPartition, int] = {}
        for record in tuple(self._kept):  # metrics() may look from another thread
            starts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return starts

    def _begun(self, chunk: FetchedChunk | None) -> FetchedChunk | None:
        """A chunk may have left the buffer: there may be room for a fetch that waited for it."""
        if chunk is not None and self.assignment.begin_use(chunk):
            self._wake()
        return chunk

    def _go_on(self, used: FetchedChunk) -> FetchedChunk | None:
        """Notes the use of `used`, and takes the next chunk, if one is buffered."""
        self.metrics.used(used)
        with self.assignment.lock:
            self.assignment.used(used)
            return self._begun(self.assignment.next_chunk(quiet=True))

    def _used(self, chunk: FetchedChunk) -> None:
        self.metrics.used(chunk)
        with self.assignment.lock:
            self.assignment.used(chunk)

    def _deserialize(
        self, chunk: FetchedChunk, taken: list[Record], records: list[ConsumerRecord[K, V]]
    ) -> bool:
        """Append `taken`, deserialized, to `records`; False when that failed after the first of `records`.

        The record that failed, and all later ones, go back: the next `poll` raises the error unless the
        caller seeks.
        """
        topic, partition = chunk.topic_partition
        read_key, read_value = self._key_deserializer, self._value_deserializer
        for index, record in enumerate(taken):
            try:
                key: Any = record.key
                value: Any = record.value
                if read_key is not None and key is not None:
                    key = read_key(key)
                if read_value is not None and value is not None:
                    value = read_value(value)
            except BaseException as error:
                chunk.put_back(taken[index:])
                if not isinstance(
                    error, Exception
                ):  # an interrupt: the next `poll` returns what was read before it
                    self.keep(records)
                elif records:
                    return False
                self._used(chunk)
                place = f"offset {record.offset} of {chunk.topic_partition}"
                add_note(error, f"while deserializing the record at {place}")
                raise
            records.append(
                ConsumerRecord(
                    topic,
                    partition,
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    key,
                    value,
                    record.headers,
                    record.leader_epoch,
                )
            )
        return True

    # -- offsets

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Asks ListOffsets for each partition; raises the first error."""
        answers = await find_offsets(
            self.cluster,
            {TopicPartition(*tp): timestamp for tp, timestamp in wanted.items()},
            isolation=ISOLATION[self.settings.isolation_level],
            timeout_s=self.api_timeout_s if timeout_s is None else timeout_s,
        )
        for error in answers.errors.values():
            raise error
        return answers.found

    async def seek_to_timestamp(
        self, timestamps_ms: Mapping[TopicPartition, int], end: int, timeout_s: float | None
    ) -> None:
        """Seeks to the first record at or after each time, or to the end where there is none."""
        for tp, offset in (await self.offsets(timestamps_ms, timeout_s)).items():
            if offset is None:
                self.seek(tp, None, end)
            else:
                self.seek(tp, offset.offset)

    # -- the group

    def _participation(self, entropy: Entropy) -> Participation:
        return Participation(
            self.settings,
            self.cluster,
            self.assignment,
            clock=self.clock,
            entropy=entropy,
            positions=self.to_commit,
            give_up=self.drop_kept,
            wake=self._wake,
        )

    def _metadata_changed(self) -> None:
        if self.group is not None:
            self.group.membership.metadata_changed()
        self.fetcher.turn_soon()


def check_reads(core: ConsumerCore[Any, Any]) -> None:
    """Raises IllegalStateError, as Java does, if nothing is subscribed to or assigned: `poll` would never
    return."""
    is_member = core.group is not None and core.group.subscribed
    if not is_member and not core.assignment.states and core.assignment.failure is None:
        raise IllegalStateError("this consumer reads nothing yet: subscribe() or assign() first")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern {pattern!r} cannot be used: {error}"
        ) from None


def _each(partitions: Iterable[TopicPartition] | TopicPartition) -> list[TopicPartition]:
    """Returns the partitions as such; one alone, which is a tuple itself, counts as a list of one."""
    if isinstance(partitions, TopicPartition):
        return [partitions]
    return [TopicPartition(*partition) for partition in partitions]
