"""The synchronous consumer: a background thread fetches; decoding happens on the caller's thread.

Written by `make faces` from `aio.py`: change that one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload
from uuid import UUID

from odradek.client.consumer.completed_fetch import FetchedChunk
from odradek.client.consumer.consumer_record import ConsumerRecord, K, KeyT, V, ValueT
from odradek.client.consumer.core import (
    GRACE_S,
    BufferedRecords,
    ConsumerCore,
    Deserializer,
    Event,
    check_reads,
)
from odradek.client.consumer.offset_lookup import OffsetAndTimestamp
from odradek.client.consumer.participation import HandoverStep
from odradek.client.consumer.sole_use import ThreadUse, by_one_thread
from odradek.client.consumer.subscription_state import COMMITTED, EARLIEST, LATEST
from odradek.client.consumer.waiting import ThreadWaiting
from odradek.client.groups.values import (
    CommittedOffsets,
    GroupMetadata,
    Handover,
    OffsetsToCommit,
    RebalanceListener,
)
from odradek.client.network.cancellation import to_its_end
from odradek.client.network.errors import ClientClosedError
from odradek.client.network.loop_thread import LoopThread
from odradek.client.network.metrics import MetricName
from odradek.client.settings.options import ConsumerOptions
from odradek.client.settings.settings import ConsumerSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.public import public
from odradek.runtime.ports import Clock, Entropy

if TYPE_CHECKING:
    import pyarrow


@public("odradek")
class Consumer(Generic[K, V]):
    """Reads partitions, for one thread at a time.

        with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            for record in consumer:
                ...

    With `group_id=...` it shares topics with the other members of its group (`subscribe`) and remembers how far it has
    read (`commit`). A second thread gets ConcurrentUseError, except in `close` and in questions to brokers.

    Settings are Kafka's, as keyword arguments; `help` explains each below `__init__`. `K` and `V` are what the deserializers
    return: a record's key is a `K` or None, its value a `V` or None.
    """

    @with_settings(ConsumerSettings, ConsumerOptions)
    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        checked = ConsumerSettings.of(bootstrap_servers, dict(settings))
        core = self._core = ConsumerCore[K, V](
            checked,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            clock=clock,
            entropy=entropy,
            wake=lambda: loop.post(core.fetcher.turn_soon),
        )
        loop = self._loop = LoopThread("odradek-consumer")
        loop.post(core.start)
        self._waiting = ThreadWaiting(core.assignment.news, core.clock)
        self._use = ThreadUse()
        self._closed = False

    @overload
    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        **more: Unpack[ConsumerOptions],
    ) -> Self: ...
    @overload
    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[KeyT] | None = None,
        value_deserializer: Deserializer[ValueT] | None = None,
        **more: Unpack[ConsumerOptions],
    ) -> Consumer[KeyT, ValueT]: ...
    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
        **more: Unpack[ConsumerOptions],
    ) -> Consumer[Any, Any]:
        """Makes a consumer from a mapping with Kafka's names: `{"bootstrap.servers": "...", "fetch.min.bytes": 1}`."""
        return cls(
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **ConsumerSettings.arguments(config),
            **more,
        )

    def close(self, *, commit: bool = True) -> None:
        """Stop reading: commit what was returned if that is automatic (unless `commit` is false), leave the group.

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
            self._loop.call(
                to_its_end(self._core.finish(ClientClosedError("consumer"), commit=commit), grace_s=GRACE_S)
            )
        finally:
            self._loop.stop()

    # -- where to read

    @by_one_thread
    def subscribe(
        self,
        topics: Iterable[str] | str | None = None,
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose names match `pattern`, together with the other members of the group.

        Replaces an earlier subscription. Partitions come and go inside `poll`; `listener` is called for it. With
        group.protocol=consumer the broker resolves the pattern (RE2), else this client does (Python's re).
        """
        subscription = self._core.subscribe(topics, pattern, listener)
        self._loop.post(lambda: self._core.join(subscription))

    @by_one_thread
    def unsubscribe(self) -> None:
        """Leave the group, or give up what was assigned: read nothing."""
        self._loop.call(to_its_end(self._core.unsubscribe(), grace_s=GRACE_S))

    @by_one_thread
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those assigned already stay where they are, others begin by auto.offset.reset."""
        topics = self._core.assign(partitions)
        self._loop.post(lambda: self._core.want(topics))

    def subscription(self) -> frozenset[str]:
        """Returns the topics of the last `subscribe`; with a pattern, the assigned partitions' topics. Empty
        without a subscription."""
        group = self._core.group
        if group is None or not group.subscribed:
            return frozenset()
        by_pattern = group.subscription.pattern is not None
        return frozenset(
            (tp.topic for tp in self._core.assignment.states) if by_pattern else group.subscription.topics
        )

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Returns the partitions assigned."""
        return tuple(sorted(self._core.assignment.states))

    @by_one_thread
    def seek(self, partition: TopicPartition, offset: int, *, topic_id: UUID = ZERO_UUID) -> None:
        """Go on at this offset. `topic_id`: the topic that it is an offset of; if another one has the name by now, its reading
        begins by auto.offset.reset. Without it: whatever topic has the name at the next fetch."""
        self._core.seek(partition, offset, topic_id=topic_id)

    @by_one_thread
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record of these partitions, by default of all."""
        self._core.seek_all(partitions, EARLIEST)

    @by_one_thread
    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue after the last record of these partitions, by default of all."""
        self._core.seek_all(partitions, LATEST)

    @by_one_thread
    def seek_to_timestamp(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> None:
        """Seeks to the first record at or after each time (milliseconds since 1970), or to the end if there is none."""
        self._loop.call(self._core.seek_to_timestamp(timestamps_ms, LATEST, timeout_s))

    @by_one_thread
    def seek_to_committed(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go back to what the group has committed, in these partitions, by default in all: after an aborted transaction,
        or to handle again what could not be handled."""
        self._core.need_group()
        self._core.seek_all(partitions, COMMITTED)

    @by_one_thread
    def stop_at(self, partition: TopicPartition, offset: int | None) -> None:
        """Fetch nothing at or after `offset`; None: no end any more. For programs that read a range of
        offsets only.

        Brokers return whole batches: records from `offset` on may still arrive together with earlier ones.
        """
        self._core.stop_at(partition, offset)

    @by_one_thread
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._core.pause(partitions, True)

    @by_one_thread
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`."""
        self._core.pause(partitions, False)

    def paused(self) -> tuple[TopicPartition, ...]:
        """Returns the partitions that are paused."""
        return tuple(sorted(tp for tp, state in self._core.assignment.states.items() if state.paused))

    @by_one_thread
    def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Returns the offset of the next record to be returned; waits for it where it must be asked for first."""
        limit_s = self._core.api_timeout_s if timeout_s is None else timeout_s
        position = self._waiting.until(lambda: self._core.known_position(partition), limit_s)
        if position is None:
            raise self._core.no_position(partition, limit_s)
        return position

    @by_one_thread
    def positions(self) -> dict[TopicPartition, int]:
        """Returns the offset after the last returned record of each partition: `commit` commits these
        offsets, and `send_offsets_to_transaction` takes them. Partitions whose position is not known yet are
        left out."""
        return self._core.positions()

    # -- reading

    @by_one_thread
    def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Returns the next records, at most max.poll.records or `max_records`; waits up to `timeout_s` for the first.

        In a group: gives up and takes partitions first, when the group asks for it, and commits what earlier polls
        returned when auto.commit.interval.ms has passed.
        """
        limit = max_records or self._core.settings.max_poll_records
        event = self._next(timeout_s)
        if event is BufferedRecords.RECORDS:
            return self._core.collect_kept(limit)
        return self._core.collect(event, limit) if isinstance(event, FetchedChunk) else []

    @by_one_thread
    def poll_arrow(self, timeout_s: float = 1.0, max_records: int = 100_000) -> pyarrow.RecordBatch:
        """Returns the records of one partition as a pyarrow.RecordBatch, in order; without rows when none came in time.

        Columns: topic, partition, offset, timestamp (ms), timestamp_type (0 create, 1 append), key, value, headers.
        Whole record batches are taken, so there may be more than `max_records` rows when a single batch has more.
        """
        clock = self._core.clock
        deadline = clock.monotonic() + timeout_s
        while True:
            self._core.rewind_all_kept()
            event = self._next(max(0.0, deadline - clock.monotonic()))
            if not isinstance(event, FetchedChunk):
                return self._core.no_arrow()
            rows = self._core.collect_arrow(event, max_records)
            if rows is not None:
                return rows

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yields records one by one, without an end. To leave the loop loses none: `commit` and `poll` know
        which was the last."""
        while True:
            record = self._next_kept()
            if record is not None:
                yield record
            else:
                self._core.keep(self.poll())

    # -- the group

    @by_one_thread
    def commit(self, offsets: OffsetsToCommit | None = None, timeout_s: float | None = None) -> None:
        """Remember how far the group has read: all that was returned, or `offsets` (of the next record to read).

        Waits for the coordinator's word. CommitFailedError when the partitions went to another member meanwhile.
        """
        group = self._core.need_group()
        self._loop.call(group.commit(None if offsets is None else self._core.to_commit(offsets), timeout_s))

    def commit_async(
        self,
        offsets: OffsetsToCommit | None = None,
        callback: Callable[[OffsetsToCommit, Exception | None], object] | None = None,
    ) -> None:
        """Commits without waiting. `callback(offsets, error)` is called on the client's own thread."""
        chosen = dict(offsets) if offsets is not None else dict(self.positions())
        group, tied = self._core.need_group(), self._core.to_commit(offsets)
        explicit = offsets is not None
        self._loop.post(
            lambda: group.spawn(group.commit_and_tell(chosen, callback, tied=tied, explicit=explicit))
        )

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> CommittedOffsets:
        """Returns the group's committed offsets; None for a partition without one."""
        return self._loop.call(self._core.need_group().committed(partitions, timeout_s))

    def group_metadata(self) -> GroupMetadata:
        """Returns the identity of this member, for `Producer.send_offsets_to_transaction`."""
        return self._core.group_metadata()

    # -- offsets

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset that each partition holds."""
        return self._ends(partitions, EARLIEST, timeout_s)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset after the last record that may be read (with read_committed: the last stable
        offset)."""
        return self._ends(partitions, LATEST, timeout_s)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first record not before each time; None where there is none."""
        return self._loop.call(self._core.offsets(timestamps_ms, timeout_s))

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> tuple[int, ...]:
        """Returns the partitions of a topic, in order; none when a broker answers that there is no such topic.

        TimedOutError when no broker answers in time; other errors where the topic may not be seen, or has no legal name.
        """
        limit_s = self._core.api_timeout_s if timeout_s is None else timeout_s
        known = self._loop.call(self._core.cluster.metadata.find(topic, limit_s))
        return tuple(range(len(known.partitions))) if known is not None else ()

    @by_one_thread
    def topic_id(self, topic: str) -> UUID | None:
        """Returns the id of a topic that this consumer reads; None while the cluster has none of this name.

        A topic that was deleted and made again has another id, and offsets of its own.
        """
        image = self._core.cluster.image
        return image.topic_id(topic) if topic in image.topics else None

    def metrics(self) -> dict[MetricName, float]:
        """Returns the figures of this consumer now, under Kafka's names; docs/client.md lists them. May be called at any
        time."""
        return self._core.metrics.read(self._core.settings.client_id)

    def client_instance_id(self, timeout_s: float | None = None) -> str:
        """Returns the id with which brokers show this consumer's metrics (KIP-714), as `odradek broker clients` prints it."""
        return self._loop.call(
            self._core.cluster.instance_id(self._core.api_timeout_s if timeout_s is None else timeout_s)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=error is None)

    def _ends(
        self, partitions: Iterable[TopicPartition], end: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        offsets = self._loop.call(self._core.offsets(dict.fromkeys(partitions, end), timeout_s))
        return {tp: end_offset.offset if end_offset is not None else 0 for tp, end_offset in offsets.items()}

    def _next(self, timeout_s: float) -> Event | None:
        """Returns the next records; does what the group requires first."""
        core, group = self._core, self._core.group
        check_reads(core)
        deadline = core.clock.monotonic() + timeout_s
        if group is None:
            return self._waiting.until(core.next_event, timeout_s)
        if group.poll_began():
            self._loop.post(group.membership.polled)
        try:
            due = group.due_for_auto_commit()
            if due:
                self._loop.post(lambda: group.spawn(group.commit_quietly(due)))
            while True:
                event: Event | None = self._waiting.until(core.next_event, deadline - core.clock.monotonic())
                if not isinstance(event, Handover):
                    return event
                self._hand_over(event)
        finally:
            group.poll_ended()

    def _hand_over(self, handover: Handover) -> None:
        """Do what the group asks for, and call the listener; its first error is raised when all is done.

        An interrupt of a step, too: with the rest undone the group would wait for this member, and the listener for its call.
        """
        group = self._core.need_group()
        problem: BaseException | None = None
        for step, partitions in group.steps(handover):
            try:
                if step is HandoverStep.COMMIT:
                    self._loop.call(group.commit_before_giving_up(partitions))
                    continue
                group.call_listener(step, partitions)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - raised below
                problem = error if problem is None else problem
        self._loop.post(lambda: group.membership.handed_over(handover.number))
        if problem is not None:
            raise problem

    def _next_kept(self) -> ConsumerRecord[K, V] | None:
        self._use.begin()
        try:
            return self._core.next_kept()
        finally:
            self._use.end()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
            self._loop.stop_soon()
