"""The table of error codes agrees with a real client's, and topic names obey Kafka's rules."""

import pytest
from kafka import errors as kafka_python

from odradek.model.errors import ErrorCode, ErrorValue, KafkaError
from odradek.model.ids import TopicPartition, check_topic_name

THEIRS = {
    cls.errno: cls
    for cls in vars(kafka_python).values()
    if isinstance(cls, type)
    and issubclass(cls, kafka_python.BrokerResponseError)
    and getattr(cls, "errno", None) is not None
}


def test_the_table_has_every_code_that_kafka_python_knows() -> None:
    missing = sorted(set(THEIRS) - {code.value for code in ErrorCode} - {-1})
    assert missing == []


OLDER_NAMES = {
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NO_ERROR": "NONE",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}
"""What kafka-python calls them, and what Kafka does."""


@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_code_has_kafkas_name(code: ErrorCode) -> None:
    theirs = THEIRS.get(int(code))
    if theirs is None:
        assert int(code) in (0, -1) or int(code) > max(number for number in THEIRS)
    else:
        assert OLDER_NAMES.get(theirs.message, theirs.message) == code.name


def test_numbers_are_unique_and_unknown_ones_are_unknown_server_errors() -> None:
    assert len({int(code) for code in ErrorCode}) == len(ErrorCode)
    assert ErrorCode.of(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_without_a_message_says_what_its_code_means() -> None:
    error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert str(error) == f"OFFSET_OUT_OF_RANGE: {ErrorCode.OFFSET_OUT_OF_RANGE.meaning}"
    assert not error.retriable


def test_a_message_that_quotes_much_still_fits_into_a_string_of_the_wire() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "topic " + "\U0001f600" * 100_000 + " is odd")
    assert len(error.message.encode()) < 32_767
    assert error.message.startswith("topic ")
    assert error.message.endswith(" is odd")


def refusal_of(name: str) -> ErrorCode | None:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    "name", ["a", "flights", "with.dots", "with_underscores-and-dashes", "x" * 249, "..."]
)
def test_kafkas_topic_names_are_accepted(name: str) -> None:
    assert refusal_of(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "with space", "slash/", "ünïcode", "line\n", "null\0", "semi;"]
)
def test_other_names_are_refused(name: str) -> None:
    assert refusal_of(name) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_partition_is_written_like_its_directory() -> None:
    assert str(TopicPartition("with-dash", 3)) == "with-dash-3"


class _OddError(KafkaError):
    def __init__(self, *, offset: int) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"odd at {offset}")
        self.offset = offset


@pytest.mark.parametrize(
    "error", [_OddError(offset=7), KafkaError(ErrorCode.NONE, "fine"), OSError(24, "too many"), ValueError()]
)
def test_a_kept_error_says_the_same_each_time_and_keeps_no_frames(error: Exception) -> None:
    kept = ErrorValue.of(error)
    for _ in range(3):
        with pytest.raises(type(error)) as caught:
            raise kept.exception()
        said = caught.value
        assert (type(said), str(said), vars(said)) == (type(error), str(error), vars(error))
        assert said.__traceback__ is not None
        assert said.__traceback__.tb_next is None
    assert kept.reason == str(error)
