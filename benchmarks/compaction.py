"""How fast a broker compacts, and what it costs: the same log, written first and let go all at once.

A topic whose dirty ratio can never be reached is filled with keyed records of 1 KiB; then the ratio is lowered, and the clock
runs until `cleaner-offset-checkpoint` on the broker's disk says that everything but the active segment is clean. So both
brokers are asked the same, and neither is asked to report on itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import confluent_kafka as ck
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks import load
from benchmarks.contenders import Contender
from benchmarks.measures import Plan, Running, settle, work_directory
from benchmarks.samples import Better, Sample
from benchmarks.watch import PeakMemory, cpu_seconds

VALUE_BYTES: Final = 1024
SEGMENT_BYTES: Final = 16 << 20
RECORDS_PER_KEY: Final = 3
SECONDS_MAX: Final = 300.0
TOPIC: Final = "compacted"
_CHECKPOINT: Final = "cleaner-offset-checkpoint"
_SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.bytes": str(SEGMENT_BYTES),
}
_NEVER: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}


def compaction(contender: Contender, plan: Plan, round_number: int) -> Iterator[Sample]:
    """Once with records that do not compress, once with lz4 batches of records that do, by half."""
    for codec in ("none", "lz4"):
        with work_directory() as directory:
            node = contender.make(directory)
            node.settings |= _SETTINGS
            node.start()
            try:
                running = Running(contender=contender, node=node)
                _fill(node.bootstrap, codec, max(plan.counts[VALUE_BYTES], 4 * SEGMENT_BYTES // VALUE_BYTES))
                figures = _measure(running)
            finally:
                node.stop()
            condition = f"1 KiB values, {RECORDS_PER_KEY} of each key, {codec}"
            yield from running.samples("compaction", condition, round_number, figures)


def _fill(bootstrap: str, codec: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=_NEVER)])[TOPIC].result(30)
    producer = ck.Producer(
        {**load.PRODUCER_SETTINGS, "bootstrap.servers": bootstrap, "acks": "all", "compression.type": codec}
        | {"batch.size": 16_384}
    )
    rng = random.Random(1)
    noise = rng.randbytes(1 << 20)
    solid = VALUE_BYTES if codec == "none" else VALUE_BYTES // 2
    for _ in range(count):
        at = rng.randrange(len(noise) - VALUE_BYTES)
        value = noise[at : at + solid] + bytes(VALUE_BYTES - solid)
        key = b"key %012d" % rng.randrange(count // RECORDS_PER_KEY)
        while True:
            try:
                producer.produce(TOPIC, value, key)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(SECONDS_MAX):
        raise RuntimeError("not all records were acknowledged")


def _measure(running: Running) -> dict[str, tuple[float, Better]]:
    node = running.node
    dirty_bytes, end_offset = _sealed(node.data_directory)
    settle(dirty_bytes // RECORDS_PER_KEY)
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    ratio = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[ratio])
    before = cpu_seconds(node.pid)
    started = time.perf_counter()
    with PeakMemory(node.pid) as watched:
        admin.incremental_alter_configs([change])[change].result(30)
        while _cleaned(node.data_directory) < end_offset:
            if time.perf_counter() - started > SECONDS_MAX:
                raise RuntimeError(f"not compacted after {SECONDS_MAX} s")
            time.sleep(0.01)
        seconds = time.perf_counter() - started
    spent = cpu_seconds(node.pid) - before
    return {
        "MB/s": (dirty_bytes / seconds / 1e6, "higher"),
        "broker CPU s per GB in": (spent / (dirty_bytes / 1e9), "lower"),
        "PSS MB": (watched.peak.pss_bytes / 1e6, "lower"),
    }


def _sealed(data_directory: Path) -> tuple[int, int]:
    """Bytes of all segments but the last, and the offset at which the last begins."""
    logs = sorted(next(data_directory.glob(f"**/{TOPIC}-0")).glob("*.log"))
    return sum(path.stat().st_size for path in logs[:-1]), int(logs[-1].stem)


def _cleaned(data_directory: Path) -> int:
    path = next(data_directory.glob(f"**/{_CHECKPOINT}"), None)
    lines = path.read_text(encoding="ascii").splitlines() if path is not None else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")), 0)
