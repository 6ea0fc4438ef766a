"""Data worth damaging: many small segments, aborted transactions, a compacted topic, a trimmed one; made once per run."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.power.cuts import SETTINGS
from tests.faults.power.run import wait_until_in_sync
from tests.faults.power.witnesses import CLAIMS, LEDGER, PARTITIONS, TRANSFERS, Testimony, Witnesses
from tests.kit.cluster import cluster

BROKERS: Final = 3
REGISTER: Final = "register"
TRIMMED: Final = "trimmed"
TRIMMED_TO: Final = 150
_TRIMMED_COUNT: Final = 400
_KEYS: Final = 20
_ROUNDS: Final = 15
_ASK_SECONDS: Final = 60.0
_SMALL: Final = {"internal.segment.bytes": "8192", "index.interval.bytes": "256"}
ALL: Final = (LEDGER, TRANSFERS, CLAIMS, REGISTER, TRIMMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Directories of a whole cluster, to be copied: one was killed, the other stopped cleanly."""

    killed: Path
    stopped: Path
    testimony: Testimony


def settings() -> dict[str, str]:
    return {
        **SETTINGS,
        "log.cleaner.backoff.ms": "100",
        "log.flush.offset.checkpoint.interval.ms": "60000",  # what is newer is known from the extents alone
        "log.flush.start.offset.checkpoint.interval.ms": "200",
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
    }


def make(directory: Path, *, seconds: float) -> Dataset:
    """Blocks for `seconds` of writing and some more."""
    live = directory / "live"
    live.mkdir()
    fleet = cluster(live, settings(), brokers=BROKERS, in_sync=2)
    try:
        fleet.start()
        _make_topics(fleet.bootstrap)
        testimony = _write(fleet.bootstrap, seconds)
        wait_until_in_sync(fleet.bootstrap, ALL)
        time.sleep(2.5)  # the extents are written, the cleaner has been there
        for broker in fleet.brokers:
            broker.kill()
        shutil.copytree(live, directory / "killed")
        fleet.stop()
        fleet.start()
        wait_until_in_sync(fleet.bootstrap, ALL)
    finally:
        fleet.stop()
    live.rename(directory / "stopped")
    return Dataset(killed=directory / "killed", stopped=directory / "stopped", testimony=testimony)


def _make_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    compacted = {
        **_SMALL,
        "internal.segment.bytes": "2048",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    }
    wanted = [
        _led_by_the_first(LEDGER, PARTITIONS, _SMALL),
        _led_by_the_first(TRANSFERS, PARTITIONS, {**_SMALL, "internal.segment.bytes": "2048"}),
        _led_by_the_first(CLAIMS, 1, {}),
        _led_by_the_first(REGISTER, 1, compacted),
        _led_by_the_first(TRIMMED, 1, {**_SMALL, "internal.segment.bytes": "2048"}),
    ]
    for future in admin.create_topics(wanted).values():
        future.result(_ASK_SECONDS)


def _led_by_the_first(topic: str, partitions: int, config: dict[str, str]) -> NewTopic:
    return NewTopic(topic, partitions, replica_assignment=[[1, 2, 3]] * partitions, config=config)


def _write(address: str, seconds: float) -> Testimony:
    witnesses = Witnesses(address, per_second=400)
    witnesses.start()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "linger.ms": 0}
    )
    for number in range(_TRIMMED_COUNT):
        producer.produce(TRIMMED, str(number).encode(), partition=0)
        if number % 20 == 0:
            producer.flush(_ASK_SECONDS)
    for turn in range(_ROUNDS):
        for key in range(_KEYS):
            producer.produce(REGISTER, f"{key}:{turn}".encode(), key=str(key).encode(), partition=0)
        producer.flush(_ASK_SECONDS)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    until = confluent_kafka.TopicPartition(TRIMMED, 0, TRIMMED_TO)
    for future in admin.delete_records([until]).values():
        future.result(_ASK_SECONDS)
    time.sleep(seconds)
    unanswered = witnesses.finish(_ASK_SECONDS)
    assert not unanswered, unanswered
    return witnesses.testimony()


def expected_register() -> dict[str, str]:
    return {str(key): f"{key}:{_ROUNDS - 1}" for key in range(_KEYS)}


def expected_trimmed() -> list[tuple[int, str]]:
    return [(number, str(number)) for number in range(TRIMMED_TO, _TRIMMED_COUNT)]
