"""`odradek.retry` against a real broker: what fails is tried again after its delay, and is kept when nothing helps."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop import logins
from tests.kit.waiting import eventually

from odradek import (
    Admin,
    ConfigError,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from odradek.dead_letters.letter import read_letter
from odradek.retry import AsyncRetryConsumer, Output, Reject, RetryConsumer, RetryMode, RetryPolicy
from odradek.testing import LocalBroker

MakeTopic = Callable[..., str]
SECONDS = 40.0
_numbers = itertools.count()
_EXAMPLE = Path(__file__).parents[3] / "examples" / "retries" / "billing.py"


@pytest.fixture
def group() -> str:
    return f"g{time.time_ns()}-{next(_numbers)}"


def send(bootstrap: str, topic: str, *values: bytes, partition: int = 0, **more: Any) -> None:
    with Producer(**logins.ours(bootstrap)) as producer:
        for value in values:
            producer.send(topic, value, partition=partition, **more)


def records_of(bootstrap: str, topic: str) -> list[Any]:
    """What a read_committed consumer sees."""
    records: list[Any] = []
    with Consumer(
        **logins.ours(bootstrap), isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            records += consumer.poll(0.5)
    return records


def until(consumer: RetryConsumer, handler: Any, done: Callable[[], bool]) -> None:
    """Handle records until `done`; what is handled then is committed."""
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, f"not done: {consumer.counts}"
        consumer.handle_some(handler, 0.2)


def test_what_fails_goes_through_the_retry_topics_and_the_rest_goes_on(
    bootstrap: str, topic: MakeTopic, group: str
) -> None:
    orders = topic(partitions=2)
    send(bootstrap, orders, b"good", b"twice", b"never", b"last", key=b"\xfe", headers=[("trace", b"\x01")])
    seen: list[tuple[bytes, int, float]] = []

    def handle(record: Any) -> None:
        assert (record.topic, record.partition, record.key) == (orders, 0, b"\xfe")
        assert record.headers == (("trace", b"\x01"),)
        seen.append((record.value, consumer.attempt, time.monotonic()))
        if record.value == b"never" or (record.value == b"twice" and consumer.attempt < 3):
            raise ValueError(f"no {record.value.decode()}")

    policy = RetryPolicy(delays=("100ms", "400ms"))
    with RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy) as consumer:
        until(consumer, handle, lambda: consumer.counts.total() == 8)
        assert consumer.counts == {"handled": 3, "retried": 4, "dead_lettered": 1}
    order = [value for value, attempt, _ in seen if attempt == 1]
    assert order == [b"good", b"twice", b"never", b"last"]
    tries = [(attempt, at) for value, attempt, at in seen if value == b"never"]
    assert [attempt for attempt, _ in tries] == [1, 2, 3]
    [(_, first), (_, second), (_, third)] = tries
    assert (second - first >= 0.1, third - second >= 0.4) == (True, True)
    [letter] = map(read_letter, records_of(bootstrap, f"{orders}.{group}.dlq"))
    assert (letter.value, letter.failure.message, letter.failure.stage) == (b"never", "no never", "handle")
    assert letter.origin is not None
    assert (letter.origin.topic, letter.origin.offset, letter.by.delivery_count) == (orders, 2, 3)
    with Admin(**logins.ours(bootstrap)) as admin:
        there = admin.describe_topics([f"{orders}.{group}.retry-100ms", f"{orders}.{group}.dlq"])
    assert {len(topic_description.partitions) for topic_description in there.values()} == {2}


def test_blocking_retries_keep_the_order(bootstrap: str, topic: MakeTopic, group: str) -> None:
    orders = topic()
    send(bootstrap, orders, b"a", b"bad", b"c", b"d")
    seen: list[bytes] = []

    def handle(record: Any) -> None:
        seen.append(record.value)
        if record.value == b"bad" and consumer.attempt < 3:
            raise ValueError("not yet")

    policy = RetryPolicy(delays=("50ms", "100ms"), mode=RetryMode.BLOCKING)
    with RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy) as consumer:
        until(consumer, handle, lambda: consumer.counts["handled"] == 4)
    assert seen == [b"a", b"bad", b"bad", b"bad", b"c", b"d"]
    with RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy) as consumer:
        for _ in range(3):
            assert consumer.handle_some(handle, 0.2) == 0  # all was committed


def test_the_member_stays_in_its_group_while_a_record_waits(
    bootstrap: str, topic: MakeTopic, group: str
) -> None:
    """The delay is longer than the session, and than max.poll.interval.ms."""
    orders = topic()
    send(bootstrap, orders, b"later")
    policy = RetryPolicy(delays=("2s",), mode=RetryMode.BLOCKING)

    def handle(_: Any) -> None:
        if consumer.attempt == 1:
            raise ValueError("not yet")

    timing: Any = {"session_timeout_ms": 6_000, "max_poll_interval_ms": 1_500}
    with RetryConsumer(
        topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy, **timing
    ) as consumer:
        until(consumer, handle, lambda: consumer.counts["handled"] == 1)
        assert consumer.counts == {"handled": 1, "retried": 1}
        with Admin(**logins.ours(bootstrap)) as admin:
            assert admin.describe_groups([group])[group].state == "Stable"


def test_bytes_that_cannot_be_decoded_are_dead_at_once_and_untouched(
    bootstrap: str, topic: MakeTopic, group: str
) -> None:
    orders = topic()
    send(bootstrap, orders, b"7", b"\xff seven", b"8")
    numbers: list[int] = []

    def handle(record: Any) -> None:
        numbers.append(record.value)

    with RetryConsumer(
        topics=[orders], **logins.ours(bootstrap), group_id=group, value_deserializer=int
    ) as consumer:
        until(consumer, handle, lambda: consumer.counts.total() == 3)
    assert numbers == [7, 8]
    [letter] = map(read_letter, records_of(bootstrap, f"{orders}.{group}.dlq"))
    assert (letter.value, letter.failure.stage, letter.by.delivery_count) == (b"\xff seven", "value", 1)


_KILLED = """
import json, os, sys
from odradek.retry import Output, RetryConsumer, RetryPolicy

