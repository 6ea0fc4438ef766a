"""A plan for the records of one poll: which are handled now, sent on, and committed. No I/O.

A partition's records are handled in order. A record that is not due, or will be tried again in place, delays
the ones after it: they are left, and read again later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.model.ids import TopicPartition
from odradek.retry.routing import Forward, Output, ReceivedRecord, RetryInPlace, Routing, again
from odradek.retry.waiting_partitions import WaitingPartitions

HANDLED = "handled"
RETRIED = "retried"
DEAD = "dead_lettered"


class HandlingTurn:
    """The records of one poll. Ask `next` for a record until there is none, and report the outcome of each."""

    def __init__(
        self,
        routing: Routing,
        waiting: WaitingPartitions,
        records: Iterable[ConsumerRecord],
        counts: Counter[str],
    ) -> None:
        self._routing = routing
        self._waiting = waiting
        self._counts = counts
        self._polled = list(records)
        self._records: Iterator[ConsumerRecord] = iter(self._polled)
        self._left: dict[TopicPartition, int] = {}
        """Partitions whose remaining records are left, from this offset on."""
        self.to_send: list[Forward | Output] = []
        self.positions: dict[TopicPartition, int] = {}
        """The offsets to commit by partition: the offset after the last record that is done."""
        self.held: set[TopicPartition] = set()
        """Partitions to pause."""

    @property
    def rewinds(self) -> dict[TopicPartition, int]:
        """The offsets to read from again, in partitions whose records were returned and left."""
        return dict(self._left)

    @property
    def beginnings(self) -> dict[TopicPartition, int]:
        """The first offset of each partition in this poll."""
        return {
            TopicPartition(record.topic, record.partition): record.offset for record in reversed(self._polled)
        }

    def next(self, now_ms: int) -> ReceivedRecord | None:
        """Returns the next record to handle; None when what is left of this poll must wait, or nothing is left."""
        for record in self._records:
            place = TopicPartition(record.topic, record.partition)
            if place in self._left:
                continue
            received = self._routing.received(record)
            if received.due_ms > now_ms:
                self._left[place] = record.offset
                self.held.add(place)
                self._waiting.hold(place, received.due_ms)
                continue
            attempt = self._waiting.attempt_at(place, record.offset)
            return again(received, attempt) if attempt > 1 else received
        return None

    def handled(self, received: ReceivedRecord, outputs: Iterable[Output] = ()) -> None:
        """Notes that the handler returned `outputs`."""
        self.to_send += outputs
        self._counts[HANDLED] += 1
        self._done(received)

    def failed(
        self,
        received: ReceivedRecord,
        error: BaseException,
        stage: str,
        now_ms: int,
        *,
        is_final: bool = False,
    ) -> Forward | RetryInPlace:
        """Handles the `error` of a record. `is_final`: no second try can help, as with bytes that cannot be decoded."""
        step = self._routing.failed(received, error, stage, now_ms, is_final=is_final)
        if isinstance(step, RetryInPlace):
            self._counts[RETRIED] += 1
            self._left[received.place] = received.offset
            self.held.add(received.place)
            self._waiting.hold_for_retry(received, step.at_ms)
        else:
            self._counts[DEAD if step.is_dead else RETRIED] += 1
            self.to_send.append(step)
            self._done(received)
        return step

    def leave_the_rest(self) -> None:
        """Handle no more of these records: they are read again."""
        for record in self._records:
            self._left.setdefault(TopicPartition(record.topic, record.partition), record.offset)

    def _done(self, received: ReceivedRecord) -> None:
        self.positions[received.place] = received.offset + 1
        self._waiting.done(received.place)
