"""One partition's batches, from the first record appended to the last answer: order, numbering and retries.

    open -> closed -> in flight -> gone
               ^          |
               |          v
               +------ retrying

A batch stays open until it is full or until the moment it can be sent, so that it fills while brokers are busy.
Batches leave `closed` in order and several may be in flight. Once one of them must be tried again, nothing is sent until
all that are in flight have come back; then those to retry go first, in their old order. So the brokers see every batch
at its place, and idempotence needs no other rule: each batch keeps its sequence number through retries, and the numbers
stay contiguous. (One more: a broker that holds no state of this producer takes any number as the first. So the first
batch under a producer id and epoch goes alone.)

A batch that is given up leaves a hole in the numbers, unless it was refused and was the last one numbered:
then the next batch takes its numbers. After a hole the broker refuses the next batch as out of order; it
never wrote it, nor any later one, so all of them can safely be numbered again under the next epoch. Asking
the broker first, rather than starting a new epoch at once, keeps batches whose answers were lost from being
written twice.

No clock, no lock, no loop: times are arguments, and the accumulator's lock guards the callers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from odradek.client.producer.delivery import BatchIdentity, ProducerBatch
from odradek.client.producer.error_handling import ProduceErrorAction, judge
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition

PRODUCER_EPOCH_MAX: Final = 32_767
IN_FLIGHT_MAX: Final = 5
"""The last batches of a producer that a broker remembers per partition, to recognise duplicates."""
_SEQUENCE_MASK: Final = 0x7FFF_FFFF


@dataclass(slots=True, kw_only=True)
class SequenceNumbers:
    """A partition's progress in the sequence numbers of a producer id and epoch."""

    producer_id: int
    producer_epoch: int
    next_sequence: int = 0
    established: bool = False
    """The broker has taken a batch under this id and epoch. Until then it would take any, and not notice a gap."""

    def number(self, record_count: int) -> BatchIdentity:
        """Take the next `record_count` numbers. They wrap from 2**31 - 1 to 0."""
        identity = BatchIdentity(self.producer_id, self.producer_epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + record_count) & _SEQUENCE_MASK
        return identity


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The outcome of one attempt: the broker's answer, or NETWORK_EXCEPTION when there was none."""

    code: ErrorCode
    error: Exception | None = None  # stored-error: never raised: the batch keeps what it says
    base_offset: int = -1
    log_append_time_ms: int = -1


