"""A reader that catches up from a cold disk, and what the others notice: acknowledgements, and records on their way to readers.

A log is written, and its pages are thrown out of the page cache (posix_fadvise). One client writes at a steady pace
and reads what it wrote; after some quiet seconds kcat reads the whole cold log. Delays that were due before
it began are beside delays that were due while it read: one run, one process, one clock.
How many bytes came from the disk is asked of the kernel (/proc/PID/io): a log that was not cold is an error, not a figure.

    python -m benchmarks.broker.catch_up others --bootstrap HOST:PORT --topic T --rate 1000   # ends when its input ends
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka as ck

from benchmarks import load
from benchmarks.contenders import Contender
from benchmarks.measures import PARTITIONS, Plan, Running, work_directory
from benchmarks.samples import Better, Sample

VALUE_BYTES: Final = 1024
RATE: Final = 1000
COLD: Final = "cold"
HOT: Final = "hot"
COLD_SHARE_MIN: Final = 0.5
_WARM_UP_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 30.0
Delays = list[tuple[float, float]]
"""When a record was due (`time.perf_counter`, which processes of one machine share), and its delay in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What the client beside the reader measured."""

    acknowledged: Delays
    delivered: Delays


def record_count(plan: Plan) -> int:
    return 20_000 if plan.rounds == 1 else 2_000_000 if plan.rounds <= 3 else 4_000_000


def quiet_seconds(plan: Plan) -> float:
    return 1.0 if plan.rounds == 1 else 5.0


def catch_up(contender: Contender, plan: Plan, round_number: int) -> Iterator[Sample]:
    """p99 of others without and with a reader from a cold disk, and the reader's own pace."""
    count = record_count(plan)
    with work_directory() as directory:
        node = contender.make(directory)
        node.start()
        try:
            running = Running(contender=contender, node=node)
            for topic in (COLD, HOT):
                load.create_topic(node.bootstrap, topic, PARTITIONS)
            load.run_producer(node.bootstrap, COLD, count=count, value_bytes=VALUE_BYTES, acks="all")
            os.sync()
            log_bytes = chill(node.data_directory, COLD)
            before = _bytes_from_disk(node.pid)
            with _others(node.bootstrap) as others:
                time.sleep(_WARM_UP_SECONDS + quiet_seconds(plan))
                began = time.perf_counter()
                load.run_consumer(node.bootstrap, COLD, count=count, value_bytes=VALUE_BYTES)
                ended = time.perf_counter()
            from_disk = _bytes_from_disk(node.pid) - before
        finally:
            node.stop()
    if from_disk < COLD_SHARE_MIN * log_bytes:
        raise RuntimeError(f"{from_disk} bytes of {log_bytes} came from the disk: the log was not cold")
    condition = f"{count:,} cold records of 1 KiB, others write {RATE:,} a second"
    yield from running.samples(
        "catch-up reader", condition, round_number, figures_of(others.seen, began, ended, count)
    )


def figures_of(others: Others, began: float, ended: float, count: int) -> dict[str, tuple[float, Better]]:
    figures: dict[str, tuple[float, Better]] = {
        "MB/s": (count * VALUE_BYTES / (ended - began) / 1e6, "higher")
    }
    for name, delays in (("acknowledgement", others.acknowledged), ("delivery", others.delivered)):
        first = min(due for due, _ in delays) + _WARM_UP_SECONDS
        quiet = percentile([delay for due, delay in delays if first <= due < began], 0.99)
        beside = percentile([delay for due, delay in delays if began <= due < ended], 0.99)
        figures[f"p99 ms of {name} without"] = (quiet, "lower")
        figures[f"p99 ms of {name} with"] = (beside, "lower")
        figures[f"p99 of {name}, times of without"] = (beside / quiet, "lower")
    return figures


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value that this share of the values lies at or below. RuntimeError when there are none."""
    if not values:
        raise RuntimeError("no record was due while it was measured: there is too little to read")
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def chill(data_directory: Path, topic: str) -> int:
    """Throws the topic's files out of the page cache; returns the bytes of its logs. What is dirty stays: sync before."""
    total = 0
    for path in sorted(data_directory.glob(f"**/{topic}-*/*")):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(descriptor).st_size if path.suffix == ".log" else 0
        finally:
            os.close(descriptor)
    return total


