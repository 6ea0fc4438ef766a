"""`odradek dlq` against a real broker: letters are shown as they are, and sent back once, also when a redrive is killed."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from odradek import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from odradek.dead_letters import redrive as module
from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure, letter_headers
from odradek.dead_letters.redrive import RedriveProgress, redrive
from odradek.dead_letters.sending_back import RedriveRequest
from odradek.dead_letters.topic import DeadLetterTopic

MakeTopic = Callable[..., str]
Run = Callable[..., str]


def records_of(bootstrap: str, topic: str) -> list[Any]:
    """What a read_committed consumer sees, in the order of partitions and offsets."""
    records: list[Any] = []
    with Consumer(bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            records += consumer.poll(0.5)
    return sorted(records, key=lambda record: (record.partition, record.offset))


class Letters:
    """A topic of dead letters, and the topic that they came from."""

    def __init__(self, bootstrap: str, origin: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.origin = origin
        self.name = name

    def write(self, numbers: range, *, error: str = "KeyError", transactional: bool = False) -> None:
        """Letter `n` was the record at offset n of partition n % 2, with the value n."""
        settings: Any = {"transactional_id": f"writer-{self.name}"} if transactional else {}
        with Producer(self.bootstrap, **settings) as producer:
            if transactional:
                producer.init_transactions()
                producer.begin_transaction()
            for number in numbers:
                origin = Origin(
                    topic=self.origin, partition=number % 2, offset=number, timestamp_ms=1_000 + number
                )
                failure = RecordFailure(exception=error, message=f"'{number}'")
                headers = letter_headers([("n", b"\xff")], origin, failure, FailedConsumer(group="billing"))
                producer.send(self.name, b"%d" % number, key=b"\xfe%d" % number, headers=headers)
            if transactional:
                producer.commit_transaction()

    def sent_back(self) -> Counter[int]:
        return Counter(int(record.value) for record in records_of(self.bootstrap, self.origin))


@pytest.fixture
def letters(bootstrap: str, topic: MakeTopic) -> Letters:
    origin = topic(partitions=2, **{"retention.ms": "-1"})
    name = f"{origin}.dlq"
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2)])
    return Letters(bootstrap, origin, name)


def listed(run: Run, *words: str) -> list[tuple[str, int, int]]:
    results = json.loads(run("dlq", "list", *words, "--json"))
    return sorted((entry["error"], entry["letters"], entry["redriven"]) for entry in results)


def test_letters_are_counted_shown_and_sent_back_as_they_were(
    run: Run, letters: Letters, errors: list[str]
) -> None:
    letters.write(range(10), transactional=True)
    assert listed(run, letters.name) == [("KeyError", 10, 0)]
    assert letters.name in run("dlq", "list")

    [shown] = [
        json.loads(line) for line in run("dlq", "show", letters.name, "--text", "'7'", "--json").splitlines()
    ]
    place = f"{letters.name}:{shown['partition']}:{shown['offset']}"
    assert shown["origin"] == {"topic": letters.origin, "partition": 1, "offset": 7, "timestamp": 1_007}
    assert base64.b64decode(shown["key_base64"]) == b"\xfe7"
    assert "KeyError: '7'" in run("dlq", "show", place)
    assert run("dlq", "show", place, "--raw") == "7"

    assert "10" in run("dlq", "redrive", letters.name, "--dry-run")
    assert letters.sent_back() == Counter()
    run("dlq", "redrive", letters.name)
    records = records_of(letters.bootstrap, letters.origin)
    assert Counter(int(record.value) for record in records) == Counter(range(10))
    assert all(record.partition == int(record.value) % 2 for record in records)
    assert {record.timestamp_ms - int(record.value) for record in records} == {1_000}
    assert records[0].headers == (("n", b"\xff"), ("__dlq.redrive.count", b"1"))
    assert all(record.key == b"\xfe" + record.value for record in records)

    run("dlq", "redrive", letters.name)
    assert letters.sent_back() == Counter(range(10))
    assert "no dead letters to send" in errors[0]
    assert listed(run, letters.name) == []
    assert listed(run, letters.name, "--all") == [("KeyError", 0, 10)]


def test_what_a_filter_leaves_out_can_be_sent_later(run: Run, letters: Letters, errors: list[str]) -> None:
    letters.write(range(10))
    letters.write(range(10, 20), error="json.decoder.JSONDecodeError")
    run("dlq", "redrive", letters.name, "--error", "JSONDecodeError", "--max", "4")
    assert letters.sent_back().total() == 4
    run("dlq", "redrive", letters.name, "--error", "JSON*")
    assert letters.sent_back() == Counter(range(10, 20))
    run("dlq", "redrive", letters.name, "--origin", f"{letters.origin}:0:2-6")
    assert letters.sent_back() == Counter([2, 4, 6, *range(10, 20)])
    assert listed(run, letters.name) == [("KeyError", 7, 3)]
    [group] = json.loads(run("group", "describe", f"odradek-redrive.{letters.name}", "--json"))
    assert group["lag"] > 0
    run("dlq", "redrive", letters.name)
    assert letters.sent_back() == Counter(range(20))
    [group] = json.loads(run("group", "describe", f"odradek-redrive.{letters.name}", "--json"))
    assert group["lag"] == 0


def test_letters_go_to_another_topic_on_request(
    run: Run, letters: Letters, topic: MakeTopic, errors: list[str]
) -> None:
    letters.write(range(3))
    elsewhere = topic()
    run("dlq", "redrive", letters.name, "--to", elsewhere)
    assert [int(record.value) for record in records_of(letters.bootstrap, elsewhere)] == [0, 1, 2]
    assert letters.sent_back() == Counter()
    run("dlq", "redrive", letters.name, "--to", letters.name, code=1)
    assert "cannot be sent back" in errors[-1]


def test_a_letter_as_large_as_its_topic_takes_is_sent_back(
    run: Run, bootstrap: str, topic: MakeTopic
) -> None:
    takes = {"max.message.bytes": "5000000"}
    origin, dead = topic(**takes), topic(**takes)
    failure = RecordFailure(exception="KeyError", message="no")
    headers = letter_headers((), Origin(topic=origin, partition=0, offset=0), failure, FailedConsumer())
    with Producer(bootstrap, max_request_size=6_000_000) as producer:
        producer.send(dead, b"x" * 4_900_000, headers=headers)
    run("dlq", "redrive", dead, "--allow-topic", origin)
    assert [len(record.value) for record in records_of(bootstrap, origin)] == [4_900_000]


class Terminal(io.StringIO):
    """Standard input with someone who types."""

    def isatty(self) -> bool:
        return True


def test_letters_that_name_a_foreign_topic_are_sent_when_someone_says_so(
    run: Run,
    letters: Letters,
    topic: MakeTopic,
    errors: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payments, foreign = topic(), topic()
    for target in (payments, foreign, "__odradek_pipelines", "app-by-key-changelog"):
        Letters(letters.bootstrap, target, letters.name).write(range(2))
    run("dlq", "redrive", letters.name, "--yes", code=1)
    assert f"{payments} (2)" in errors[-1]
    assert records_of(letters.bootstrap, payments) == []

    plan = json.loads(run("dlq", "redrive", letters.name, "--dry-run", "--json"))
    assert [(entry["letters"], entry["refused"]) for entry in plan] == [(2, True)] * 4
    run("dlq", "redrive", letters.name, "--allow-topic", payments)
    assert len(records_of(letters.bootstrap, payments)) == 2
    assert records_of(letters.bootstrap, foreign) == []
    run("dlq", "redrive", letters.name, "--to", "__odradek_pipelines", code=1)
    assert "internal topic" in errors[-1]

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    run("dlq", "redrive", letters.name, code=130)
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    shown = run("dlq", "redrive", letters.name)
    assert foreign in shown
    assert "internal: never sent" in shown
    assert len(records_of(letters.bootstrap, foreign)) == 2
    assert listed(run, letters.name) == [("KeyError", 2, 0), ("KeyError", 2, 0)]


def test_a_topic_that_is_gone_is_named_and_nothing_is_sent(
    run: Run, letters: Letters, bootstrap: str, errors: list[str]
) -> None:
    letters.write(range(3))
    with Admin(bootstrap) as admin:
        admin.delete_topics([letters.origin])
    run("dlq", "redrive", letters.name, code=1)
    assert f"topic {letters.origin}, which does not exist" in errors[-1]
    assert listed(run, letters.name) == [("KeyError", 3, 0)]
    run("dlq", "show", "no-such-topic.dlq", code=1)
    assert len(errors) == 1


_KILLED = """
import os, sys
from odradek.client import Producer
from odradek.dead_letters import redrive as module
from odradek.dead_letters.redrive import redrive
from odradek.dead_letters.sending_back import RedriveRequest
from odradek.dead_letters.topic import DeadLetterTopic

