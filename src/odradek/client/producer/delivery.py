"""The result of `send`: one `Delivery` per record, and the batch that decides it.

A delivery is two references and a number, because millions are made; all that waiting needs (an event, callbacks)
is made on the batch, once someone waits. The sending loop settles a batch from its own thread, exactly once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from odradek.client.network.errors import IllegalStateError, TimedOutError
from odradek.model.errors import ErrorValue
from odradek.model.exception_text import represent
from odradek.model.ids import TopicPartition
from odradek.model.public import public
from odradek.records import BatchBuilder, Codec, FilledBatch, decode_batch, stamp_producer
from odradek.telemetry import events

_log = events.get("client")

_waiting_lock: Final = threading.Lock()
"""Guards every batch's list of waiters: taken only by waiters, and once per batch that has waiters."""
os.register_at_fork(
    before=_waiting_lock.acquire,
    after_in_parent=_waiting_lock.release,
    after_in_child=_waiting_lock.release,
)


@public("odradek")
class RecordMetadata(NamedTuple):
    """The location of a delivered record. A tuple and not a dataclass: one is made per record that is asked about.

    `offset` is -1 with acks=0, and for a duplicate whose batch the broker remembers no more. `timestamp_ms` (since 1970) is
    the record's own, or the broker's where the topic has message.timestamp.type=LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    """-1 when the brokers were not asked (acks=0) or no longer know (the batch was a recognised duplicate)."""
    timestamp_ms: int
    """The record's own, or the broker's where the topic has message.timestamp.type=LogAppendTime."""


class BatchIdentity(NamedTuple):
    """The identity by which brokers recognize a batch (KIP-98). Once set, it stays with the batch through retries."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


_NO_IDENTITY: Final = BatchIdentity(-1, -1, -1)


