"""The upgrade `carry`, as the cluster sees it: which sinks have decided something, which states have a changelog."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from odradek import client
from odradek.client import Admin, NewTopic
from odradek.pipelines.outline import OutputOutline, ProgramOutline
from odradek.pipelines.upgrade import ModeVerdict
from odradek.spark.exactly_once.driver import last_decision
from odradek.streams.plan.queries import changelog_topic

_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """The topic that holds the state of an operator."""

    output: str
    operator: str
    topic: str


def state_topics(program: ProgramOutline) -> list[OperatorState]:
    """Returns the state topics that a streams program has, or will have."""
    return [
        OperatorState(
            output=output.name,
            operator=state.name,
            topic=changelog_topic(sink_id(program, output), state.name),
        )
        for output in program.outputs
        if output.is_topic
        for state in output.states
    ]


def sink_id(program: ProgramOutline, output: OutputOutline) -> str:
    """Returns the sink id that a streams program gives to an output."""
    return f"{program.app}.{output.name}"


def with_changelogs(
    admin: Admin, verdict: ModeVerdict, before: ProgramOutline, after: ProgramOutline
) -> ModeVerdict:
    """Returns the verdict on `carry`, with what the cluster has. Both are programs of odradek.streams, of one name."""
    present = set(admin.list_topics())
    known = {output.name: {state.name for state in output.states} for output in before.outputs}
    reasons, notes = list(verdict.reasons), list(verdict.notes)
    for output in after.outputs:
        has_begun = last_decision(admin, sink_id(after, output), require_stable=False) is not None
        if not has_begun:
            if output.name in known:
                notes.append(f"{output.name} has decided nothing yet: it begins with the first record")
            continue
        topics = {state.name: changelog_topic(sink_id(after, output), state.name) for state in output.states}
        carried = known.get(output.name, set())
        reasons += _missing(output.name, topics, carried, present)
        reasons += _left(admin, output.name, {topics[name] for name in topics.keys() - carried} & present)
    return replace(verdict, reasons=tuple(reasons), notes=tuple(notes))


def _missing(
    output: str, topics: dict[str, str], carried: Collection[str], present: Collection[str]
) -> Iterator[str]:
    for name in sorted(carried & topics.keys()):
        if topics[name] not in present:
            yield f"{output}: there is no topic {topics[name]}: the state of {name!r} is in its checkpoint only"


def _left(admin: Admin, output: str, topics: Collection[str]) -> Iterator[str]:
    """Returns the changelogs of operators that an earlier version had, and the one before this does not."""
    if not topics:
        return
    partitions = [
        tp for description in admin.describe_topics(topics).values() for tp in description.topic_partitions
    ]
    ends = admin.list_offsets(dict.fromkeys(partitions, client.LATEST))
    for topic in sorted({tp.topic for tp, end in ends.items() if end.offset > 0}):
        yield (
            f"{output}: topic {topic} has state of an earlier version, which was not kept up to date since: delete it, or"
            " give the operator another name"
        )


def make_new_changelogs(admin: Admin, before: ProgramOutline, after: ProgramOutline) -> None:
    """The topics of operators with state that are new: so their emptiness is on purpose."""
    known = {state.topic for state in state_topics(before)}
    present = set(admin.list_topics())
    missing = [
        state.topic
        for state in state_topics(after)
        if state.topic not in known and state.topic not in present
    ]
    if missing:
        admin.create_topics(NewTopic(topic, after.partitions, configs=_COMPACTED) for topic in missing)
