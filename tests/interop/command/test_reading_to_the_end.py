"""Commands that read a topic up to its end, while the topic is deleted, made again, extended, or written to."""

from __future__ import annotations

import io
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout

import pytest

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.cli.main import main
from odradek.dead_letters.topic import DeadLetterTopic
from odradek.model.errors import ErrorCode, KafkaError

ONE_BATCH_AT_A_TIME = ("-X", "max.partition.fetch.bytes=1", "-X", "fetch.max.bytes=1")
_numbers = itertools.count()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as admin:
        yield admin


@pytest.fixture
def filled(bootstrap: str, admin: Admin) -> str:
    """A topic of one partition with ten batches of one record each."""
    name = f"to-the-end-{time.time_ns()}-{next(_numbers)}"
    admin.create_topics([NewTopic(name)])
    send(bootstrap, name, range(10))
    return name


def send(bootstrap: str, topic: str, values: range) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, partition=0).result(30)


class Out(io.BytesIO):
    """Standard output that does something at its first byte."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act: Callable[[], object] | None = act

    def write(self, content: object) -> int:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().write(content)  # type: ignore[arg-type]


def consumed(bootstrap: str, at_first: Callable[[], object], *words: str) -> tuple[int, list[int], str]:
    """Exit code, printed numbers and error line of `consume --exit-at-end`; `at_first` runs at the first record."""
    out, errors = Out(at_first), io.StringIO()
    with redirect_stdout(io.TextIOWrapper(out, write_through=True)), redirect_stderr(errors):
        code = main(["consume", *words, "--exit-at-end", *ONE_BATCH_AT_A_TIME, "--bootstrap", bootstrap])
        printed = [int(line) for line in out.getvalue().splitlines()]
        sys.stdout.detach()  # type: ignore[union-attr]
    return code, printed, errors.getvalue()


@pytest.mark.parametrize("of_group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("count", [0, 4, 30], ids=["empty", "shorter", "longer"])
def test_consume_ends_when_its_topic_is_made_again(
    bootstrap: str, admin: Admin, filled: str, of_group: bool, count: int
) -> None:
    def make_again() -> None:
        admin.delete_topics([filled])
        admin.create_topics([NewTopic(filled)])
        send(bootstrap, filled, range(100, 100 + count))

    group = ("--group", filled) if of_group else ()
    code, printed, error = consumed(bootstrap, make_again, filled, *group)
    assert code == 1
    assert f"topic '{filled}' was deleted and made again while it was read" in error
    assert printed == list(range(len(printed)))
    assert len(printed) < 10


def test_consume_ends_when_its_topic_is_deleted(bootstrap: str, admin: Admin, filled: str) -> None:
    code, printed, error = consumed(bootstrap, lambda: admin.delete_topics([filled]), filled)
    assert code == 1
    assert f"topic '{filled}' was deleted while it was read" in error
    assert printed == list(range(len(printed)))


def test_a_group_still_has_to_read_what_was_not_printed(bootstrap: str, admin: Admin, filled: str) -> None:
    """Records come, and a partition, while the command reads: they are neither printed nor committed."""

    def grow() -> None:
        admin.create_partitions({filled: 2})
        send(bootstrap, filled, range(10, 20))

    code, printed, _ = consumed(bootstrap, grow, filled, "--group", filled, "-X", "metadata.max.age.ms=100")
    assert (code, printed) == (0, list(range(10)))
    committed = admin.list_group_offsets(filled)
    assert committed[TopicPartition(filled, 0)].offset == 10  # type: ignore[union-attr]
    code, printed, _ = consumed(bootstrap, lambda: None, filled, "--group", filled)
    assert (code, printed) == (0, list(range(10, 20)))


def test_dead_letters_are_those_of_one_topic(bootstrap: str, admin: Admin, filled: str) -> None:
    """A dead-letter topic that is made again while it is read ends the reading, not a minute of silence."""
    with Producer(bootstrap) as producer:
        for _ in range(5):  # each is more than half of max.partition.fetch.bytes: a fetch returns one of them
            producer.send(filled, bytes(900_000), partition=0).result(30)
    with DeadLetterTopic(bootstrap, filled) as letters:
        records = letters.records(lambda _, first: first)
        assert next(records).offset == 0
        admin.delete_topics([filled])
        admin.create_topics([NewTopic(filled)])
        with pytest.raises(KafkaError, match="deleted and made again") as caught:
            list(records)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_consumer_says_at_once_that_there_is_no_topic(bootstrap: str, admin: Admin, filled: str) -> None:
    missing = f"{filled}-missing"
    with Consumer(bootstrap, allow_auto_create_topics=False, default_api_timeout_ms=600_000) as consumer:
        assert consumer.partitions_for(missing) == ()
        assert consumer.topic_id(missing) is None
        assert consumer.partitions_for(filled) == (0,)
        assert consumer.topic_id(filled) == admin.describe_topics([filled])[filled].topic_id
        with pytest.raises(KafkaError) as caught:
            consumer.partitions_for("no/legal name")
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        admin.create_topics([NewTopic(missing, partitions=2)])
        while not (partitions := consumer.partitions_for(missing)):
            pass
        assert partitions == (0, 1)


def test_consume_names_a_topic_that_is_not_there(run: Callable[..., str], errors: list[str]) -> None:
    run("consume", "there-is-none", "--exit-at-end", code=1)
    assert "there is no topic 'there-is-none'" in "\n".join(errors)
