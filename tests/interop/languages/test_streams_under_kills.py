"""Kafka Streams in a streams group (KIP-1071): a word count, a join and a windowed count by three instances. Two are killed,
each in the middle of a transaction. Nothing is lost, nothing is doubled, and no task is in two members."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.languages.applications import STREAMS_JOB
from tests.interop.languages.streams_instances import Instance, StreamsInstances, streams_instances
from tests.interop.languages.test_applications import SECONDS_MAX, WORDS

from odradek.client import Admin, NewTopic

LINES, PARTITIONS, WINDOW_MS = 160, 3, 10_000
SINKS = ("counts", "joined", "windowed")
QUARTERS = tuple(range(number * LINES // 4, (number + 1) * LINES // 4) for number in range(4))
"""The lines are sent in four parts; in the second one and in the third one an instance is killed."""


def words_of(line: int) -> list[str]:
    """Two words of each line, so that the counts differ."""
    return [WORDS[line % len(WORDS)], WORDS[line % 3]]


class Input:
    """The input: a table, and lines that are older than their words' kinds. Words are partitioned as Java clients do it."""

    def __init__(self, bootstrap: str) -> None:
        self.first_ms = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS
        self._bootstrap = bootstrap

    def send_kinds(self) -> None:
        self._send("kinds", [(word, f"kind of {word}", self.first_ms - 1) for word in WORDS])

    def send_lines(self, lines: range) -> None:
        self._send(
            "lines", [(str(line), " ".join(words_of(line)), self.first_ms + line * 1000) for line in lines]
        )

    def _send(self, topic: str, rows: list[tuple[str, str, int]]) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "partitioner": "murmur2_random"})
        for key, value, time_ms in rows:
            producer.produce(topic, value.encode(), key=key.encode(), timestamp=time_ms)
        assert producer.flush(SECONDS_MAX) == 0


@pytest.fixture
def job(streams_bootstrap: str, tmp_path: Path) -> Iterator[StreamsInstances]:
    with Admin(streams_bootstrap) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS) for name in ("lines", "kinds", *SINKS)])
    with streams_instances(streams_bootstrap, "job", tmp_path, STREAMS_JOB) as instances:
        for name in SINKS:
            instances.read(name, PARTITIONS)
        yield instances


def test_three_instances_count_join_and_window_exactly_once_though_they_are_killed(
    job: StreamsInstances, streams_bootstrap: str
) -> None:
    sent = Input(streams_bootstrap)
    sent.send_kinds()
    for name in ("a", "b", "c"):
        job.start(name)
    job.wait_for_members(3)
    sent.send_lines(QUARTERS[0])
    job.wait_for_records(outcomes(QUARTERS[0]))

    killed = kill_within(QUARTERS[1], job, sent)
    job.start(killed.name)
    job.wait_for_records(outcomes(QUARTERS[1]))
    job.wait_for_members(3)

    kill_within(QUARTERS[2], job, sent)  # and not started again
    sent.send_lines(QUARTERS[3])
    job.wait_for_records(outcomes(QUARTERS[3]))
    job.wait_for_members(2)

    for sink in job.sinks.values():
        sink.read_what_is_left()
    committed = {name: sink.values for name, sink in job.sinks.items()}
    committed["joined"] = {word: sorted(rows) for word, rows in committed["joined"].items()}
    assert committed == expected(sent.first_ms), job.report()


def kill_within(lines: range, job: StreamsInstances, sent: Input) -> Instance:
    """Sends the lines and kills the instance that gets the one in the middle. Its transaction holds that line's words."""
    middle = lines[len(lines) // 2]
    job.hold_at(middle)
    sent.send_lines(lines)
    held = job.wait_until_held(middle)
    job.sinks["joined"].read_what_is_left()
    rows = [row for rows in job.sinks["joined"].values.values() for row in rows]
    assert not [row for row in rows if row.startswith(f"{middle}/")], job.report()
    held.kill()
    return held


def outcomes(lines: range) -> dict[str, int]:
    """How many records each sink has once all lines up to these are counted."""
    return dict.fromkeys(SINKS, 2 * lines.stop)


def expected(first_ms: int) -> dict[str, dict[str, list[str]]]:
    """What the sinks have in the end, by key."""
    words = [(word, line) for line in range(LINES) for word in words_of(line)]
    times = Counter(word for word, _ in words)
    windows = Counter(f"{word}@{first_ms + line * 1000 // WINDOW_MS * WINDOW_MS}" for word, line in words)
    joined = {
        word: sorted(f"{line}/kind of {word}" for other, line in words if other == word) for word in times
    }
    return {"counts": counted(times), "joined": joined, "windowed": counted(windows)}


def counted(times: Counter[str]) -> dict[str, list[str]]:
    """The values of a count that sees each record once, in order."""
    return {key: [str(number) for number in range(1, count + 1)] for key, count in times.items()}
