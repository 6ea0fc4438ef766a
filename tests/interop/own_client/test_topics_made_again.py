"""A topic that is deleted and made again under clients that use it: each notices by the topic's id."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks.odradek_node import Node
from benchmarks.peer import PeerAbsentError
from tests.interop import logins
from tests.kit.waiting import eventually, wait_until_led

from odradek import (
    Admin,
    ConfigResource,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from odradek.client import ResourceType

SECONDS = 60.0
_QUICK = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
_numbers = itertools.count()
MakeNode = Callable[..., Node]
READERS: dict[str, dict[str, Any]] = {
    "default": {},
    "classic": {"group_protocol": "classic", "heartbeat_interval_ms": 200},
    "static": {"group_instance_id": "one"},
}


@pytest.fixture(scope="module")
def address(make_node: MakeNode) -> Iterator[str]:
    try:
        node = make_node(settings=_QUICK).start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    try:
        yield node.bootstrap
    finally:
        node.stop()


@pytest.fixture
def admin(address: str) -> Iterator[Admin]:
    with Admin(**logins.ours(address)) as client:
        yield client


def create(admin: Admin, name: str, partitions: int) -> None:
    def try_it() -> bool:
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])
        except KafkaError as error:  # Kafka deletes a topic a while after it has answered
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    eventually(try_it)
    wait_until_led(admin, name, partitions)


def a_topic(admin: Admin) -> str:
    name = f"again-{next(_numbers)}"
    create(admin, name, 2)
    return name


def send(producer: Producer[Any, Any], topic: str, partitions: int, life: int) -> set[bytes]:
    values = [b"%d.%d" % (life, number) for number in range(10)]
    deliveries = [
        producer.send(topic, value, partition=number % partitions) for number, value in enumerate(values)
    ]
    for delivery in deliveries:
        delivery.result(SECONDS)
    return set(values)


@pytest.mark.parametrize("options", READERS.values(), ids=READERS)
def test_consumer_producer_and_admin_go_on_with_the_new_topic(
    address: str, admin: Admin, options: Any
) -> None:
    topic = a_topic(admin)
    login = logins.ours(address)
    with (
        Producer(**login, metadata_max_age_ms=500) as producer,
        Consumer(
            **login, group_id=topic, auto_offset_reset="earliest", metadata_max_age_ms=500,
            auto_commit_interval_ms=1, **options,
        ) as consumer,
    ):  # fmt: skip
        consumer.subscribe([topic])
        ids = set()
        for life, partitions in enumerate((2, 3, 1)):
            if life:
                admin.delete_topics([topic])
                create(admin, topic, partitions)
            described = admin.describe_topics([topic])[topic]
            assert len(described.partitions) == partitions
            ids.add(described.topic_id)
            # A producer that was in flight to the old topic may be refused until it knows the new one, never misled.
            expected = send(producer, topic, partitions, life)
            seen: Counter[bytes] = Counter()

            def read(seen: Counter[bytes] = seen, expected: set[bytes] = expected) -> bool:
                seen.update(record.value or b"" for record in consumer.poll(0.1))
                return set(seen) >= expected

            eventually(read)
            assert seen == Counter(expected)
            consumer.commit()
            committed = admin.list_group_offsets(topic)
            assert sum(offset.offset for offset in committed.values()) == 10
            assert {tp.partition for tp in committed if committed[tp].offset} <= set(range(partitions))
        assert len(ids) == 3


def test_offsets_in_a_transaction_belong_to_the_topic_that_was_read(address: str, admin: Admin) -> None:
    """The transaction is open while the topic is made again: the new topic gets no offset of the old one."""
    topic, into = a_topic(admin), a_topic(admin)
    login = logins.ours(address)
    with (
        Producer(**login) as feed,
        Producer(**login, transactional_id=topic) as producer,
        Consumer(
            **login, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False,
            isolation_level="read_committed", metadata_max_age_ms=500,
        ) as consumer,
    ):  # fmt: skip
        producer.init_transactions()
        consumer.subscribe([topic])
        send(feed, topic, 2, 0)
        seen: list[bytes] = []

        def read() -> list[bytes]:
            seen.extend(record.value or b"" for record in consumer.poll(0.1))
            return seen

        eventually(lambda: len(read()) == 10)
        positions, member = consumer.positions(), consumer.group_metadata()
        with producer.transaction():
            producer.send(into, b"done")
            admin.delete_topics([topic])
            create(admin, topic, 2)
            producer.send_offsets_to_transaction(positions, member)
        assert not any(offset.offset for offset in admin.list_group_offsets(topic).values())
        expected = send(feed, topic, 2, 1)
        eventually(lambda: set(read()) >= expected)
        assert Counter(seen)[b"1.0"] == 1
        with producer.transaction():
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        # Kafka answers before the transaction's marker is in the group's log.
        eventually(lambda: sum(offset.offset for offset in admin.list_group_offsets(topic).values()) == 10)


def test_records_sent_while_it_is_made_again_are_in_the_new_topic_or_refused(
    address: str, admin: Admin
) -> None:
    topic = a_topic(admin)
    login = logins.ours(address)
    acknowledged: list[bytes] = []
    sent = itertools.count()
    is_over = threading.Event()

    def write() -> None:
        with Producer(
            **login, metadata_max_age_ms=500, delivery_timeout_ms=20_000, request_timeout_ms=5_000
        ) as producer:
            while not is_over.is_set():
                value = b"%d" % next(sent)
                try:
                    producer.send(topic, value, partition=0).result(SECONDS)
                except KafkaError:  # the topic is not there at present
                    continue
                acknowledged.append(value)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        eventually(lambda: len(acknowledged) > 50)
        admin.delete_topics([topic])
        create(admin, topic, 2)
        before = len(acknowledged)
        eventually(lambda: len(acknowledged) > before + 50)
    finally:
        is_over.set()
        writer.join()
    with Consumer(**login, auto_offset_reset="earliest") as consumer:
        only = TopicPartition(topic, 0)
        consumer.assign([only])
        end = consumer.end_offsets([only])[only]
        values: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while consumer.position(only) < end:
            assert time.monotonic() < deadline
            values += [record.value or b"" for record in consumer.poll(0.5)]
    assert len(values) == len(set(values))
    numbers = list(map(int, values))
    assert numbers == sorted(numbers)
    assert set(acknowledged[before + 1 :]) <= set(values)  # one may have been under way


def test_a_share_consumer_reads_the_new_topic(address: str, admin: Admin) -> None:
    topic = a_topic(admin)
    admin.alter_configs({ConfigResource(ResourceType.GROUP, topic): {"share.auto.offset.reset": "earliest"}})
    login = logins.ours(address)
    with (
        Producer(**login, metadata_max_age_ms=500) as producer,
        ShareConsumer(**login, group_id=topic, metadata_max_age_ms=500) as consumer,
    ):
        consumer.subscribe([topic])
        for life, partitions in enumerate((2, 1)):
            if life:
                admin.delete_topics([topic])
                create(admin, topic, partitions)
            expected = send(producer, topic, partitions, life)
            seen: Counter[bytes] = Counter()

            def read(seen: Counter[bytes] = seen, expected: set[bytes] = expected) -> bool:
                seen.update(record.value or b"" for record in consumer.poll(0.1))
                return set(seen) >= expected

            eventually(read)
            consumer.commit()
