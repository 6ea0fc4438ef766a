"""Which record is handled when, where it goes when it fails, and what is committed: without a broker or a clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.dead_letters.headers import Origin
from odradek.dead_letters.letter import read_letter
from odradek.model.ids import TopicPartition
from odradek.records import TimestampType
from odradek.retry import Reject, RetryMode, RetryPolicy
from odradek.retry.routing import Forward, Output, ReceivedRecord, RetryInPlace, Routing
from odradek.retry.turn import HandlingTurn
from odradek.retry.waiting_partitions import WaitingPartitions

NOW = 1_000_000
FIRST, SECOND, DEAD = "orders.billing.retry-1s", "orders.billing.retry-10s", "orders.billing.dlq"


def record(offset: int = 0, *, topic: str = "orders", partition: int = 0, **more: Any) -> ConsumerRecord:
    fields: dict[str, Any] = {
        "timestamp_ms": 77,
        "timestamp_type": TimestampType.CREATE_TIME,
        "key": b"k",
        "value": b"\xff%d" % offset,
        "headers": (("trace", b"\x01"),),
        "leader_epoch": -1,
    }
    return ConsumerRecord(topic=topic, partition=partition, offset=offset, **{**fields, **more})


def landed(step: Forward | RetryInPlace, offset: int = 5) -> ConsumerRecord:
    """A record that was handed over, as it is read from where it went."""
    assert isinstance(step, Forward)
    return record(
        offset,
        topic=step.topic,
        partition=step.partition,
        key=step.key,
        value=step.value,
        headers=step.headers,
    )


def routing(**policy: Any) -> Routing:
    return Routing(RetryPolicy(**{"delays": ("1s", "10s"), **policy}), "billing", ["orders"])


def fail(
    routes: Routing, received: ReceivedRecord, error: Exception, now_ms: int = NOW
) -> Forward | RetryInPlace:
    return routes.failed(received, error, "price", now_ms)


def test_a_record_waits_longer_each_time_and_then_is_dead() -> None:
    routes = routing()
    received = routes.received(record(41, partition=3))
    topics, dues = [], []
    for _ in range(3):
        step = fail(routes, received, ValueError("no"))
        assert isinstance(step, Forward)
        topics.append(step.topic)
        received = routes.received(landed(step)) if not step.is_dead else received
        dues.append(received.due_ms)
    assert topics == [FIRST, SECOND, DEAD]
    assert dues[:2] == [NOW + 1_000, NOW + 10_000]
    letter = read_letter(landed(step))
    assert letter.origin == Origin(topic="orders", partition=3, offset=41, timestamp_ms=77)
    assert (letter.by.group, letter.by.delivery_count) == ("billing", 3)
    assert (letter.failure.exception, letter.failure.message, letter.failure.stage) == (
        "ValueError",
        "no",
        "price",
    )
    assert (letter.key, letter.value, letter.own_headers) == (b"k", b"\xff41", (("trace", b"\x01"),))
    assert "__dlq.errors.retry.timestamp" not in dict(step.headers)


def test_a_handler_sees_the_record_as_it_was_whatever_it_went_through() -> None:
    routes = routing()
    original = record(41, partition=3)
    again = routes.received(landed(fail(routes, routes.received(original), ValueError())))
    assert again.record == original
    assert (again.place, again.offset, again.attempt) == (TopicPartition(FIRST, 3), 5, 2)


@pytest.mark.parametrize("error", [Reject("never"), KeyError("x")])
def test_what_no_second_try_mends_is_dead_at_once(error: Exception) -> None:
    routes = routing(not_retried=("LookupError",))
    step = fail(routes, routes.received(record()), error)
    assert isinstance(step, Forward)
    assert (step.topic, step.is_dead) == (DEAD, True)


def test_equal_delays_share_a_topic() -> None:
    routes = routing(delays=("1s", "1s", "1s"))
    assert routes.subscription() == ["orders", FIRST]
    received, topics = routes.received(record()), []
    for _ in range(4):
        step = fail(routes, received, ValueError())
        assert isinstance(step, Forward)
        topics.append(step.topic)
        received = routes.received(landed(step)) if not step.is_dead else received
    assert topics == [FIRST, FIRST, FIRST, DEAD]


def test_topics_of_former_delays_are_known_by_their_names() -> None:
    routes = Routing(RetryPolicy(delays=("1s", "10s")), "billing", ["orders", "refunds"])
    former = ["orders.billing.retry-2m", "refunds.billing.retry-1s5"]
    theirs = [
        "orders.shipping.retry-2m",
        "ordersXbilling.retry-2m",
        "orders.billing.retry-",
        "orders.billing.retry-soon",
    ]
    assert routes.former_retry_topics([*routes.all_topics(), *former, *theirs]) == former[:1]
    by_index = Routing(
        RetryPolicy(delays=("1s",), retry_topic="{topic}-retry-{index}"), "billing", ["orders"]
    )
    assert by_index.former_retry_topics(["orders-retry-0", "orders-retry-2"]) == ["orders-retry-2"]
    without = Routing(RetryPolicy(delays=(), retry_topic="{group}-retry"), "billing", ["orders", "refunds"])
    assert without.former_retry_topics(["billing-retry", "billing-retry2"]) == ["billing-retry"]


@pytest.mark.parametrize("mode", RetryMode)
@pytest.mark.parametrize("delays", [(), ("1h",), ("1s", "10s", "3m")])
def test_what_waits_in_a_topic_of_a_former_delay_goes_on_with_the_delays_of_now(
    delays: tuple[str, ...], mode: RetryMode
) -> None:
    before = Routing(RetryPolicy(delays=("2s",)), "billing", ["orders"])
    waiting = landed(fail(before, before.received(record(41)), ValueError("no")))
    routes = routing(delays=delays, mode=mode)
    routes.read_former([waiting.topic])
    assert waiting.topic in routes.subscription()
    received = routes.received(waiting)
    assert (str(received.origin), received.due_ms, received.attempt) == ("orders:0:41", NOW + 2_000, 2)
    step = fail(routes, received, ValueError("no"))
    if len(delays) < 2:
        assert isinstance(step, Forward)
        assert step.topic == DEAD
    elif mode is RetryMode.NON_BLOCKING:
        assert isinstance(step, Forward)
        assert step.topic == SECOND
    else:
        assert isinstance(step, RetryInPlace)


def test_a_record_that_someone_put_into_a_retry_topic_is_tried_as_any_other() -> None:
    routes = routing()
    received = routes.received(record(3, topic=SECOND))
    assert (received.attempt, received.due_ms, received.record.topic) == (1, 0, SECOND)
    step = fail(routes, received, ValueError())
    assert isinstance(step, Forward)
    assert step.topic == FIRST


@pytest.mark.parametrize("number", [b"-5", b"9" * 5_000, b"9" * 19, b"1_0", b" 7", b""])
def test_numbers_that_others_wrote_into_our_headers_do_no_harm(number: bytes) -> None:
    routes = routing()
    waiting = landed(fail(routes, routes.received(record(41)), ValueError("no")))
    wrong = {"__dlq.errors.delivery.count", "__dlq.errors.retry.timestamp", "__dlq.errors.timestamp"}
    headers = tuple((name, number if name in wrong else value) for name, value in waiting.headers)
    received = routes.received(waiting._replace(headers=headers))
    assert (str(received.origin), received.attempt, received.due_ms) == ("orders:0:41", 1, 0)
    step = fail(routes, received, ValueError("no"))
    assert isinstance(step, Forward)
    assert step.topic == FIRST


def test_a_redriven_record_with_its_origin_begins_at_its_first_attempt() -> None:
    routes = routing()
    headers = (
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"1"),
        ("__dlq.errors.offset", b"9"),
        ("__dlq.redrive.count", b"1"),
    )
    received = routes.received(record(3, topic=FIRST, headers=headers))
    assert (received.attempt, received.due_ms) == (1, 0)
    assert (received.record.topic, received.record.partition, received.record.offset) == ("orders", 1, 9)
    assert received.record.headers == (("__dlq.redrive.count", b"1"),)


def turn_of(
    routes: Routing, records: list[ConsumerRecord], waiting: WaitingPartitions | None = None
) -> HandlingTurn:
    return HandlingTurn(routes, waiting or WaitingPartitions(), records, Counter())


def test_a_record_that_is_not_due_holds_up_its_partition_and_no_other() -> None:
    routes = routing()
    early = landed(fail(routes, routes.received(record(1)), ValueError()), offset=20)
    behind = early._replace(offset=21)
    other = record(7, partition=1)
    waiting = WaitingPartitions()
    turn = turn_of(routes, [early, behind, other], waiting)
    received = turn.next(NOW)
    assert received is not None
    assert received.record == other
    turn.handled(received)
    assert turn.next(NOW) is None
    place = TopicPartition(FIRST, 0)
    assert turn.held == {place}
    assert turn.rewinds == {place: 20}
    assert turn.positions == {TopicPartition("orders", 1): 8}
    assert waiting.poll_ms(NOW) == 1_000
    assert waiting.poll_ms(NOW + 700) == 300
    assert waiting.due(NOW + 999) == []
    assert waiting.due(NOW + 1_000) == [place]
    assert turn_of(routes, [early], waiting).next(NOW + 1_000) is not None


def test_blocking_retries_keep_the_record_and_those_behind_it_where_they_are() -> None:
    routes = routing(mode=RetryMode.BLOCKING)
    assert routes.subscription() == ["orders"]
    waiting, records = WaitingPartitions(), [record(4), record(5)]
    attempts = []
    for now in (NOW, NOW + 1_000, NOW + 11_000):
        assert waiting.due(now) == ([TopicPartition("orders", 0)] if now > NOW else [])
        turn = turn_of(routes, records, waiting)
        received = turn.next(now)
        assert received is not None
        attempts.append(received.attempt)
        step = turn.failed(received, ValueError(), "price", now)
        if isinstance(step, RetryInPlace):
            assert turn.next(now) is None
            assert (turn.positions, turn.to_send) == ({}, [])
            assert turn.rewinds == {TopicPartition("orders", 0): 4}
    assert attempts == [1, 2, 3]
    assert turn.to_send == [step]
    assert turn.positions == {TopicPartition("orders", 0): 5}
    following = turn.next(now)
    assert following is not None
    assert (following.offset, following.attempt) == (5, 1)


def test_what_a_turn_has_no_time_for_is_read_again() -> None:
    routes = routing()
    turn = turn_of(routes, [record(0), record(1), record(8, partition=1), record(2)])
    received = turn.next(NOW)
    assert received is not None
    turn.handled(received, [Output(topic="receipts", value=b"r")])
    turn.leave_the_rest()
    assert turn.next(NOW) is None
    assert turn.rewinds == {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 8}
    assert turn.held == set()
    assert turn.to_send == [Output(topic="receipts", value=b"r")]


def test_partitions_that_went_to_another_member_are_forgotten() -> None:
    routes = routing(mode=RetryMode.BLOCKING)
    waiting = WaitingPartitions()
    turn = turn_of(routes, [record(4)], waiting)
    received = turn.next(NOW)
    assert received is not None
    turn.failed(received, ValueError(), "price", NOW)
    waiting.forget([received.place])
    assert waiting.due(NOW + 60_000) == []
    fresh = turn_of(routes, [record(4)], waiting).next(NOW)
    assert fresh is not None
    assert fresh.attempt == 1


class Broker:
    """Logs of partitions and a group's offsets: enough to run turns until all is done."""

    def __init__(self, routes: Routing) -> None:
        self.routes = routes
        self.logs: dict[TopicPartition, list[ConsumerRecord]] = {}
        self.positions: dict[TopicPartition, int] = {}

    def append(self, topic: str, partition: int, **fields: Any) -> None:
        log = self.logs.setdefault(TopicPartition(topic, partition), [])
        log.append(record(len(log), topic=topic, partition=partition, **fields))

    def poll(self, paused: set[TopicPartition], count: int) -> list[ConsumerRecord]:
        wanted = set(self.routes.subscription())
        records = [
            consumer_record
            for place, log in self.logs.items()
            if place.topic in wanted and place not in paused
            for consumer_record in log[self.positions.get(place, 0) :][:count]
        ]
        return records[: 3 * count]

    def run(self, fails: dict[bytes, int]) -> tuple[list[bytes], list[bytes]]:
        """`fails`: how often each value fails. Returns values in the order in which they were handled, and the dead."""
        handled: list[bytes] = []
        waiting, paused, now, idle = WaitingPartitions(), set[TopicPartition](), NOW, 0
        left = dict(fails)
        while idle < 3:
            paused -= set(waiting.due(now))
            records = self.poll(paused, 2)
            idle = 0 if records else idle + (not paused)
            turn = HandlingTurn(self.routes, waiting, records, Counter())
            while (received := turn.next(now)) is not None:
                value = received.record.value
                if left.get(value, 0):
                    left[value] -= 1
                    turn.failed(received, ValueError(), "x", now)
                else:
                    handled.append(value)
                    turn.handled(received)
            paused |= turn.held
            self.positions.update(turn.positions)
            for step in turn.to_send:
                assert isinstance(step, Forward)
                self.append(step.topic, step.partition, key=step.key, value=step.value, headers=step.headers)
            now += max(1, waiting.poll_ms(now))
        dead = [
            consumer_record.value
            for place, log in self.logs.items()
            if place.topic == DEAD
            for consumer_record in log
        ]
        return handled, dead


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), max_size=12),
    st.sampled_from(RetryMode),
)
@settings(max_examples=60)
def test_each_record_is_handled_once_or_dead_once(sent: list[tuple[int, int]], mode: RetryMode) -> None:
    broker = Broker(routing(mode=mode))
    fails = {}
    for number, (partition, times) in enumerate(sent):
        value = b"%d.%d" % (partition, number)
        fails[value] = times
        broker.append("orders", partition, value=value)
    handled, dead = broker.run(fails)
    assert Counter(handled) == Counter(value for value, times in fails.items() if times <= 2)
    assert Counter(dead) == Counter(value for value, times in fails.items() if times > 2)
    if mode is RetryMode.BLOCKING:
        for partition in (b"0.", b"1."):
            mine = [value for value in handled if value.startswith(partition)]
            assert mine == sorted(mine, key=lambda value: int(value[2:]))
