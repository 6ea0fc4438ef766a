"""A record of a dead-letter topic, and the contents of its headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from odradek.dead_letters.dialects import Dialect, decimal_number, dialect_of
from odradek.dead_letters.headers import (
    REDRIVE_COUNT,
    FailedConsumer,
    HeaderPair,
    HeaderPairs,
    Origin,
    RecordFailure,
)
from odradek.model.ids import NO_TIMESTAMP

UNKNOWN_EXCEPTION = "unknown"


class LetterRecord(Protocol):
    """The parts of a consumer's record that are needed."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[HeaderPair]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter. `topic`, `partition` and `offset` are its own, `origin` has its record's."""

    topic: str
    partition: int
    offset: int
    failed_at_ms: int
    """The time when it was given up: the timestamp of the dead letter."""
    origin: Origin | None
    """The record's original place; None if the headers do not have it."""
    failure: RecordFailure
    by: FailedConsumer
    redrive_count: int
    """The number of times that the record was sent back before."""
    dialect: str | None
    key: bytes | None
    value: bytes | None
    own_headers: HeaderPairs
    """The record's, without what its failure added."""

    @property
    def place(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


def read_letter(record: LetterRecord) -> DeadLetter:
    """Reads any record: what its headers lack is None, or `unknown`. Of headers with one name the last one counts."""
    pairs: HeaderPairs = tuple((name, value) for name, value in record.headers)
    named = dict(pairs)
    dialect = dialect_of(named)
    return DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        failed_at_ms=record.timestamp_ms,
        origin=_origin(dialect, named),
        failure=_failure(dialect, named),
        by=_given_up_by(dialect, named),
        redrive_count=redrive_count(named.get(REDRIVE_COUNT)),
        dialect=dialect.name if dialect is not None else None,
        key=record.key,
        value=record.value,
        own_headers=dialect.stripped(pairs) if dialect is not None else pairs,
    )


def redrive_count(value: bytes | None) -> int:
    """Returns the number in that header; 0 where there is none."""
    return max(0, decimal_number(value) or 0) if value is not None else 0


def _origin(dialect: Dialect | None, named: dict[str, bytes | None]) -> Origin | None:
    if dialect is None:
        return None
    topic = dialect.text(named, dialect.topic)
    partition = dialect.number(named, dialect.partition)
    offset = dialect.number(named, dialect.offset)
    if not topic or partition is None or partition < 0 or offset is None or offset < 0:
        return None
    timestamp = dialect.number(named, dialect.timestamp)
    return Origin(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=NO_TIMESTAMP if timestamp is None or timestamp < 0 else timestamp,
    )


def _failure(dialect: Dialect | None, named: dict[str, bytes | None]) -> RecordFailure:
    if dialect is None:
        return RecordFailure(exception=UNKNOWN_EXCEPTION, message="")
    classes = (dialect.text(named, name) for name in dialect.exception)
    return RecordFailure(
        exception=next((name for name in classes if name), UNKNOWN_EXCEPTION),
        message=dialect.text(named, dialect.message) or "",
        stage=dialect.text(named, dialect.stage) or "",
        stacktrace=dialect.text(named, dialect.stacktrace) or "",
    )


def _given_up_by(dialect: Dialect | None, named: dict[str, bytes | None]) -> FailedConsumer:
    if dialect is None:
        return FailedConsumer()
    return FailedConsumer(
        group=dialect.text(named, dialect.group),
        delivery_count=dialect.number(named, dialect.delivery_count),
        query=dialect.text(named, dialect.query),
        batch=dialect.number(named, dialect.batch),
    )
