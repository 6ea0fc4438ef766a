"""Readers of the source beside the classic group: a group of the new protocol, and a share group. Both read at least once."""

from __future__ import annotations

import time
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from tests.faults.client_thread import ClientThread

_BATCH: Final = 200
_SECONDS: Final = 10.0
_STAY_SECONDS: Final = 45.0
"""So long a member stays before it leaves, and another comes in its place."""
_QUICK: Final = {
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class NewGroupMember(ClientThread):
    """A member of a group of the KIP-848 protocol. Every second one leaves now and then, and comes back as another member."""

    def __init__(self, number: int, address: str, topic: str, group: str) -> None:
        super().__init__(f"new-member-{number}")
        self.seen: set[bytes] = set()
        self.joined_count = 0
        self._number = number
        self._address = address
        self._topic = topic
        self._group = group

    def _run(self) -> None:
        while not self._stopping.is_set():
            consumer = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": self._address,
                    "group.id": self._group,
                    "group.protocol": "consumer",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    **_QUICK,
                }
            )
            consumer.subscribe([self._topic])
            self.joined_count += 1
            leaves = time.monotonic() + (_STAY_SECONDS if self._number % 2 else float("inf"))
            try:
                while not self._stopping.is_set() and time.monotonic() < leaves:
                    self._turn(consumer)
            except KafkaException as error:
                self.troubles[error.args[0].name()] += 1
                self._stopping.wait(0.2)
            finally:
                consumer.close()

    def _turn(self, consumer: Any) -> None:
        ends: dict[int, int] = {}
        for message in consumer.consume(_BATCH, 0.2):
            if message.error() is None:
                self.seen.add(message.value())
                ends[message.partition()] = message.offset() + 1
        if not ends:
            return
        self.busy_since = time.monotonic()
        try:
            offsets = [TopicPartition(self._topic, index, end) for index, end in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:  # another has them by now, and reads them again
            self.troubles[error.args[0].name()] += 1


class ShareMember(ClientThread):
    """A member of a share group, which accepts what it has seen."""

    def __init__(self, number: int, address: str, topic: str, group: str) -> None:
        super().__init__(f"share-member-{number}")
        self.seen: set[bytes] = set()
        self.joined_count = 0
        self._address = address
        self._topic = topic
        self._group = group

    def _run(self) -> None:
        while not self._stopping.is_set():
            consumer = confluent_kafka.ShareConsumer(
                {"bootstrap.servers": self._address, "group.id": self._group, **_QUICK}
            )
            self.joined_count += 1
            try:
                consumer.subscribe([self._topic])
                while not self._stopping.is_set():
                    self._turn(consumer)
            except KafkaException as error:
                self.troubles[error.args[0].name()] += 1
                self._stopping.wait(0.2)
            finally:
                self._close(consumer)

    def _turn(self, consumer: Any) -> None:
        values = []
        for message in consumer.poll(0.5):
            if message.error() is None:
                values.append(message.value())
            else:
                self.troubles[message.error().name()] += 1
        if not values:
            return
        self.seen.update(values)
        self.busy_since = time.monotonic()
        for error in consumer.commit_sync(_SECONDS).values():
            if error is not None:
                self.troubles[error.args[0].name()] += 1

    def _close(self, consumer: Any) -> None:
        try:
            consumer.close()
        except KafkaException as error:
            self.troubles[error.args[0].name()] += 1
