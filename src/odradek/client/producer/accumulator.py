"""The accumulator, in which records wait to become requests.

Two sides share it under one lock. The user's thread appends records to the open batch of a partition; the sending loop
closes batches (full, lingered, or flushed), takes them away and gives their memory back. The lock is held for
microseconds: building, compressing and sending happen outside.

Memory is counted in whole batches, as the Java client does: a new batch reserves `batch.size` (or its first record's
size) of `buffer.memory`, so that the hot path, another record into an open batch, counts nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from odradek.client.producer.delivery import Delivery, ProducerBatch
from odradek.client.producer.partition_queue import IN_FLIGHT_MAX, PartitionQueue
from odradek.client.producer.partitioner import next_sticky
from odradek.client.settings.settings import ProducerSettings
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import HEADER_BYTES, BatchBuilder, Codec, FilledBatch
from odradek.records.frame import Written
from odradek.runtime.ports import Buffer, Clock, Entropy

RECORD_OVERHEAD_BYTES: Final = 21
"""The most that a record's own fields (lengths, deltas, attributes) take in addition to key, value and
headers."""

Headers = Sequence[tuple[str, bytes | None]]


class TopicQueues:
    """The queues of one topic's partitions, and where records without a key go at present."""

    __slots__ = (
        "available",
        "partition_count",
        "queues",
        "resting",
        "sticky",
        "sticky_bytes",
        "topic",
        "used_at",
    )

    def __init__(self, topic: str) -> None:
        self.topic: Final = topic
        self.queues: list[PartitionQueue] = []
        self.partition_count = 0
        """The partitions that records are spread over. There may be more queues, if the topic was created again with fewer."""
        self.available: tuple[int, ...] = ()
        """Partitions that have a leader; empty: none is known to."""
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0
        self.used_at = 0.0
        self.resting = False
        """No one has sent to it for long, and its metadata is no longer asked for. Its queues keep their numbers."""

    @property
    def busy(self) -> bool:
        """Something waits or is on its way."""
        return any(queue.open is not None or queue.length for queue in self.queues)


class _Lingering(NamedTuple):
    due: float
    queue: PartitionQueue
    batch: ProducerBatch


