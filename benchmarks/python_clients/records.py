"""One record after another: written and read by each client, as its users write it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

from benchmarks.python_clients.job import (
    BATCH_BYTES,
    LINGER_MS,
    OURS,
    POLL_RECORDS,
    STALLED_SECONDS,
    Job,
    Watch,
    Work,
    poll_all,
)
from odradek import Consumer, Producer, TopicPartition


def confluent_producer(job: Job) -> Any:
    import confluent_kafka

    return confluent_kafka.Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "socket.nagle.disable": True,  # as the other three do
        }
    )


def produce_all(producer: Any, topic: str, values: Iterable[bytes]) -> None:
    """Calls `produce` for each value, and waits where librdkafka's queue is full."""
    for value in values:
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)


def confluent_consumer(job: Job) -> Any:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(job.topic, 0, 0)])
    return consumer


# -- producing


def produce_odradek(job: Job, watch: Watch) -> None:
    value = job.value
    with Producer(job.bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.send(job.topic, value).result()
        watch.start()
        for _ in range(job.record_count):
            producer.send(job.topic, value)


def produce_confluent(job: Job, watch: Watch) -> None:
    producer = confluent_producer(job)
    value = job.value
    producer.produce(job.topic, value)
    producer.flush()
    watch.start()
    produce_all(producer, job.topic, repeat(value, job.record_count))
    producer.flush()


def produce_kafka_python(job: Job, watch: Watch) -> None:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    value = job.value
    producer.send(job.topic, value).get()
    watch.start()
    for _ in range(job.record_count):
        producer.send(job.topic, value)
    producer.flush()
    producer.close()


def produce_aiokafka(job: Job, watch: Watch) -> None:
    import aiokafka

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=job.bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
        )
        await producer.start()
        value = job.value
        await producer.send_and_wait(job.topic, value)
        watch.start()
        for _ in range(job.record_count):
            await producer.send(job.topic, value)
        await producer.stop()

    asyncio.run(run())


# -- consuming


def consume_odradek(job: Job, watch: Watch) -> None:
    with Consumer(job.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(job.topic, 0)])
        poll_all(
            job, watch, lambda most: sum(1 for record in consumer.poll(STALLED_SECONDS, most) if record.value)
        )


def consume_odradek_arrow(job: Job, watch: Watch) -> None:
    with Consumer(job.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(job.topic, 0)])
        poll_all(job, watch, lambda _: int(consumer.poll_arrow(STALLED_SECONDS).num_rows))


def consume_confluent(job: Job, watch: Watch) -> None:
    consumer = confluent_consumer(job)
    poll_all(
        job,
        watch,
        lambda most: sum(1 for response in consumer.consume(most, STALLED_SECONDS) if response.value()),
    )
    consumer.close()


def consume_kafka_python(job: Job, watch: Watch) -> None:
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=job.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    consumer.assign([kafka.TopicPartition(job.topic, 0)])

    def poll(most: int) -> int:
        batches = consumer.poll(timeout_ms=int(STALLED_SECONDS * 1000), max_records=most)
        return sum(1 for records in batches.values() for record in records if record.value)

    poll_all(job, watch, poll)
    consumer.close()


def consume_aiokafka(job: Job, watch: Watch) -> None:
    import aiokafka

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap, auto_offset_reset="earliest", group_id=None, check_crcs=True
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(job.topic, 0)])
        left = job.record_count
        while left > 0:
            batches = await consumer.getmany(timeout_ms=int(STALLED_SECONDS * 1000), max_records=POLL_RECORDS)
            came = sum(1 for records in batches.values() for record in records if record.value)
            if not came:
                raise RuntimeError(f"{left} records did not come")
            if left == job.record_count:
                watch.start(came)
            left -= came
        await consumer.stop()

    asyncio.run(run())


PRODUCERS: Final[dict[str, Work]] = {
    OURS: produce_odradek,
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
CONSUMERS: Final[dict[str, Work]] = {
    OURS: consume_odradek,
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}
ARROW_CONSUMERS: Final[dict[str, Work]] = {
    OURS: consume_odradek_arrow,
    "confluent-kafka": consume_confluent,
}
"""The others have no counterpart: confluent-kafka returns its records here as well."""
