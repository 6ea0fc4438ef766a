"""Topics are deleted and made again while a consumer reads them: every record of the topic that lives is read, none twice.

The model is a list of the values that were sent to the topic of now; the broker and the clients are real.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from odradek import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from odradek.retry import RetryConsumer, RetryPolicy
from odradek.testing import LocalBroker

SECONDS: Final = 60.0
POLL_SECONDS_MAX: Final = 30.0
"""A poll that waits for a topic that is gone takes a minute."""
READERS: Final = ("classic", "consumer", "explicit commits", "no group", "columns")
_numbers = itertools.count()

STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 12)),
        st.tuples(st.just("make_again"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["poll", "poll", "commit", "delete", "restart", "pause", "resume"])),
    ),
    min_size=2,
    max_size=8,
)


class Story:
    """One topic through its lives, and a consumer that reads it beside another topic."""

    def __init__(self, address: str, admin: Admin, reader: str) -> None:
        self._address = address
        self._admin = admin
        self._reader = reader
        self.topic = f"story-{next(_numbers)}"
        self._life = 0
        self._partitions = 0
        self._exists = False
        self.sent: list[str] = []
        self._read: list[str] = []
        self.restarted = False
        self.longest_poll_s = 0.0
        admin.create_topics([NewTopic(self.topic + "-other", partitions=1)])
        self._create(2)
        self.consumer = self._start()

    def send(self, count: int) -> None:
        if self._exists:
            with Producer(self._address) as producer:
                for _ in range(count):
                    value = f"{self._life}-{len(self.sent)}"
                    producer.send(self.topic, value.encode(), partition=len(self.sent) % self._partitions)
                    self.sent.append(value)

    def delete(self) -> None:
        if self._exists:
            self._admin.delete_topics([self.topic])
            self._exists = False

    def make_again(self, partitions: int) -> None:
        self.delete()
        self._create(partitions)

    def poll(self, timeout_s: float = 0.05) -> None:
        began = time.monotonic()
        if self._reader == "columns":
            values = self.consumer.poll_arrow(timeout_s)["value"].to_pylist()
        else:
            records = self.consumer.poll(timeout_s)
            values = [record.value for record in records]
            if self._reader == "explicit commits" and records:
                self.consumer.commit(
                    {TopicPartition(at.topic, at.partition): at.offset + 1 for at in records}
                )
        self.longest_poll_s = max(self.longest_poll_s, time.monotonic() - began)
        self._read += [value.decode() for value in values]

    def commit(self) -> None:
        if self._reader != "no group":
            self.consumer.commit()

    def restart(self) -> None:
        self.close()
        self.restarted = True
        self.consumer = self._start()

    def pause(self) -> None:
        self.consumer.pause(self.consumer.assignment())

    def resume(self) -> None:
        self.consumer.resume(self.consumer.paused())

    def close(self) -> None:
        self.consumer.close()

    def values_of_this_life(self) -> list[str]:
        return [value for value in self._read if value.startswith(f"{self._life}-")]

    def read_to_the_end(self) -> None:
        if not self._exists:
            self._create(1)
        self.send(3)
        self.resume()
        if not self._subscribes:
            self._assign(self.consumer)
        deadline = time.monotonic() + SECONDS
        while not set(self.sent) <= set(self.values_of_this_life()):
            assert time.monotonic() < deadline, f"read {self.values_of_this_life()} of {self.sent}"
            self.poll(0.2)
        self.poll()

    @property
    def _subscribes(self) -> bool:
        return self._reader in ("classic", "consumer", "columns")

    def _create(self, partitions: int) -> None:
        self._admin.create_topics([NewTopic(self.topic, partitions=partitions)])
        self._life, self._partitions, self._exists, self.sent = self._life + 1, partitions, True, []

    def _start(self) -> Consumer:
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False}
        if self._reader != "no group":
            options["group_id"] = self.topic
        if self._subscribes:
            options["auto_commit_interval_ms"] = 1
            options |= (
                {}
                if self._reader == "consumer"
                else {"group_protocol": "classic", "heartbeat_interval_ms": 100}
            )
        else:
            options["enable_auto_commit"] = False
        consumer = Consumer(self._address, **options)
        if not self._subscribes:
            self._assign(consumer)
            return consumer
        consumer.subscribe([self.topic, self.topic + "-other"])
        self.consumer = consumer
        while not consumer.assignment():
            self.poll()
        return consumer

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign([TopicPartition(self.topic, number) for number in range(self._partitions)])


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Admin]]:
    quick = {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    with ExitStack() as stack:
        broker = stack.enter_context(LocalBroker(quick))
        yield broker.address, stack.enter_context(Admin(broker.address))


@pytest.mark.parametrize("reader", READERS)
@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
@example(steps=[("send", 10), ("poll",), ("make_again", 2), ("send", 11), ("commit",), ("poll",)])
@example(steps=[("send", 4), ("poll",), ("pause",), ("make_again", 1), ("send", 6), ("commit",), ("resume",)])
@example(steps=[("send", 4), ("poll",), ("delete",), ("poll",), ("commit",), ("poll",)])
def test_every_record_of_the_topic_that_lives_is_read_and_none_twice(
    server: tuple[str, Admin], reader: str, steps: list[tuple[Any, ...]]
) -> None:
    address, admin = server
    story = Story(address, admin, reader)
    try:
        for name, *arguments in steps:
            getattr(story, name)(*arguments)
        story.read_to_the_end()
        values = story.values_of_this_life()
        assert set(values) == set(story.sent)
        if not story.restarted:
            assert len(values) == len(story.sent), "records came twice"
        assert story.longest_poll_s < POLL_SECONDS_MAX
    finally:
        story.close()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("ending", ["stopped", "failed"])
def test_a_retry_consumer_goes_back_in_the_topic_that_it_has_read(
    server: tuple[str, Admin], delivery: str, ending: str
) -> None:
    """It seeks to records that it has polled and not handled: in the topic that was made again they are others."""
    address, admin = server
    story = Story(address, admin, "no group")
    handled: list[str] = []
    policy = RetryPolicy.from_config({"delivery": delivery})
    try:
        story.send(12)
        with RetryConsumer(
            address, [story.topic], policy=policy, group_id=story.topic, auto_offset_reset="earliest"
        ) as consumer:

            def handle(record: ConsumerRecord) -> None:
                value = (record.value or b"").decode()
                if len(story.sent) == 12 and len(handled) == 2:
                    story.make_again(2)
                    story.send(20)
                    if ending == "failed":
                        raise KeyboardInterrupt  # no error of a handler
                    consumer.stop()
                handled.append(value)

            deadline = time.monotonic() + SECONDS
            while len([value for value in handled if value.startswith("2-")]) < 20:
                assert time.monotonic() < deadline, f"records of the new topic are lost: {handled}"
                with suppress(KeyboardInterrupt):
                    consumer.handle_some(handle, 0.1)
        new = [value for value in handled if value.startswith("2-")]
        assert sorted(new) == sorted(story.sent)
    finally:
        story.close()


def test_a_transaction_commits_no_offset_for_a_topic_that_was_made_again(server: tuple[str, Admin]) -> None:
    """The offsets have the id of the topic that was read; the producer leaves out those of a topic that is gone."""
    address, admin = server
    story = Story(address, admin, "explicit commits")
    try:
        story.send(6)
        while len(story.values_of_this_life()) < 6:
            story.poll()
        name, only = story.topic, TopicPartition(story.topic, 0)
        positions, member = story.consumer.positions(), story.consumer.group_metadata()
        story.make_again(1)
        with Producer(address, transactional_id=name) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(name, b"x")
                producer.send_offsets_to_transaction(positions, member)
        assert admin.list_group_offsets(name, [only]) == {only: None}
    finally:
        story.close()
