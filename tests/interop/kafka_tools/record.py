"""Runs the transcripts at Apache Kafka and keeps what its tools print there; or shows how that, or ours, differs.

.venv/bin/python -m tests.interop.kafka_tools.record [NAME...]            record
.venv/bin/python -m tests.interop.kafka_tools.record --check [NAME...]    Kafka once more: is the output repeatable?
.venv/bin/python -m tests.interop.kafka_tools.record --odradek [NAME...]  Odradek: every difference
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.odradek_node import Node, OdradekNode
from benchmarks.peer import KafkaNode, PeerAbsentError, fetch_peer
from tests.interop.kafka_tools import transcripts
from tests.interop.kafka_tools.settings import SETTINGS, VERSION
from tests.interop.kafka_tools.tools import Tools
from tests.interop.kafka_tools.transcripts import PAUSE_SECONDS, Command, Stage, canonical


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.kafka_tools.record")
    parser.add_argument("names", nargs="*", default=transcripts.names(), metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--odradek", action="store_true")
    options = parser.parse_args()
    try:
        jars = fetch_peer(version=VERSION)
    except PeerAbsentError as reason:
        sys.stderr.write(f"absent: {reason}\n")
        return 3
    difference_count = 0
    with (
        tempfile.TemporaryDirectory(prefix="kafka-tools-") as directory,
        Tools(jars, Path(directory)) as tools,
    ):
        for name in options.names:
            node: Node = (
                OdradekNode(settings=SETTINGS) if options.odradek else KafkaNode(jars, settings=SETTINGS)
            )
            node.start()
            try:
                stage = Stage(
                    tools=tools, bootstrap=node.bootstrap, data=node.data_directory, work=Path(directory)
                )
                if options.check or options.odradek:
                    difference_count += sum(
                        _compare(stage, name, command) for command in transcripts.read(name)
                    )
                else:
                    _record(stage, name)
            finally:
                node.stop()
    return 1 if difference_count else 0


def _record(stage: Stage, name: str) -> None:
    commands = [_recorded(stage, command) for command in transcripts.read(name)]
    transcripts.write(name, commands)
    _say(f"{name}: {len(commands)} commands recorded")


def _recorded(stage: Stage, command: Command) -> Command:
    """Metadata of Kafka follows its answers a little later, so there is a pause before every command."""
    stage.wait(PAUSE_SECONDS)
    last: Sequence[str] = ("nothing yet",)

    def is_settled(output: Sequence[str]) -> bool:
        nonlocal last
        was, last = last, output
        return was == output

    return replace(command, output=stage.settled(command, is_settled))


def _compare(stage: Stage, name: str, command: Command) -> int:
    expected = [canonical(line) for line in command.output]

    def is_same(lines: Sequence[str]) -> bool:
        return [canonical(line) for line in lines] == expected

    output = stage.settled(command, is_same)
    if is_same(output):
        return 0
    _say(f"{name}: $ {command.line}")
    for line in difflib.unified_diff(command.output, output, "Kafka", "here", lineterm="", n=0):
        _say(f"    {line}")
    return 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