class Accumulator:
    """The buffer of a producer: records of all partitions that wait to be sent, within `buffer.memory`. Methods marked
    *locked* are called with `lock` held."""

    def __init__(
        self, settings: ProducerSettings, clock: Clock, entropy: Entropy, *, wake: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._wake = wake
        self._wake_pending = False
        self._linger_s = settings.linger_ms / 1000
        self._delivery_timeout_s = settings.delivery_timeout_ms / 1000
        self.batch_bytes_max: Final = min(settings.batch_size, settings.max_request_size)
        self._record_bytes_max = settings.max_request_size
        self.memory_bytes: Final = settings.buffer_memory
        self._adaptive = settings.partitioner_adaptive_partitioning_enable
        self._codec = Codec.from_name(settings.compression_type)
        self._codec_level = settings.codec_level
        self._transactional = bool(settings.transactional_id)
        self._in_flight_max = IN_FLIGHT_MAX if settings.enable_idempotence else 1 << 30
        self.lock: Final = threading.Lock()
        self._room = threading.Condition(self.lock)
        self._room_wanted = 0
        self._room_watchers: dict[Callable[[], None], None] = {}
        self._free_bytes = settings.buffer_memory
        self.topics: Final[dict[str, TopicQueues]] = {}
        """Topics whose metadata is kept up to date; the others rest."""
        self._resting: dict[str, TopicQueues] = {}
        self.revived: Final[list[str]] = []
        """Resting topics that got records: the sender asks for their metadata again."""
        self.ready: Final[dict[PartitionQueue, None]] = {}
        """Queues with something to send, the longest waiting first."""
        self._lingering: deque[_Lingering] = deque()
        self._unsettled: OrderedDict[ProducerBatch, None] = OrderedDict()
        """Batches without an outcome yet, in the order of their deadlines."""
        self._batch_number = 0
        self._failure: ErrorValue[Exception] | None = None

    @property
    def failure(self) -> Exception | None:
        """The error after which no record is accepted; None before. A new exception each time."""
        return self._failure.exception() if self._failure is not None else None

    @failure.setter
    def failure(self, error: Exception | None) -> None:
        self._failure = ErrorValue.of(error) if error is not None else None

    # -- the user's side

    def append(
        self,
        topic: TopicQueues,
        queue: PartitionQueue | None,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> Delivery | None:
        """*locked.* Take a record; None when there is no room. `queue` None: the topic's sticky partition."""
        target = queue or topic.sticky or self._move_sticky(topic)
        batch = target.open
        if batch is not None:
            if batch.append(timestamp_ms, key, value, headers):
                index = batch.record_count
                batch.record_count = index + 1
                return Delivery(batch, index, timestamp_ms)
            self._close(target)
            self._request_wake()
            if queue is None:
                return self.append(topic, None, timestamp_ms, key, value, headers)
        builder = BatchBuilder(self._codec, self.batch_bytes_max, level=self._codec_level)
        batch = self._new_batch(target, builder, _record_bytes(key, value, headers))
        if batch is None:
            return None
        try:
            batch.append(timestamp_ms, key, value, headers)
        except BaseException:
            self._free_bytes += batch.reserved_bytes
            raise
        batch.record_count = 1
        self._open(topic, target, batch)
        return Delivery(batch, 0, timestamp_ms)

    def add(self, topic: TopicQueues, queue: PartitionQueue | None, written: Written) -> Delivery | None:
        """*locked.* Take records that are a batch already, after all that came before; None when there is no room.

        Returns the delivery of the first record.
        """
        target = queue or topic.sticky or self._move_sticky(topic)
        if target.open is not None:
            self._close(target)
        builder = FilledBatch(written, self._codec, level=self._codec_level)
        batch = self._new_batch(target, builder, builder.size_bytes - HEADER_BYTES)
        if batch is None:
            return None
        batch.record_count = written.record_count
        self._open(topic, target, batch)
        self._close(target)
        self._request_wake()
        return Delivery(batch, 0, written.base_timestamp)

    def wait_for_room(self, timeout: float) -> bool:
        """*locked.* Block this thread until memory came free; False after `timeout` seconds."""
        self._room_wanted += 1
        self._request_wake()
        try:
            return self._room.wait(timeout)
        finally:
            self._room_wanted -= 1

    def watch_for_room(self, tell: Callable[[], None]) -> None:
        """*locked.* Like `wait_for_room` for a caller that cannot block: `tell` is called once, unless `unwatch`ed."""
        self._room_watchers[tell] = None
        self._request_wake()

    def unwatch(self, tell: Callable[[], None]) -> None:
        """*locked.* Removes the callback of a caller that waits no longer."""
        self._room_watchers.pop(tell, None)

    def hurry(self) -> list[ProducerBatch]:
        """Let nothing linger; returns all batches that are not settled. Waiting for those is a flush."""
        with self.lock:
            while self._lingering:
                self._due(self._lingering.popleft())
            self._request_wake()
            return list(self._unsettled)

    # -- the loop's side

    def learn(self, topic: str, partition_count: int, available: Iterable[int]) -> TopicQueues:
        """Make the topic known: it is about to be sent to."""
        with self.lock:
            queues = self.topics.get(topic) or self._resting.pop(topic, None) or TopicQueues(topic)
            queues.resting = False
            queues.used_at = self._clock.monotonic()
            self.topics[topic] = queues
        self.update(topic, partition_count, available)
        return queues

    def update(self, topic: str, partition_count: int, available: Iterable[int]) -> None:
        """Follow a known topic as it grows, or is made again. Queues stay: what is in them is delivered, or fails in time."""
        with self.lock:
            queues = self.topics[topic]
            for number in range(len(queues.queues), partition_count):
                queues.queues.append(
                    PartitionQueue(TopicPartition(topic, number), in_flight_max=self._in_flight_max)
                )
            queues.partition_count = partition_count or queues.partition_count
            queues.available = tuple(available)
            sticky = queues.sticky
            if sticky is not None and sticky.topic_partition.partition >= queues.partition_count:
                queues.sticky = None

    def collect(self, now: float) -> list[ProducerBatch]:
        """Find what has lingered long enough; returns the batches whose delivery timeout has passed."""
        with self.lock:
            self._wake_pending = False
            hurry = self._room_wanted > 0 or bool(self._room_watchers)
            while self._lingering and (hurry or self._lingering[0].due <= now):
                self._due(self._lingering.popleft())
            expired = []
            for batch in self._unsettled:
                if batch.deadline > now:
                    break
                expired.append(batch)
            return expired

    def drain(self, queue: PartitionQueue, broker: int) -> ProducerBatch:
        """*locked.* Returns the next batch of a queue for which `may_send(broker)` holds."""
        if not queue.closed:
            self._close(queue)
        batch = queue.drain(broker)
        self.mark(queue)
        return batch

    def rest(self, unused_since: float) -> list[str]:
        """Let topics rest that nothing was sent to since then; returns their names."""
        with self.lock:
            idle = [
                topic for topic in self.topics.values() if topic.used_at < unused_since and not topic.busy
            ]
            for topic_queues in idle:
                topic_queues.resting = True
                self._resting[topic_queues.topic] = self.topics.pop(topic_queues.topic)
            return [queues.topic for queues in idle]

    def next_due(self) -> float | None:
        """Returns the time when `collect` has work if nothing else happens; None if it will have none."""
        with self.lock:
            times = []
            if self._lingering:
                times.append(self._lingering[0].due)
            if self._unsettled:
                times.append(next(iter(self._unsettled)).deadline)
            return min(times, default=None)

    def abandon(self, batch: ProducerBatch) -> None:
        """Forgets a batch that expired. If it is in flight, its answer will give its memory back."""
        with self.lock:
            self._unsettled.pop(batch, None)
            queue = self.queue_of(batch)
            if queue.forget(batch):
                self._release(batch)
                self.mark(queue)

    def release(self, batch: ProducerBatch) -> None:
        """*locked.* Frees the memory of a batch that has left its queue for good."""
        self._unsettled.pop(batch, None)
        self._release(batch)

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ...]) -> None:
        """*locked.* `parts` take the place of a batch in flight, and its memory."""
        unsettled = list(self._unsettled)
        place = unsettled.index(batch)  # parts have its deadline: what waits longer expires before them
        self._unsettled = OrderedDict.fromkeys((*unsettled[:place], *parts, *unsettled[place + 1 :]))
        parts[0].reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        queue = self.queue_of(batch)
        queue.replace(batch, parts)
        self.mark(queue)

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        tp = batch.topic_partition
        return self.topics[tp.topic].queues[tp.partition]

    def mark(self, queue: PartitionQueue) -> None:
        """*locked.* Keep `ready` right after a queue changed."""
        if queue.waiting:
            self.ready[queue] = None
        else:
            self.ready.pop(queue, None)

    def fail_all(self, failure: Exception) -> list[ProducerBatch]:
        """Take no more records; returns the batches that will not be sent, for the caller to settle."""
        with self.lock:
            self.failure = failure
            doomed = list(self._unsettled)
            self._unsettled.clear()
            self._lingering.clear()
            self.ready.clear()
            for topic in self.topics.values():
                for queue in topic.queues:
                    queue.open = None  # so that the next record finds no batch, and then `failure`
                    queue.open_due = False
                    queue.closed.clear()
            self._notify_room()
        return doomed

    def drop_unsent(self) -> list[ProducerBatch]:
        """Take out whatever is not in flight; returns it, for the caller to settle."""
        with self.lock:
            dropped: list[ProducerBatch] = []
            for topic in [*self.topics.values(), *self._resting.values()]:
                for queue in topic.queues:
                    dropped += queue.drop_unsent()
                    self.mark(queue)
            for batch in dropped:
                self.release(batch)
            return dropped

    def renumber(self) -> None:
        """Numbers batches under another producer id or epoch: every partition begins at 0 under it. Nothing is in flight
        that counts."""
        with self.lock:
            for topic in [*self.topics.values(), *self._resting.values()]:
                for queue in topic.queues:
                    queue.numbering = None
                    queue.refused_producer_id = None

    @property
    def free_bytes(self) -> int:
        """The bytes that are left of buffer.memory."""
        return self._free_bytes

    def unsettled_count(self) -> int:
        """Batches that are not settled."""
        return len(self._unsettled)

    # -- inside

    def _new_batch(
        self, queue: PartitionQueue, builder: BatchBuilder | FilledBatch, record_bytes: int
    ) -> ProducerBatch | None:
        """Returns a batch with memory of its own, or None when there is none left. Raises MESSAGE_TOO_LARGE, and `failure`."""
        if self._failure is not None:
            raise self._failure.exception()
        if HEADER_BYTES + record_bytes > self._record_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {record_bytes} bytes for {queue.topic_partition} is above max.request.size"
                f" ({self._record_bytes_max})",
            )
        reserved = max(self.batch_bytes_max, HEADER_BYTES + record_bytes)
        if reserved > self.memory_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {reserved} bytes is above buffer.memory ({self.memory_bytes})",
            )
        if reserved > self._free_bytes:
            return None
        self._free_bytes -= reserved
        now = self._clock.monotonic()
        self._batch_number += 1
        return ProducerBatch(
            queue.topic_partition,
            builder,
            order=(self._batch_number, 0),
            created_at=now,
            deadline=now + self._delivery_timeout_s,
            reserved_bytes=reserved,
            transactional=self._transactional,
        )

    def _open(self, topic: TopicQueues, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if topic.resting:  # the user's thread used it when it became idle
            topic.resting = False
            self.topics[topic.topic] = self._resting.pop(topic.topic)
            self.revived.append(topic.topic)
        topic.used_at = batch.created_at
        queue.open = batch
        self._unsettled[batch] = None
        if not self._lingering:
            self._request_wake()
        self._lingering.append(_Lingering(batch.created_at + self._linger_s, queue, batch))

    def _due(self, entry: _Lingering) -> None:
        if entry.queue.open is entry.batch:
            entry.queue.open_due = True
            self.ready[entry.queue] = None

    def _close(self, queue: PartitionQueue) -> None:
        """Closes the open batch: it takes no more records."""
        batch = queue.close_open()
        self.ready[queue] = None
        topic = self.topics[queue.topic_partition.topic]
        if topic.sticky is queue:
            topic.sticky_bytes += batch.size_bytes
            if topic.sticky_bytes >= self.batch_bytes_max:
                topic.sticky = None

    def _move_sticky(self, topic: TopicQueues) -> PartitionQueue:
        candidates = topic.available or range(topic.partition_count)
        if len(candidates) == 1:  # to ask the system for randomness is to hand over the GIL, at each batch
            topic.sticky, topic.sticky_bytes = topic.queues[candidates[0]], 0
            return topic.sticky
        lengths = [topic.queues[number].length for number in candidates]
        chosen = next_sticky(lengths, self._entropy.uniform(), adaptive=self._adaptive)
        topic.sticky = topic.queues[candidates[chosen]]
        topic.sticky_bytes = 0
        return topic.sticky

    def _release(self, batch: ProducerBatch) -> None:
        self._free_bytes += batch.reserved_bytes
        batch.reserved_bytes = 0
        self._notify_room()

    def _notify_room(self) -> None:
        if self._room_wanted:
            self._room.notify_all()
        if self._room_watchers:
            watchers, self._room_watchers = self._room_watchers, {}
            for tell in watchers:
                tell()

    def _request_wake(self) -> None:
        if not self._wake_pending:
            self._wake_pending = True
            self._wake()


def _record_bytes(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
    """Returns the most bytes that the record can take."""
    size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += 10 + 4 * len(name) + (len(content) if content else 0)
    return size
