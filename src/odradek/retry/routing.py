"""Decides where a failed record goes, from the record, the error and the time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.dead_letters import headers as names
from odradek.dead_letters.dialects import decimal_number
from odradek.dead_letters.headers import (
    FailedConsumer,
    HeaderPair,
    HeaderPairs,
    Origin,
    RecordFailure,
    letter_headers,
)
from odradek.dead_letters.letter import read_letter
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.public import public
from odradek.retry.policy import RetryMode, RetryPolicy, delay_ms


@public("odradek.retry")
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A record that a handler returns, to be sent: with exactly_once in the transaction that commits the handled record."""

    topic: str
    value: bytes | None = None
    key: bytes | None = None
    headers: Sequence[HeaderPair] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRecord:
    """A record to handle, from its topic or from a retry topic of it."""

    place: TopicPartition
    """The partition from which it was read, and in which its offset is committed."""
    offset: int
    record: ConsumerRecord
    """The record as it was in its own topic, with its place, timestamp and headers there."""
    attempt: int
    """1 for the first try."""
    due_ms: int
    """The time before which it is not handled, in milliseconds since 1970; 0: at once."""

    @property
    def origin(self) -> Origin:
        record = self.record
        return Origin(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Send the record on; then it is done where it was read."""

    topic: str
    partition: int
    """The partition of the origin, which is kept if the target topic has as many."""
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    is_dead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryInPlace:
    """Let the partition wait, and hand out the record once more."""

    at_ms: int


class Routing:
    """The routing of one group, over its topics."""

    def __init__(self, policy: RetryPolicy, group: str, topics: Iterable[str]) -> None:
        """Raises ConfigError when names of topics collide."""
        self.policy: Final = policy
        self._group = group
        self.topics: Final = tuple(dict.fromkeys(topics))
        if not self.topics:
            raise ConfigError("there is no topic to read")
        self._home: dict[str, str] = {}
        """Retry topic to the topic whose records wait there; empty where it serves several."""
        for topic in self.topics:
            for name in self.retry_topics_of(topic):
                self._home[name] = topic if self._home.get(name, topic) == topic else ""
        self.dead_letter_topics: Final = {
            topic: policy.dead_letter_topic_for(topic, group) for topic in self.topics
        }
        taken = {*self.topics, *self._home} & set(self.dead_letter_topics.values())
        taken |= set(self.topics) & set(self._home)
        if taken:
            raise ConfigError(
                f"topic {min(taken)} cannot be read and be given what failed: choose other names"
            )

    @property
    def retry_topics(self) -> tuple[str, ...]:
        return tuple(self._home)

    def retry_topics_of(self, topic: str) -> list[str]:
        """Returns the topics in which its records wait, in the order of delays."""
        numbers = range(len(self.policy.delays) if self.policy.mode is RetryMode.NON_BLOCKING else 0)
        return list(
            dict.fromkeys(self.policy.retry_topic_for(topic, self._group, number) for number in numbers)
        )

    def former_retry_topics(self, names: Iterable[str]) -> list[str]:
        """Returns the topics with the name of one of our retry topics, for a delay that is not configured (any more)."""
        known = {*self.topics, *self._home, *self.dead_letter_topics.values()}
        others = sorted(set(names) - known)
        return [name for name in others if self._former_home(name) is not None]

    def read_former(self, names: Iterable[str]) -> None:
        """Adds these topics to those that are read: records may wait there. No record is sent there any more."""
        for name in names:
            self._home[name] = self._former_home(name) or ""

    def all_topics(self) -> list[str]:
        """Returns the topics that it reads and those that it writes."""
        return [*self.subscription(), *dict.fromkeys(self.dead_letter_topics.values())]

    def subscription(self) -> list[str]:
        """Returns all topics to read."""
        return [*self.topics, *self._home]

    def received(self, record: ConsumerRecord) -> ReceivedRecord:
        """Converts a consumer's record: the headers of a record in a retry topic have its original place."""
        place = TopicPartition(record.topic, record.partition)
        if record.topic not in self._home:
            return ReceivedRecord(place=place, offset=record.offset, record=record, attempt=1, due_ms=0)
        letter = read_letter(record)
        due_ms = _number(dict(record.headers).get(names.RETRY_TIMESTAMP))
        origin = letter.origin
        home = self._home[record.topic]
        if origin is None or origin.topic not in self.dead_letter_topics or home not in ("", origin.topic):
            return ReceivedRecord(place=place, offset=record.offset, record=record, attempt=1, due_ms=due_ms)
        return ReceivedRecord(
            place=place,
            offset=record.offset,
            record=record._replace(
                topic=origin.topic,
                partition=origin.partition,
                offset=origin.offset,
                timestamp_ms=origin.timestamp_ms,
                headers=letter.own_headers,
            ),
            attempt=1 + max(0, letter.by.delivery_count or 0),
            due_ms=due_ms,
        )

    def failed(
        self,
        received: ReceivedRecord,
        error: BaseException,
        stage: str,
        now_ms: int,
        *,
        is_final: bool = False,
    ) -> Forward | RetryInPlace:
        """Decides where a record goes that raised `error` at this attempt. `is_final`: no second try can help."""
        policy = self.policy
        has_delay = not is_final and received.attempt <= len(policy.delays) and policy.retries(error)
        at_ms = now_ms + delay_ms(policy.delays[received.attempt - 1]) if has_delay else None
        if at_ms is not None and policy.mode is RetryMode.BLOCKING:
            return RetryInPlace(at_ms=at_ms)
        home = self._home_of(received)
        if at_ms is None:
            topic = self.dead_letter_topics[home]
        else:
            topic = policy.retry_topic_for(home, self._group, received.attempt - 1)
        record = received.record
        return Forward(
            topic=topic,
            partition=record.partition,
            key=record.key,
            value=record.value,
            headers=letter_headers(
                record.headers,
                received.origin,
                RecordFailure.of(error, stage),
                FailedConsumer(group=self._group, delivery_count=received.attempt),
                retry_at_ms=at_ms,
            ),
            is_dead=at_ms is None,
        )

    def _former_home(self, name: str) -> str | None:
        """Returns the topic whose records waited there; empty for several, None for none."""
        origins = [
            topic
            for topic in self.topics
            if self.policy.retry_topic_pattern(topic, self._group).fullmatch(name)
        ]
        return None if not origins else origins[0] if len(origins) == 1 else ""

    def _home_of(self, received: ReceivedRecord) -> str:
        """The topic of ours that it came from. A record that someone else put into a retry topic has none, or that one's."""
        if received.record.topic in self.dead_letter_topics:
            return received.record.topic
        return self._home[received.place.topic] or self.topics[0]


def again(received: ReceivedRecord, attempt: int) -> ReceivedRecord:
    """Returns the same record at another attempt, which a blocking retry counts by itself."""
    return replace(received, attempt=attempt)


def _number(value: bytes | None) -> int:
    return max(0, decimal_number(value) or 0) if value is not None else 0
