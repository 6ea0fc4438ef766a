"""The clients that load a broker, each a process of its own that prints one line of JSON.

Producing goes through confluent-kafka's `produce_batch`: one call hands thousands of records to librdkafka's C code,
about 0.8 us of client CPU a record, so that the broker and not Python is what is measured. Consuming goes through
kcat, which is librdkafka with no Python at all, or through confluent-kafka where kcat is missing.

    python -m benchmarks.load produce --bootstrap HOST:PORT --topic T --count N --value-bytes B --acks all
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

ROOT = Path(__file__).resolve().parent.parent
SECONDS_MAX = 300
BATCH_RECORDS = 5000
BATCH_BYTES = 8 << 20
LATENCY_WARM_UP_SECONDS = 1.0
Settings = Mapping[str, str]
PLAIN: Final[Settings] = MappingProxyType({})
"""What clients need of an unsecured broker besides its address."""

PRODUCER_SETTINGS: dict[str, object] = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "compression.type": "none",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 262_144,
    "log_level": 2,
}
CONSUMER_SETTINGS: dict[str, object] = {
    "fetch.message.max.bytes": 1_048_576,
    "fetch.wait.max.ms": 10,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 65_536,
    "check.crcs": "false",
    "enable.auto.commit": "false",
    "log_level": 2,
}
QUEUE_PAUSE: Final[Mapping[str, object]] = MappingProxyType({"fetch.queue.backoff.ms": 10})
"""librdkafka fetches nothing for so long once its queue is full. The default is a second, in which a consumer empties the queue
and waits: a faster broker then seems slower. kcat may contain a librdkafka that does not know the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What one run of a client moved, and how long it took from its first call to its last answer."""

    records: int
    payload_bytes: int
    seconds: float
    client_cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Milliseconds from the moment a record was due to be sent to its acknowledgement."""

    records: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def create_topic(bootstrap: str, name: str, partitions: int, secured: Settings = PLAIN) -> None:
    """Create it and wait until every partition answers, which in Kafka takes a moment longer."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, **secured})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            end_offsets(bootstrap, name, partitions, secured)
            return
        except ck.KafkaException:
            time.sleep(0.05)
    raise TimeoutError(f"topic {name} did not come up")


def delete_topic(bootstrap: str, name: str, secured: Settings = PLAIN) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, **secured})
    admin.delete_topics([name])[name].result(30)


def end_offsets(bootstrap: str, name: str, partitions: int, secured: Settings = PLAIN) -> int:
    """The sum of the partitions' end offsets: how many records are there to read."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", **CONSUMER_SETTINGS, **secured}
    )
    try:
        places = [ck.TopicPartition(name, number) for number in range(partitions)]
        return sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    finally:
        consumer.close()


def run_producer(
    bootstrap: str, topic: str, *, count: int, value_bytes: int, acks: str, secured: Settings = PLAIN
) -> Loaded:
    """Run the producing client as a process."""
    flags = [
        "--count",
        str(count),
        "--value-bytes",
        str(value_bytes),
        "--acks",
        acks,
        *_as_flags("--set", secured),
    ]
    return Loaded(**_run("produce", bootstrap, topic, *flags))


def run_latency(bootstrap: str, topic: str, *, acks: str, rate: int, seconds: float) -> Latencies:
    """Run the pacing client as a process."""
    flags = ["--acks", acks, "--rate", str(rate), "--seconds", str(seconds)]
    return Latencies(**_run("latency", bootstrap, topic, *flags))


def run_consumer(
    bootstrap: str, topic: str, *, count: int, value_bytes: int, secured: Settings = PLAIN
) -> Loaded:
    """Read `count` records from the start of every partition of `topic`, with kcat if there is one."""
    if shutil.which("kcat") is None:
        flags = ["--count", str(count), "--value-bytes", str(value_bytes), *_as_flags("--set", secured)]
        return Loaded(**_run("consume", bootstrap, topic, *flags))
    known = _as_flags("-X", {**CONSUMER_SETTINGS, **secured})
    command = [
        "kcat",
        "-C",
        "-b",
        bootstrap,
        "-t",
        topic,
        "-o",
        "0",
        "-c",
        str(count),
        "-q",
        "-f",
        "",
        *known,
    ]
    before = os.times()
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS_MAX)
    seconds = time.perf_counter() - started
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return Loaded(records=count, payload_bytes=count * value_bytes, seconds=seconds, client_cpu_seconds=spent)


def _as_flags(flag: str, settings: Mapping[str, object]) -> list[str]:
    return [part for key, value in settings.items() for part in (flag, f"{key}={value}")]


def consumer_name() -> str:
    return "confluent-kafka" if shutil.which("kcat") is None else "kcat"