def _bytes_from_disk(pid: int) -> int:
    text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    match = re.search(r"^read_bytes: ([0-9]+)$", text, re.M)
    assert match is not None
    return int(match[1])


class _Beside:
    """The other clients' process; `seen` is there once it has ended."""

    def __init__(self) -> None:
        self.seen = Others(acknowledged=[], delivered=[])


@contextmanager
def _others(bootstrap: str) -> Iterator[_Beside]:
    command = [sys.executable, "-m", "benchmarks.broker.catch_up", "others"]
    command += ["--bootstrap", bootstrap, "--topic", HOT, "--rate", str(RATE)]
    beside = _Beside()
    with subprocess.Popen(
        command, cwd=load.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield beside
            output, _ = process.communicate("", timeout=2 * _FLUSH_SECONDS)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"the clients beside the reader ended with {process.returncode}")
    document: dict[str, Any] = json.loads(output)
    beside.seen = Others(
        acknowledged=[(due, delay) for due, delay in document["acknowledged"]],
        delivered=[(due, delay) for due, delay in document["delivered"]],
    )


# -- inside that process


class _Reader(threading.Thread):
    """Reads the end of the topic; notes how long each record took from when it was due."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = ck.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.wait.max.ms": 500}
            | {"enable.auto.commit": False, "log_level": 2}
        )
        self._consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._over = threading.Event()
        self.delays: Delays = []

    def run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(100, 0.05):
                value = message.value()
                if message.error() is None and value is not None:
                    (due,) = struct.unpack_from(">d", value)
                    self.delays.append((due, (time.perf_counter() - due) * 1000))
        self._consumer.close()

    def end(self) -> None:
        self._over.set()
        self.join()


def _run_others(options: argparse.Namespace) -> dict[str, Delays]:
    producer = ck.Producer(
        {"bootstrap.servers": options.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2}
        | {"socket.nagle.disable": True}
    )
    producer.list_topics(options.topic, timeout=30)
    reader = _Reader(options.bootstrap, options.topic)
    reader.start()
    over = threading.Event()

    def await_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=await_the_end, daemon=True).start()
    delays: Delays = []
    failed: list[ck.KafkaError] = []

    def answered(due: float):  # type: ignore[no-untyped-def]
        def note(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is None:
                delays.append((due, (time.perf_counter() - due) * 1000))
            else:
                failed.append(error)

        return note

    padding = os.urandom(VALUE_BYTES - 8)
    started, number = time.perf_counter() + 0.01, 0
    while not over.is_set():
        due = started + number / options.rate
        while (ahead := due - time.perf_counter()) > 0:
            producer.poll(ahead)
        producer.produce(
            options.topic,
            struct.pack(">d", due) + padding,
            partition=number % PARTITIONS,
            on_delivery=answered(due),
        )
        number += 1
    left = producer.flush(_FLUSH_SECONDS)
    deadline = time.monotonic() + _FLUSH_SECONDS
    while len(reader.delays) < len(delays) and time.monotonic() < deadline:
        time.sleep(0.01)
    reader.end()
    if left or failed:
        raise RuntimeError(f"{len(failed)} records failed, {left} got no answer")
    if len(reader.delays) < len(delays):
        raise RuntimeError(f"{len(reader.delays)} records of {len(delays)} were read")
    return {"acknowledged": delays, "delivered": reader.delays}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker.catch_up", description=__doc__)
    parser.add_argument("kind", choices=["others"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, default=RATE)
    print(json.dumps(_run_others(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
