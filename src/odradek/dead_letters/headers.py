"""The headers of a dead letter: where the record was, what went wrong, and which consumer gave it up.

Kafka's brokers write `__dlq.errors.topic` and five more for share groups (KIP-1191). The same names serve here, with the
same texts; what Kafka has no name for has the same prefix. Numbers are decimal text. Dead letters of Kafka Connect, Kafka
Streams and Spring are read as well: `dialects.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.model.exception_text import class_name, stack_trace, text_of
from odradek.model.ids import NO_TIMESTAMP

PREFIX: Final = "__dlq.errors."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
GROUP: Final = PREFIX + "group"
DELIVERY_COUNT: Final = PREFIX + "delivery.count"
MESSAGE: Final = PREFIX + "message"
"""These six are Kafka's own (4.4); those below are ours."""
TIMESTAMP: Final = PREFIX + "timestamp"
EXCEPTION: Final = PREFIX + "exception"
STAGE: Final = PREFIX + "stage"
STACKTRACE: Final = PREFIX + "stacktrace"
QUERY: Final = PREFIX + "query"
BATCH: Final = PREFIX + "batch"
RETRY_TIMESTAMP: Final = PREFIX + "retry.timestamp"
REDRIVE_COUNT: Final = "__dlq.redrive.count"
"""The header of a record that was sent back. It does not have the prefix, so that it stays when the record fails again."""

MESSAGE_MAX: Final = 1_000
STACKTRACE_MAX: Final = 4_000

HeaderPair = tuple[str, bytes | None]
HeaderPairs = tuple[HeaderPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The original place of a record that became a dead letter."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int = NO_TIMESTAMP
    """The record's timestamp in milliseconds since 1970; -1 if it is not known."""

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """The failure of a record."""

    exception: str
    """The class's name, with its module unless it is a built-in: `json.decoder.JSONDecodeError`, `ValueError`."""
    message: str
    stage: str = ""
    """The step that failed: `key`, `value`, or the name of a function."""
    stacktrace: str = ""

    @classmethod
    def of(cls, error: BaseException, stage: str = "") -> RecordFailure:
        """Describes any exception, also one whose text raises; the stack trace is cut to its last part, where the error is."""
        return cls(
            exception=class_name(type(error)),
            message=text_of(error),
            stage=stage,
            stacktrace=stack_trace(error, STACKTRACE_MAX),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedConsumer:
    """The consumer that gave the record up: a group, after a number of deliveries, or a batch of a streaming query."""

    group: str | None = None
    delivery_count: int | None = None
    query: str | None = None
    batch: int | None = None


def letter_headers(
    own: Iterable[HeaderPair],
    origin: Origin,
    failure: RecordFailure,
    by: FailedConsumer,
    *,
    retry_at_ms: int | None = None,
) -> HeaderPairs:
    """Returns the headers of a dead letter: the record's own, then these.

    What the record has of an earlier failure is replaced. `retry_at_ms`: the record is tried again, not before this time.
    """
    named: list[tuple[str, object]] = [
        (TOPIC, origin.topic),
        (PARTITION, origin.partition),
        (OFFSET, origin.offset),
        (TIMESTAMP, origin.timestamp_ms if origin.timestamp_ms != NO_TIMESTAMP else None),
        (GROUP, by.group),
        (DELIVERY_COUNT, by.delivery_count),
        (QUERY, by.query),
        (BATCH, by.batch),
        (EXCEPTION, failure.exception),
        (MESSAGE, failure.message[:MESSAGE_MAX]),
        (STAGE, failure.stage or None),
        (STACKTRACE, failure.stacktrace[-STACKTRACE_MAX:] or None),
        (RETRY_TIMESTAMP, retry_at_ms),
    ]
    return without_failure(own) + tuple((name, _text(value)) for name, value in named if value is not None)


def without_failure(headers: Iterable[HeaderPair]) -> HeaderPairs:
    """Headers without those that tell of a failure, of ours and of Kafka's share groups."""
    return tuple(pair for pair in headers if not pair[0].startswith(PREFIX))


def _text(value: object) -> bytes:
    return str(value).encode("utf-8", "backslashreplace")
