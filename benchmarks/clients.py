"""Our Python client beside confluent-kafka (librdkafka), aiokafka and kafka-python, against one running broker.

    python benchmarks/clients.py --bootstrap HOST:PORT [--rounds N] [--json FILE] [--megabytes N]

Every client gets the same settings (acks=all, idempotence, 5 ms linger, one batch size, one partition) and one
thread of the caller's. Time runs from when a client has sent its first record, or got its first ones: starting up
is not measured. Rounds are interleaved; each line gives the median rate, the CPU the client process took for it, and
how many times our rate is the other's: median, and in brackets the lowest and highest ratio of any round. `arrow` is
our consumer's Arrow path, to which the others have no counterpart.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition

LINGER_MS = 5
BATCH_BYTES = 131_072
POLL_RECORDS = 500
STALLED_SECONDS = 30.0
VALUE_BYTES = (100, 1_024, 16_384)
OURS = "odradek"

Work = Callable[["Job", "Watch"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One topic to fill or to read."""

    bootstrap: str
    topic: str
    value_bytes: int
    record_count: int

    @property
    def value(self) -> bytes:
        return bytes(range(256)) * (self.value_bytes // 256) + bytes(self.value_bytes % 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One client's one round."""

    what: str
    value_bytes: int
    client: str
    records_per_second: float
    megabytes_per_second: float
    cpu_seconds_per_million: float


class Watch:
    """Wall and CPU time of this process from `start` on, and how many records are not to be counted."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, already: int = 1) -> None:
        """From now on, `already` records being done."""
        self.already = already
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


# -- producing


def produce_odradek(job: Job, watch: Watch) -> None:
    value = job.value
    with Producer(job.bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.send(job.topic, value).result()
        watch.start()
        for _ in range(job.record_count):
            producer.send(job.topic, value)


def produce_confluent(job: Job, watch: Watch) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
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
    value = job.value
    producer.produce(job.topic, value)
    producer.flush()
    watch.start()
    for _ in range(job.record_count):
        while True:
            try:
                producer.produce(job.topic, value)
                break
            except BufferError:
                producer.poll(0.01)
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
        _count(
            job, watch, lambda most: sum(1 for record in consumer.poll(STALLED_SECONDS, most) if record.value)
        )


def consume_odradek_arrow(job: Job, watch: Watch) -> None:
    with Consumer(job.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(job.topic, 0)])
        _count(job, watch, lambda _: int(consumer.poll_arrow(STALLED_SECONDS).num_rows))


def consume_confluent(job: Job, watch: Watch) -> None:
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
    _count(
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

    _count(job, watch, poll)
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


def _count(job: Job, watch: Watch, poll: Callable[[int], int]) -> None:
    """Poll until all have come; `poll` gets the most to return (librdkafka waits until it has that many)."""
    left = job.record_count
    while left > 0:
        came = poll(min(left, POLL_RECORDS))
        if not came:
            raise RuntimeError(f"{left} records did not come within {STALLED_SECONDS} s")
        if left == job.record_count:
            watch.start(came)
        left -= came


PRODUCERS: dict[str, Work] = {
    OURS: produce_odradek,
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}
CONSUMERS: dict[str, Work] = {
    OURS: consume_odradek,
    "odradek arrow": consume_odradek_arrow,
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}


# -- the run


def measure(what: str, client: str, work: Work, job: Job) -> Measurement:
    gc.collect()
    watch = Watch()
    work(job, watch)
    wall, cpu = watch.read()
    record_count = job.record_count - (watch.already if what == "consume" else 0)
    return Measurement(
        what=what,
        value_bytes=job.value_bytes,
        client=client,
        records_per_second=record_count / wall,
        megabytes_per_second=record_count * job.value_bytes / wall / 1e6,
        cpu_seconds_per_million=cpu / record_count * 1e6,
    )


@contextmanager
def new_topic(bootstrap: str) -> Iterator[str]:
    """A topic with one partition, gone afterwards."""
    name = f"bench-clients-{uuid.uuid4().hex[:12]}"
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
        try:
            yield name
        finally:
            admin.delete_topics([name])


def run_round(
    bootstrap: str, value_bytes: int, record_count: int, clients: set[str], shift: int
) -> list[Measurement]:
    """Every client once, each producing to a topic of its own, then all reading the one that we filled."""
    measurements = []
    with new_topic(bootstrap) as full:
        for client, work in _rotated(PRODUCERS, clients, shift):
            if client == OURS:
                job = Job(bootstrap=bootstrap, topic=full, value_bytes=value_bytes, record_count=record_count)
                measurements.append(measure("produce", client, work, job))
            else:
                with new_topic(bootstrap) as topic:
                    job = Job(
                        bootstrap=bootstrap, topic=topic, value_bytes=value_bytes, record_count=record_count
                    )
                    measurements.append(measure("produce", client, work, job))
        job = Job(bootstrap=bootstrap, topic=full, value_bytes=value_bytes, record_count=record_count)
        for client, work in _rotated(CONSUMERS, clients, shift):
            measurements.append(measure("consume", client, work, job))
    return measurements


def _rotated(work: dict[str, Work], clients: set[str], shift: int) -> list[tuple[str, Work]]:
    """The chosen clients, beginning with another one each round."""
    chosen = [(client, item) for client, item in work.items() if client in clients or client.startswith(OURS)]
    shift %= len(chosen)
    return chosen[shift:] + chosen[:shift]


def report(measurements: list[Measurement]) -> list[dict[str, object]]:
    """Print the table; returns its rows."""
    rows: list[dict[str, object]] = []
    print(
        f"{'':8} {'bytes':>6}  {'client':16} {'records/s':>11} {'MB/s':>8} {'CPU s/M':>8}  ours is so many times as fast"
    )
    for what in ("produce", "consume"):
        for value_bytes in sorted({measurement.value_bytes for measurement in measurements}):
            here = [
                measurement
                for measurement in measurements
                if (measurement.what, measurement.value_bytes) == (what, value_bytes)
            ]
            ours = [measurement.records_per_second for measurement in here if measurement.client == OURS]
            for client in dict.fromkeys(
                measurement.client for measurement in sorted(here, key=lambda item: item.client != OURS)
            ):
                own = [measurement for measurement in here if measurement.client == client]
                rows.append(_row(what, value_bytes, client, own, ours))
    return rows


def _row(
    what: str, value_bytes: int, client: str, own: list[Measurement], ours: list[float]
) -> dict[str, object]:
    ratios = [mine / item.records_per_second for mine, item in zip(ours, own, strict=True)]
    rate = statistics.median(measurement.records_per_second for measurement in own)
    megabytes = statistics.median(measurement.megabytes_per_second for measurement in own)
    cpu = statistics.median(measurement.cpu_seconds_per_million for measurement in own)
    ratio = statistics.median(ratios)
    spread = "" if client == OURS else f"{ratio:8.2f}  [{min(ratios):.2f} - {max(ratios):.2f}]"
    print(f"{what:8} {value_bytes:>6}  {client:16} {rate:>11,.0f} {megabytes:>8.1f} {cpu:>8.2f}  {spread}")
    return {
        "what": what,
        "value_bytes": value_bytes,
        "client": client,
        "records_per_second": rate,
        "megabytes_per_second": megabytes,
        "cpu_seconds_per_million": cpu,
        "ours_to_this": ratio,
        "ours_to_this_min": min(ratios),
        "ours_to_this_max": max(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", required=True, help="host:port of a running broker, Odradek or Kafka")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--megabytes", type=int, default=40, help="about how much each client moves in a round"
    )
    parser.add_argument(
        "--values", type=int, nargs="*", default=list(VALUE_BYTES), help="sizes of values in bytes"
    )
    parser.add_argument("--clients", nargs="*", default=list(PRODUCERS), help="which to compare with")
    parser.add_argument("--json", type=Path, help="write every measurement and the table there")
    options = parser.parse_args()
    importlib.import_module("pyarrow")  # 0.1 s and more, which are not to be measured
    measurements: list[Measurement] = []
    for value_bytes in options.values:
        record_count = max(1_000, min(400_000, options.megabytes * 1_000_000 // value_bytes))
        for round_number in range(options.rounds):
            measurements += run_round(
                options.bootstrap, value_bytes, record_count, set(options.clients), round_number
            )
    rows = report(measurements)
    if options.json:
        document = {"table": rows, "measurements": [asdict(measurement) for measurement in measurements]}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
