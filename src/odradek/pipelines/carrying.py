"""Where the state of a streams program is in the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.pipelines.outline import OutputOutline, ProgramOutline
from odradek.streams.changelog_topics import changelog_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """Where the state of an operator is in the cluster."""

    output: str
    operator: str
    topic: str


def state_topics(program: ProgramOutline) -> list[KeptState]:
    """Of a streams program: those that it has, or will have."""
    return [
        KeptState(
            output=output.name,
            operator=state.name,
            topic=changelog_topic(sink_id(program, output), state.name),
        )
        for output in program.outputs
        if output.is_topic
        for state in output.states
    ]


def sink_id(program: ProgramOutline, output: OutputOutline) -> str:
    """As a streams program calls the sink of an output."""
    return f"{program.app}.{output.name}"
