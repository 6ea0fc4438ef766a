"""Producers that remember what was acknowledged, and the check that all of it is there, once, where it was said to be.

Each writer numbers its records. Unmodified client (confluent-kafka), idempotent, acks=all; a record that the client gave up is
"unknown": it may be there or not, but not twice.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from tests.faults.access.clients import CHECKER, WRITER, ClientSettings
from tests.faults.gaps import Watch
from tests.faults.ledger import Ledger


class Writer:
    """One producer in a thread of its own; `ledger` is what it knows of its records."""

    def __init__(
        self,
        name: str,
        clients: ClientSettings,
        topic: str,
        *,
        partitions: int,
        per_second: int,
        user: str = WRITER,
    ) -> None:
        self.name = name
        self.ledger = Ledger()
        self.failures: list[str] = []
        """The errors of records that the client gave up."""
        self.broken: str | None = None
        """What ended the writer itself: an idempotent producer gives up altogether where order or number are in doubt."""
        self.watch = Watch()
        self._topic = topic
        self._partitions = partitions
        self._per_second = per_second
        self._stopping = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                **clients.of(user),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"writer {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> int:
        """Send no more, wait for what is under way; the number of records that no one answered for.

        With no time left they are forgotten: the next owner of the brokers' ports must not be sent them.
        """
        self._stopping.set()
        self._thread.join()
        left = int(self._producer.flush(timeout_s))
        if not timeout_s:
            self._producer.purge()
        return left

    def _run(self) -> None:
        try:
            self._write()
        except confluent_kafka.KafkaException as error:
            self.broken = f"{self.name}: {error}"

    def _write(self) -> None:
        began = time.monotonic()
        number = 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - began) * self._per_second)
            while number < due and not self._stopping.is_set():
                if not self._send(number):
                    break
                number += 1
            self._producer.poll(0.01)

    def _send(self, number: int) -> bool:
        value = f"{self.name}:{number}".encode()
        try:
            self._producer.produce(
                self._topic,
                value,
                partition=number % self._partitions,
                on_delivery=lambda error, message: self._delivered(number, error, message),
            )
        except BufferError:
            return False
        self.ledger.sent()
        return True

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        self.watch.answered()
        if error is not None:
            self.failures.append(str(error))
        else:
            self.ledger.acknowledged(number, message.partition(), message.offset())


@dataclass(slots=True)
class Findings:
    """What reading everything back showed."""

    read_count: int = 0
    acknowledged_count: int = 0
    placeless_count: int = 0
    """Of these, the ones whose place is unknown."""
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """By users who may not write here."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.misplaced or self.foreign)


def check(
    clients: ClientSettings, topic: str, partitions: int, writers: list[Writer], *, timeout_s: float
) -> Findings:
    """Read the whole topic and compare."""
    findings = Findings(
        acknowledged_count=sum(writer.ledger.acknowledged_count for writer in writers),
        placeless_count=sum(writer.ledger.placeless_count for writer in writers),
    )
    by_name = {writer.name: writer for writer in writers}
    seen = {writer.name: bytearray(len(writer.ledger)) for writer in writers}
    for message in read_topic(clients, topic, partitions, timeout_s):
        findings.read_count += 1
        name, _, number_text = message.value().decode().partition(":")
        if name not in by_name:
            findings.foreign.append(f"{name}:{number_text}")
            continue
        number = int(number_text)
        if seen[name][number]:
            findings.doubled.append(f"{name}:{number}")
        seen[name][number] = 1
        if by_name[name].ledger.contradicts(number, message.partition(), message.offset()):
            findings.misplaced.append(f"{name}:{number} at {message.partition()}/{message.offset()}")
    for writer in writers:
        is_there = seen[writer.name].__getitem__
        findings.lost += [f"{writer.name}:{number}" for number in writer.ledger.lost(is_there)]
    return findings


def read_topic(clients: ClientSettings, topic: str, partitions: int, timeout_s: float) -> Any:
    consumer = confluent_kafka.Consumer(
        {
            **clients.of(CHECKER),
            "group.id": CHECKER,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    ended: set[int] = set()
    deadline = time.monotonic() + timeout_s
    try:
        while len(ended) < partitions:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"after {timeout_s:.0f} s partitions {sorted(ended)} of {topic} are read, and no others"
                )
            for message in consumer.consume(5000, 0.5):
                if message.error() is None:
                    yield message
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise AssertionError(f"{topic} cannot be read: {message.error()}")
    finally:
        consumer.close()
