"""Share consumers of our own and brokers that are killed: what was accepted is done, and everything else is delivered again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.kit.waiting import eventually

from odradek import (
    AcknowledgeType,
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from odradek.client import AcknowledgedOffsets, ResourceType
from odradek.testing import Cluster

SECONDS = 60.0
RECORDS = 600
PARTITIONS = 3
POLL_RECORDS = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "broker.session.timeout.ms": "6000",
        "offsets.topic.num.partitions": "3",
        "share.coordinator.state.topic.num.partitions": "3",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "10000",
    }
    with Cluster(brokers=3, settings=settings) as running:
        yield running


@dataclass
class Ledger:
    """What all members saw, in the order of time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    delivered: dict[tuple[int, int], int] = field(default_factory=dict)
    """The highest delivery count of each record."""
    accepted: set[tuple[int, int]] = field(default_factory=set)
    """Records of which a broker has said that it stored their acceptance, or their rejection."""
    unknown: set[tuple[int, int]] = field(default_factory=set)
    """Records whose acceptance was sent and not confirmed: they may be done, or come again."""
    again: list[tuple[int, int]] = field(default_factory=list)
    """Records that came after that."""
    stop: threading.Event = field(default_factory=threading.Event)

    def came(self, record: ShareRecord) -> None:
        place = (record.partition, record.offset)
        with self.lock:
            if place in self.accepted:
                self.again.append(place)
            self.delivered[place] = max(self.delivered.get(place, 0), record.delivery_count)


class Worker(threading.Thread):
    """A member that accepts most records, rejects every eleventh, releases every seventh at its first delivery, and commits
    after each poll."""

    def __init__(self, address: str, ledger: Ledger) -> None:
        super().__init__()
        self.address = address
        self.ledger = ledger
        self.problem: Exception | None = None
        self.kinds: dict[tuple[int, int], AcknowledgeType] = {}
        """The decisions about the records of the last poll."""

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.problem = error

    def _work(self) -> None:
        with ShareConsumer(
            self.address,
            group_id="workers",
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
            max_poll_records=POLL_RECORDS,
        ) as consumer:
            consumer.on_acknowledged(self._heard)
            consumer.subscribe("jobs")
            while not self.ledger.stop.is_set():
                records = consumer.poll(0.5)
                kinds: dict[tuple[int, int], AcknowledgeType] = {}
                for record in records:
                    self.ledger.came(record)
                    releases = record.offset % 7 == 0 and record.delivery_count == 1
                    kind = AcknowledgeType.REJECT if record.offset % 11 == 0 else AcknowledgeType.ACCEPT
                    kind = AcknowledgeType.RELEASE if releases else kind
                    kinds[record.partition, record.offset] = kind
                    consumer.acknowledge(record, kind)
                self.kinds = kinds
                try:
                    consumer.commit(10.0)
                except KafkaError:
                    continue  # refused, or not known: those records come again

    def _heard(self, outcome: AcknowledgedOffsets) -> None:
        with self.ledger.lock:
            for offset in outcome.offsets:
                place = (outcome.topic_partition.partition, offset)
                if self.kinds.get(place) is AcknowledgeType.RELEASE:
                    continue
                if outcome.error is None:
                    self.ledger.accepted.add(place)
                else:
                    self.ledger.unknown.add(place)


def test_the_death_of_a_leader_loses_nothing_and_delivers_nothing_that_was_accepted(cluster: Cluster) -> None:
    ledger = Ledger()
    with Admin(cluster.address) as admin:
        takes_letters = {"errors.deadletterqueue.group.enable": "true"}
        admin.create_topics(
            [NewTopic("jobs", PARTITIONS, 3), NewTopic("dlq.jobs", PARTITIONS, 3, configs=takes_letters)]
        )
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": "10",
            "errors.deadletterqueue.topic.name": "dlq.jobs",
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        admin.alter_configs({ConfigResource(ResourceType.GROUP, "workers"): settings})
    with Producer(cluster.address) as producer:
        for number in range(RECORDS):
            producer.send("jobs", b"%d" % number, partition=number % PARTITIONS)
    workers = [Worker(cluster.address, ledger) for _ in range(3)]
    for worker in workers:
        worker.start()
    victim = cluster.brokers[0]
    try:
        eventually(lambda: len(ledger.accepted) > RECORDS // 6)
        with Admin(cluster.address) as admin:
            partitions = admin.describe_topics(["jobs"])["jobs"].partitions
            victim = cluster.broker(partitions[0].leader)
        victim.kill()
        eventually(lambda: len(ledger.accepted | ledger.unknown) == RECORDS)
    finally:
        ledger.stop.set()
        for worker in workers:
            worker.join(SECONDS)
        victim.start()
        victim.wait_until_ready()
    assert [worker.problem for worker in workers] == [None, None, None]
    assert len(ledger.delivered) == RECORDS
    assert len(ledger.unknown - ledger.accepted) <= len(workers) * POLL_RECORDS, (
        "one request each was under way"
    )
    assert ledger.again == [], "a record that was accepted was delivered again"
    with Admin(cluster.address) as admin:
        starts = admin.describe_groups(["workers"])["workers"].start_offsets
    assert set(starts.values()) == {RECORDS // PARTITIONS}, (
        "a record was neither accepted nor delivered again"
    )
    rejected = {place for place in ledger.accepted if place[1] % 11 == 0}
    assert rejected <= _letters(cluster.address), "a record was given up and left no dead letter"
    assert all(count >= 2 for (_, offset), count in ledger.delivered.items() if offset % 7 == 0)


def _letters(address: str) -> set[tuple[int, int]]:
    """Returns the partitions and offsets of the records that have dead letters."""
    places = set()
    with Consumer(address, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition("dlq.jobs", number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            for letter in consumer.poll(1.0):
                headers = dict(letter.headers)
                partition = int(headers["__dlq.errors.partition"] or b"")
                offset = int(headers["__dlq.errors.offset"] or b"")
                assert letter.value == b"%d" % (offset * PARTITIONS + partition)
                places.add((partition, offset))
    return places
