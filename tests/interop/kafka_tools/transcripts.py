"""Sessions with Kafka's command-line tools, as plain text: commands, and what the tools printed at Apache Kafka.

A line that begins with `$` is a command, `#` begins a comment, and indented lines are output. Standard input follows a command
as in a shell (`<<END`), and `cat > NAME <<END` writes a file. Commands leave out the broker's address. `{work}` stands for the
directory of such files, `{data}` for the broker's data. What a command ends with says how to read its output:

    # any order      the order of lines means nothing
    # figures vary   numbers are times and rates
    # in time        the output is the same a little later
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.interop.kafka_tools.tools import Tools

FOLDER = Path(__file__).with_name("transcripts")
SECONDS_MAX, PAUSE_SECONDS = 20.0, 0.5
ANY_ORDER, FIGURES_VARY, IN_TIME = "any order", "figures vary", "in time"
_READINGS = {ANY_ORDER, FIGURES_VARY, IN_TIME}
_END = "END"
_TOOLS = "org.apache.kafka.tools"
SCRIPTS = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-console-share-consumer": "consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-e2e-latency": "EndToEndLatency",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test": "ShareConsumerPerformance",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "StreamsResetter",
    "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
    "kafka-verifiable-share-consumer": "VerifiableShareConsumer",
    "client-compatibility-test": "ClientCompatibilityTest",
    "transactional-message-copier": "TransactionalMessageCopier",
}
"""The classes that Kafka's scripts run; the last two have no script."""
_ADDRESS = {"kafka-dump-log": None, "transactional-message-copier": "--broker-list"}
_ADDRESS_LAST = {"kafka-cluster"}
_NORMAL_FORMS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"((?:TopicId|Cluster ID|ClusterId|DirectoryId|cluster-id)\s*[:=]\s*)[\w-]{22}"), r"\1<id>"),
    (re.compile(r"\b1[78][0-9]{11}\b"), "<ms>"),
    (re.compile(r"\b20[0-9]{2}[-/][0-9]{2}[-/][0-9]{2}[T ][0-9:.,]+(?:Z|[+-][0-9:]+)?"), "<time>"),
    (re.compile(r"(CompleteCommit [0-9]+ <ms> )[0-9]+"), r"\1<ms>"),
    (re.compile(r"(HighWatermark: |Epoch: (?=[0-9]+$))[0-9]+"), r"\1<n>"),
    (re.compile(r"^1 [\w-]{22} [0-9]+ 0 "), "1 <id> <n> 0 "),
    (re.compile(r"\b[0-9]+ ms ago\b"), "<ms> ago"),
    (re.compile(r"\b(crc: )[0-9]+"), r"\1<crc>"),
    (re.compile(r"\badminclient-[0-9]+\b"), "adminclient-<n>"),
    (re.compile(r"\b(perf-\S*consumer|console-(?:share-)?consumer)-[0-9]+\b"), r"\1-<n>"),
)
_FIGURE = re.compile(
    r"\b[0-9]+\.[0-9]+(?:E-?[0-9]+)?\b|\b[0-9]+(?= ms\b)|(?<=, )[0-9]+(?=, |$)|(?<== )[0-9]+|NaN|Infinity"
)
_LISTS = re.compile(r'(Configs: |"offsets":\[|SCRAM credential configs for user-principal .* are )([^\]{]+)')
"""Lists whose order means nothing."""
_BARE = re.compile(r"(?<=[:\[,])<\w+>")
_FRAME = re.compile(r"^\s+at |^\s*\.\.\. [0-9]+ more$")
_NOT_YET = re.compile(r'\{.*"name":"partitions_assigned","partitions":\[\]\}')
"""What a consumer says first whose assignment comes before the topic's metadata, which are two requests of the client's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command, and what it printed at Kafka."""

    line: str
    """As written, without its input."""
    standard_input: str | None = None
    comment: tuple[str, ...] = ()
    """Lines that stand before it."""
    output: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return shlex.split(self._parts[0])

    @property
    def readings(self) -> set[str]:
        return set(self._parts[1])

    @property
    def tool(self) -> str:
        return self.words[0]

    @property
    def flags(self) -> list[str]:
        """Words that name an option or an action of the tool."""
        words = self.words[1:]
        actions = [word for word in words[:1] if re.fullmatch(r"[a-z][A-Za-z-]+", word)]
        return actions + [word for word in words if word.startswith("--")]

    @property
    def _parts(self) -> tuple[str, list[str]]:
        line, *readings = re.split(r"\s+# ", self.line.replace(f"<<{_END}", ""))
        unknown = set(readings) - _READINGS
        if unknown:
            raise ValueError(f"`{self.line}` ends with {unknown}; known are {_READINGS}")
        return line, readings


