"""One partition's batches: order, numbers and retries, without a loop; and against a model of a broker."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.producer.delivery import BatchIdentity, ProducerBatch
from odradek.client.producer.error_handling import ProduceErrorAction
from odradek.client.producer.partition_queue import (
    PRODUCER_EPOCH_MAX,
    AttemptResult,
    PartitionQueue,
    SequenceNumbers,
)
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder

TP = TopicPartition("t", 0)
OK = AttemptResult(code=ErrorCode.NONE)
LOST = AttemptResult(code=ErrorCode.NETWORK_EXCEPTION)
MOVED = AttemptResult(code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
GAP = AttemptResult(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
TOO_LARGE = AttemptResult(code=ErrorCode.MESSAGE_TOO_LARGE)
INVALID = AttemptResult(code=ErrorCode.INVALID_RECORD)


def queue_of(
    *record_counts: int, idempotent: bool = True, epoch: int = 0, established: bool = True
) -> PartitionQueue:
    """A queue with closed batches of so many records."""
    queue = PartitionQueue(TP, in_flight_max=5 if idempotent else 1 << 30)
    if idempotent:
        queue.numbering = SequenceNumbers(producer_id=7, producer_epoch=epoch, established=established)
    for number, count in enumerate(record_counts):
        add(queue, number, count)
    return queue


def add(queue: PartitionQueue, number: int, count: int = 1) -> ProducerBatch:
    batch = ProducerBatch(
        TP, BatchBuilder(), order=(number, 0), created_at=0.0, deadline=100.0, reserved_bytes=0
    )
    for _ in range(count):
        batch.append(0, None, b"%d" % number)
    batch.record_count = count
    queue.open = batch
    queue.close_open()
    return batch


def take_all(queue: PartitionQueue, broker: int = 1, now: float = 0.0) -> list[ProducerBatch]:
    taken = []
    while queue.closed and queue.may_send(broker, now):
        taken.append(queue.drain(broker))
    return taken


def numbers(batches: list[ProducerBatch]) -> list[BatchIdentity | None]:
    return [batch.identity for batch in batches]


def answer(
    queue: PartitionQueue, batch: ProducerBatch, outcome: AttemptResult, *, may_retry: bool = True
) -> ProduceErrorAction:
    return queue.answered(batch, outcome, may_retry=may_retry)


def test_batches_are_numbered_by_their_records_in_the_order_they_are_sent() -> None:
    assert numbers(take_all(queue_of(3, 1, 2))) == [
        BatchIdentity(7, 0, 0),
        BatchIdentity(7, 0, 3),
        BatchIdentity(7, 0, 4),
    ]


def test_without_idempotence_nothing_is_numbered_and_more_than_five_may_fly() -> None:
    assert numbers(take_all(queue_of(*[1] * 9, idempotent=False))) == [None] * 9


def test_the_first_batch_under_a_producer_id_goes_alone_because_a_broker_would_take_any_number_as_the_first() -> (
    None
):
    queue = queue_of(1, 1, 1, established=False)
    (first,) = take_all(queue)
    answer(queue, first, MOVED)
    (first,) = take_all(queue)
    answer(queue, first, OK)
    assert len(take_all(queue)) == 2


def test_an_answer_to_a_batch_under_the_last_epoch_says_nothing_of_the_new_one() -> None:
    queue = queue_of(1, 1, 1)
    late = queue.drain(1)
    late.settle(error=TimeoutError())  # it took too long, and the transaction was aborted
    queue.numbering = SequenceNumbers(producer_id=7, producer_epoch=1)
    answer(queue, late, OK)
    assert len(take_all(queue)) == 1


def test_at_most_five_batches_fly_because_a_broker_remembers_no_more() -> None:
    queue = queue_of(*[1] * 9)
    assert len(take_all(queue)) == 5
    answer(queue, queue.in_flight[0], OK)
    assert len(take_all(queue)) == 1


def test_sequences_wrap_at_31_bits() -> None:
    queue = queue_of(3, 3)
    assert queue.numbering is not None
    queue.numbering.next_sequence = 2**31 - 2
    assert [number.base_sequence for number in numbers(take_all(queue)) if number] == [2**31 - 2, 1]


def test_a_new_leader_is_not_sent_to_before_the_old_one_has_answered() -> None:
    queue = queue_of(1, 1)
    first = queue.drain(1)
    assert not queue.may_send(2, 0.0)
    answer(queue, first, OK)
    assert queue.may_send(2, 0.0)


def test_nothing_is_sent_during_a_pause() -> None:
    queue = queue_of(1)
    queue.not_before = 5.0
    assert not queue.may_send(1, 4.9)
    assert queue.may_send(1, 5.0)


def test_a_retry_waits_for_all_that_fly_and_then_keeps_order_and_numbers() -> None:
    queue = queue_of(1, 1, 1, 1)
    flying = take_all(queue)
    before = numbers(flying)
    add(queue, 9)
    assert answer(queue, flying[0], MOVED) is ProduceErrorAction.RETRY_ELSEWHERE
    assert not queue.may_send(1, 0.0)
    assert answer(queue, flying[1], GAP) is ProduceErrorAction.RETRY_IN_TURN
    assert answer(queue, flying[2], OK) is ProduceErrorAction.DELIVERED
    assert answer(queue, flying[3], LOST) is ProduceErrorAction.RETRY_ELSEWHERE
    again = take_all(queue, broker=2)
    assert [batch.order[0] for batch in again] == [0, 1, 3, 9]
    assert numbers(again[:3]) == [before[0], before[1], before[3]]


def test_a_gap_at_the_head_starts_a_new_epoch_and_numbers_from_zero() -> None:
    queue = queue_of(2, 3)
    first, second = take_all(queue)
    assert answer(queue, first, GAP) is ProduceErrorAction.NEW_EPOCH
    assert answer(queue, second, GAP) is ProduceErrorAction.RETRY_IN_TURN
    (alone,) = take_all(queue)
    assert (alone, alone.identity) == (first, BatchIdentity(7, 1, 0))
    answer(queue, alone, OK)
    assert numbers(take_all(queue)) == [BatchIdentity(7, 1, 2)]


def test_after_the_last_epoch_another_producer_id_is_needed() -> None:
    queue = queue_of(1, epoch=PRODUCER_EPOCH_MAX)
    (batch,) = take_all(queue)
    answer(queue, batch, GAP)
    assert queue.numbering is None
    assert queue.refused_producer_id == 7


def test_a_fenced_epoch_asks_for_another_producer_id() -> None:
    queue = queue_of(1)
    (batch,) = take_all(queue)
    assert (
        answer(queue, batch, AttemptResult(code=ErrorCode.INVALID_PRODUCER_EPOCH))
        is ProduceErrorAction.NEW_PRODUCER_ID
    )
    assert (queue.numbering, queue.refused_producer_id) == (None, 7)


def test_the_numbers_of_a_refused_last_batch_go_to_the_next_one() -> None:
    queue = queue_of(2, 5)
    first, second = take_all(queue)
    answer(queue, first, OK)
    assert answer(queue, second, INVALID) is ProduceErrorAction.GIVE_UP
    add(queue, 9)
    assert numbers(take_all(queue)) == [BatchIdentity(7, 0, 2)]


def test_the_numbers_of_a_batch_that_may_have_been_written_are_never_used_again() -> None:
    queue = queue_of(2)
    (batch,) = take_all(queue)
    answer(queue, batch, LOST)
    (batch,) = take_all(queue)
    assert answer(queue, batch, INVALID) is ProduceErrorAction.GIVE_UP
    add(queue, 9)
    assert numbers(take_all(queue)) == [BatchIdentity(7, 0, 2)]


def test_an_answer_that_came_too_late_for_the_user_is_not_retried() -> None:
    queue = queue_of(1)
    (batch,) = take_all(queue)
    batch.settle(error=TimeoutError())
    assert answer(queue, batch, LOST) is ProduceErrorAction.GIVE_UP
    assert queue.length == 0


def test_parts_of_a_split_batch_share_its_numbers_and_its_place() -> None:
    queue = queue_of(5, 1)
    large, behind = take_all(queue)
    assert answer(queue, large, TOO_LARGE) is ProduceErrorAction.SPLIT
    parts = []
    for first, count in ((0, 2), (2, 3)):
        part = ProducerBatch(
            TP, BatchBuilder(), order=(0, first), created_at=0.0, deadline=1.0, reserved_bytes=0
        )
        part.record_count = count
        parts.append(part)
    queue.replace(large, tuple(parts))
    assert answer(queue, behind, GAP) is ProduceErrorAction.RETRY_IN_TURN
    again = take_all(queue)
    assert again == [*parts, behind]
    assert numbers(again) == [BatchIdentity(7, 0, 0), BatchIdentity(7, 0, 2), BatchIdentity(7, 0, 5)]


def test_what_waits_can_be_forgotten_and_what_flies_cannot() -> None:
    queue = queue_of(1, 1)
    flying = queue.drain(1)
    waiting = queue.closed[0]
    assert not queue.forget(flying)
    assert queue.forget(waiting)
    assert not queue.closed


# -- against a model


@dataclass
class ModelBroker:
    """A leader with one partition and one producer's state: what KIP-98 says it does."""

    log: list[int] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    remembered: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def produce(self, batch: ProducerBatch) -> ErrorCode:
        assert batch.identity is not None
        _, epoch, sequence = batch.identity
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > self.epoch:
            if self.epoch >= 0 and sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.remembered.clear()
        elif (sequence, batch.record_count) in self.remembered:
            return ErrorCode.NONE
        elif sequence != self.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.epoch, self.next_sequence = epoch, sequence + batch.record_count
        self.remembered.append((sequence, batch.record_count))
        self.log.append(batch.order[0])
        return ErrorCode.NONE


