"""A redrive: it sends dead letters back, each once.

A transaction holds a few hundred records and the note that they were sent (`redriven.py`). It begins when all
of them are there: a filter may match so seldom that it would time out meanwhile. A redrive that dies may
leave an open transaction: the next one, under the same transactional id, aborts it and continues where the
last one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.client import Admin, GroupMetadata, NewTopic, Producer, ProducerFencedError
from odradek.client.admin.ensured_topics import ensure_topic
from odradek.dead_letters.letter import DeadLetter, read_letter
from odradek.dead_letters.redriven import REDRIVES_CONFIG, REDRIVES_TOPIC
from odradek.dead_letters.sending_back import (
    PRODUCER_SETTINGS,
    Fate,
    RedriveCore,
    RedrivenRecord,
    RedriveRequest,
    record_to_send,
)
from odradek.dead_letters.topic import DeadLetterTopic
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

REDRIVE_PREFIX: Final = "odradek-redrive."
"""The prefix of the group whose lag is the rest of a topic, and of the transactional id that sends it back."""
LETTERS_A_TRANSACTION: Final = 500
BYTES_A_TRANSACTION: Final = 4 << 20
TRANSACTION_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveProgress:
    """The progress of a redrive: the letters by their outcome, the records sent by their topic."""

    counts: Mapping[Fate, int]
    sent_to: Mapping[str, int]
    refused_topics: Mapping[str, int] = field(default_factory=dict)
    """The letters that stay because their headers name a topic that they may not go to, by that topic."""


def redrive(
    topic: DeadLetterTopic, request: RedriveRequest, report: Callable[[RedriveProgress], None] | None = None
) -> RedriveProgress:
    """Send letters back: to topics that the request allows, or that the dead-letter topic is named after, and to no
    internal one. A header alone names no topic, since any writer of letters chooses it.

    `report` is called after each transaction, in which what it says has been done. One redrive of a topic at a time: a
    second one ends the first, which raises PRODUCER_FENCED. After any error the same
    call sends the rest.
    """
    if request.to == topic.name:
        raise ConfigError(f"letters of {topic.name} cannot be sent back to {topic.name} itself")
    make_redrives_topic(topic.admin)
    with Producer(
        topic.servers,
        transactional_id=REDRIVE_PREFIX + topic.name,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        **{**PRODUCER_SETTINGS, **topic.settings},
    ) as producer:
        producer.init_transactions()
        run = _Run(RedriveCore(request, topic.state()), request, producer, topic)
        try:
            run.all_letters(report or (lambda _: None))
        except ProducerFencedError:
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"another redrive of {topic.name} has begun, so this one ends. What it has not sent is left for the other",
            ) from None
    return run.progress()


def make_redrives_topic(admin: Admin) -> None:
    """Creates the topic of redrives, or brings it to its settings."""
    ensure_topic(admin, NewTopic(REDRIVES_TOPIC, 1, configs=REDRIVES_CONFIG))


class _Run:
    """One redrive, which sends letters in transactions."""

    def __init__(
        self, core: RedriveCore, request: RedriveRequest, producer: Producer, topic: DeadLetterTopic
    ) -> None:
        self._core = core
        self._request = request
        self._producer = producer
        self._topic = topic
        self._log_starts: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._sent_to: dict[str, int] = {}
        self._pending: list[RedrivenRecord] = []
        self._pending_bytes = 0

    def progress(self) -> RedriveProgress:
        return RedriveProgress(
            counts=dict(self._core.counts),
            sent_to=dict(self._sent_to),
            refused_topics=dict(self._core.refused_topics),
        )

    def all_letters(self, report: Callable[[RedriveProgress], None]) -> None:
        for record in self._topic.records(self._begin):
            if self._core.has_enough:
                break
            self._handle(read_letter(record))
            if self._is_full():
                self._commit()
                report(self.progress())
        self._commit()
        report(self.progress())

    def _begin(self, number: int, log_start: int) -> int:
        self._log_starts[number] = log_start
        self._core.begin(number, log_start)
        start = log_start if self._request.again else self._core.first_left(number, log_start)
        self._positions[number] = start
        return start

    def _handle(self, letter: DeadLetter) -> None:
        fate = self._core.fate(letter)
        self._positions[letter.partition] = letter.offset + 1
        if fate is not Fate.SENT:
            return
        target = self._request.target_of(letter)
        assert target is not None
        record = record_to_send(letter, self._request.to, self._topic.partition_count(target, letter))
        self._pending.append(record)
        self._pending_bytes += len(record.value or b"") + len(record.key or b"")

    def _is_full(self) -> bool:
        return len(self._pending) >= LETTERS_A_TRANSACTION or self._pending_bytes >= BYTES_A_TRANSACTION

    def _commit(self) -> None:
        """Commits the records, the note that they were sent, and the group's offsets: all or nothing."""
        if not self._pending:
            return
        self._producer.begin_transaction()
        for record in self._pending:
            self._producer.send(
                record.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            self._sent_to[record.topic] = self._sent_to.get(record.topic, 0) + 1
        for partition, position in self._positions.items():
            self._core.settle(partition, position)
        for key, value in self._core.drain_records():
            self._producer.send(REDRIVES_TOPIC, value, key=key, partition=0)
        offsets = {
            TopicPartition(self._topic.name, number): self._core.first_left(number, log_start)
            for number, log_start in self._log_starts.items()
        }
        self._producer.send_offsets_to_transaction(
            offsets, GroupMetadata(group_id=REDRIVE_PREFIX + self._topic.name)
        )
        self._producer.commit_transaction()
        self._pending, self._pending_bytes = [], 0