login, orders, receipts, group, moment, at = sys.argv[1:]
policy = RetryPolicy(delays=("50ms",), exactly_once=True)
consumer = RetryConsumer(
    topics=[orders], **json.loads(login), group_id=group, group_instance_id="one", policy=policy,
    max_poll_records=20, session_timeout_ms=6_000,
)
hand_over, count = consumer._hand_over, 0

def killing(turn):
    global count
    count += bool(turn.positions)
    if count == int(at):
        if moment == "before":
            consumer._producer.begin_transaction()
            consumer._send_all(turn)
            consumer._producer.flush()
            os._exit(9)
        hand_over(turn)
        os._exit(9)
    hand_over(turn)

def handle(record):
    if int(record.value) % 5 == 0 and consumer.attempt == 1:
        raise ValueError("try again")
    if int(record.value) % 20 == 0:
        raise ValueError("never")
    return [Output(topic=receipts, value=record.value)]

consumer._hand_over = killing
consumer.run(handle)
"""


class NoText(Exception):
    """Its text cannot be had: libraries of HTTP clients have such classes."""

    def __str__(self) -> str:
        raise AttributeError("response")

    __repr__ = __str__


def test_tombstones_and_exceptions_without_a_text_hold_up_nothing(
    bootstrap: str, topic: MakeTopic, group: str
) -> None:
    orders = topic()
    send(bootstrap, orders, b"1", b"0", b"3")
    with Producer(**logins.ours(bootstrap)) as producer:
        producer.send(orders, None)
        producer.send(orders, b"5")
    handled: list[Any] = []

    def handle(record: Any) -> None:
        if record.value == 0:
            raise NoText
        handled.append(record.value)

    with RetryConsumer(
        topics=[orders],
        **logins.ours(bootstrap),
        group_id=group,
        key_deserializer=json.loads,
        value_deserializer=json.loads,
        policy=RetryPolicy(delays=()),
    ) as consumer:
        until(consumer, handle, lambda: consumer.counts["handled"] == 4)
    assert handled == [1, 3, None, 5]
    (letter,) = map(read_letter, records_of(bootstrap, f"{orders}.{group}.dlq"))
    assert letter.value == b"0"
    assert letter.failure.exception.endswith("NoText")
    assert "str() raised AttributeError" in letter.failure.message


@pytest.mark.parametrize("moment", ["before", "after"])
def test_handing_over_exactly_once_survives_being_killed(
    bootstrap: str, topic: MakeTopic, group: str, moment: str
) -> None:
    orders, receipts = topic(), topic()
    send(bootstrap, orders, *(b"%d" % number for number in range(100)))
    for at in ("2", "1"):
        words = [
            sys.executable,
            "-c",
            _KILLED,
            json.dumps(logins.ours(bootstrap)),
            orders,
            receipts,
            group,
            moment,
            at,
        ]
        assert subprocess.run(words, check=False, timeout=90).returncode == 9

    def handle(record: Any) -> list[Output]:
        if int(record.value) % 20 == 0:
            raise Reject("never")
        return [Output(topic=receipts, value=record.value)]

    dead = f"{orders}.{group}.dlq"
    policy = RetryPolicy(delays=("50ms",), exactly_once=True)
    more: Any = {"group_id": group, "group_instance_id": "one", "session_timeout_ms": 6_000}
    with RetryConsumer(topics=[orders], **logins.ours(bootstrap), policy=policy, **more) as consumer:
        until(
            consumer,
            handle,
            lambda: len(records_of(bootstrap, receipts)) >= 95 and consumer.handle_some(handle) == 0,
        )
        until(consumer, handle, lambda: len(records_of(bootstrap, dead)) >= 5)
    done = Counter(int(record.value) for record in records_of(bootstrap, receipts))
    assert done == Counter(number for number in range(100) if number % 20)
    assert Counter(int(record.value) for record in records_of(bootstrap, dead)) == Counter(range(0, 100, 20))


def test_a_member_that_was_too_slow_hands_nothing_over(bootstrap: str, topic: MakeTopic, group: str) -> None:
    """Its group gave its partitions away: what it did is aborted, and done again."""
    orders, receipts = topic(), topic()
    send(bootstrap, orders, b"a", b"b")
    was_slow: list[bytes] = []

    def handle(record: Any) -> list[Output]:
        if not was_slow:
            was_slow.append(record.value)
            with Admin(**logins.ours(bootstrap)) as admin:
                eventually(lambda: not admin.describe_groups([group])[group].members)
        return [Output(topic=receipts, value=record.value)]

    policy = RetryPolicy(exactly_once=True)
    timing: Any = {"max_poll_interval_ms": 1_000, "session_timeout_ms": 6_000}
    with RetryConsumer(
        topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy, **timing
    ) as consumer:
        until(consumer, handle, lambda: len(records_of(bootstrap, receipts)) >= 2)
        assert consumer.counts["handled"] >= 3
    assert [record.value for record in records_of(bootstrap, receipts)] == [b"a", b"b"]


async def test_the_asynchronous_face_does_the_same(bootstrap: str, topic: MakeTopic, group: str) -> None:
    orders, receipts = topic(), topic()
    send(bootstrap, orders, b"a", b"bad", b"c")
    config = {
        **logins.librdkafka(bootstrap),
        "topics": orders,
        "group.id": group,
        "retry.delays": "50ms",
        "delivery": "exactly_once",
        "errors.deadletterqueue.topic.name": "{topic}-dlt",
        "retry.topic.name": "{topic}-retry-{index}",
    }

    async def handle(record: Any) -> list[Output]:
        await asyncio.sleep(0)
        if record.value == b"bad":
            raise ValueError("no")
        if consumer.counts["handled"] == 1:
            consumer.stop()
        return [Output(topic=receipts, value=record.value)]

    async with AsyncRetryConsumer.from_config(config) as consumer:
        async with asyncio.timeout(SECONDS):
            await consumer.run(handle)
            while consumer.counts["dead_lettered"] == 0:
                await consumer.handle_some(handle, 0.1)
    assert [record.value for record in records_of(bootstrap, receipts)] == [b"a", b"c"]
    assert [record.value for record in records_of(bootstrap, f"{orders}-dlt")] == [b"bad"]


def test_a_thread_can_stop_it(bootstrap: str, topic: MakeTopic, group: str) -> None:
    orders = topic()
    send(bootstrap, orders, b"a")
    with RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group) as consumer:
        thread = threading.Thread(target=consumer.run, args=[lambda _: consumer.stop()])
        thread.start()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert consumer.counts["handled"] == 1


def test_a_topic_that_is_not_there_is_named(bootstrap: str, group: str) -> None:
    with (
        RetryConsumer(topics=["no-such-topic"], **logins.ours(bootstrap), group_id=group) as consumer,
        pytest.raises(ConfigError, match="there is no topic no-such-topic"),
    ):
        consumer.handle_some(print)


def test_what_waits_is_tried_again_although_the_delays_are_others_now(
    bootstrap: str, topic: MakeTopic, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    orders = topic()
    send(bootstrap, orders, b"a")
    for name in ("{topic}.{group}.retry-{delay}", "{topic}-retry-{delay}"):
        policy = RetryPolicy(delays=("50ms",), retry_topic=name)
        with RetryConsumer(
            topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy
        ) as consumer:
            until(consumer, fail_always, lambda: bool(consumer.counts["retried"]))
        send(bootstrap, orders, b"b")
    handled: list[bytes] = []
    policy = RetryPolicy(delays=("1m",))
    with RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy) as consumer:
        until(consumer, lambda record: handled.append(record.value), lambda: len(handled) >= 2)
    assert sorted(handled) == [b"a", b"b"]
    policy = RetryPolicy(delays=("1m",), retry_topic="{topic}-retry-{delay}")
    with RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy) as consumer:
        consumer.handle_some(print)
    assert f"topics_of_former_delays_are_not_read topics={orders}-retry-50ms" in caplog.text


def test_a_record_as_large_as_its_topic_takes_is_tried_again_and_kept(
    bootstrap: str, topic: MakeTopic, group: str
) -> None:
    orders = topic(**{"max.message.bytes": "5000000"})
    retry, dead = f"{orders}.{group}.retry-50ms", f"{orders}.{group}.dlq"
    value = os.urandom(5_000_000 - 100)
    with Producer(**logins.ours(bootstrap), max_request_size=6_000_000) as producer:
        producer.send(orders, value)
    with RetryConsumer(
        topics=[orders], **logins.ours(bootstrap), group_id=group, policy=RetryPolicy(delays=("50ms",))
    ) as consumer:
        until(consumer, fail_always, lambda: bool(consumer.counts["dead_lettered"]))
    for name in (retry, dead):
        assert [record.value == value for record in records_of(bootstrap, name)] == [True]


@pytest.mark.parametrize("resources", [["TOPIC:*"], ["TOPIC:orders"]])
def test_a_user_who_may_not_see_settings_gets_topics_with_the_brokers_limit(
    resources: list[str], tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    rules = tmp_path / "rules.json"
    denied = {"effect": "deny", "operations": ["DESCRIBE_CONFIGS"], "resources": resources}
    rules.write_text(json.dumps([denied, {"effect": "allow"}]))
    authorizer = "odradek.broker.access.file_authorizer.FileAuthorizer"
    settings = {"authorizer.class.name": authorizer, "odradek.authorizer.file": str(rules)}
    with LocalBroker(settings) as broker:
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic("orders", 1), NewTopic(f"orders.{group}.dlq", 1)])
        with Producer(broker.address) as producer:
            producer.send("orders", b"a")
        policy = RetryPolicy(delays=("50ms",))
        with RetryConsumer(broker.address, ["orders"], group_id=group, policy=policy) as consumer:
            until(consumer, fail_always, lambda: bool(consumer.counts["dead_lettered"]))
    assert "limits_of_topics_are_unknown topics=" in caplog.text


def sizes_in(bootstrap: str, topic: str) -> Counter[int]:
    return Counter(len(record.value) for record in records_of(bootstrap, topic))


def fail_always(_: Any) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_cannot_be_handed_over_comes_again_and_nothing_behind_it_is_committed(
    bootstrap: str, topic: MakeTopic, group: str, exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The dead-letter topic takes less than the topic: a program that goes on after the error loses nothing."""
    orders, dead = topic(**{"max.message.bytes": "2000000"}), topic(**{"max.message.bytes": "100000"})
    with Producer(**logins.ours(bootstrap), max_request_size=3_000_000) as producer:
        producer.send(orders, b"good")
        policy = RetryPolicy(delays=(), dead_letter_topic=dead, exactly_once=exactly_once)
        consumer = RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group, policy=policy)
        until(consumer, lambda _: None, lambda: bool(consumer.counts["handled"]))
        producer.send(orders, b"large" * 50_000)
    with consumer:
        for _ in range(2):
            with pytest.raises(KafkaError, match=f"{dead}.* Raise max.message.bytes of that topic"):
                until(consumer, fail_always, lambda: False)
            send(bootstrap, orders, b"small")
        with Admin(**logins.ours(bootstrap)) as admin:
            admin.alter_configs({ConfigResource.topic(dead): {"max.message.bytes": "2000000"}})
        until(consumer, fail_always, lambda: sizes_in(bootstrap, dead) >= Counter({250_000: 1, 5: 2}))
    if exactly_once:
        assert sizes_in(bootstrap, dead) == Counter({250_000: 1, 5: 2})
    assert "topic_takes_smaller_records_than_its_source" in caplog.text


def test_a_mistake_of_the_program_is_no_dead_letter(bootstrap: str, topic: MakeTopic, group: str) -> None:
    orders = topic()
    send(bootstrap, orders, b"a")
    wrong: Any = lambda _: ["receipt"]  # noqa: E731
    with (
        RetryConsumer(topics=[orders], **logins.ours(bootstrap), group_id=group) as consumer,
        pytest.raises(TypeError, match="returned str"),
    ):
        until(consumer, wrong, lambda: False)


def test_the_example_bills_each_order_once() -> None:
    done = subprocess.run(
        [sys.executable, str(_EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "billed once: 57" in done.stdout
    assert "dead letters: 3" in done.stdout
    assert "billed once after the redrive: 60" in done.stdout
