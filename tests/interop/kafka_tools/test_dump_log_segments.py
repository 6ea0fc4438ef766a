"""Kafka's own DumpLogSegments reads our segments, indexes and producer snapshots and finds nothing wrong.

The log is made in this process, without a broker: what a partition with transactions looks like on disk after a clean close,
and after a crash and its recovery. The tool says that the first offset follows -1, of Kafka's own segments, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.groups.group_bench import WALL_MS
from tests.unit.groups.group_script import Script

from odradek.config.topic import LogConfig
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, Codec, split_batches
from odradek.runtime.real import real_runtime
from odradek.storage.log.log import Log
from odradek.storage.producers.producer_state import Marker

NOW_MS = 1_700_000_000_000
WRONG = re.compile(r"mismatch|corrupt|exception|out of order|[0-9] is followed by", re.IGNORECASE)
NOTHING_BEFORE = re.compile(r"^  -1 is followed by [0-9]+$", re.MULTILINE)
CLEAN, CRASHED = "closed cleanly", "recovered after a crash"


@pytest.fixture(scope="module")
def dump(tools):
    """Runs the tool on files; returns what it printed."""

    def run(*arguments, files):
        listed = ",".join(str(path) for path in files)
        outcome = tools.run("org.apache.kafka.tools.DumpLogSegments", "--files", listed, *arguments)
        assert outcome.status == 0, outcome.terminal
        printed = NOTHING_BEFORE.sub("", outcome.terminal)
        assert not WRONG.search(printed), printed
        return outcome.printed

    return run


@pytest.fixture(scope="module", params=[CLEAN, CRASHED])
def directory(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "t-0"
    config = LogConfig(segment_bytes=6000, index_interval_bytes=500)

    def opened(**how):
        partition = TopicPartition("t", 0)
        return Log.open(real_runtime(), str(path), config, topic_partition=partition, **how)

    log = opened(clean=True, recovery_point=0)
    _fill(log)
    if request.param == CRASHED:
        job = log.flush_job()
        job.run()
        log.flushed(job)
        log.abandon()
        log.close()
        log = opened(clean=False, recovery_point=0)
    log.close()
    return path


def _fill(log):
    """Transactions of two producers, committed and aborted, one left open, among other batches of every codec."""
    sequences = dict.fromkeys((11, 12, 13), 0)
    for number in range(24):
        producer_id = 11 + number % 2
        _send(log, producer_id, sequences, transactional=True)
        _send(log, 13, sequences, codec=list(Codec)[number % 5])
        marker = Marker(producer_id, 0, 5, number % 4 > 1, NOW_MS)
        log.append_marker(marker, transaction_version=1, leader_epoch=0, now_ms=NOW_MS)
    _send(log, 11, sequences, transactional=True)


def _send(log, producer_id, sequences, *, transactional=False, codec=Codec.NONE):
    builder = BatchBuilder(codec)
    for number in range(3):
        builder.append(NOW_MS + number, b"key", bytes(90), ())
    batch = builder.build(
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequences[producer_id],
        transactional=transactional,
    )
    sequences[producer_id] += 3
    log.append(split_batches(batch), leader_epoch=0, now_ms=NOW_MS)


def _files(directory: Path, suffix: str) -> list[Path]:
    paths = sorted(directory.glob(f"*{suffix}"))
    assert paths
    return paths


def test_every_batch_and_record_is_read(dump, directory):
    output = dump("--deep-iteration", files=_files(directory, ".log"))
    assert output.count("isControl: true") == 24
    assert len(re.findall(r"endTxnMarker: (?:COMMIT|ABORT) coordinatorEpoch: 5", output)) == 24
    assert output.count("endTxnMarker: ABORT") == 12
    assert "isvalid: false" not in output


def test_the_indexes_agree_with_the_log(dump, directory):
    for suffix in (".index", ".timeindex"):
        paths = _files(directory, suffix)
        assert dump("--index-sanity-check", files=paths).count("passed sanity check") == len(paths)
        dump("--verify-index-only", files=paths)


def test_the_aborted_transactions_are_all_there(dump, directory):
    output = dump(files=_files(directory, ".txnindex"))
    assert len(re.findall(r"version: 0 producerId: 1[12] firstOffset: \d+ lastOffset: \d+", output)) == 12


def test_the_producers_are_all_there(dump, directory):
    output = dump(files=_files(directory, ".snapshot")[-1:])
    producers = re.findall(
        r"producerId: (\d+) .*?coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+)", output
    )
    assert {producer for producer, _, _ in producers} == {"11", "12", "13"}
    assert {epoch for producer, epoch, _ in producers if producer != "13"} == {"5"}
    open_transaction = next(first for producer, _, first in producers if producer == "11")
    assert re.search(r"\d", open_transaction)


def test_the_records_of_groups_are_decoded(dump, tmp_path):
    script = Script()
    script.run(
        (
            "settings initial-rebalance-delay-ms=0",
            "join A instance=one version=5",
            "advance 0",
            "sync one#1 generation=1 assign=one#1:all",
            "commit t/0=5 member=one#1 generation=1 metadata=note",
            "commit t/1=7 group=simple retention=60000",
            "delete-group group=simple",
        )
    )
    path = tmp_path / "__consumer_offsets-0"
    name = TopicPartition("__consumer_offsets", 0)
    log = Log.open(real_runtime(), str(path), LogConfig(), topic_partition=name, clean=True, recovery_point=0)
    for record in script.bench.written:
        builder = BatchBuilder()
        builder.append(record.timestamp, record.key, record.value, ())
        log.append(split_batches(memoryview(builder.build())), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    said = dump("--offsets-decoder", files=sorted(path.glob("*.log")))
    assert said.count("payload: ") == len(script.bench.written) == 5
    assert '"protocolType":"consumer","generation":1,"protocol":"range"' in said
    assert '"groupInstanceId":"one"' in said
    assert '"offset":5,"leaderEpoch":-1,"metadata":"note"' in said
    assert f'"expireTimestamp":{WALL_MS + 60_000}' in said
    assert said.count("payload: <DELETE>") == 2
