"""Everything that was acknowledged is there: at its offset, once, whole transactions or none, offsets not behind."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka
from confluent_kafka.admin import AdminClient
from tests.faults.ledger import UNKNOWN, place, place_of
from tests.faults.power.witnesses import (
    ABORTED,
    CLAIMS,
    COMMITTED,
    LEDGER,
    PARTITIONS,
    TRANSFERS,
    Testimony,
    transactional_producer,
)

_ASK_SECONDS: Final = 60.0


@dataclass(slots=True)
class Finding:
    """What is wrong; nothing, if all lists are empty."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    """Transactions that are there in part, or though they were aborted."""
    behind: list[str] = field(default_factory=list)
    """Committed offsets."""
    unusable: list[str] = field(default_factory=list)

    def everything(self) -> dict[str, list[str]]:
        kinds = ("lost", "doubled", "misplaced", "torn", "behind", "unusable")
        return {kind: wrongs for kind in kinds if (wrongs := getattr(self, kind))}

    @property
    def is_clean(self) -> bool:
        return not self.everything()


def compare(address: str, testimony: Testimony) -> Finding:
    """Read all topics of the cluster at `address`, end what transactions a cut left open, and compare."""
    finding = Finding(acknowledged=testimony.count)
    try:
        for name in testimony.transactions:
            transactional_producer(address, name).init_transactions(_ASK_SECONDS)
        _compare_records(address, testimony, finding)
        for name, ended in testimony.transactions.items():
            _compare_transactions(address, name, ended, finding)
        for group, offset in testimony.group_offsets.items():
            now = _committed(address, group)
            if now < offset:
                finding.behind.append(f"group {group} is at {now}; {offset} was acknowledged")
        there = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=_ASK_SECONDS)
        finding.lost += [f"topic {topic}" for topic in testimony.topics if topic not in there.topics]
    except (confluent_kafka.KafkaException, AssertionError, ValueError) as error:
        finding.unusable.append(str(error))
    return finding


def _compare_records(address: str, testimony: Testimony, finding: Finding) -> None:
    seen: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for message in read(address, LEDGER, PARTITIONS):
        name, _, number_text = message.value().decode().partition(":")
        number = int(number_text)
        if number in seen[name]:
            finding.doubled.append(f"{name}:{number}")
        seen[name][number] = place(message.partition(), message.offset())
    for name, places in testimony.records.items():
        for number, where in enumerate(places):
            if where == UNKNOWN:
                continue
            if number not in seen[name]:
                finding.lost.append(f"{name}:{number}, acknowledged {_where(where)}")
            elif where >= 0 and seen[name][number] != where:
                finding.misplaced.append(f"{name}:{number} {_where(seen[name][number])}, not {_where(where)}")


def _where(places: int) -> str:
    return "at {}/{}".format(*place_of(places)) if places >= 0 else "without an offset"


def _compare_transactions(address: str, name: str, ended: dict[int, str], finding: Finding) -> None:
    where: defaultdict[int, list[int]] = defaultdict(list)
    for message in read(address, TRANSFERS, PARTITIONS):
        written_by, _, number_text = message.value().decode().partition(":")
        if written_by == name:
            where[int(number_text)].append(message.partition())
    for number in sorted(where.keys() | ended.keys()):
        partitions, how = sorted(where[number]), ended.get(number)
        if how == COMMITTED and not partitions:
            finding.lost.append(f"transaction {name}:{number}")
        elif partitions not in ([], list(range(PARTITIONS))) or (how == ABORTED and partitions):
            finding.torn.append(f"{name}:{number} ({how or 'unknown'}) is in partitions {partitions}")
    last = max((number for number in where if where[number]), default=-1)
    if ended and (offset := max(_committed(address, name), 0)) != last + 1:
        finding.torn.append(
            f"{name}:{last} is there, and the offset committed with it is {offset}, not {last + 1}"
        )


def _committed(address: str, group: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        (committed,) = consumer.committed([confluent_kafka.TopicPartition(CLAIMS, 0)], _ASK_SECONDS)
        return int(committed.offset)
    finally:
        consumer.close()


def read(
    address: str, topic: str, partitions: int, timeout_s: float = _ASK_SECONDS, *, reset: str = "error"
) -> Iterator[Any]:
    """All committed records of the topic, their checksums checked by the client."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": reset,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    left = set(range(partitions))
    deadline = time.monotonic() + timeout_s
    try:
        while left:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{topic}: after {timeout_s:.0f} s partitions {sorted(left)} are not read to the end"
                )
            for message in consumer.consume(2000, 0.2):
                if message.error() is None:
                    yield message
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif not message.error().retriable():
                    raise AssertionError(f"{topic}-{message.partition()} cannot be read: {message.error()}")
    finally:
        consumer.close()
