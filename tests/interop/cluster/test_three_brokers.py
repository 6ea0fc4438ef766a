"""Three brokers as processes, one cluster, unmodified clients: what is acknowledged survives the death of any of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.waiting import eventually

from odradek.testing import Cluster

confluent_kafka = pytest.importorskip("confluent_kafka")
admin_module = pytest.importorskip("confluent_kafka.admin")

_WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"broker.session.timeout.ms": "6000"}) as running:
        yield running


@pytest.fixture(autouse=True)
def everyone_is_there(cluster: Cluster) -> Iterator[None]:
    """A broker that a test killed is revived for the next."""
    yield
    for broker in cluster.brokers:
        if not broker.is_alive:
            broker.start()
            broker.wait_until_ready()


@pytest.fixture
def admin(cluster: Cluster) -> Any:
    return admin_module.AdminClient({"bootstrap.servers": cluster.address})


def create(admin: Any, topic: str, partitions: int = 3, replicas: int = 3, **configs: str) -> None:
    new = admin_module.NewTopic(
        topic, partitions, replicas, config={key.replace("_", "."): value for key, value in configs.items()}
    )
    admin.create_topics([new])[topic].result(30)


def topic_of(admin: Any, topic: str) -> Any:
    return admin.list_topics(topic, timeout=60).topics[topic]


class Acknowledged:
    """A producer that remembers what was acknowledged."""

    def __init__(self, address: str, **settings: Any) -> None:
        self.values: list[bytes] = []
        self.errors: list[Any] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2, **settings}
        )

    def send(self, topic: str, first: int, count: int) -> None:
        for number in range(first, first + count):
            value = str(number).encode()
            while True:
                try:
                    self._producer.produce(topic, value, value, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.values.append(message.value())
        else:
            self.errors.append(error)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0
        assert self.errors == []


def read_all(address: str, topic: str, wanted: int) -> Counter[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    counter: Counter[bytes] = Counter()
    deadline = time.monotonic() + _WAIT_SECONDS
    try:
        while sum(counter.values()) < wanted and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None
                counter[message.value()] += 1
        for message in consumer.consume(10, 0.5):
            counter[message.value()] += 1
    finally:
        consumer.close()
    return counter


def test_replicas_are_spread_and_in_sync(cluster: Cluster, admin: Any) -> None:
    create(admin, "spread", partitions=6)

    partitions = topic_of(admin, "spread").partitions.values()

    assert all(
        sorted(partition.replicas) == [1, 2, 3] and sorted(partition.isrs) == [1, 2, 3]
        for partition in partitions
    )
    assert Counter(partition.leader for partition in partitions) == {1: 2, 2: 2, 3: 2}


def test_every_broker_tells_the_same(cluster: Cluster, admin: Any) -> None:
    create(admin, "known", partitions=4)

    answers = [
        admin_module.AdminClient({"bootstrap.servers": broker.address}).list_topics("known", timeout=60)
        for broker in cluster.brokers
    ]

    assert all(sorted(answered_request.brokers) == [1, 2, 3] for answered_request in answers)
    leaders = [
        {number: partition.leader for number, partition in answered.topics["known"].partitions.items()}
        for answered in answers
    ]
    assert leaders[0] == leaders[1] == leaders[2]


def test_nothing_acknowledged_is_lost_or_doubled_when_a_leader_is_killed(
    cluster: Cluster, admin: Any
) -> None:
    create(admin, "kept", partitions=3, min_insync_replicas="2")
    producer = Acknowledged(cluster.address)
    producer.send("kept", 0, 2000)
    victim = topic_of(admin, "kept").partitions[0].leader

    cluster.broker(victim).kill()
    producer.send("kept", 2000, 2000)
    producer.finish()

    assert sorted(producer.values, key=int) == [str(number).encode() for number in range(4000)]
    rest = ",".join(broker.address for broker in cluster.brokers if broker.is_alive)
    assert read_all(rest, "kept", 4000) == Counter(producer.values)


def test_a_revived_broker_is_in_sync_again(cluster: Cluster, admin: Any) -> None:
    create(admin, "healed")
    producer = Acknowledged(cluster.address)
    victim = topic_of(admin, "healed").partitions[0].leader
    cluster.broker(victim).kill()
    producer.send("healed", 0, 500)
    producer.finish()
    eventually(lambda: victim not in topic_of(admin, "healed").partitions[0].isrs)

    cluster.broker(victim).start()
    cluster.broker(victim).wait_until_ready()

    eventually(
        lambda: all(len(partition.isrs) == 3 for partition in topic_of(admin, "healed").partitions.values())
    )


def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: Cluster, admin: Any) -> None:
    create(admin, "grouped", partitions=1)
    producer = Acknowledged(cluster.address)
    producer.send("grouped", 0, 100)
    producer.finish()
    settings = {
        "bootstrap.servers": cluster.address,
        "group.id": "survivors",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["grouped"])

    def received() -> bool:
        message = consumer.poll(1.0)  # or an event: a broker may not have heard of the topic yet
        return message is not None and message.error() is None

    eventually(received)
    consumer.commit(offsets=[confluent_kafka.TopicPartition("grouped", 0, 40)], asynchronous=False)
    described = admin.describe_consumer_groups(["survivors"])["survivors"].result(30)

    cluster.broker(described.coordinator.id).kill()

    def committed() -> Any:
        try:
            (outcome,) = consumer.committed([confluent_kafka.TopicPartition("grouped", 0)], timeout=5)
        except confluent_kafka.KafkaException:
            return None
        return outcome if outcome.error is None else None

    assert eventually(committed).offset == 40
    consumer.close()


def test_a_transaction_over_partitions_of_all_brokers_is_atomic(cluster: Cluster, admin: Any) -> None:
    create(admin, "atomic", partitions=6)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.address, "transactional.id": "across", "transaction.timeout.ms": 30000}
    )
    producer.init_transactions(30)
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for partition in range(6):
            producer.produce("atomic", f"{number}".encode(), partition=partition)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    assert read_all(cluster.address, "atomic", 12) == {b"0": 6, b"2": 6}


def test_more_replicas_than_brokers_are_refused(cluster: Cluster, admin: Any) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        create(admin, "too-many", replicas=4)

    assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR
