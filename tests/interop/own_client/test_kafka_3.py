"""Our clients at a broker of Kafka 3.9, the newest before 4.0: it has no consumer protocol, no share groups, and no topic ids
in Produce. Where that release was not fetched (`make interop` does it), it is absent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest
from benchmarks.peer import KafkaNode, PeerAbsentError, cached_peer
from benchmarks.peer.fetch import KAFKA_3
from tests.interop import wire
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
from odradek.client import EARLIEST, LATEST, ResourceType
from odradek.protocol import APIS

SECONDS = 60.0
COUNT = 500
_BROKERS_ONLY = (
    "Vote BeginQuorumEpoch EndQuorumEpoch FetchSnapshot Envelope BrokerRegistration BrokerHeartbeat"
)


@pytest.fixture(scope="module")
def kafka_3() -> Iterator[str]:
    """The address of a Kafka 3.9 of its own."""
    try:
        jars = cached_peer(KAFKA_3)
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    with KafkaNode(jars, settings={"group.initial.rebalance.delay.ms": "0"}) as node:
        yield node.bootstrap


@pytest.fixture
def name(kafka_3: str, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions; its name serves as that of a group, and of a transactional id, too."""
    made = str(request.node.name)
    with Admin(kafka_3) as admin:
        admin.create_topics([NewTopic(made, partitions=2)])
        wait_until_led(admin, made, 2)
    return made


def produce(address: str, topic: str, values: Sequence[bytes]) -> None:
    with Producer(address, compression_type="zstd") as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, key=b"%d" % number, partition=number % 2)


def read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records came"
        values += [record.value or b"" for record in consumer.poll(0.2)]
    return sorted(values, key=int)


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_every_api_that_both_know_has_a_common_version(kafka_3: str) -> None:
    host, port = kafka_3.rsplit(":", 1)
    with wire.Connection((host, int(port))) as connection:
        response = connection.call(18, 0, b"")
    assert response.int16() == 0
    offered = {}
    for _ in range(response.int32()):
        key, oldest, newest = response.int16(), response.int16(), response.int16()
        offered[key] = (oldest, newest)
    known = {
        key: api for key, api in APIS.items() if key in offered and api.name not in _BROKERS_ONLY.split()
    }
    assert len(known) > 50
    apart = {
        api.name: (offered[key], (api.versions.min, api.versions.max))
        for key, api in known.items()
        if max(offered[key][0], api.versions.min) > min(offered[key][1], api.versions.max)
    }
    assert apart == {}


def test_a_consumer_that_is_free_to_choose_joins_a_classic_group(
    kafka_3: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(kafka_3, name, numbers(0, COUNT))
    with caplog.at_level(logging.INFO, "odradek.client"), ExitStack() as stack:
        first = stack.enter_context(Consumer(kafka_3, group_id=name, auto_offset_reset="earliest"))
        first.subscribe(name)
        assert read(first, COUNT) == numbers(0, COUNT)
        first.commit()
        with Admin(kafka_3) as admin:
            group = admin.describe_groups([name])[name]
            assert (group.type, len(group.members)) == ("classic", 1)
        second = stack.enter_context(Consumer(kafka_3, group_id=name, auto_offset_reset="earliest"))
        second.subscribe(name)
        deadline = time.monotonic() + SECONDS
        while {len(first.assignment()), len(second.assignment())} != {1}:
            assert time.monotonic() < deadline, (first.assignment(), second.assignment())
            assert first.poll(0.1) + second.poll(0.1) == [], "what was committed came again"
    assert "classic_group_protocol_chosen" in caplog.text
    produce(kafka_3, name, numbers(COUNT, 10))
    with Consumer(kafka_3, group_id=name, auto_offset_reset="earliest") as later:
        later.subscribe(name)
        assert read(later, 10) == numbers(COUNT, 10)


def test_the_consumer_protocol_is_refused_with_what_it_needs(kafka_3: str, name: str) -> None:
    with Consumer(kafka_3, group_id=name, group_protocol="consumer") as consumer:
        consumer.subscribe(name)
        with pytest.raises(KafkaError, match=r"Kafka 4\.0") as refused:
            read(consumer, 1)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_share_group_is_refused_with_what_it_needs(kafka_3: str, name: str) -> None:
    with ShareConsumer(kafka_3, group_id=name) as consumer:
        consumer.subscribe(name)
        with pytest.raises(KafkaError, match=r"[Ss]hare") as refused:
            consumer.poll(SECONDS)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_transactions_move_offsets_and_hide_what_is_aborted(kafka_3: str, name: str) -> None:
    produce(kafka_3, name, numbers(0, 10))
    with (
        Producer(kafka_3, transactional_id=name) as producer,
        Consumer(
            kafka_3,
            group_id=name,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe(name)
        read(consumer, 10)
        positions = consumer.positions()
        for commits in (False, True):
            producer.begin_transaction()
            producer.send(name, b"11" if commits else b"10", partition=0)
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
                assert set(consumer.committed(positions).values()) == {None}
        assert read(consumer, 1) == [b"11"]
    with Admin(kafka_3) as admin:
        committed = admin.list_group_offsets(name)
    assert {partition: offset.offset for partition, offset in committed.items() if offset} == positions


def test_resources_that_the_broker_cannot_list_are_refused_rather_than_left_out(kafka_3: str) -> None:
    subscription = ConfigResource(ResourceType.CLIENT_METRICS, "all-clients")
    with Admin(kafka_3) as admin:
        admin.alter_configs({subscription: {"interval.ms": "60000"}})
        eventually(
            lambda: admin.list_config_resources([ResourceType.CLIENT_METRICS]) == [subscription],
            "the subscription is not listed",
        )
        for kinds in ([], [ResourceType.TOPIC], [ResourceType.TOPIC, ResourceType.CLIENT_METRICS]):
            with pytest.raises(KafkaError, match="resource_types") as refused:
                admin.list_config_resources(kinds)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_an_administrator_has_what_the_broker_has(kafka_3: str, name: str) -> None:
    produce(kafka_3, name, numbers(0, 10))
    topic = ConfigResource(ResourceType.TOPIC, name)
    only = TopicPartition(name, 0)
    with Admin(kafka_3) as admin:
        admin.alter_configs({topic: {"retention.ms": "123456"}})
        eventually(
            lambda: admin.describe_configs([topic])[topic]["retention.ms"].value == "123456",
            "retention.ms did not change",
        )
        admin.create_partitions({name: 3})
        wait_until_led(admin, name, 3)
        assert admin.list_offsets({only: LATEST})[only].offset == 5
        admin.delete_records({only: 2})
        assert admin.list_offsets({only: EARLIEST})[only].offset == 2
        assert admin.describe_cluster().brokers
        admin.delete_topics([name])
        eventually(lambda: name not in admin.list_topics(), "the topic is still there")
