"""Decides for each letter of a redrive, without I/O: send it, leave it, or pass over it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from odradek.dead_letters import headers as names
from odradek.dead_letters.headers import HeaderPairs
from odradek.dead_letters.letter import DeadLetter
from odradek.dead_letters.redriven import RedrivenState, StateRecord
from odradek.dead_letters.selection import Selection
from odradek.model.errors import ConfigError
from odradek.model.ids import NO_TIMESTAMP
from odradek.security.closed_topics import is_internal


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivenRecord:
    """A record to send. No partition: the key decides. No timestamp: now."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None


class Fate(StrEnum):
    """The outcome of one letter."""

    SENT = "sent"
    NOT_MEANT = "not meant"
    DONE_BEFORE = "done before"
    WITHOUT_ORIGIN = "without origin"
    INTERNAL = "internal"
    """The headers name an internal topic. Such a letter is never sent there."""
    NOT_ALLOWED = "not allowed"
    """The headers name a topic that neither the request nor the name of the dead-letter topic names."""
    COPY = "copy"
    """An at-least-once writer wrote the letter twice: one of the two is enough."""


_REFUSED: Final = frozenset({Fate.INTERNAL, Fate.NOT_ALLOWED})
_LEFT: Final = frozenset({Fate.NOT_MEANT, Fate.WITHOUT_ORIGIN}) | _REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """The letters to send back, and their target."""

    selection: Selection = field(default_factory=Selection)
    to: str | None = None
    """A topic in place of the origin."""
    again: bool = False
    """Letters that were sent back before, too."""
    count_max: int | None = None
    allowed_topics: frozenset[str] = frozenset()
    """Origins that letters may go to in addition to the topics that the dead-letter topic is named after
    (`is_named_after`)."""

    def __post_init__(self) -> None:
        for topic in sorted({*self.allowed_topics, *(() if self.to is None else (self.to,))}):
            if is_internal(topic):
                raise ConfigError(f"dead letters cannot be sent to {topic}: it is an internal topic")

    def target_of(self, letter: DeadLetter) -> str | None:
        """Returns the topic that the letter would go to; None if its headers do not name its origin."""
        return self.to or (None if letter.origin is None else letter.origin.topic)


def is_named_after(dead_letter_topic: str, topic: str) -> bool:
    """Tells whether letters may go back there by name: `orders.billing.dlq` is named after `orders` and `orders.billing`."""
    return (
        dead_letter_topic.startswith(topic)
        and dead_letter_topic[len(topic) : len(topic) + 1] in _SEPARATORS
        and dead_letter_topic != topic
    )


_SEPARATORS: Final = (".", "-", "_")
_REFUSED_NAMES_MAX: Final = 100
_REQUEST_BYTES_MAX: Final = 64 << 20
PRODUCER_SETTINGS: Final = {"max_request_size": _REQUEST_BYTES_MAX, "buffer_memory": 2 * _REQUEST_BYTES_MAX}
"""Settings to send on records of any size: topics have the limit. Brokers take requests of 100 MiB by default."""
LETTERS_REMEMBERED: Final = 500_000
"""The last sent letters among which copies are recognised, in some 60 MB: a writer that repeats itself does so soon."""