def _with_sorted_sets(members: dict[str, Any]) -> dict[str, Any]:
    """Sorts `offsets`, the one set that tools print."""
    return {name: sorted(value) if name == "offsets" else value for name, value in members.items()}


def canonical(line: str) -> str:
    """Returns the line with its lists and the members of its JSON in a fixed order. Each JVM orders its maps otherwise."""
    if line.startswith("{"):
        try:
            return json.dumps(json.loads(_BARE.sub("0", line), object_hook=_with_sorted_sets), sort_keys=True)
        except ValueError:
            return line
    return _LISTS.sub(lambda match: match[1] + ",".join(sorted(match[2].replace(" ", "").split(","))), line)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read(name: str) -> list[Command]:
    return list(parse((FOLDER / f"{name}.txt").read_text(encoding="utf-8")))


def write(name: str, commands: Iterable[Command]) -> None:
    text = "\n".join(_written(command) for command in commands)
    (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")


def parse(text: str) -> Iterator[Command]:
    lines = iter(text.splitlines())
    comment: list[str] = []
    command: Command | None = None
    for line in lines:
        if line.startswith("  ") and command is not None:
            command = replace(command, output=(*command.output, line[2:]))
            continue
        if command is not None:
            yield command
            command = None
        if line.startswith("#"):
            comment.append(line)
        elif line.startswith("$ "):
            typed = _typed(lines) if f"<<{_END}" in line else None
            command = Command(line=line[2:], standard_input=typed, comment=tuple(comment))
            comment = []
        elif line:
            raise ValueError(f"neither a command nor output nor a comment: {line!r}")
    if command is not None:
        yield command


def _typed(lines: Iterator[str]) -> str:
    typed = []
    for line in lines:
        if line == _END:
            return "".join(f"{text}\n" for text in typed)
        typed.append(line)
    raise ValueError(f"an input has no {_END}")


def _written(command: Command) -> str:
    lines = [*command.comment, f"$ {command.line}"]
    if command.standard_input is not None:
        lines += [*command.standard_input.splitlines(), _END]
    lines += [f"  {line}" for line in command.output]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The broker against which commands run, and a directory for their files."""

    tools: Tools
    bootstrap: str
    data: Path
    work: Path
    wait: Callable[[float], None] = field(default=time.sleep)

    def output(self, command: Command) -> tuple[str, ...]:
        """Runs a command once. Returns what it printed, without what differs from run to run."""
        words = [self._filled(word) for word in command.words]
        if words[0] == "cat":
            (self.work / words[2]).write_text(self._filled(command.standard_input or ""), encoding="utf-8")
            return ()
        flag = _ADDRESS.get(words[0], "--bootstrap-server")
        address = [flag, self.bootstrap] if flag else []
        arguments = [*words[1:], *address] if words[0] in _ADDRESS_LAST else [*address, *words[1:]]
        outcome = self.tools.run(
            f"{_TOOLS}.{SCRIPTS[words[0]]}", *arguments, standard_input=command.standard_input or ""
        )
        lines = [self._normal(line) for line in outcome.terminal.splitlines() if not _FRAME.search(line)]
        lines = [line for line in lines if line and not _NOT_YET.fullmatch(line)]
        if FIGURES_VARY in command.readings:
            lines = [_FIGURE.sub("<figure>", line) for line in lines]
        if ANY_ORDER in command.readings:
            lines.sort()
        return (*lines, f"[exit status {outcome.status}]") if outcome.status else tuple(lines)

    def settled(self, command: Command, is_settled: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
        """Runs a command; one whose output is the same only in time runs again until it is settled."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            output = self.output(command)
            if IN_TIME not in command.readings or is_settled(output) or time.monotonic() > deadline:
                return output
            self.wait(PAUSE_SECONDS)

    def _filled(self, word: str) -> str:
        return word.replace("{work}", str(self.work)).replace("{data}", str(self.data))

    def _normal(self, line: str) -> str:
        port = self.bootstrap.rsplit(":", 1)[1]
        line = line.replace(self.bootstrap, "<broker>")
        line = re.sub(rf"\b{port}\b", "<port>", line)
        line = re.sub(r"\s+", " ", line).strip()
        line = line.replace(str(self.data), "{data}").replace(str(self.work), "{work}")
        for pattern, normal in _NORMAL_FORMS:
            line = pattern.sub(normal, line)
        return line
