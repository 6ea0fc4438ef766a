"""Transactional producers of real clients, with readers of committed records, zombies, lost answers and offsets inside."""

from __future__ import annotations

import asyncio
import itertools
import threading
import warnings

import aiokafka
import confluent_kafka as ck
import pytest
from aiokafka.structs import TopicPartition as AioPartition
from tests.interop import logins
from tests.interop.server import Server
from tests.kit.waiting import eventually

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

END_TXN = 26
SECONDS = 30
_numbers = itertools.count()


def new_id(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


# -- one transaction after another, by each client


class Confluent:
    def __init__(self, bootstrap, transactional_id, **settings):
        self.producer = ck.Producer(
            {
                **logins.librdkafka(bootstrap),
                "transactional.id": transactional_id,
                "log_level": 0,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
            }
            | settings
        )
        self.producer.init_transactions(SECONDS)

    def begin(self):
        self.producer.begin_transaction()

    def send(self, name, partition, value):
        self.producer.produce(name, value, partition=partition)
        assert self.producer.flush(SECONDS) == 0

    def commit(self):
        self.producer.commit_transaction(SECONDS)

    def abort(self):
        self.producer.abort_transaction(SECONDS)

    def close(self):
        pass


class KafkaPython:
    def __init__(self, bootstrap, transactional_id):
        self.producer = kafka.KafkaProducer(
            **logins.kafka_python(bootstrap), transactional_id=transactional_id, retry_backoff_ms=20
        )
        self.producer.init_transactions()

    def begin(self):
        self.producer.begin_transaction()

    def send(self, name, partition, value):
        self.producer.send(name, value=value, partition=partition).get(timeout=SECONDS)

    def commit(self):
        self.producer.commit_transaction()

    def abort(self):
        self.producer.abort_transaction()

    def close(self):
        self.producer.close(timeout=10)


class Aio:
    def __init__(self, bootstrap, transactional_id):
        self.loop = asyncio.new_event_loop()
        self.producer = self.loop.run_until_complete(self._made(bootstrap, transactional_id))

    async def _made(self, bootstrap, transactional_id):
        producer = aiokafka.AIOKafkaProducer(
            **logins.aiokafka(bootstrap), transactional_id=transactional_id, retry_backoff_ms=20
        )
        await producer.start()
        return producer

    def begin(self):
        self.loop.run_until_complete(self.producer.begin_transaction())

    def send(self, name, partition, value):
        sending = self.producer.send_and_wait(name, value=value, partition=partition)
        self.loop.run_until_complete(asyncio.wait_for(sending, SECONDS))

    def commit(self):
        self.loop.run_until_complete(self.producer.commit_transaction())

    def abort(self):
        self.loop.run_until_complete(self.producer.abort_transaction())

    def close(self):
        self.loop.run_until_complete(self.producer.stop())
        self.loop.close()


PRODUCERS = [Confluent, KafkaPython, Aio]


@pytest.fixture(params=PRODUCERS, ids=["confluent-kafka", "kafka-python", "aiokafka"])
def made(request, bootstrap):
    """Makes producers of each client; closes them."""
    opened = []

    def make(transactional_id, at=bootstrap):
        opened.append(request.param(at, transactional_id))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


def committed(bootstrap, name, partitions, *, isolation="read_committed"):
    """Every committed value, by partition, up to the last stable offset."""
    consumer = ck.Consumer(
        {
            **logins.librdkafka(bootstrap),
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    results = {partition: [] for partition in range(partitions)}
    ended = set()
    try:
        consumer.assign([ck.TopicPartition(name, partition, 0) for partition in results])
        while len(ended) < partitions:
            message = consumer.poll(SECONDS)
            assert message is not None
            if message.error() is None:
                results[message.partition()].append(message.value())
            else:
                assert message.error().code() == ck.KafkaError._PARTITION_EOF
                ended.add(message.partition())
    finally:
        consumer.close()
    return results


def soon_committed(bootstrap, name, partitions, expected):
    """What is committed, once it is `expected`: a commit is answered before all its markers are written."""
    return eventually(lambda: committed(bootstrap, name, partitions), holds=lambda values: values == expected)


def transact(producer, name, values, *, commit, partitions=2):
    producer.begin()
    for partition in range(partitions):
        for value in values:
            producer.send(name, partition, value)
    producer.commit() if commit else producer.abort()


def test_what_a_client_commits_is_read_and_what_it_aborts_is_not(made, topic, bootstrap):
    name = topic(partitions=2)
    producer = made(new_id("plain"))
    for number in range(6):
        transact(producer, name, [b"%d.0" % number, b"%d.1" % number], commit=number % 3 != 1)
    producer.begin()
    producer.send(name, 0, b"open")
    expected = [b"%d.%d" % (number, part) for number in (0, 2, 3, 5) for part in (0, 1)]
    committed_values = {0: expected, 1: expected}
    assert soon_committed(bootstrap, name, 2, committed_values) == committed_values
    assert b"open" in committed(bootstrap, name, 2, isolation="read_uncommitted")[0]
    producer.abort()
    assert committed(bootstrap, name, 2) == committed_values


def test_every_clients_consumer_leaves_out_what_was_aborted(topic, bootstrap):
    name = topic(partitions=1)
    producer = Confluent(bootstrap, new_id("readers"))
    for number in range(5):
        transact(producer, name, [b"%d" % number], commit=number % 2 == 0, partitions=1)
    expected = [b"0", b"2", b"4"]
    assert soon_committed(bootstrap, name, 1, {0: expected}) == {0: expected}

    async def aio():
        consumer = aiokafka.AIOKafkaConsumer(
            **logins.aiokafka(bootstrap), isolation_level="read_committed", enable_auto_commit=False
        )
        await consumer.start()
        try:
            where = AioPartition(name, 0)
            consumer.assign([where])
            await consumer.seek_to_beginning(where)
            return [(await asyncio.wait_for(consumer.getone(), SECONDS)).value for _ in expected]
        finally:
            await consumer.stop()

    assert asyncio.run(aio()) == expected
    consumer = kafka.KafkaConsumer(
        **logins.kafka_python(bootstrap), isolation_level="read_committed", enable_auto_commit=False
    )
    try:
        consumer.assign([kafka.TopicPartition(name, 0)])
        consumer.seek_to_beginning()
        assert [next(consumer).value for _ in expected] == expected
    finally:
        consumer.close()


def test_a_second_producer_of_the_name_fences_the_first(made, topic, bootstrap):
    name = topic(partitions=2)
    transactional_id = new_id("zombie")
    zombie = made(transactional_id)
    zombie.begin()
    zombie.send(name, 0, b"zombie")
    successor = made(transactional_id)
    transact(successor, name, [b"good"], commit=True)

    def go_on():
        zombie.send(name, 0, b"late")
        zombie.commit()

    with pytest.raises(Exception, match=r"(?i)fenced|epoch|state"):
        go_on()
    expected = {0: [b"good"], 1: [b"good"]}
    assert soon_committed(bootstrap, name, 2, expected) == expected


def test_different_clients_take_turns_under_one_name(topic, bootstrap):
    name = topic(partitions=2)
    transactional_id = new_id("turns")
    for number, kind in enumerate([*PRODUCERS, *PRODUCERS]):
        producer = kind(bootstrap, transactional_id)
        transact(producer, name, [b"%d" % number], commit=True)
        producer.close()
    values = [b"%d" % number for number in range(6)]
    expected = {0: values, 1: values}
    assert soon_committed(bootstrap, name, 2, expected) == expected


@pytest.mark.parametrize("lost", [1, 2])
def test_a_commit_whose_answer_is_lost_commits_once(proxied, lost):
    proxy, server = proxied
    name = f"lost-commits-{next(_numbers)}"
    server.create_topic(name, 2)
    producer = Confluent(server.node.bootstrap, new_id("lost"), **{"socket.timeout.ms": 2000})
    transact(producer, name, [b"first"], commit=True)
    proxy.lose_answers(END_TXN, lost)
    transact(producer, name, [b"second"], commit=True)
    transact(producer, name, [b"third"], commit=False)
    transact(producer, name, [b"fourth"], commit=True)
    values = [b"first", b"second", b"fourth"]
    expected = {0: values, 1: values}
    assert soon_committed(server.node.bootstrap, name, 2, expected) == expected


# -- offsets inside transactions


def offsets_of(bootstrap, group, name):
    consumer = ck.Consumer({**logins.librdkafka(bootstrap), "group.id": group, "log_level": 2})
    try:
        (committed_offset,) = consumer.committed([ck.TopicPartition(name, 0)], timeout=SECONDS)
        return committed_offset.offset
    finally:
        consumer.close()


@pytest.mark.parametrize("commit", [True, False])
def test_librdkafka_commits_offsets_with_its_output_or_not_at_all(topic, bootstrap, commit):
    source, target, group = topic(), topic(), new_id("copier")
    feeder = ck.Producer({**logins.librdkafka(bootstrap), "log_level": 2})
    for number in range(5):
        feeder.produce(source, b"%d" % number, partition=0)
    assert feeder.flush(SECONDS) == 0
    consumer = ck.Consumer(
        {
            **logins.librdkafka(bootstrap),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    consumer.subscribe([source])
    producer = Confluent(bootstrap, new_id("copier"))
    try:
        values = []
        while len(values) < 5:
            message = consumer.poll(SECONDS)
            assert message is not None
            if message.error() is None:
                values.append(message.value())
        producer.begin()
        for value in values:
            producer.send(target, 0, value)
        producer.producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), SECONDS
        )
        producer.commit() if commit else producer.abort()
    finally:
        consumer.close()
    expected = {0: [b"%d" % n for n in range(5)] if commit else []}
    assert soon_committed(bootstrap, target, 1, expected) == expected
    assert offsets_of(bootstrap, group, source) == (5 if commit else ck.OFFSET_INVALID)


@pytest.mark.parametrize("commit", [True, False])
def test_aiokafka_commits_offsets_with_its_output_or_not_at_all(topic, bootstrap, commit):
    source, target, group = topic(), topic(), new_id("aio-copier")
    producer = Aio(bootstrap, new_id("aio-copier"))
    try:
        producer.begin()
        producer.send(target, 0, b"copied")
        offsets = {AioPartition(source, 0): 7}
        producer.loop.run_until_complete(producer.producer.send_offsets_to_transaction(offsets, group))
        producer.commit() if commit else producer.abort()
    finally:
        producer.close()
    expected = {0: [b"copied"] if commit else []}
    assert soon_committed(bootstrap, target, 1, expected) == expected
    assert offsets_of(bootstrap, group, source) == (7 if commit else ck.OFFSET_INVALID)


# -- a broker that is killed


def transact_until(stop, bootstrap, fates, number):
    """One transaction after another; what is known of each goes into `fates`. Ends with the broker."""
    try:
        producer = Confluent(bootstrap, "killed", **{"socket.timeout.ms": 2000})
        while not stop.is_set():
            fates[number] = "aborted"
            producer.begin()
            for partition in (0, 1):
                producer.producer.produce("t", b"%d" % number, partition=partition)
            if producer.producer.flush(3):
                return
            fates[number] = "in doubt"
            producer.producer.commit_transaction(3)
            fates[number] = "committed"
            number += 1
    except ck.KafkaException:
        return


def test_a_killed_broker_tears_no_transaction_and_loses_none(server_kind, make_node, tmp_path):
    if server_kind == "kafka":
        pytest.skip("about Odradek's own process")
    node = make_node(directory=tmp_path / "node").start()
    try:
        Server(kind="odradek", node=node).create_topic("t", 2)
        fates = {}
        for round_number in range(4):
            stop, known = threading.Event(), len(fates)
            worker = threading.Thread(
                target=transact_until, args=(stop, node.bootstrap, fates, round_number * 1_000_000)
            )
            worker.start()
            eventually(lambda known=known: len(fates) >= known + 20, every_s=0.001)
            node.kill()
            stop.set()
            worker.join()
            node.start()
        Confluent(node.bootstrap, "killed")  # fences whatever is left
        seen_values = committed(node.bootstrap, "t", 2)
        assert seen_values[0] == seen_values[1], "torn"
        numbers = [int(value) for value in seen_values[0]]
        assert len(set(numbers)) == len(numbers), "duplicate"
        assert {name for name, fate in fates.items() if fate == "committed"} <= set(numbers), "lost"
        assert not {
            transaction_value for transaction_value, fate in fates.items() if fate == "aborted"
        } & set(numbers), "aborted read"
        assert "Traceback" not in node.log_file.read_text()
    finally:
        node.stop()