class RedriveCore:
    """One redrive of one topic. Letters come in the order of their offsets, partition by partition or mixed."""

    def __init__(
        self, request: RedriveRequest, state: RedrivenState, *, remembered_count: int = LETTERS_REMEMBERED
    ) -> None:
        self._request = request
        self._state = state
        self._run_starts: dict[int, int] = {}
        self._seen: dict[bytes, None] = {}
        """Identities of the letters that were met last, the latest at the end."""
        self._remembered_count = remembered_count
        self._closed: dict[int, dict[int, int | None]] = {}
        self.counts = dict.fromkeys(Fate, 0)
        self.refused_topics: Counter[str] = Counter()
        """Letters by the topic that their headers name and may not; the first `_REFUSED_NAMES_MAX` topics."""

    @property
    def has_enough(self) -> bool:
        """Whether as many letters were sent as requested."""
        limit = self._request.count_max
        return limit is not None and self.counts[Fate.SENT] >= limit

    def begin(self, partition: int, offset: int) -> None:
        """Notes that the partition is read from this offset on."""
        self._run_starts[partition] = offset
        self._note(partition, self._state.of(partition).drop_below(offset))

    def fate(self, letter: DeadLetter) -> Fate:
        """Decides about the next letter of its partition; a letter that is not sent stays, and can be sent later."""
        fate = self._decide(letter)
        self.counts[fate] += 1
        if fate in _REFUSED and letter.origin is not None:
            topic = letter.origin.topic
            if topic in self.refused_topics or len(self.refused_topics) < _REFUSED_NAMES_MAX:
                self.refused_topics[topic] += 1
        if fate in _LEFT:
            self._close_run(letter.partition, letter.offset)
            self._run_starts[letter.partition] = letter.offset + 1
        return fate

    def settle(self, partition: int, position: int) -> None:
        """Notes that all letters below `position` are handled: those that were sent are done with the present transaction."""
        self._close_run(partition, position)
        self._run_starts[partition] = position

    def drain_records(self) -> Iterator[StateRecord]:
        """Yields the records to write into the current transaction, so that settled letters stay settled."""
        closed, self._closed = self._closed, {}
        for partition, changes in closed.items():
            yield from self._state.records(partition, changes)

    def first_left(self, partition: int, log_start: int) -> int:
        """Returns the offset below which nothing is left."""
        end = self._state.of(partition).end_of(log_start)
        return log_start if end is None else end

    def _decide(self, letter: DeadLetter) -> Fate:
        if not self._request.again and letter.offset in self._state.of(letter.partition):
            return Fate.DONE_BEFORE
        if not self._request.selection.matches(letter):
            return Fate.NOT_MEANT
        if letter.origin is None:
            return Fate.WITHOUT_ORIGIN if self._request.to is None else Fate.SENT
        if self._request.to is None:
            topic = letter.origin.topic
            if is_internal(topic):
                return Fate.INTERNAL
            if topic not in self._request.allowed_topics and not is_named_after(letter.topic, topic):
                return Fate.NOT_ALLOWED
        return Fate.COPY if self._is_met_again(_identity(letter)) else Fate.SENT

    def _is_met_again(self, identity: bytes) -> bool:
        is_known = identity in self._seen
        self._seen.pop(identity, None)
        self._seen[identity] = None
        if len(self._seen) > self._remembered_count:
            del self._seen[next(iter(self._seen))]
        return is_known

    def _close_run(self, partition: int, end: int) -> None:
        self._note(partition, self._state.of(partition).add(self._run_starts.get(partition, end), end))

    def _note(self, partition: int, changes: dict[int, int | None]) -> None:
        self._closed.setdefault(partition, {}).update(changes)


def _identity(letter: DeadLetter) -> bytes:
    """Returns a value that is equal for two letters of one failed record: from its place and its contents.

    Many letters have no timestamp of the origin, and a topic that is made again has the same offsets for other records.
    """
    content = (letter.origin, letter.by.group, letter.by.query, letter.key, letter.value, letter.own_headers)
    return hashlib.blake2b(repr(content).encode(), digest_size=16).digest()


def record_to_send(letter: DeadLetter, to: str | None, partition_count: int) -> RedrivenRecord:
    """Returns the record as it was, with one header more that counts how often it was sent back.

    Home it goes to its partition, if that is still there. Elsewhere its key decides, and it keeps the headers
    with its origin.
    """
    origin = letter.origin
    is_home = origin is not None and to in (None, origin.topic)
    own = tuple(pair for pair in letter.own_headers if pair[0] != names.REDRIVE_COUNT)
    counted = ((names.REDRIVE_COUNT, b"%d" % (letter.redrive_count + 1)),)
    kept: HeaderPairs = ()
    if origin is not None and not is_home:
        kept = (
            (names.TOPIC, origin.topic.encode()),
            (names.PARTITION, b"%d" % origin.partition),
            (names.OFFSET, b"%d" % origin.offset),
        )
        if origin.timestamp_ms != NO_TIMESTAMP:
            kept += ((names.TIMESTAMP, b"%d" % origin.timestamp_ms),)
    has_partition = origin is not None and is_home and origin.partition < partition_count
    has_timestamp = origin is not None and origin.timestamp_ms != NO_TIMESTAMP
    return RedrivenRecord(
        topic=to or (origin.topic if origin is not None else letter.topic),
        partition=origin.partition if origin is not None and has_partition else None,
        key=letter.key,
        value=letter.value,
        headers=own + kept + counted,
        timestamp_ms=origin.timestamp_ms if origin is not None and has_timestamp else None,
    )
