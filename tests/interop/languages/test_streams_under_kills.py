"""Kafka Streams in a streams group (KIP-1071): a word count, a join and a windowed count by three instances that are killed in
turn. Nothing is lost, nothing is doubled, and no task is in two members."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.languages.applications import STREAMS_JOB
from tests.interop.languages.test_applications import (  # noqa: F401  fixtures
    SECONDS_MAX,
    WORDS,
    Sink,
    Start,
    start,
)

from odradek.client import Admin, NewTopic

APPLICATION, LINES, PARTITIONS, WINDOW_MS = "job", 300, 3, 10_000
PROGRESS_OF_KILLS = (0.2, 0.5)
"""An instance is killed when this much of the outcome is committed."""
SINKS = ("counts", "joined", "windowed")


def words_of(line: int) -> list[str]:
    """Two words of each line, so that the counts differ."""
    return [WORDS[line % len(WORDS)], WORDS[line % 3]]


def send_input(bootstrap: str, first_ms: int) -> None:
    """The table first, older than all lines: a join finds every word in it. Words are partitioned as Java clients do it."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for word in WORDS:
        producer.produce("kinds", f"kind of {word}".encode(), key=word.encode(), timestamp=first_ms - 1)
    for line in range(LINES):
        text = " ".join(words_of(line)).encode()
        producer.produce("lines", text, key=b"%d" % line, timestamp=first_ms + line * 1000)
    assert producer.flush(SECONDS_MAX) == 0


class TaskWatch:
    """Looks at who has which task, as the coordinator describes it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.member_counts: Counter[int] = Counter()
        """How often the group had so many members."""

    def look(self) -> None:
        with Admin(self._bootstrap) as admin:
            group = admin.describe_groups([APPLICATION])[APPLICATION]
        owned = Counter(partition for member in group.members for partition in set(member.assignment))
        doubled = {partition: count for partition, count in owned.items() if count > 1}
        assert not doubled, f"read by two members at once: {doubled}"
        self.member_counts[len(group.members)] += 1


class Outcome:
    """What the instances committed, in all sinks."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self.sinks = {name: Sink(bootstrap, name, PARTITIONS) for name in SINKS}
        self._log = log

    @property
    def count(self) -> int:
        return sum(sink.count for sink in self.sinks.values())

    def read_until(self, count: int, running: subprocess.Popen[bytes], look: Callable[[], None]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while self.count < count:
            is_late = time.monotonic() > deadline or running.poll() is not None
            counts = {name: sink.count for name, sink in self.sinks.items()}
            assert not is_late, f"{counts}, {count} in all are expected\n{self._log.read_text()[-3000:]}"
            for sink in self.sinks.values():
                sink.read_what_is_left()
            if self.count:  # before that there may be no group yet
                look()

    def close(self) -> None:
        for sink in self.sinks.values():
            sink.close()


@pytest.fixture
def outcome(streams_bootstrap: str, tmp_path: Path) -> Iterator[Outcome]:
    with Admin(streams_bootstrap) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS) for name in ("lines", "kinds", *SINKS)])
    committed = Outcome(streams_bootstrap, tmp_path / "log")
    yield committed
    committed.close()


@pytest.mark.slow
def test_three_instances_count_join_and_window_exactly_once_though_they_are_killed(
    start: Start,  # noqa: F811  a fixture
    streams_bootstrap: str,
    outcome: Outcome,
    tmp_path: Path,
) -> None:
    first_ms = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS
    send_input(streams_bootstrap, first_ms)

    def instance(name: str) -> subprocess.Popen[bytes]:
        state = str(tmp_path / f"state-{name}")
        return start("kafka-streams", STREAMS_JOB, streams_bootstrap, APPLICATION, state, "80")

    instances = [instance(name) for name in ("a", "b", "c")]
    watch, total = TaskWatch(streams_bootstrap), 3 * 2 * LINES
    for number, progress in enumerate(PROGRESS_OF_KILLS):
        outcome.read_until(int(progress * total), instances[2], watch.look)
        instances[number].kill()
        instances[number].wait(SECONDS_MAX)
        assert outcome.count < total, "the kill comes too late to interrupt anything"
        if number == 0:
            instances[0] = instance("a")  # with the state on its disk
    outcome.read_until(total, instances[2], watch.look)
    for sink in outcome.sinks.values():
        sink.read_what_is_left()

    words = [(word, line) for line in range(LINES) for word in words_of(line)]
    times = Counter(word for word, _ in words)
    windows = Counter(f"{word}@{first_ms + line * 1000 // WINDOW_MS * WINDOW_MS}" for word, line in words)
    joined = {
        word: sorted(f"{line}/kind of {word}" for other, line in words if other == word) for word in times
    }
    assert outcome.sinks["counts"].values == counted(times)
    assert outcome.sinks["windowed"].values == counted(windows)
    assert {word: sorted(rows) for word, rows in outcome.sinks["joined"].values.items()} == joined
    assert max(watch.member_counts) >= 2, watch.member_counts


def counted(times: Counter[str]) -> dict[str, list[str]]:
    """The values of a count that sees each record once, in order."""
    return {key: [str(number) for number in range(1, count + 1)] for key, count in times.items()}
