"""Kafka's own tools print here what they print at Apache Kafka, but for what `differences.py` explains.

`python -m tests.interop.kafka_tools.record` writes the transcripts again.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from benchmarks.odradek_node import Node
from benchmarks.peer import PeerAbsentError
from tests.interop.kafka_tools import transcripts
from tests.interop.kafka_tools.differences import DIFFERENCES, Difference, comparable
from tests.interop.kafka_tools.page import PAGE, tool_lines
from tests.interop.kafka_tools.settings import SETTINGS, VERSION
from tests.interop.kafka_tools.tools import ToolError, Tools
from tests.interop.kafka_tools.transcripts import Command, Stage, parse

TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def stage(make_node: Callable[..., Node], tools: Tools, tmp_path: Path) -> Iterator[Stage]:
    try:
        node = make_node(settings=SETTINGS).start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    try:
        yield Stage(tools=tools, bootstrap=node.bootstrap, data=node.data_directory, work=tmp_path)
    finally:
        node.stop()


@pytest.mark.parametrize("name", transcripts.names())
def test_the_tools_print_what_they_print_at_kafka(name: str, stage: Stage) -> None:
    assert stage.tools.jars.version == VERSION, "record the transcripts with the tools of this release"
    differences: list[str] = []
    needed: set[tuple[Difference, str]] = set()
    for command in transcripts.read(name):
        expected, rows = comparable(name, command, command.output, side="kafka")
        needed |= {(row, "kafka") for row in rows}
        output = stage.settled(command, partial(is_same, name, command, expected))
        lines, rows = comparable(name, command, output, side="here")
        needed |= {(row, "here") for row in rows}
        if lines != expected:
            changes = difflib.unified_diff(expected, lines, "Kafka", "here", lineterm="", n=0)
            differences += [f"$ {command.line}", *changes]
    assert not differences, "\n".join(["", *differences])
    assert [row for row in DIFFERENCES if row.transcript == name and not is_needed(row, needed)] == []


def is_same(name: str, command: Command, expected: list[str], output: Sequence[str]) -> bool:
    return comparable(name, command, output, side="here")[0] == expected


def is_needed(row: Difference, needed: set[tuple[Difference, str]]) -> bool:
    """Whether each side has a line that the difference is about."""
    return (row.kafka is None or (row, "kafka") in needed) and (row.here is None or (row, "here") in needed)


def test_every_difference_names_a_transcript_and_says_why() -> None:
    for row in DIFFERENCES:
        assert row.transcript in transcripts.names(), row
        assert row.why.endswith("."), row


def test_the_page_lists_the_tools_and_flags_of_the_transcripts() -> None:
    assert "\n".join(tool_lines()) in PAGE.read_text(encoding="utf-8")


def test_a_transcript_is_read_as_it_is_written() -> None:
    (command,) = parse("# why\n$ kafka-topics --list --topic 'a b' <<END  # any order\nx\nEND\n  out\n")
    assert (command.words, command.readings) == (
        ["kafka-topics", "--list", "--topic", "a b"],
        {transcripts.ANY_ORDER},
    )
    assert (command.standard_input, command.output, command.comment) == ("x\n", ("out",), ("# why",))
    assert command.flags == ["--list", "--topic"]
    for wrong in ("kafka-topics\n", "$ kafka-topics <<END\nx\n"):
        with pytest.raises(ValueError, match=r"neither|no END"):
            list(parse(wrong))


def test_sets_that_tools_print_as_json_have_no_order() -> None:
    lines = [
        '{"b": 1, "a": [{"offsets": [2, 0, 1]}], "replicas": [2, 1]}',
        '{"a": [{"offsets": [0, 1, 2]}], "b": 1, "replicas": [2, 1]}',
    ]
    assert transcripts.canonical(lines[0]) == transcripts.canonical(lines[1])
    assert transcripts.canonical('{"replicas": [1, 2]}') != transcripts.canonical('{"replicas": [2, 1]}')


def test_a_tool_ends_with_its_status_and_what_it_prints_later_is_dropped(tools: Tools) -> None:
    refused = tools.run(f"{TOOLS}.AclCommand", "--bootstrap-server", "127.0.0.1:1", "--list", "--add")
    assert refused.status == 1
    assert "exactly one action" in refused.errors
    assert "Ended" not in refused.terminal
    assert tools.run(f"{TOOLS}.TopicCommand", "--version").status == 0


def test_a_tool_that_does_not_end_is_named_and_the_next_one_runs(tools: Tools, tmp_path: Path) -> None:
    with Tools(tools.jars, tmp_path, seconds_max=3) as hurried:
        absent = ("--bootstrap-server", "127.0.0.1:1", "--topic", "t")
        with pytest.raises(ToolError, match=r"no end of `.*VerifiableProducer"):
            hurried.run(f"{TOOLS}.VerifiableProducer", *absent, "--max-messages", "1")
        hurried.seconds_max = tools.seconds_max
        assert hurried.run(f"{TOOLS}.TopicCommand", "--version").status == 0
