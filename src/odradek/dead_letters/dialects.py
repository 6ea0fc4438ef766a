"""Dead letters as other tools write them: the meaning of their headers. All dialects are read; the first one is written.

| dialect | source |
|---|---|
| odradek, share groups | `headers.py`; KIP-1191, ShareGroupDLQStateManager |
| Kafka Connect | KIP-298, DeadLetterQueueReporter |
| Kafka Streams | KIP-1034, ExceptionHandlerUtils |
| Spring, DeadLetterPublishingRecoverer | KafkaHeaders.DLT_*; numbers are big-endian |
| Spring, @RetryableTopic | KafkaHeaders.ORIGINAL_*, EXCEPTION_*; numbers are big-endian |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.dead_letters import headers as ours
from odradek.dead_letters.headers import HeaderPair, HeaderPairs

_BINARY_SIZES: Final = (4, 8)
_DIGITS_MAX: Final = 19
"""The digits of a number of 64 bits, without its sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Header names of one kind of dead letters; empty where it has none for a thing."""

    name: str
    prefixes: tuple[str, ...]
    """The prefixes of all headers that the failure added to the record."""
    topic: str
    partition: str
    offset: str
    timestamp: str = ""
    exception: tuple[str, ...] = ()
    """The headers with the exception's name; the first that is present counts."""
    message: str = ""
    stacktrace: str = ""
    stage: str = ""
    group: str = ""
    delivery_count: str = ""
    query: str = ""
    batch: str = ""
    has_binary_numbers: bool = False

    def is_spoken_in(self, headers: Mapping[str, bytes | None]) -> bool:
        """Tells whether these headers have this dialect: every dead letter has a topic."""
        return headers.get(self.topic) is not None

    def text(self, headers: Mapping[str, bytes | None], name: str) -> str | None:
        value = headers.get(name) if name else None
        return None if value is None else value.decode("utf-8", "replace")

    def number(self, headers: Mapping[str, bytes | None], name: str) -> int | None:
        """Returns a header's number; None if it is absent, or not a number of 64 bits: anyone can write headers."""
        value = headers.get(name) if name else None
        if value is None:
            return None
        if self.has_binary_numbers and len(value) in _BINARY_SIZES:
            return int.from_bytes(value, "big", signed=True)
        return decimal_number(value)

    def stripped(self, headers: Iterable[HeaderPair]) -> HeaderPairs:
        """Returns the record's own headers: without what the failure added."""
        return tuple(pair for pair in headers if not pair[0].startswith(self.prefixes))


def decimal_number(value: bytes) -> int | None:
    """Returns the number of a header; None for what is no decimal number of 64 bits."""
    digits = value.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _DIGITS_MAX:  # digits: of bytes, so ASCII
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


ODRADEK: Final = Dialect(
    name="odradek",
    prefixes=(ours.PREFIX,),
    topic=ours.TOPIC,
    partition=ours.PARTITION,
    offset=ours.OFFSET,
    timestamp=ours.TIMESTAMP,
    exception=(ours.EXCEPTION,),
    message=ours.MESSAGE,
    stacktrace=ours.STACKTRACE,
    stage=ours.STAGE,
    group=ours.GROUP,
    delivery_count=ours.DELIVERY_COUNT,
    query=ours.QUERY,
    batch=ours.BATCH,
)


def _of_kafka(
    name: str, prefix: str, *, exception: str, text_prefix: str = "", stage: str = "", group: str = ""
) -> Dialect:
    """Returns a dialect of Kafka's own kinds, which name their headers alike, after a prefix."""
    return Dialect(
        name=name,
        prefixes=(prefix,),
        topic=f"{prefix}topic",
        partition=f"{prefix}partition",
        offset=f"{prefix}offset",
        exception=(f"{prefix}{exception}",),
        message=f"{prefix}{text_prefix}message",
        stacktrace=f"{prefix}{text_prefix}stacktrace",
        stage=stage,
        group=group,
    )


CONNECT: Final = _of_kafka(
    "connect",
    "__connect.errors.",
    exception="exception.class.name",
    text_prefix="exception.",
    stage="__connect.errors.stage",
    group="__connect.errors.connector.name",
)
STREAMS: Final = _of_kafka("streams", "__streams.errors.", exception="exception")
SPRING: Final = Dialect(
    name="spring",
    prefixes=("kafka_dlt-",),
    topic="kafka_dlt-original-topic",
    partition="kafka_dlt-original-partition",
    offset="kafka_dlt-original-offset",
    timestamp="kafka_dlt-original-timestamp",
    exception=("kafka_dlt-exception-cause-fqcn", "kafka_dlt-exception-fqcn"),
    message="kafka_dlt-exception-message",
    stacktrace="kafka_dlt-exception-stacktrace",
    group="kafka_dlt-original-consumer-group",
    has_binary_numbers=True,
)
SPRING_RETRY: Final = Dialect(
    name="spring",
    prefixes=("kafka_original-", "kafka_exception-", "retry_topic-"),
    topic="kafka_original-topic",
    partition="kafka_original-partition",
    offset="kafka_original-offset",
    timestamp="kafka_original-timestamp",
    exception=("kafka_exception-cause-fqcn", "kafka_exception-fqcn"),
    message="kafka_exception-message",
    stacktrace="kafka_exception-stacktrace",
    group="kafka_original-consumer-group",
    delivery_count="retry_topic-attempts",
    has_binary_numbers=True,
)
DIALECTS: Final = (ODRADEK, CONNECT, STREAMS, SPRING, SPRING_RETRY)


def dialect_of(headers: Mapping[str, bytes | None]) -> Dialect | None:
    """Returns the first whose headers are there: of a record that failed twice, the last failure, if that was ours."""
    return next((dialect for dialect in DIALECTS if dialect.is_spoken_in(headers)), None)
