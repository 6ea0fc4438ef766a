"""Three real brokers, of which one has a disk of its own that becomes full, with the registry of all of them on it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.faults import disks
from tests.faults.disks import SmallDisk
from tests.kit.cluster import cluster
from tests.kit.waiting import eventually

from odradek.cli.cluster.cluster import cluster as cluster_command
from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.registry.space_reserve import RESERVE_BYTES, RESERVE_NAME

_TOPIC = "t"
_SECONDS_MAX = 120.0
_WHY_ABSENT = disks.absent()


@pytest.mark.skipif(_WHY_ABSENT is not None, reason=f"no small disk: {_WHY_ABSENT}")
def test_acks_all_goes_on_while_the_disk_with_the_registry_is_full(tmp_path: Path) -> None:
    home = tmp_path / "broker-1"
    registry = home / "registry"
    settings = {"odradek.registry.dir": str(registry), "log.retention.check.interval.ms": "1000"}
    fleet = cluster(tmp_path, settings)
    with SmallDisk(home) as disk, fleet, Admin(bootstrap_servers=fleet.bootstrap) as admin:
        reserve = registry / RESERVE_NAME
        eventually(lambda: reserve.exists() and reserve.stat().st_size == RESERVE_BYTES)
        admin.create_topics(
            [
                NewTopic(
                    name=_TOPIC,
                    partitions=3,
                    replication_factor=3,
                    configs={"min.insync.replicas": "2"},
                )
            ]
        )

        def isrs() -> list[tuple[int, ...]]:
            return [tuple(p.isr) for p in admin.describe_topics([_TOPIC])[_TOPIC].partitions]

        eventually(lambda: all(len(isr) == 3 for isr in isrs()))
        sent = 0
        with Producer(bootstrap_servers=fleet.bootstrap, acks="all") as producer:

            def produce(count: int) -> None:
                nonlocal sent
                futures = [
                    producer.send(_TOPIC, b"%d" % (sent + number) + b" " * 4000, partition=number % 3)
                    for number in range(count)
                ]
                for future in futures:
                    future.result(timeout_s=_SECONDS_MAX)
                sent += count

            produce(30)
            with disk.full():
                produce(90)
                eventually(lambda: not any(1 in isr for isr in isrs()))
                produce(90)
                shown = CliRunner().invoke(
                    cluster_command, ["status", "--bootstrap", fleet.bootstrap, "--json"]
                )
                assert shown.exit_code == 0, shown.output
                full = [row for row in json.loads(shown.output)["disks"] if row["state"] == "full"]
                assert [(row["broker"], row["path"]) for row in full] == [(1, str(home))]
            eventually(lambda: all(len(isr) == 3 for isr in isrs()))
            produce(30)
        values = set()
        with Consumer(
            bootstrap_servers=fleet.bootstrap, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([_TOPIC])
            deadline = time.monotonic() + _SECONDS_MAX
            while len(values) < sent and time.monotonic() < deadline:
                values |= {int(record.value) for record in consumer.poll(timeout_s=1.0)}
        assert values == set(range(sent))