servers, name, moment, at = sys.argv[1:]
module.LETTERS_A_TRANSACTION = 20
commit, count = Producer.commit_transaction, 0

def killing(producer, *arguments, **more):
    global count
    count += 1
    if count == int(at):
        if moment == "before":
            producer.flush()
            os._exit(9)
        commit(producer, *arguments, **more)
        os._exit(9)
    return commit(producer, *arguments, **more)

Producer.commit_transaction = killing
with DeadLetterTopic(servers, name) as topic:
    redrive(topic, RedriveRequest())
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_redrive_that_is_killed_loses_and_doubles_nothing(run: Run, letters: Letters, moment: str) -> None:
    letters.write(range(100))
    for at in ("2", "1"):
        words = [sys.executable, "-c", _KILLED, letters.bootstrap, letters.name, moment, at]
        assert subprocess.run(words, check=False, timeout=60).returncode == 9
    run("dlq", "redrive", letters.name)
    assert letters.sent_back() == Counter(range(100))
    assert listed(run, letters.name, "--all") == [("KeyError", 0, 100)]


def test_a_second_redrive_ends_the_first(letters: Letters) -> None:
    letters.write(range(100))
    calls = 0

    def interfere(_: RedriveProgress) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            with DeadLetterTopic(letters.bootstrap, letters.name) as other:
                redrive(other, RedriveRequest(count_max=30))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LETTERS_A_TRANSACTION", 20)
        with DeadLetterTopic(letters.bootstrap, letters.name) as first:
            with pytest.raises(KafkaError, match="another redrive"):
                redrive(first, RedriveRequest(), interfere)
            redrive(first, RedriveRequest())
    assert letters.sent_back() == Counter(range(100))
