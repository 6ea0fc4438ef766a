"""One record after another: written and read by each client, as its users write it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

from benchmarks.python_clients.job import (
    BATCH_BYTES,
    FETCH_WAIT_MS,
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


def rewind_confluent(consumer: Any, job: Job) -> None:
    import confluent_kafka

    consumer.seek(confluent_kafka.TopicPartition(job.topic, 0, 0))


def confluent_consumer(job: Job) -> Any:
    import confluent_kafka

    from benchmarks.load import QUEUE_PAUSE

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            **QUEUE_PAUSE,
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
    tp = TopicPartition(job.topic, 0)

    def poll(most: int) -> int:
        return sum(1 for record in consumer.poll(STALLED_SECONDS, most) if record.value)

    with Consumer(job.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=FETCH_WAIT_MS) as consumer:
        consumer.assign([tp])
        poll_all(job, watch, poll, lambda: consumer.seek(tp, 0))


def consume_odradek_arrow(job: Job, watch: Watch) -> None:
    tp = TopicPartition(job.topic, 0)
    with Consumer(job.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=FETCH_WAIT_MS) as consumer:
        consumer.assign([tp])
        poll_all(
            job,
            watch,
            lambda _: int(consumer.poll_arrow(STALLED_SECONDS).num_rows),
            lambda: consumer.seek(tp, 0),
        )


def consume_confluent(job: Job, watch: Watch) -> None:
    consumer = confluent_consumer(job)

    def poll(most: int) -> int:
        return sum(1 for message in consumer.consume(most, STALLED_SECONDS) if message.value())

    poll_all(job, watch, poll, lambda: rewind_confluent(consumer, job))
    consumer.close()


def consume_kafka_python(job: Job, watch: Watch) -> None:
    import kafka

    tp = kafka.TopicPartition(job.topic, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=job.bootstrap,
        auto_offset_reset="earliest",
        group_id=None,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )
    consumer.assign([tp])

    def poll(most: int) -> int:
        batches = consumer.poll(timeout_ms=int(STALLED_SECONDS * 1000), max_records=most)
        return sum(1 for records in batches.values() for record in records if record.value)

    poll_all(job, watch, poll, lambda: consumer.seek(tp, 0))
    consumer.close()


def consume_aiokafka(job: Job, watch: Watch) -> None:
    import aiokafka

    tp = aiokafka.TopicPartition(job.topic, 0)

    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap,
            auto_offset_reset="earliest",
            group_id=None,
            check_crcs=True,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )

        async def poll(most: int) -> int:
            batches = await consumer.getmany(timeout_ms=int(STALLED_SECONDS * 1000), max_records=most)
            return sum(1 for records in batches.values() for record in records if record.value)

        await consumer.start()
        consumer.assign([tp])
        await poll(1)
        consumer.seek(tp, 0)
        watch.start(0)
        left = job.record_count
        while left > 0:
            came = await poll(min(left, POLL_RECORDS))
            if not came:
                raise RuntimeError(f"{left} records did not come within {STALLED_SECONDS} s")
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
