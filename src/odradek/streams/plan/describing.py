"""The description of a topology as text: its sub-topologies, with the sources, operators, state and sinks of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.streams.plan.operators import Operator, walk


def subtopologies(ends: Sequence[Operator]) -> list[list[Operator]]:
    """Operators that depend on each other without a topic between them, in the order in which the program ends."""
    groups: list[list[Operator]] = []
    for end in ends:
        reached = list(walk(end))
        joined = [group for group in groups if any(operator in group for operator in reached)]
        members = dict.fromkeys(operator for group in [*joined, reached] for operator in group)
        index = groups.index(joined[0]) if joined else len(groups)
        groups = [group for group in groups if group not in joined]
        groups.insert(index, list(members))
    return [list(walk(*(operator for operator in group if operator in ends))) for group in groups]


def description(name: str, partitions: int, ends: Sequence[Operator]) -> str:
    """Returns one line for each operator: its name, what it reads, what it does; `*` before those that keep state."""
    lines = [
        f"{name}: {len(ends)} output{'s' * (len(ends) != 1)}, {partitions} task{'s' * (partitions != 1)}"
    ]
    for number, group in enumerate(subtopologies(ends)):
        lines.append(f"sub-topology {number}")
        lines += _lines(group)
    return "\n".join(lines)


def _lines(group: Sequence[Operator]) -> Iterator[str]:
    for operator in group:
        read = " <- " + ", ".join(source.name for source in operator.inputs) if operator.inputs else ""
        details = operator.details()
        mark = "*" if operator.has_state else " "
        yield f" {mark} {operator.name}: {type(operator).__name__}{read}" + (
            f" ({details})" if details else ""
        )
