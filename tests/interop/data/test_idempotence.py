"""Answers get lost; an idempotent producer's retry must still write each record once, in order."""

from __future__ import annotations

import asyncio
import warnings

import aiokafka
import confluent_kafka as ck
import pytest
from tests.interop import logins

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PRODUCE = 0
RECORDS = 60


@pytest.fixture
def behind_proxy(proxied):
    return proxied[0]


@pytest.fixture
def server(proxied):
    """All fixtures of this file speak of the broker behind the proxy."""
    return proxied[1]


def _values(clients, name, count):
    return [int(record.value) for record in clients["confluent-kafka"].consume(name, count=count)]


def _end(bootstrap, name):
    consumer = ck.Consumer(
        {**logins.librdkafka(bootstrap), "group.id": "end", "enable.auto.commit": False, "log_level": 2}
    )
    try:
        return consumer.get_watermark_offsets(ck.TopicPartition(name, 0), timeout=60)[1]
    finally:
        consumer.close()


def _librdkafka(bootstrap, name, *, idempotent):
    producer = ck.Producer(
        {
            **logins.librdkafka(bootstrap),
            "enable.idempotence": idempotent,
            "acks": "all",
            "batch.num.messages": 3,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "log_level": 0,
        }
    )
    failed = []
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number, partition=0, on_delivery=lambda e, m: e and failed.append(e))
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failed == []


def _kafka_python(bootstrap, name):
    producer = kafka.KafkaProducer(
        **logins.kafka_python(bootstrap),
        enable_idempotence=True,
        batch_size=100,
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
    )
    try:
        sent = [producer.send(name, value=b"%d" % number, partition=0) for number in range(RECORDS)]
        assert [acknowledged.get(timeout=30).offset for acknowledged in sent] == list(range(RECORDS))
    finally:
        producer.close(timeout=60)


def _aiokafka(bootstrap, name):
    async def run():
        producer = aiokafka.AIOKafkaProducer(
            **logins.aiokafka(bootstrap), enable_idempotence=True, max_batch_size=200, retry_backoff_ms=20
        )
        async with producer:
            sent = [await producer.send(name, value=b"%d" % number, partition=0) for number in range(RECORDS)]
            done = await asyncio.wait_for(asyncio.gather(*sent), 30)
        assert [record.offset for record in done] == list(range(RECORDS))

    asyncio.run(run())


@pytest.mark.parametrize("lost", [1, 3])
def test_librdkafka_writes_once_though_answers_are_lost(behind_proxy, topic, clients, bootstrap, lost):
    name = topic()
    behind_proxy.lose_answers(PRODUCE, lost)
    _librdkafka(bootstrap, name, idempotent=True)
    assert behind_proxy.lost == lost
    assert _end(bootstrap, name) == RECORDS
    assert _values(clients, name, RECORDS) == list(range(RECORDS))


def test_without_idempotence_a_lost_answer_writes_twice(behind_proxy, topic, bootstrap):
    """The harness bites: this is what the tests beside it would see if duplicates went unrecognised."""
    name = topic()
    behind_proxy.lose_answers(PRODUCE, 1)
    _librdkafka(bootstrap, name, idempotent=False)
    assert behind_proxy.lost == 1
    assert _end(bootstrap, name) > RECORDS


@pytest.mark.parametrize("send", [_kafka_python, _aiokafka], ids=["kafka-python", "aiokafka"])
def test_the_python_clients_write_once_though_answers_are_lost(behind_proxy, topic, clients, bootstrap, send):
    name = topic()
    behind_proxy.lose_answers(PRODUCE, 2)
    send(bootstrap, name)
    assert behind_proxy.lost == 2
    assert _end(bootstrap, name) == RECORDS
    assert _values(clients, name, RECORDS) == list(range(RECORDS))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_client_may_be_idempotent_with_every_codec(client, topic, row, codec):
    name = topic()
    rows = [row(key=b"%d" % n, value=b"value %d " % n * 10) for n in range(30)]
    client.produce(name, rows, codec=codec, idempotent=True)
    assert [record.value for record in client.consume(name, count=30)] == [record.value for record in rows]


def test_many_idempotent_producers_in_turn_keep_their_sequences_apart(clients, topic, row):
    name = topic()
    expected = []
    for number in range(12):
        writer = ("confluent-kafka", "kafka-python", "aiokafka")[number % 3]
        values = [b"%d-%d" % (number, n) for n in range(3)]
        clients[writer].produce(name, [row(value=value) for value in values], idempotent=True)
        expected += values
    assert [record.value for record in clients["confluent-kafka"].consume(name, count=36)] == expected
