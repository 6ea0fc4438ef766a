"""Members of a consumer group that read, remember and commit: at least once, as a careful application does it."""

from __future__ import annotations

import time
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from tests.faults.access.clients import MEMBER, ClientSettings
from tests.faults.client_thread import ClientThread
from tests.faults.commits import Commits

_BATCH: Final = 200


class Member(ClientThread):
    """One consumer in a thread of its own. It commits what it has seen, and not before."""

    def __init__(
        self,
        number: int,
        clients: ClientSettings,
        topic: str,
        group: str,
        commits: Commits,
        *,
        talkative: bool = False,
    ) -> None:
        super().__init__(f"member-{number}")
        self.seen: set[bytes] = set()
        self._clients = clients
        self._topic = topic
        self._group = group
        self._commits = commits
        self._logging = {"debug": "cgrp,protocol,broker"} if talkative else {"log_level": 0}

    def _run(self) -> None:
        while not self._stopping.is_set():
            consumer = self._join()
            try:
                while not self._stopping.is_set():
                    self._turn(consumer)
            except KafkaException as error:  # begin again, from what is committed
                self.troubles[error.args[0].name()] += 1
                self._stopping.wait(0.2)
            finally:
                consumer.close()

    def _join(self) -> Any:
        consumer = confluent_kafka.Consumer(
            {
                **self._clients.of(MEMBER),
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "client.id": self.name,
                **self._logging,
            }
        )
        consumer.subscribe([self._topic])
        return consumer

    def _turn(self, consumer: Any) -> None:
        ends: dict[int, int] = {}
        for message in consumer.consume(_BATCH, 0.2):
            if message.error() is None:
                self.seen.add(message.value())
                ends[message.partition()] = message.offset() + 1
        if ends:  # there is always something to read: a client that stands still brings nothing, and no error
            self.busy_since = time.monotonic()
            self._commit(consumer, ends)

    def _commit(self, consumer: Any, ends: dict[int, int]) -> None:
        offsets = [TopicPartition(self._topic, index, end) for index, end in ends.items()]
        while True:
            try:
                answers = consumer.commit(offsets=offsets, asynchronous=False)
                break
            except KafkaException as error:
                self.troubles[error.args[0].name()] += 1
                if not error.args[0].retriable() or self._stopping.is_set():
                    return  # the partitions are another's by now: it reads this again
        done = {text.partition: text.offset for text in answers if text.error is None}
        self._commits.acknowledged(self._group, done)
