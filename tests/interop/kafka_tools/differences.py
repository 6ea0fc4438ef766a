"""Where Kafka's tools print here what they do not print at Apache Kafka, and why. Nothing else may differ."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from tests.interop.kafka_tools.transcripts import ANY_ORDER, Command, canonical

Side = Literal["kafka", "here"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A part of a line that is `kafka` at Kafka is `here` here; both are expressions. None: the other side has no such line."""

    transcript: str
    kafka: str | None
    here: str | None
    why: str
    command: str = ""
    """An expression that the command matches."""

    def is_about(self, name: str, command: Command) -> bool:
        return self.transcript == name and re.search(self.command, command.line) is not None

    def apply(self, line: str, side: Side) -> str | None:
        """Returns the line with what may differ replaced; None for a line that may be missing on the other side."""
        pattern = self.kafka if side == "kafka" else self.here
        if pattern is None:
            return line
        if self.kafka is None or self.here is None:
            return None if re.fullmatch(pattern, line) else line
        return re.sub(pattern, f"<{self.why}>", line)


_SENTENCE: Final = "Sentences of errors are Odradek's own; the error and the exit status are Kafka's."


def _sentences(transcript: str, *pairs: tuple[str, str]) -> tuple[Difference, ...]:
    return tuple(
        Difference(transcript=transcript, kafka=kafka, here=here, why=_SENTENCE) for kafka, here in pairs
    )


DIFFERENCES: Final = (
    *_sentences(
        "topics",
        (r"Topic 'tt-one' already exists\.", r"topic 'tt-one' already exists"),
        (
            r"Topic name is invalid: 'no topic!' contains one or more characters .*",
            r"topic name 'no topic!' may hold only .*",
        ),
        (
            r"Unable to replicate the partition 2 time\(s\): .*",
            r"replication factor 2 is more than the 1 registered broker\(s\)",
        ),
        (
            r"The topic tt-one currently has 3 partition\(s\); 2 would not be an increase\.",
            r"topic 'tt-one' has 3 partition\(s\); the new total must be higher, not 2",
        ),
        (r"No such topic as tt-absent", r"there is no topic 'tt-absent'"),
    ),
    *_sentences(
        "configs",
        (
            r"Invalid value long for configuration retention\.ms: .*",
            r"retention\.ms='long' is not allowed: .*",
        ),
        (
            r"Invalid value rar for configuration compression\.type: .*",
            r"compression\.type='rar' is not allowed: .*",
        ),
        (r"The topic 'tc-absent' does not exist\.", r"there is no topic 'tc-absent'"),
        (
            r"Cannot update these configs dynamically: \[(log\.dirs|node\.id)\]",
            r"(log\.dirs|node\.id) cannot change while the broker runs",
        ),
        (
            r"Attempt to delete a user credential that does not exist",
            r"user 'bob' has no credentials for SCRAM-SHA-256",
        ),
        (
            r"consumer\.session\.timeout\.ms must be in the range 45000 to 60000 inclusive\.",
            r"consumer\.session\.timeout\.ms=1 is not allowed: .*",
        ),
        (
            r"Illegal client matching pattern: no_such_label=x",
            r"'no_such_label=x' does not match clients: .*",
        ),
    ),
    *_sentences(
        "cluster",
        (r"Broker ID 77 is not currently registered$", r"broker 77 is not registered in this cluster$"),
        (
            r"Controller ID 77 is not currently registered\.",
            r"Controller ID 77 is not currently registered: there are no KRaft controllers.*",
        ),
        (
            r"The update failed for all features since the following feature had an error: .*",
            r"no feature was updated: .*",
        ),
        (r"Cannot remove voter ReplicaKey\(id=77.*", r"Cannot remove voter 77 from the set of voters: .*"),
    ),
    Difference(
        transcript="configs",
        kafka=None,
        here=r"flush\.before\.ack=.*",
        why="`kafka-configs --describe --all` lists settings of Odradek's own.",
    ),
    Difference(
        transcript="configs",
        command="--user carol",
        kafka=r".*",
        here=None,
        why="Kafka refuses passwords of one user for two mechanisms in one command; here they are set.",
    ),
    Difference(
        transcript="configs",
        command="--user carol",
        kafka=None,
        here=r"Completed updating config for user carol\.",
        why="Kafka refuses passwords of one user for two mechanisms in one command; here they are set.",
    ),
    Difference(
        transcript="cluster",
        kafka=r"(?<=eligible\.leader\.replicas\.version SupportedMinVersion: )0",
        here=r"(?<=eligible\.leader\.replicas\.version SupportedMinVersion: )1",
        why="`kafka-features` shows one level of features that are always on.",
    ),
    Difference(
        transcript="cluster",
        kafka=r"(?<=metadata\.version SupportedMinVersion: )3\.3-IV3",
        here=r"(?<=metadata\.version SupportedMinVersion: )4\.4-IV2",
        why="`kafka-features` shows one level of features that are always on.",
    ),
    Difference(
        transcript="cluster",
        kafka=r'"directoryId": "[\w-]{22}", "endpoints": \["CONTROLLER://.*?"\]',
        here=r'"endpoints": \["PLAINTEXT://<broker>"\]',
        why="`kafka-metadata-quorum` shows the controller at the address of its broker, without a directory.",
    ),
    Difference(
        transcript="cluster",
        kafka=r"(GetTelemetrySubscriptions|PushTelemetry)\(7[12]\): UNSUPPORTED",
        here=r"(GetTelemetrySubscriptions|PushTelemetry)\(7[12]\): 0 \[usable: 0\]",
        why="`kafka-broker-api-versions` shows metrics of clients as served, which Kafka does with a plug-in only.",
    ),
    Difference(
        transcript="cluster",
        kafka=r"(Initialize|Read|Write|Delete)ShareGroupState(Summary)?\(8[3-7]\): 0.* \[usable: [01]\]",
        here=r"(Initialize|Read|Write|Delete)ShareGroupState(Summary)?\(8[3-7]\): UNSUPPORTED",
        why="`kafka-broker-api-versions` shows no APIs for the state of share groups: brokers alone call them.",
    ),
    Difference(
        transcript="groups",
        kafka=r"(?<=^tg-modern <broker> \(1\) uniform Empty )3 3(?= 0$)",
        here=r"(?<=^tg-modern <broker> \(1\) uniform Empty )2 2(?= 0$)",
        why="`kafka-consumer-groups --state --verbose` shows epochs, which count a group's changes; Kafka's are one higher.",
    ),
    Difference(
        transcript="groups",
        kafka=r"(?<=^tg-share tg-one [01] )0(?= 0$)",
        here=r"(?<=^tg-share tg-one [01] )5(?= 0$)",
        why="`kafka-share-groups` shows the offset at which a group goes on; Kafka's follows with the next write of its state.",
    ),
)


def comparable(
    name: str, command: Command, output: Iterable[str], *, side: Side
) -> tuple[list[str], set[Difference]]:
    """Returns the output without what may differ, and the differences that were needed for that."""
    lines: list[str] = []
    used: set[Difference] = set()
    rows = [row for row in DIFFERENCES if row.is_about(name, command)]
    for line in output:
        current: str | None = canonical(line)
        for row in rows:
            changed = row.apply(current, side)
            if changed != current:
                used.add(row)
            current = changed
            if current is None:
                break
        if current is not None:
            lines.append(current)
    return (sorted(lines) if ANY_ORDER in command.readings else lines), used
