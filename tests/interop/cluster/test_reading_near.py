"""A consumer with a rack reads from the replica there (KIP-392), and from the leader when that one is in trouble."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.cluster import cluster, with_settings

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.cli.serving.broker_processes import Fleet

_SECONDS = 60.0
_RECORDS = 400
_TOPIC = TopicPartition("near", 0)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Broker 1 leads the topic, broker 2 follows in the consumer's rack. No broker is given up within a test."""
    settings = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "broker.session.timeout.ms": "120000",
        "replica.lag.time.max.ms": "120000",
    }
    racked = cluster(
        tmp_path,
        settings,
        brokers=2,
        changed=lambda terms: with_settings(terms, {"broker.rack": f"rack-{terms.node_id}"}),
    )
    with racked as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topics([NewTopic(_TOPIC.topic, assignments=[[1, 2]])])
        with Producer(running.bootstrap) as producer:
            for number in range(_RECORDS):
                producer.send(_TOPIC.topic, b"%d" % number + bytes(1000), partition=0)
        yield running


def consumer_of(fleet: Fleet, rack: str) -> Consumer[bytes, bytes]:
    """Fetches little at once, so that reading takes many requests."""
    consumer = Consumer(
        fleet.bootstrap,
        client_rack=rack,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=5_000,
        prefetch_max_bytes=10_000,
        max_poll_records=20,
    )
    consumer.assign([_TOPIC])
    return consumer


def read_until(consumer: Consumer[bytes, bytes], count: int, offsets: list[int]) -> None:
    deadline = time.monotonic() + _SECONDS
    while len(offsets) < count:
        assert time.monotonic() < deadline, f"{len(offsets)} of {count} records"
        offsets += [record.offset for record in consumer.poll(0.5)]


def test_records_come_from_the_rack_while_the_leader_answers_nothing(fleet: Fleet) -> None:
    offsets: list[int] = []
    with consumer_of(fleet, "rack-2") as consumer:
        read_until(consumer, 60, offsets)
        fleet.broker(1).pause()
        try:
            read_until(consumer, _RECORDS, offsets)
        finally:
            fleet.broker(1).resume()
    assert offsets == list(range(_RECORDS))


def test_the_leader_is_read_when_the_follower_is_gone(fleet: Fleet) -> None:
    offsets: list[int] = []
    with consumer_of(fleet, "rack-2") as consumer:
        read_until(consumer, 60, offsets)
        fleet.broker(2).kill()
        read_until(consumer, _RECORDS, offsets)
    assert offsets == list(range(_RECORDS))


def test_without_a_rack_the_leader_is_read(fleet: Fleet) -> None:
    offsets: list[int] = []
    with consumer_of(fleet, "") as consumer:
        read_until(consumer, 60, offsets)
        fleet.broker(2).pause()
        try:
            read_until(consumer, _RECORDS, offsets)
        finally:
            fleet.broker(2).resume()
    assert offsets == list(range(_RECORDS))
