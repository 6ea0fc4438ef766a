"""Applications in the frameworks that people write them in: Kafka Streams, FastStream, Quix Streams, Spark with its own
connector. Some are killed half-way.

`make interop` prepares them; where one is not prepared, its test says that it is absent. Those that take long run under
`make interop` alone.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.interop.languages.applications import APPLICATIONS, PYTHON_PROGRAMS, WORD_COUNT
from tests.interop.languages.prepare import AbsentError
from tests.interop.languages.sinks import Sink
from tests.interop.languages.streams_instances import streams_instances

from odradek.client import Admin, NewTopic

SECONDS_MAX = 60
WORDS = ("ash", "birch", "cedar", "dogwood", "elm")
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an application that was prepared; kills it at the end."""
    started: list[subprocess.Popen[bytes]] = []
    log = (tmp_path / "log").open("ab")

    def run(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        try:
            command = APPLICATIONS[name].ready()
        except AbsentError as reason:
            pytest.skip(f"absent: {reason}")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        started.append(
            subprocess.Popen([*command, *arguments], stdout=log, stderr=log, cwd=tmp_path, env=environment)
        )
        return started[-1]

    try:
        yield run
    finally:
        for process in started:
            process.kill()
            process.wait(SECONDS_MAX)
        log.close()


def send(bootstrap: str, topic: str, rows: list[tuple[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in rows:
        producer.produce(topic, value.encode(), key=key.encode())
    assert producer.flush(SECONDS_MAX) == 0


@pytest.fixture
def sink_of(bootstrap: str) -> Iterator[Callable[[str, int], Sink]]:
    made: list[Sink] = []

    def make(topic: str, partitions: int) -> Sink:
        made.append(Sink(bootstrap, topic, partitions))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def counted_exactly_once(times: int) -> dict[str, list[str]]:
    """Each word's counts: none lost, none repeated, in order."""
    return {word: [str(number) for number in range(1, times + 1)] for word in WORDS}


def send_lines(bootstrap: str, topic: str, lines: range) -> None:
    send(bootstrap, topic, [(str(number), " ".join(WORDS)) for number in lines])


def test_kafka_streams_counts_each_word_once_though_it_is_killed(
    bootstrap: str, topic: Any, tmp_path: Path
) -> None:
    """Through a repartition topic and a changelog that Streams makes itself, all in transactions."""
    source, sink, times, half, middle = topic(2), topic(2), 200, 100, 150
    application_id = f"count-{time.time_ns()}"
    with streams_instances(bootstrap, application_id, tmp_path, WORD_COUNT, source, sink) as instances:
        instances.read(sink, 2)
        send_lines(bootstrap, source, range(half))
        instances.start("only")
        instances.wait_for_records({sink: half * len(WORDS)})
        instances.hold_at(middle)
        send_lines(bootstrap, source, range(half, times))
        instances.wait_until_held(middle).kill()
        instances.start("only")
        instances.wait_for_records({sink: times * len(WORDS)})
        instances.sinks[sink].read_what_is_left()
        assert instances.sinks[sink].values == counted_exactly_once(times), instances.report()


def test_instances_in_a_streams_group_count_each_word_once_though_one_is_killed(
    streams_bootstrap: str, tmp_path: Path
) -> None:
    """The tasks are assigned by the broker (KIP-1071), which makes the internal topics: two instances share them, and the one
    that lives takes over those of the other."""
    bootstrap, times, half, middle, application_id = streams_bootstrap, 200, 100, 150, "streams-group"
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2) for name in ("lines", "words")])
    arguments = ("lines", "words", "streams")
    with streams_instances(bootstrap, application_id, tmp_path, WORD_COUNT, *arguments) as instances:
        instances.read("words", 2)
        for name in ("one", "two"):
            instances.start(name)
        instances.wait_for_members(2)
        send_lines(bootstrap, "lines", range(half))
        instances.wait_for_records({"words": half * len(WORDS)})
        instances.hold_at(middle)
        send_lines(bootstrap, "lines", range(half, times))
        instances.wait_until_held(middle).kill()
        instances.wait_for_records({"words": times * len(WORDS)})
        instances.wait_for_members(1)
        instances.sinks["words"].read_what_is_left()
        assert instances.sinks["words"].values == counted_exactly_once(times), instances.report()
        with Admin(bootstrap) as admin:
            group = admin.describe_groups([application_id])[application_id]
            names = admin.list_topics()
    assert group.type == "streams"
    assert {tp.topic for member in group.members for tp in member.assignment} >= {"lines"}
    assert len([name for name in names if name.startswith(f"{application_id}-")]) == 2


def test_a_faststream_application_answers_each_message(
    start: Start, bootstrap: str, topic: Any, sink_of: Any, tmp_path: Path
) -> None:
    source, sink = topic(2), topic(1)
    answered = sink_of(sink, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(50):
        producer.produce(source, f"word {number}".encode())
    assert producer.flush(SECONDS_MAX) == 0
    group = f"faststream-{time.time_ns()}"
    process = start("frameworks", str(PYTHON_PROGRAMS / "faststream_copy.py"), bootstrap, source, sink, group)
    answered.read_until(50, running=process, log=tmp_path / "log")
    answered.read_what_is_left()
    assert sorted(answered.values[""]) == sorted(f"WORD {number}" for number in range(50))


@pytest.mark.slow
def test_quix_streams_counts_each_word_once_though_it_is_killed(
    start: Start, bootstrap: str, topic: Any, sink_of: Any, tmp_path: Path
) -> None:
    """Its state is in a changelog topic of its own making; consumed offsets are part of its transactions."""
    source, sink, times = topic(2), topic(2), 200
    committed = sink_of(sink, 2)
    rows = [(word, "x") for _ in range(times // 2) for word in WORDS]
    group = f"quix-{time.time_ns()}"
    program = str(PYTHON_PROGRAMS / "quix_count.py")
    arguments = (program, bootstrap, source, sink, group, str(tmp_path / "state"))
    send(bootstrap, source, rows)
    first = start("frameworks", *arguments)
    committed.read_until(1, running=first, log=tmp_path / "log")
    first.kill()
    first.wait(SECONDS_MAX)
    send(bootstrap, source, rows)
    second = start("frameworks", *arguments)
    committed.read_until(times * len(WORDS), running=second, log=tmp_path / "log")
    committed.read_what_is_left()
    assert committed.values == counted_exactly_once(times)


@pytest.mark.slow
def test_sparks_own_connector_writes_reads_and_goes_on_where_a_query_ended(
    start: Start, bootstrap: str, topic: Any, sink_of: Any, tmp_path: Path
) -> None:
    """What was aborted in the source is in neither the batch nor the stream."""
    source, sink, count = topic(3), topic(2), 400
    copied = sink_of(sink, 2)
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"before-{time.time_ns()}"})
    writer.init_transactions()
    for end in (writer.abort_transaction, writer.commit_transaction):
        writer.begin_transaction()
        for number in range(10):
            writer.produce(source, f"{end.__name__} {number}".encode())
        end()
    process = start("spark", bootstrap, source, sink, str(tmp_path), str(count))
    assert process.wait(5 * SECONDS_MAX) == 0, (tmp_path / "log").read_text()[-3000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["rows"] == sorted([str(number), f"spark {number}", str(number)] for number in range(count))
    assert (seen["partitions"], seen["all"]) == ([0, 1, 2], 2 * count + 10)
    copied.read_until(2 * count + 10, running=process, log=tmp_path / "log")
    copied.read_what_is_left()
    values = collections.Counter(value for of_key in copied.values.values() for value in of_key)
    committed = [f"commit_transaction {number}" for number in range(10)]
    assert values == collections.Counter([*committed, *(f"spark {number}" for number in range(2 * count))])
