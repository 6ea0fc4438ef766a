"""Where records wait: batches, linger, memory, sticky partitions; and the plan of requests. No loop."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.producer.accumulator import Accumulator, TopicQueues
from odradek.client.producer.delivery import Delivery, ProducerBatch, split_batch
from odradek.client.producer.partition_queue import AttemptResult
from odradek.client.producer.request_plan import ProducePlan, ProducePlanner
from odradek.client.settings.settings import ProducerSettings
from odradek.client.transactions.core import ProducerId
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import Codec, decode_batch

Settings = Callable[..., ProducerSettings]


class Bench:
    """An accumulator with a planner, a topic `t`, and a broker 1 that leads everything and takes anything."""

    def __init__(self, settings: ProducerSettings, clock: Any, chance: Any, partitions: int = 1) -> None:
        self.clock = clock
        self.wake_count = 0
        self.capacity = 100
        self.leader: int | None = 1
        self.accumulator = Accumulator(settings, clock, chance, wake=self._wake)
        self.topic = self.accumulator.learn("t", partitions, range(partitions))
        self.planner = ProducePlanner(
            self.accumulator,
            leader_of=lambda tp: self.leader,
            capacity_of=lambda broker: self.capacity,
            idempotent=settings.enable_idempotence,
            request_bytes_max=settings.max_request_size,
        )
        self.planner.producer_id = ProducerId(producer_id=7, producer_epoch=0)

    def _wake(self) -> None:
        self.wake_count += 1

    def send(
        self, value: bytes = b"v", partition: int | None = None, topic: TopicQueues | None = None
    ) -> Delivery | None:
        queues = topic or self.topic
        queue = None if partition is None else queues.queues[partition]
        with self.accumulator.lock:
            return self.accumulator.append(queues, queue, 5, None, value, ())

    def plan(self) -> ProducePlan:
        self.accumulator.collect(self.clock.now)
        with self.accumulator.lock:
            return self.planner.plan(self.clock.now)

    def sent(self) -> list[list[ProducerBatch]]:
        return [request.batches for request in self.plan().requests]

    def acknowledge(self, batch: ProducerBatch) -> None:
        with self.accumulator.lock:
            queue = self.accumulator.queue_of(batch)
            queue.answered(batch, AttemptResult(code=ErrorCode.NONE), may_retry=True)
            self.accumulator.release(batch)
            self.accumulator.mark(queue)
        batch.settle(base_offset=0)


@pytest.fixture
def bench(producer_settings: Settings, clock: Any, chance: Any) -> Callable[..., Bench]:
    def make(partitions: int = 1, **given: Any) -> Bench:
        return Bench(producer_settings(**given), clock, chance, partitions)

    return make


def values(batch: ProducerBatch) -> list[bytes | None]:
    return [record.value for record in decode_batch(batch.encode())]


def test_records_wait_in_one_batch_until_they_have_lingered(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=10)
    desk.send(b"1")
    desk.send(b"2")
    assert desk.sent() == []
    assert desk.accumulator.next_due() == desk.clock.now + 0.010
    desk.clock.now += 0.010
    ((batch,),) = desk.sent()
    assert values(batch) == [b"1", b"2"]


def test_without_linger_records_wait_only_for_the_loop_to_turn(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0)
    desk.send(b"1")
    desk.send(b"2")
    assert [values(batch) for (batch,) in desk.sent()] == [[b"1", b"2"]]


def test_a_full_batch_goes_at_once(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=10_000, batch_size=200)
    for number in range(5):
        desk.send(b"%d" % number * 60, partition=0)
    ((batch,),) = desk.sent()
    assert batch.record_count == 2


def test_what_has_lingered_goes_on_filling_while_the_broker_is_busy(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=1)
    desk.capacity = 0
    desk.send(b"1")
    desk.clock.now += 1
    assert desk.sent() == []
    desk.send(b"2")
    desk.capacity = 1
    ((batch,),) = desk.sent()
    assert batch.record_count == 2


def test_a_record_above_batch_size_gets_a_batch_of_its_own(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0, batch_size=100, enable_idempotence=False, acks=1)
    for value in (b"small", b"x" * 5_000, b"small"):
        desk.send(value)
    assert [len(values(batch)[0] or b"") for (batch,) in desk.sent()] == [5, 5_000, 5]


def test_a_record_above_max_request_size_is_refused_at_once(bench: Callable[..., Bench]) -> None:
    desk = bench(max_request_size=2_000)
    with pytest.raises(KafkaError, match=r"above max\.request\.size") as caught:
        desk.send(b"x" * 2_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert desk.send(b"x" * 1_000) is not None


def test_memory_is_reserved_by_the_batch_and_comes_back_when_it_is_answered(
    bench: Callable[..., Bench],
) -> None:
    desk = bench(partitions=3, linger_ms=0, batch_size=1_000, buffer_memory=2_000)
    assert desk.send(partition=0) is not None
    assert desk.send(partition=1) is not None
    assert desk.send(partition=2) is None
    assert desk.send(partition=1) is not None, "an open batch has its memory already"
    answers: list[str] = []
    with desk.accumulator.lock:
        desk.accumulator.watch_for_room(lambda: answers.append("room"))
    (batches,) = desk.sent()
    desk.acknowledge(batches[0])
    assert answers == ["room"]
    assert desk.send(partition=2) is not None


def test_nothing_lingers_while_someone_waits_for_memory(bench: Callable[..., Bench]) -> None:
    desk = bench(partitions=2, linger_ms=60_000, batch_size=1_000, buffer_memory=1_000)
    desk.send(partition=0)
    assert desk.sent() == []
    with desk.accumulator.lock:
        desk.accumulator.watch_for_room(lambda: None)
    assert len(desk.sent()) == 1


def test_a_bad_record_costs_no_memory(bench: Callable[..., Bench]) -> None:
    desk = bench(batch_size=1_000, buffer_memory=1_000)
    with pytest.raises(TypeError):
        desk.send(3.5)  # type: ignore[arg-type]
    assert desk.send(b"good") is not None


def test_the_loop_is_woken_for_the_first_record_and_for_full_batches_only(
    bench: Callable[..., Bench],
) -> None:
    desk = bench(linger_ms=10, batch_size=300)
    desk.send()
    assert desk.wake_count == 1
    desk.plan()
    desk.send()
    assert desk.wake_count == 1
    for _ in range(40):
        desk.send()
    assert desk.wake_count == 2, "one wake-up until the loop has turned"


def test_records_without_key_stay_together_for_about_a_batch_and_then_move_on(
    bench: Callable[..., Bench], chance: Any
) -> None:
    desk = bench(partitions=4, linger_ms=0, batch_size=1_000)
    placement: list[int] = []
    for number in range(80):
        chance.value = (number % 7) / 7
        delivery = desk.send(b"x" * 100)
        assert delivery is not None
        placement.append(delivery.batch.topic_partition.partition)
    runs = sum(1 for before, after in itertools.pairwise(placement) if before != after)
    assert 4 <= runs <= 10
    assert len(Counter(placement)) >= 3


def test_partitions_without_a_leader_get_no_records_without_key(
    bench: Callable[..., Bench], chance: Any
) -> None:
    desk = bench(partitions=4, batch_size=200)
    desk.accumulator.update("t", 4, [2])
    for number in range(20):
        chance.value = number / 20
        delivery = desk.send(b"x" * 150)
        assert delivery is not None
        assert delivery.batch.topic_partition.partition == 2


def test_what_waits_longer_than_the_parts_of_a_batch_expires_before_them(bench: Callable[..., Bench]) -> None:
    desk = bench(2, linger_ms=0, delivery_timeout_ms=120_000)
    waiting = desk.send(partition=0)
    assert waiting is not None
    desk.topic.queues[0].not_before = desk.clock.now + 1_000
    desk.clock.now += 100
    for _ in range(2):
        desk.send(partition=1)
    ((large,),) = desk.sent()
    large.encode()
    parts = split_batch(large, Codec.NONE, None)
    with desk.accumulator.lock:
        too_large = AttemptResult(code=ErrorCode.MESSAGE_TOO_LARGE)
        desk.topic.queues[1].answered(large, too_large, may_retry=True)
        desk.accumulator.replace(large, parts)
    desk.clock.now += 50
    assert desk.accumulator.collect(desk.clock.now) == [waiting.batch]


def test_a_topic_grows_and_keeps_its_queues(bench: Callable[..., Bench]) -> None:
    desk = bench(partitions=1)
    first = desk.topic.queues[0]
    desk.accumulator.update("t", 3, range(3))
    assert [queue.topic_partition.partition for queue in desk.topic.queues] == [0, 1, 2]
    assert desk.topic.queues[0] is first


def test_a_topic_no_one_sends_to_rests_and_keeps_its_numbers(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0)
    desk.send()
    ((batch,),) = desk.sent()
    desk.clock.now += 10
    assert desk.accumulator.rest(desk.clock.now) == [], "something is still on its way"
    desk.acknowledge(batch)
    assert desk.accumulator.rest(desk.clock.now) == ["t"]
    assert desk.accumulator.topics == {}
    again = desk.accumulator.learn("t", 1, [0])
    assert again is desk.topic
    desk.send()
    ((batch,),) = desk.sent()
    assert batch.identity is not None
    assert batch.identity.base_sequence == 1


def test_a_record_that_comes_while_its_topic_is_laid_to_rest_wakes_it(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0)
    desk.clock.now += 10
    assert desk.accumulator.rest(desk.clock.now) == ["t"]
    desk.send()
    assert (list(desk.accumulator.topics), desk.accumulator.revived) == (["t"], ["t"])
    assert len(desk.sent()) == 1


def test_a_flush_lets_nothing_linger_and_names_what_is_to_be_waited_for(bench: Callable[..., Bench]) -> None:
    desk = bench(partitions=2, linger_ms=60_000)
    desk.send(partition=0)
    desk.send(partition=1)
    waiting = desk.accumulator.hurry()
    assert [batch for batches in desk.sent() for batch in batches] == waiting
    assert len(waiting) == 2


def test_batches_expire_in_the_order_of_their_creation_wherever_they_are(bench: Callable[..., Bench]) -> None:
    desk = bench(partitions=2, linger_ms=0, delivery_timeout_ms=30_000, request_timeout_ms=30_000)
    desk.send(partition=0)
    ((flying,),) = desk.sent()
    desk.leader = None
    desk.clock.now += 10
    desk.send(partition=1)
    desk.clock.now += 20
    assert desk.accumulator.collect(desk.clock.now) == [flying]
    desk.accumulator.abandon(flying)
    desk.clock.now += 10
    (waiting,) = desk.accumulator.collect(desk.clock.now)
    desk.accumulator.abandon(waiting)
    assert desk.accumulator.unsettled_count() == 0
    assert not desk.accumulator.ready


def test_after_a_failure_no_record_is_taken_and_all_that_wait_are_named(bench: Callable[..., Bench]) -> None:
    desk = bench()
    delivery = desk.send()
    failure = RuntimeError("broken")
    (doomed,) = desk.accumulator.fail_all(failure)
    assert delivery is not None
    assert doomed is delivery.batch
    with pytest.raises(RuntimeError, match="broken"):
        desk.send()


# -- plans


def test_a_request_has_one_batch_of_each_partition_and_keeps_to_its_size(bench: Callable[..., Bench]) -> None:
    desk = bench(partitions=6, linger_ms=0, batch_size=4_000, max_request_size=10_000)
    for number in range(6):
        desk.send(b"x" * 3_000, partition=number)
    requests = desk.plan().requests
    assert [len(request.batches) for request in requests] == [3, 3]
    assert all(request.size_bytes <= 10_000 for request in requests)


def test_a_broker_gets_no_more_requests_than_it_has_capacity(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0, batch_size=200, enable_idempotence=False, acks=1)
    for number in range(10):
        desk.send(b"%d" % number * 100, partition=0)
    desk.capacity = 3
    assert len(desk.plan().requests) == 3
    desk.capacity = 0
    assert desk.plan().requests == []


def test_partitions_without_leader_or_number_are_reported_and_not_sent(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0)
    desk.send()
    desk.leader = None
    assert (bool(desk.plan().leaderless), desk.plan().requests) == (True, [])
    desk.leader = 1
    desk.planner.producer_id = None
    assert (desk.plan().producer_id_wanted, desk.plan().requests) == (True, [])
    desk.planner.producer_id = ProducerId(producer_id=7, producer_epoch=0)
    assert len(desk.plan().requests) == 1


def test_a_pause_is_waited_for(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0)
    desk.send()
    desk.topic.queues[0].not_before = desk.clock.now + 3
    plan = desk.plan()
    assert (plan.requests, plan.retry_at) == ([], desk.clock.now + 3)


def test_a_refused_producer_id_is_not_used_again(bench: Callable[..., Bench]) -> None:
    desk = bench(linger_ms=0)
    desk.send()
    desk.topic.queues[0].refused_producer_id = 7
    assert desk.plan().producer_id_wanted
    desk.planner.producer_id = ProducerId(producer_id=8, producer_epoch=0)
    ((batch,),) = desk.sent()
    assert batch.identity is not None
    assert batch.identity.producer_id == 8


# -- splitting


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_split_batch_keeps_its_records_and_every_delivery_finds_its_own(
    bench: Callable[..., Bench], codec: Codec
) -> None:
    desk = bench(linger_ms=0)
    deliveries = [desk.send(b"%d" % number) for number in range(5)]
    ((batch,),) = desk.sent()
    batch.encode()
    parts = split_batch(batch, codec, None)
    batch.split_into(parts)
    assert [values(part) for part in parts] == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert not batch.done
    parts[0].settle(base_offset=100)
    assert not batch.done
    parts[1].settle(error=KafkaError(ErrorCode.INVALID_RECORD))
    assert batch.done
    assert [delivery.result().offset for delivery in deliveries[:2] if delivery] == [100, 101]
    for delivery in deliveries[2:]:
        assert delivery is not None
        assert isinstance(delivery.exception(), KafkaError)
