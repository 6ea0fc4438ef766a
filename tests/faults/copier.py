"""Consume, process, produce, with exactly once: what a careful application with confluent-kafka does, whatever happens.

Each batch is copied in a transaction, with the offsets it was read from. What may be retried is; what must be aborted is
aborted, and read again from where the group stands; after anything else both clients are made again.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from tests.faults.access.clients import COPIER, ClientSettings
from tests.faults.client_thread import ClientThread
from tests.faults.commits import Commits

_BATCH: Final = 200
_SECONDS: Final = 10.0
_IDLE_MS: Final = 8_000
"""librdkafka forgets the time limit of `send_offsets_to_transaction`, and looks for the group's coordinator again only when a
connection comes or goes. So that one does now and then, idle ones are closed."""
_QUICK: Final = {
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
}


class Copier(ClientThread):
    """One of several that copy `source` to `target`, in a thread of its own; each has a transactional id of its own."""

    def __init__(
        self,
        number: int,
        clients: ClientSettings,
        source: str,
        target: str,
        group: str,
        commits: Commits,
        *,
        talkative: bool = False,
    ) -> None:
        super().__init__(f"copier-{number}")
        self._source = source
        self._target = target
        self._group = group
        self._commits = commits
        logging = {"debug": "eos,cgrp,protocol,broker"} if talkative else {"log_level": 0}
        self._settings = {**clients.of(COPIER), **_QUICK, "client.id": self.name, **logging}

    def _run(self) -> None:
        while not self._stopping.is_set():
            producer = confluent_kafka.Producer(
                {
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 20_000,
                    "connections.max.idle.ms": _IDLE_MS,
                    **self._settings,
                }
            )
            consumer = self._consumer()
            try:
                producer.init_transactions(_SECONDS)
                consumer.subscribe([self._source])
                while not self._stopping.is_set():
                    self._copy(consumer, producer)
            except KafkaException as error:
                self._note(error)
                self._stopping.wait(0.2)
            finally:
                consumer.close()

    def _consumer(self) -> Any:
        return confluent_kafka.Consumer(
            {
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "max.poll.interval.ms": 60_000,  # of a copier that is replaced, whose producer alone stands still
                **self._settings,
            }
        )

    def _copy(self, consumer: Any, producer: Any) -> None:
        messages = [polled for polled in consumer.consume(_BATCH, 0.2) if polled.error() is None]
        if not messages:
            return  # there is always something to copy: a client that stands still brings nothing, and no error
        self.busy_since = time.monotonic()
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(self._target, message.value(), partition=message.partition())
            ends: dict[int, int] = {}
            for message in messages:
                ends[message.partition()] = message.offset() + 1
            offsets = [TopicPartition(self._source, index, end) for index, end in ends.items()]
            metadata = consumer.consumer_group_metadata()
            self._persist(lambda: producer.send_offsets_to_transaction(offsets, metadata, _SECONDS))
            self._persist(lambda: producer.commit_transaction(_SECONDS))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._note(error)
            self._persist(lambda: producer.abort_transaction(_SECONDS))
            _rewind(consumer)
        else:
            self._commits.acknowledged(self._group, ends)

    def _persist(self, step: Any) -> None:
        """Retried as long as the client says that this is right: then it goes on with the same attempt."""
        while True:
            try:
                step()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._stopping.is_set():
                    raise
                self._note(error)

    def _note(self, error: KafkaException) -> None:
        self.troubles[error.args[0].name()] += 1


def _rewind(consumer: Any) -> None:
    """What was aborted is read again."""
    assigned = consumer.assignment()
    for place in consumer.committed(assigned, timeout=_SECONDS) if assigned else []:
        if place.error is not None:
            raise KafkaException(place.error)
        with suppress(KafkaException):  # taken away meanwhile: another reads it
            consumer.seek(
                TopicPartition(
                    place.topic,
                    place.partition,
                    place.offset if place.offset >= 0 else confluent_kafka.OFFSET_BEGINNING,
                )
            )


def miscopied(sources: list[bytes], copies: list[bytes]) -> dict[str, list[str]]:
    """What is not in the copies exactly once, though it is in the source; and what is there without a source."""
    counts = Counter(copies)
    known = set(sources)
    return {
        "not copied": sorted(value.decode() for value in known if not counts[value]),
        "copied twice": sorted(value.decode() for value, count in counts.items() if count > 1),
        "copied from nowhere": sorted(value.decode() for value in counts if value not in known),
    }
