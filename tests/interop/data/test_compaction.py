"""Compaction as clients see it, and compacted files as Kafka's own tool sees them."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from random import Random

import confluent_kafka as ck
import pytest
from benchmarks.peer import PeerAbsentError, cached_peer, java_program
from tests.interop import logins
from tests.interop.server import Server
from tests.kit.waiting import eventually
from tests.simulation.compaction.keyed_log import HOME, PARTITION, KeyedLog

from odradek.config.topic import LogConfig
from odradek.records import Codec

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SECONDS_MAX = 60
KINDS = ("log", "index", "timeindex", "txnindex", "snapshot")
HARMLESS = re.compile(r"Non-consecutive offsets|Non-secutive offsets|\s+-?\d+ is followed by \d+$")
"""What the tool says of offsets that compaction took."""


def complaints(directory: Path) -> list[str]:
    """What Kafka's DumpLogSegments finds wrong with a partition's files, deep inside."""
    try:
        jars = cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    files = sorted(str(file) for kind in KINDS for file in directory.glob(f"*.{kind}"))
    process = subprocess.run(
        [*java_program(jars), DUMP, "--deep-iteration", "--files", ",".join(files)],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("Dumping ") == len(files)
    wrong = re.compile(
        r"mismatch|isvalid: false|out of order|is followed by|is larger|fails|corrupt|exception", re.I
    )
    lines = (process.stdout + process.stderr).splitlines()
    return [line for line in lines if wrong.search(line) and not HARMLESS.search(line)]


@pytest.mark.parametrize("codec", Codec)
def test_kafkas_tool_finds_nothing_wrong_with_compacted_segments(codec: Codec, tmp_path: Path) -> None:
    config = LogConfig(
        segment_bytes=3000, index_interval_bytes=300, min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000
    )
    keyed = KeyedLog(config)
    for number in range(160):
        value = b"%d" % number * 15 if number % 4 else None
        keyed.now_ms += 10
        keyed.write((b"k%d" % (number % 7), value), (b"x%d" % (number % 50), b"1"), codec=codec)
        if number % 9 == 0:
            keyed.write((b"k1", b"t"), producer_id=5 + number % 2, transactional=True, codec=codec)
            keyed.end_transaction(5 + number % 2, is_commit=bool(number % 18))
        if number % 30 == 0:
            keyed.write((b"k1", b"idempotent"), producer_id=9, codec=codec)
        if number % 80 == 79:
            keyed.roll()
            keyed.compact_again()
    keyed.compact_again()
    keyed.close()
    directory = tmp_path / str(PARTITION)
    directory.mkdir()
    for name in keyed.disk.list_directory(f"{HOME}/{PARTITION}"):
        (directory / name).write_bytes(keyed.disk.read(f"{HOME}/{PARTITION}/{name}"))
    assert complaints(directory) == []


def _read_all(bootstrap: str, topic: str) -> list[ck.Message]:
    consumer = ck.Consumer({**logins.librdkafka(bootstrap), "group.id": "compaction", "log_level": 2})
    low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=20)
    consumer.assign([ck.TopicPartition(topic, 0, low)])
    messages: list[ck.Message] = []
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        messages += [response for response in consumer.consume(500, timeout=0.2) if response.error() is None]
        position = consumer.position([ck.TopicPartition(topic, 0)])[0].offset
        if position >= high or (messages and messages[-1].offset() >= high - 1):
            break
    consumer.close()
    return messages


def test_clients_find_the_newest_value_of_each_key(make_node, server_kind, tmp_path) -> None:
    node = make_node(
        directory=tmp_path / "node",
        settings={
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.segment.bytes": str(1 << 20),
            "log.cleanup.policy": "compact",
        },
    ).start()
    try:
        Server(kind=server_kind, node=node).create_topic("keyed")
        producer = ck.Producer(
            {**logins.librdkafka(node.bootstrap), "compression.type": "lz4", "linger.ms": 5}
        )
        rng = Random(1)
        latest: dict[bytes, bytes | None] = {}
        for number in range(6000):
            key = b"key %d" % (number % 97)
            value = None if number % 13 == 0 else rng.randbytes(rng.randrange(1000))
            latest[key] = value
            producer.produce("keyed", key=key, value=value)
            producer.poll(0)
        assert producer.flush(20) == 0
        messages = eventually(
            lambda: _read_all(node.bootstrap, "keyed"), holds=lambda left: len(left) <= 4000, every_s=0.2
        )
        offsets = [response.offset() for response in messages]
        assert offsets == sorted(set(offsets))
        assert {response.key(): response.value() for response in messages} == latest
    finally:
        node.stop()
    if server_kind == "odradek":
        partition = next(tmp_path.glob("**/keyed-0"))
        assert complaints(partition) == []