steps = st.lists(
    st.sampled_from(["add", "send", "answer", "refuse", "lose request", "lose answer", "invalid"]),
    max_size=120,
)


class Trial:
    """A queue and a model broker, and what the user saw."""

    def __init__(self) -> None:
        self.queue = queue_of(established=False)
        self.broker = ModelBroker()
        self.count = 0
        self.delivered: list[int] = []
        self.refused: set[int] = set()

    def step(self, what: str) -> None:
        if what == "add":
            add(self.queue, self.count, 1 + self.count % 3)
            self.count += 1
        elif what == "send":
            take_all(self.queue)
        elif self.queue.in_flight:
            self.hear(what, self.queue.in_flight[0])

    def hear(self, what: str, first: ProducerBatch) -> None:
        if what == "answer":
            self.settle(first, AttemptResult(code=self.broker.produce(first)))
        elif what == "refuse":
            self.settle(first, MOVED)
        elif what == "invalid":
            self.settle(first, INVALID)
        else:  # the connection breaks: all in flight is lost, and the broker saw the first of it or did not
            if what == "lose answer":
                self.broker.produce(first)
            for batch in list(self.queue.in_flight):
                self.settle(batch, LOST)

    def settle(self, batch: ProducerBatch, outcome: AttemptResult) -> None:
        verdict = answer(self.queue, batch, outcome)
        if verdict is ProduceErrorAction.DELIVERED:
            self.delivered.append(batch.order[0])
        elif verdict is ProduceErrorAction.GIVE_UP:
            self.refused.add(batch.order[0])

    def finish(self) -> None:
        while self.queue.length:
            self.step("send")
            self.step("answer")


@settings(deadline=None, max_examples=400)
@given(steps)
def test_whatever_is_lost_every_batch_is_written_once_and_in_order(schedule: list[str]) -> None:
    trial = Trial()
    for what in schedule:
        trial.step(what)
    trial.finish()
    certain = [number for number in range(trial.count) if number not in trial.refused]
    assert trial.delivered == certain
    assert [number for number in trial.broker.log if number not in trial.refused] == certain
    assert len(set(trial.broker.log)) == len(trial.broker.log)
