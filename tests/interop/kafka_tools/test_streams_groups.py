"""Kafka's `kafka-streams-groups` over a word count of Kafka Streams: while it runs, and once it has ended."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop.kafka_tools.tools import Tools
from tests.interop.languages.applications import APPLICATIONS, WORD_COUNT
from tests.interop.languages.prepare import AbsentError
from tests.interop.languages.sinks import Sink
from tests.interop.languages.test_applications import WORDS

from odradek.client import Admin, NewTopic
from odradek.model.ids import TopicPartition

SECONDS_MAX = 60
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
GROUP, TIMES = "word-count", 20
NO_MEMBERS = re.compile(r"Streams group '.*' has no active members")
"""The tool calls this an error, and goes on."""
Tool = Callable[..., str]


@pytest.fixture
def tool(streams_bootstrap: str, tools: Tools) -> Tool:
    """Runs the tool; returns what it printed."""

    def run(*arguments: str) -> str:
        outcome = tools.run(TOOL, "--bootstrap-server", streams_bootstrap, *arguments)
        assert outcome.status == 0, outcome.terminal
        failures = [
            line for line in outcome.printed.splitlines() if "rror" in line and not NO_MEMBERS.search(line)
        ]
        assert not failures, outcome.terminal
        assert "rror" not in outcome.errors, outcome.errors
        return outcome.printed

    return run


@pytest.fixture
def word_count(streams_bootstrap: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An application in a streams group, which has counted all words."""
    try:
        command = APPLICATIONS["kafka-streams"].ready()
    except AbsentError as reason:
        pytest.skip(f"absent: {reason}")
    with Admin(streams_bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2) for name in ("lines", "words")])
    producer = Producer({"bootstrap.servers": streams_bootstrap})
    for number in range(TIMES):
        producer.produce("lines", " ".join(WORDS).encode(), partition=number % 2)
    assert producer.flush(SECONDS_MAX) == 0
    arguments = [
        WORD_COUNT,
        streams_bootstrap,
        GROUP,
        str(tmp_path / "state"),
        str(tmp_path / "holds"),  # it holds at no line
        "lines",
        "words",
        "streams",
    ]
    log = tmp_path / "log"
    with log.open("wb") as written:
        process = subprocess.Popen([*command, *arguments], stdout=written, stderr=written, cwd=tmp_path)
    sink = Sink(streams_bootstrap, "words", 2)
    try:
        sink.read_until(TIMES * len(WORDS), running=process, log=log)
        yield process
    finally:
        sink.close()
        process.kill()
        process.wait(SECONDS_MAX)


def rows_of(printed: str) -> list[dict[str, str]]:
    """The table that the tool prints, by the names of its columns."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    header = next(number for number, line in enumerate(lines) if "GROUP" in line[0])
    return [dict(zip(lines[header], line, strict=False)) for line in lines[header + 1 :]]


def test_the_tool_shows_a_running_application_and_resets_and_deletes_one_that_has_ended(
    word_count: subprocess.Popen[bytes], tool: Tool, streams_bootstrap: str
) -> None:
    assert tool("--list").split() == [GROUP]
    (state,) = rows_of(tool("--describe", "--group", GROUP, "--state", "--verbose"))
    assert (state["STATE"], state["ASSIGNOR"], state["#MEMBERS"]) == ("Stable", "sticky", "1")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"]
    members = tool("--describe", "--group", GROUP, "--members", "--verbose")
    assert "ACTIVE: 0:[0,1]; 1:[0,1]; TARGET-ACTIVE: 0:[0,1]; 1:[0,1];" in members
    assert rows_of(members)[0]["MEMBER-PROTOCOL"] == "streams"
    assert read_offsets(tool) == {"0": (TIMES // 2, 0), "1": (TIMES // 2, 0)}

    word_count.terminate()
    word_count.wait(SECONDS_MAX)
    (state,) = rows_of(tool("--describe", "--group", GROUP, "--state"))
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")
    reset = ("--reset-offsets", "--group", GROUP, "--input-topic", "lines", "--to-offset", "3")
    planned = [(row["PARTITION"], row["NEW-OFFSET"]) for row in rows_of(tool(*reset, "--dry-run"))]
    assert planned == [("0", "3"), ("1", "3")]
    assert committed(streams_bootstrap) == [TIMES // 2] * 2
    tool(*reset, "--execute")
    assert committed(streams_bootstrap) == [3, 3]
    tool("--delete-offsets", "--group", GROUP, "--input-topic", "lines:0")
    assert committed(streams_bootstrap) == [None, 3]
    tool("--delete", "--group", GROUP, "--delete-all-internal-topics")
    assert tool("--list").split() == []
    with Admin(streams_bootstrap) as admin:
        names = admin.list_topics()
    assert {"lines", "words"} <= set(names)
    assert not [name for name in names if name.startswith(f"{GROUP}-")], "its internal topics went with it"


def committed(bootstrap: str) -> list[int | None]:
    """The group's offsets in the partitions of its input. The tool shows those of running applications alone."""
    partitions = [TopicPartition("lines", number) for number in range(2)]
    with Admin(bootstrap) as admin:
        offsets = admin.list_group_offsets(GROUP, partitions)
    return [None if (entry := offsets[partition]) is None else entry.offset for partition in partitions]


def read_offsets(tool: Tool) -> dict[str, tuple[int, int]]:
    """The group's offset and lag in each partition of its input."""
    return {
        row["PARTITION"]: (int(row["CURRENT-OFFSET"]), int(row["OFFSET-LAG"]))
        for row in rows_of(tool("--describe", "--group", GROUP, "--offsets", "--verbose"))
        if row["TOPIC"] == "lines"
    }