class ProducerBatch:
    """Records of one partition on their way: first a builder, then bytes, at last an offset or an error.

    Written under the accumulator's lock while it is open, by the sending loop alone afterwards.
    """

    __slots__ = (
        "_error",
        "_last_problem",
        "_stamped",
        "_waiters",
        "append",
        "attempt_count",
        "base_offset",
        "builder",
        "created_at",
        "deadline",
        "done",
        "identity",
        "log_append_time_ms",
        "observed",
        "order",
        "parent",
        "parts",
        "payload",
        "process_id",
        "record_count",
        "reserved_bytes",
        "topic_partition",
        "transactional",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: BatchBuilder | FilledBatch,
        *,
        order: tuple[int, int],
        created_at: float,
        deadline: float,
        reserved_bytes: int,
        transactional: bool = False,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.builder: BatchBuilder | FilledBatch | None = builder
        self.append: Callable[..., bool] = builder.append
        self.order: Final = order
        """Place among the batches of its partition; (number, first record) so that parts of a split batch fit in."""
        self.created_at: Final = created_at
        self.deadline: Final = deadline
        self.reserved_bytes = reserved_bytes
        self.transactional: Final = transactional
        self.record_count = 0
        self.payload: bytearray | None = None
        self.identity: BatchIdentity | None = None
        self.attempt_count = 0
        self._last_problem: ErrorValue[Exception] | None = None
        self.done = False
        self._error: ErrorValue[Exception] | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.observed = False
        """Whether someone asked how it ended, or will be called."""
        self.parent: ProducerBatch | None = None
        self.parts: tuple[ProducerBatch, ...] = ()
        self.process_id: Final = os.getpid()
        self._stamped = _NO_IDENTITY
        self._waiters: list[Callable[[], None]] | None = None

    @property
    def error(self) -> Exception | None:
        """The error that prevented the delivery; None without one. A new exception each time."""
        return self._error.exception() if self._error is not None else None

    @error.setter
    def error(self, error: Exception | None) -> None:
        self._error = ErrorValue.of(error) if error is not None else None

    @property
    def last_problem(self) -> Exception | None:
        """The error of the last attempt; None without one. A new exception each time."""
        return self._last_problem.exception() if self._last_problem is not None else None

    @last_problem.setter
    def last_problem(self, error: Exception | None) -> None:
        self._last_problem = ErrorValue.of(error) if error is not None else None

    @property
    def root(self) -> ProducerBatch:
        """The batch that users' deliveries refer to: this one, unless it is part of a split one."""
        return self if self.parent is None else self.parent.root

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes in a request (before it is built: at most)."""
        if self.payload is not None:
            return len(self.payload)
        return self.builder.size_bytes if self.builder is not None else 0

    def settle(
        self, *, base_offset: int = -1, log_append_time_ms: int = -1, error: Exception | None = None
    ) -> None:
        """Tell everyone how it ended. Only the first call counts."""
        if self.done:
            return
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self._finish()

    def encode(self) -> bytearray:
        """Returns the bytes to send, under the batch's present identity. Compresses on the first call."""
        identity = self.identity or _NO_IDENTITY
        if self.payload is None:
            assert self.builder is not None
            self.payload = self.builder.build(transactional=self.transactional, **identity._asdict())
            self.builder = None
            self.append = _refuses_records
            self._stamped = identity
        elif identity != self._stamped:
            stamp_producer(self.payload, **identity._asdict())
            self._stamped = identity
        return self.payload

    def split_into(self, parts: tuple[ProducerBatch, ...]) -> None:
        """Replaces this batch by `parts`; it is done when all of them are."""
        self.parts = parts
        for part in parts:
            part.parent = self
        self.builder = self.payload = None

    def part_settled(self, part: ProducerBatch) -> None:
        if part.error is not None:
            self.error = self.error or part.error
        if all(producer_batch.done for producer_batch in self.parts):
            self._finish()

    def outcome_of(self, index: int) -> tuple[ProducerBatch, int]:
        """Returns the batch that decided record `index`, and the record's place in it."""
        batch = self
        while batch.parts:
            for part in batch.parts:
                if index < part.record_count:
                    batch = part
                    break
                index -= part.record_count
        return batch, index

    def when_done(self, tell: Callable[[], None]) -> None:
        """Call `tell` once it is settled: from the settling thread, or here and now if that has happened."""
        with _waiting_lock:
            if not self.done:
                if self._waiters is None:
                    self._waiters = []
                self._waiters.append(tell)
                return
        tell()

    def wait(self, timeout_s: float | None) -> bool:
        """Block this thread until it is settled; False when `timeout_s` seconds passed first."""
        if self.done:
            return True
        if self.process_id != os.getpid():
            raise IllegalStateError(
                f"this record is on its way in process {self.process_id}, which forked this one: wait for it there"
            )
        event = threading.Event()
        self.when_done(event.set)
        return event.wait(timeout_s)

    async def wait_async(self) -> None:
        """Wait on the running loop, whichever thread settles the batch."""
        if self.done:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self.when_done(lambda: _wake(loop, future))
        await future

    def _finish(self) -> None:
        self.append = _refuses_records
        self.builder = None
        self.payload = None
        with _waiting_lock:
            self.done = True
            waiters, self._waiters = self._waiters, None
        for tell in waiters or ():
            tell()
        if self.parent is not None:
            self.parent.part_settled(self)


def _refuses_records(*_record: object) -> bool:
    return False


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    def finish() -> None:
        if not future.done():
            future.set_result(None)

    if not loop.is_closed():
        loop.call_soon_threadsafe(finish)


@public("odradek")
class Delivery:
    """The fate of one record: block on `result()`, `await` it, or register a callback."""

    __slots__ = ("_index", "_timestamp_ms", "batch")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self.batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        """Tells whether `result()` would return (or raise) at once."""
        return self.batch.done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait up to `timeout_s` seconds (without a limit by default); raise what kept the record from being
        delivered."""
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        batch, index = self.batch.outcome_of(self._index)
        return RecordMetadata(
            batch.topic_partition.topic,
            batch.topic_partition.partition,
            batch.base_offset + index if batch.base_offset >= 0 else -1,
            batch.log_append_time_ms if batch.log_append_time_ms >= 0 else self._timestamp_ms,
        )

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """Waits as `result` does, but returns the error; None on success."""
        if not self.batch.wait(timeout_s):
            raise TimedOutError(f"the record was not acknowledged within {timeout_s} s, and may still be")
        self.batch.observed = True
        return self.batch.outcome_of(self._index)[0].error

    def add_done_callback(self, tell: Callable[[Delivery], None]) -> None:
        """Call `tell(self)` once the fate is known: on the client's own thread, so be quick; errors are logged."""
        self.batch.observed = True
        self.batch.when_done(lambda: _call(tell, self))

    def when_settled(self, tell: Callable[[int, int, Exception | None], None]) -> None:
        """Calls `tell` with partition, offset (-1: unknown) and error once the fate is known, on the client's own thread.

        It does not count as a look at the failure: `flush` still raises it. `tell` must not raise.
        """
        self.batch.when_done(lambda: tell(*self._outcome()))

    def _outcome(self) -> tuple[int, int, Exception | None]:
        batch, index = self.batch.outcome_of(self._index)
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        return batch.topic_partition.partition, offset, batch.error

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        yield from self.batch.wait_async().__await__()
        return self.result()

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "failed" if self.batch.error is not None else "delivered"
        return f"<Delivery {self.batch.topic_partition} {state}>"


def _call(tell: Callable[[Delivery], None], delivery: Delivery) -> None:
    try:
        tell(delivery)
    except Exception:  # noqa: BLE001 - the user's code: it must not stop what delivers other records
        _log.exception("delivery_callback_failed", callback=represent(tell))


def split_batch(batch: ProducerBatch, codec: Codec, codec_level: int | None) -> tuple[ProducerBatch, ...]:
    """Halve a batch that the broker found too large: two batches, each with about half of its records, in order."""
    assert batch.payload is not None
    records = decode_batch(batch.payload)
    middle = len(records) // 2
    parts = []
    first = batch.order[1]
    for half in (records[:middle], records[middle:]):
        builder = BatchBuilder(codec, level=codec_level)
        for record in half:
            builder.append(record.timestamp, record.key, record.value, record.headers)
        part = ProducerBatch(
            batch.topic_partition,
            builder,
            order=(batch.order[0], first),
            created_at=batch.created_at,
            deadline=batch.deadline,
            reserved_bytes=0,
            transactional=batch.transactional,
        )
        part.record_count = len(half)
        first += len(half)
        parts.append(part)
    return tuple(parts)