class PartitionQueue:
    """The batches of one partition that are not settled. `open` is the batch that takes records now, or None."""

    __slots__ = (
        "_in_flight_max",
        "_renumbering",
        "_retrying",
        "closed",
        "in_flight",
        "not_before",
        "numbering",
        "open",
        "open_due",
        "refused_producer_id",
        "sent_to",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, *, in_flight_max: int) -> None:
        self.topic_partition: Final = topic_partition
        self._in_flight_max = in_flight_max
        self.open: ProducerBatch | None = None
        self.open_due = False
        """The open batch need not wait for more records."""
        self.closed: deque[ProducerBatch] = deque()
        self.in_flight: deque[ProducerBatch] = deque()
        self._retrying: list[ProducerBatch] = []
        self.not_before = 0.0
        """Pause: nothing is sent before this time (seconds, monotonic)."""
        self.sent_to: int | None = None
        """The broker that has the batches in flight: the next ones may only follow them there."""
        self.numbering: SequenceNumbers | None = None
        """The sequence numbers; None until a producer id is known, and without idempotence."""
        self.refused_producer_id: int | None = None
        """A producer id that must not be used here any more: another one is needed."""
        self._renumbering: ProduceErrorAction | None = None
        """NEW_EPOCH or NEW_PRODUCER_ID, which happens when nothing is in flight; None for neither."""

    @property
    def length(self) -> int:
        """Batches that are full or on their way."""
        return len(self.closed) + len(self.in_flight) + len(self._retrying)

    @property
    def waiting(self) -> bool:
        """Whether this partition has something that could be sent."""
        return bool(self.closed) or self.open_due

    @property
    def next_size_bytes(self) -> int:
        """The size of the batch that `drain` would return: the first closed one, or the open one."""
        batch = self.closed[0] if self.closed else self.open
        return batch.size_bytes if batch is not None else 0

    def close_open(self) -> ProducerBatch:
        """Closes the open batch, which takes no more records, and returns it."""
        batch = self.open
        assert batch is not None
        self.closed.append(batch)
        self.open = None
        self.open_due = False
        return batch

    def may_send(self, broker: int, now: float) -> bool:
        """Tells whether the first of `closed`, or the open batch if none is closed, may go to `broker` now."""
        if self._retrying or now < self.not_before:
            return False
        if not self.in_flight:
            return True
        if self.numbering is not None and not self.numbering.established:
            return False
        return self.sent_to == broker and len(self.in_flight) < self._in_flight_max

    def drain(self, broker: int) -> ProducerBatch:
        """Returns the first of `closed`, numbered: it is in flight to `broker` from now on."""
        batch = self.closed.popleft()
        self.in_flight.append(batch)
        self.sent_to = broker
        batch.attempt_count += 1
        if self.numbering is not None and batch.identity is None:
            batch.identity = self.numbering.number(batch.record_count)
        return batch

    def answered(
        self, batch: ProducerBatch, attempt: AttemptResult, *, may_retry: bool, gives_up: bool = False
    ) -> ProduceErrorAction:
        """Decide about a batch in flight. The queue keeps it if it will be retried; after SPLIT call
        `replace`.

        `gives_up`: nothing is sent any more, so what is not delivered now is not tried again in any form.
        """
        head = not self._retrying and self.in_flight[0] is batch
        self.in_flight.remove(batch)
        verdict = judge(
            attempt.code,
            idempotent=batch.identity is not None,
            head=head,
            record_count=batch.record_count,
            may_retry=may_retry and not batch.done,
            transactional=batch.transactional,
        )
        if (gives_up or batch.done) and verdict is not ProduceErrorAction.DELIVERED:
            verdict = ProduceErrorAction.GIVE_UP
        if verdict is ProduceErrorAction.GIVE_UP:
            self._give_back(batch, attempt.code)
        elif verdict is ProduceErrorAction.DELIVERED:
            if self.numbering is not None and self._is_numbered_now(batch):
                self.numbering.established = True
        elif verdict is not ProduceErrorAction.SPLIT:
            batch.last_problem = attempt.error
            self._retrying.append(batch)
            if verdict in (ProduceErrorAction.NEW_EPOCH, ProduceErrorAction.NEW_PRODUCER_ID):
                self._renumbering = verdict
        if verdict is not ProduceErrorAction.SPLIT:
            self._resume()
        return verdict

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ...]) -> None:
        """Try `parts` in the place of a batch that was too large. Their numbers are the ones that the batch had."""
        identity = batch.identity
        for part in parts:
            if identity is not None:
                part.identity = identity
                after = (identity.base_sequence + part.record_count) & _SEQUENCE_MASK
                identity = identity._replace(base_sequence=after)
            self._retrying.append(part)
        self._resume()

    def forget(self, batch: ProducerBatch) -> bool:
        """Remove a batch that is not in flight; False when it is (then its answer is still to come)."""
        if batch is self.open:
            self.open = None
            self.open_due = False
        elif batch in self.closed:
            self.closed.remove(batch)
        elif batch in self._retrying:
            self._retrying.remove(batch)
        else:
            return False
        return True

    def drop_unsent(self) -> list[ProducerBatch]:
        """Drops all batches that are not in flight, and returns them."""
        dropped = [*self._retrying, *self.closed, *([self.open] if self.open is not None else [])]
        self._retrying.clear()
        self.closed.clear()
        self.open = None
        self.open_due = False
        self.not_before = 0.0
        return dropped

    def _resume(self) -> None:
        """Moves batches that must be retried to the front, in their old order, once nothing is in flight."""
        if self.in_flight:
            return
        self.sent_to = None
        if self._retrying:
            self._retrying.sort(key=lambda batch: batch.order)
            self.closed.extendleft(reversed(self._retrying))
            self._retrying.clear()
        if self._renumbering is not None:
            self._renumber(self._renumbering)
            self._renumbering = None

    def _renumber(self, how: ProduceErrorAction) -> None:
        old = self.numbering
        if old is None:
            return
        if how is ProduceErrorAction.NEW_EPOCH and old.producer_epoch < PRODUCER_EPOCH_MAX:
            self.numbering = SequenceNumbers(
                producer_id=old.producer_id, producer_epoch=old.producer_epoch + 1
            )
        else:
            self.refused_producer_id = old.producer_id
            self.numbering = None
        for batch in self.closed:
            batch.identity = None

    def _give_back(self, batch: ProducerBatch, code: ErrorCode) -> None:
        """Let the next batch have the numbers of a batch that was certainly never written."""
        identity, numbering = batch.identity, self.numbering
        if identity is None or numbering is None or batch.attempt_count > 1 or not _never_written(code):
            return
        after = (identity.base_sequence + batch.record_count) & _SEQUENCE_MASK
        if self._is_numbered_now(batch) and after == numbering.next_sequence:
            numbering.next_sequence = identity.base_sequence

    def _is_numbered_now(self, batch: ProducerBatch) -> bool:
        """Tells whether the batch has the current id and epoch: a batch that was given up in flight may have earlier ones."""
        identity, numbering = batch.identity, self.numbering
        return (
            identity is not None
            and numbering is not None
            and (identity.producer_id, identity.producer_epoch)
            == (numbering.producer_id, numbering.producer_epoch)
        )


def _never_written(code: ErrorCode) -> bool:
    """Returns whether an answer is a refusal, as opposed to one that came too late or not at all."""
    return not code.retriable and code is not ErrorCode.UNKNOWN_SERVER_ERROR
