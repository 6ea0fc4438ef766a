"""Breadth: topics of many partitions, many topics, many clients at once."""

from __future__ import annotations

import warnings

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop import logins

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PARTITIONS = 120


def test_one_consumer_reads_all_partitions_of_a_wide_topic(bootstrap, topic):
    name = topic(partitions=PARTITIONS)
    producer = ck.Producer({**logins.librdkafka(bootstrap), "linger.ms": 20, "log_level": 2})
    for number in range(PARTITIONS * 10):
        producer.produce(name, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    consumer = ck.Consumer(
        {**logins.librdkafka(bootstrap), "group.id": "wide", "enable.auto.commit": False, "log_level": 2}
    )
    consumer.assign([ck.TopicPartition(name, number, 0) for number in range(PARTITIONS)])
    seen: dict[int, list[int]] = {}
    try:
        while sum(map(len, seen.values())) < PARTITIONS * 10:
            message = consumer.poll(10)
            assert message is not None, f"only {sum(map(len, seen.values()))} records came"
            for response in (message, *consumer.consume(1000, timeout=0)):
                assert response.error() is None
                seen.setdefault(response.partition(), []).append(int(response.value()))
    finally:
        consumer.close()
    assert seen == {number: list(range(number, PARTITIONS * 10, PARTITIONS)) for number in range(PARTITIONS)}


def test_fetch_sessions_notice_records_in_any_of_many_idle_partitions(bootstrap, topic, clients, row):
    name = topic(partitions=PARTITIONS)
    consumer = kafka.KafkaConsumer(**logins.kafka_python(bootstrap), group_id=None, fetch_max_wait_ms=200)
    places = [kafka.TopicPartition(name, number) for number in range(PARTITIONS)]
    try:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        consumer.poll(timeout_ms=500)
        for number in (0, PARTITIONS // 2, PARTITIONS - 1, 7):
            clients["confluent-kafka"].produce(name, [row(value=b"ping", partition=number)])
            results = []
            for _ in range(20):
                results = [record for batch in consumer.poll(timeout_ms=1000).values() for record in batch]
                if results:
                    break
            assert [(text.partition, text.value) for text in results] == [(number, b"ping")]
    finally:
        consumer.close()


def test_metadata_lists_every_one_of_many_topics(bootstrap, server):
    admin = AdminClient({**logins.librdkafka(bootstrap), "log_level": 2})
    names = [f"breadth-{number}" for number in range(60)]
    for future in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        future.result(20)
    server.eventually(lambda: set(names) <= set(admin.list_topics(timeout=60).topics))
    listed = admin.list_topics(timeout=60).topics
    assert {name: len(listed[name].partitions) for name in names} == dict.fromkeys(names, 2)
    for future in admin.delete_topics(names).values():
        future.result(20)


def test_many_producers_write_to_one_partition_at_once(bootstrap, topic):
    name = topic()
    producers = [ck.Producer({**logins.librdkafka(bootstrap), "log_level": 2}) for _ in range(10)]
    for number in range(50):
        for who, producer in enumerate(producers):
            producer.produce(name, b"%d" % number, key=b"%d" % who)
    assert [producer.flush(20) for producer in producers] == [0] * 10
    consumer = ck.Consumer(
        {**logins.librdkafka(bootstrap), "group.id": "one", "enable.auto.commit": False, "log_level": 2}
    )
    consumer.assign([ck.TopicPartition(name, 0, 0)])
    seen: list[ck.Message] = []
    try:
        while len(seen) < 500:
            message = consumer.poll(10)
            assert message is not None, f"only {len(seen)} records came"
            seen += [message, *consumer.consume(500, timeout=0)]
    finally:
        consumer.close()
    assert [message.offset() for message in seen] == list(range(500))
    for who in range(10):
        own = [int(message.value()) for message in seen if message.key() == b"%d" % who]
        assert own == list(range(50))