def _run(kind: str, bootstrap: str, topic: str, *flags: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.load",
        kind,
        "--bootstrap",
        bootstrap,
        "--topic",
        topic,
        *flags,
    ]
    answer = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS_MAX
    )
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


# -- inside the client processes


def _produce(options: argparse.Namespace) -> Loaded:
    settings = {
        **PRODUCER_SETTINGS,
        "bootstrap.servers": options.bootstrap,
        "acks": options.acks,
        **dict(options.set),
    }
    producer = ck.Producer(settings)
    size = options.value_bytes
    value = os.urandom(size)
    batch = [{"value": value} for _ in range(max(1, min(BATCH_RECORDS, BATCH_BYTES // size)))]
    producer.list_topics(options.topic, timeout=30)  # connect before the clock starts
    before = time.process_time()
    started = time.perf_counter()
    sent = 0
    while sent < options.count:
        wanted = batch[: options.count - sent]
        try:
            taken = producer.produce_batch(options.topic, wanted)
        except BufferError:
            taken = 0
        sent += taken
        if taken < len(wanted):
            producer.poll(0.005)
    left = producer.flush(SECONDS_MAX)
    seconds = time.perf_counter() - started
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")
    return Loaded(
        records=sent,
        payload_bytes=sent * size,
        seconds=seconds,
        client_cpu_seconds=time.process_time() - before,
    )


def _consume(options: argparse.Namespace) -> Loaded:
    address = {"bootstrap.servers": options.bootstrap, "group.id": "bench"}
    consumer = ck.Consumer({**address, **CONSUMER_SETTINGS, **QUEUE_PAUSE, **dict(options.set)})
    partitions = consumer.list_topics(options.topic, timeout=30).topics[options.topic].partitions
    before = time.process_time()
    started = time.perf_counter()
    consumer.assign([ck.TopicPartition(options.topic, number, 0) for number in partitions])
    seen = 0
    while seen < options.count:
        messages = consumer.consume(10_000, timeout=1)
        seen += sum(message.error() is None for message in messages)
    seconds = time.perf_counter() - started
    spent = time.process_time() - before
    consumer.close()
    size = options.value_bytes
    return Loaded(records=seen, payload_bytes=seen * size, seconds=seconds, client_cpu_seconds=spent)


def _latency(options: argparse.Namespace) -> Latencies:
    """Send at a steady rate whatever the answers do; a late record counts from when it was due."""
    settings = {
        **PRODUCER_SETTINGS,
        "bootstrap.servers": options.bootstrap,
        "acks": options.acks,
        "linger.ms": 0,
        "socket.nagle.disable": True,
    }
    producer = ck.Producer(settings)
    producer.list_topics(options.topic, timeout=30)
    value = os.urandom(1024)
    count = int(options.rate * (options.seconds + LATENCY_WARM_UP_SECONDS))
    took: list[float] = []
    failed: list[ck.KafkaError] = []
    started = time.perf_counter() + 0.01

    def answered(due: float):  # type: ignore[no-untyped-def]
        def note(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is None:
                took.append((time.perf_counter() - due) * 1000)
            else:
                failed.append(error)

        return note

    for number in range(count):
        due = started + number / options.rate
        while (ahead := due - time.perf_counter()) > 0:
            producer.poll(ahead)
        producer.produce(options.topic, value, partition=0, on_delivery=answered(due))
    if producer.flush(30) or failed:
        raise RuntimeError(f"{len(failed)} records failed, {len(producer)} got no answer")
    kept = sorted(took[int(options.rate * LATENCY_WARM_UP_SECONDS) :])
    return Latencies(
        records=len(kept),
        p50_ms=kept[len(kept) // 2],
        p99_ms=kept[int(len(kept) * 0.99)],
        p999_ms=kept[int(len(kept) * 0.999)],
        max_ms=kept[-1],
    )


def _rounds(options: argparse.Namespace) -> None:
    """Reads lines `TOPIC COUNT` until the input ends; each is a run of the producing client, and answered by a line of JSON."""
    for line in sys.stdin:
        topic, count = line.split()
        options.topic, options.count = topic, int(count)
        print(json.dumps(asdict(_produce(options))), flush=True)


_WORK: dict[str, Callable[[argparse.Namespace], Loaded | Latencies]] = {
    "produce": _produce,
    "consume": _consume,
    "latency": _latency,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("kind", choices=[*_WORK, "rounds"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--acks", choices=["0", "1", "all"], default="all")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", type=lambda pair: pair.split("=", 1)
    )
    options = parser.parse_args()
    if options.kind == "rounds":
        _rounds(options)
        return 0
    print(json.dumps(asdict(_WORK[options.kind](options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
