"""Dead letters tell where they come from, in our headers and in those of others."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from odradek.dead_letters.headers import (
    MESSAGE_MAX,
    STACKTRACE_MAX,
    FailedConsumer,
    HeaderPairs,
    Origin,
    RecordFailure,
    letter_headers,
)
from odradek.dead_letters.letter import DeadLetter, read_letter

ORIGIN = Origin(topic="orders", partition=3, offset=41, timestamp_ms=1_700_000_000_123)
FAILURE = RecordFailure(
    exception="ValueError", message="no number: 'x'", stage="price", stacktrace="Traceback ..."
)


@dataclass
class Record:
    headers: HeaderPairs
    topic: str = "orders.dlq"
    partition: int = 1
    offset: int = 7
    timestamp_ms: int = 1_700_000_009_000
    key: bytes | None = b"\xff\x00"
    value: bytes | None = b"{broken"
    more: dict[str, str] = field(default_factory=dict)


def read(*headers: tuple[str, bytes | None]) -> DeadLetter:
    return read_letter(Record(headers))


def test_what_is_written_is_read_back() -> None:
    by = FailedConsumer(group="billing", delivery_count=4, query="q-1", batch=12)
    letter = read(*letter_headers([("trace", b"\x01"), ("trace", None)], ORIGIN, FAILURE, by))
    assert (letter.origin, letter.failure, letter.by) == (ORIGIN, FAILURE, by)
    assert letter.own_headers == (("trace", b"\x01"), ("trace", None))
    assert (letter.place, letter.failed_at_ms, letter.dialect) == (
        "orders.dlq:1:7",
        1_700_000_009_000,
        "odradek",
    )


def test_numbers_are_decimal_text_and_nothing_is_written_of_what_is_not_known() -> None:
    origin = Origin(topic="orders", partition=0, offset=0)
    failure = RecordFailure(exception="KeyError", message="")
    headers = dict(letter_headers([], origin, failure, FailedConsumer()))
    assert headers == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"0",
        "__dlq.errors.exception": b"KeyError",
        "__dlq.errors.message": b"",
    }


def test_a_second_failure_replaces_the_first() -> None:
    first = letter_headers([("own", b"1")], ORIGIN, FAILURE, FailedConsumer(group="a", delivery_count=1))
    again = RecordFailure(exception="OSError", message="down")
    second = letter_headers(first, ORIGIN, again, FailedConsumer(group="a", delivery_count=2))
    names = [name for name, _ in second]
    assert len(names) == len(set(names))
    letter = read(*second)
    assert (letter.failure, letter.by.delivery_count) == (again, 2)
    assert letter.own_headers == (("own", b"1"),)


def test_texts_have_a_bound_and_may_hold_anything() -> None:
    try:
        raise ValueError("\udc80" + "x" * 5_000)
    except ValueError as error:
        failure = RecordFailure.of(error, stage="value")
    headers = dict(letter_headers([], ORIGIN, failure, FailedConsumer()))
    assert headers["__dlq.errors.exception"] == b"ValueError"
    message, trace = headers["__dlq.errors.message"], headers["__dlq.errors.stacktrace"]
    assert message is not None
    assert message.startswith(b"\\udc80xxx")
    assert len(message) <= MESSAGE_MAX + 5
    assert trace is not None
    assert len(trace) <= STACKTRACE_MAX + 5


@pytest.mark.parametrize(
    ("dialect", "headers", "timestamp_ms"),
    [
        (
            "odradek",  # as Kafka's brokers write them for share groups
            {
                "__dlq.errors.topic": b"orders",
                "__dlq.errors.partition": b"3",
                "__dlq.errors.offset": b"41",
                "__dlq.errors.group": b"workers",
                "__dlq.errors.delivery.count": b"5",
                "__dlq.errors.message": b"too many deliveries",
            },
            -1,
        ),
        (
            "connect",
            {
                "__connect.errors.topic": b"orders",
                "__connect.errors.partition": b"3",
                "__connect.errors.offset": b"41",
                "__connect.errors.connector.name": b"workers",
                "__connect.errors.task.id": b"0",
                "__connect.errors.stage": b"VALUE_CONVERTER",
                "__connect.errors.exception.class.name": b"org.apache.kafka.connect.errors.DataException",
                "__connect.errors.exception.message": b"too many deliveries",
            },
            -1,
        ),
        (
            "streams",
            {
                "__streams.errors.topic": b"orders",
                "__streams.errors.partition": b"3",
                "__streams.errors.offset": b"41",
                "__streams.errors.exception": b"java.lang.RuntimeException",
                "__streams.errors.message": b"too many deliveries",
                "__streams.errors.stacktrace": b"at ...",
            },
            -1,
        ),
        (
            "spring",
            {
                "kafka_dlt-original-topic": b"orders",
                "kafka_dlt-original-partition": (3).to_bytes(4, "big"),
                "kafka_dlt-original-offset": (41).to_bytes(8, "big"),
                "kafka_dlt-original-timestamp": (1_700_000_000_123).to_bytes(8, "big"),
                "kafka_dlt-original-timestamp-type": b"CreateTime",
                "kafka_dlt-original-consumer-group": b"workers",
                "kafka_dlt-exception-fqcn": b"org.springframework.ListenerExecutionFailedException",
                "kafka_dlt-exception-cause-fqcn": b"java.lang.IllegalStateException",
                "kafka_dlt-exception-message": b"too many deliveries",
            },
            1_700_000_000_123,
        ),
        (
            "spring",
            {
                "kafka_original-topic": b"orders",
                "kafka_original-partition": (3).to_bytes(4, "big"),
                "kafka_original-offset": (41).to_bytes(8, "big"),
                "kafka_original-timestamp": (1_700_000_000_123).to_bytes(8, "big"),
                "kafka_exception-fqcn": b"java.lang.IllegalStateException",
                "kafka_exception-message": b"too many deliveries",
                "retry_topic-attempts": (4).to_bytes(4, "big"),
                "retry_topic-backoff-timestamp": bytes.fromhex("01A012AB41BF"),
            },
            1_700_000_000_123,
        ),
    ],
    ids=["share group", "connect", "streams", "spring", "spring retry topic"],
)
def test_dead_letters_of_others_are_understood_and_stripped(
    dialect: str, headers: dict[str, bytes], timestamp_ms: int
) -> None:
    letter = read(("own", b"1"), *headers.items())
    assert letter.dialect == dialect
    assert letter.origin == Origin(topic="orders", partition=3, offset=41, timestamp_ms=timestamp_ms)
    assert letter.failure.message == "too many deliveries"
    assert letter.own_headers == (("own", b"1"),)


def test_ours_comes_before_theirs_and_leaves_theirs_alone() -> None:
    """A record of Connect's dead-letter topic that our consumer could not handle goes back to Connect's topic as it was."""
    theirs: HeaderPairs = (
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"5"),
    )
    origin = Origin(topic="connect-dlq", partition=0, offset=9)
    letter = read(*letter_headers(theirs, origin, FAILURE, FailedConsumer()))
    assert letter.origin == origin
    assert letter.own_headers == theirs


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("__dlq.errors.topic", b"orders"),),
        (("__dlq.errors.topic", b"orders"), ("__dlq.errors.partition", b"x"), ("__dlq.errors.offset", b"1")),
        (("__dlq.errors.topic", b"orders"), ("__dlq.errors.partition", b"-1"), ("__dlq.errors.offset", b"1")),
        (("__dlq.errors.topic", None), ("__dlq.errors.partition", b"0"), ("__dlq.errors.offset", b"1")),
    ],
)
def test_a_record_that_does_not_say_where_it_comes_from_has_no_origin(headers: HeaderPairs) -> None:
    letter = read(*headers)
    assert letter.origin is None
    assert letter.failure.exception == "unknown"
    assert letter.value == b"{broken"


def test_the_redrive_count_survives_another_failure() -> None:
    headers = letter_headers([("__dlq.redrive.count", b"2")], ORIGIN, FAILURE, FailedConsumer())
    assert read(*headers).redrive_count == 2
    assert read(("__dlq.redrive.count", b"many")).redrive_count == 0


@pytest.mark.parametrize("number", [b"9" * 5_000, b"9223372036854775808", b"1_0", b" 7", b"x", b""])
def test_what_is_no_number_of_64_bits_is_no_number(number: bytes) -> None:
    place = (
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"5"),
    )
    wrong = (("__dlq.errors.timestamp", number), ("__dlq.redrive.count", number))
    letter = read(*place, *wrong)
    assert letter.origin == Origin(topic="orders", partition=0, offset=5)
    assert letter.redrive_count == 0
    largest = read(*place[:2], ("__dlq.errors.offset", b"9223372036854775807"))
    assert largest.origin is not None
    assert largest.origin.offset == 2**63 - 1
