"""The plan that EXPLAIN writes as text, drawn: operators as boxes, topics at the ends, a cylinder where state is kept."""

from __future__ import annotations

import re
from typing import Final

from odradek.streams.picture import Box, Edge, boxes_svg

_LINE: Final = re.compile(r"( *)(?:(native|stateful): )?(.*)")
_READ: Final = re.compile(r"read (stream|table) (.*?) from topic (.*)")
_WRITE: Final = re.compile(r"write to (topic|archive) (\S+?),? (.*)")
_TABLE: Final = re.compile(r"\b(?:table|aggregate|count)\b", re.I)


def svg(name: str, plan: str) -> str:
    """Returns the picture of a plan."""
    return boxes_svg(name, *plan_graph(plan))


def plan_graph(plan: str) -> tuple[dict[str, Box], list[Edge]]:
    """Returns a plan as boxes and lines. Lines of the text are operators; those that are set in deeper are the inputs of the
    one above.
    """
    boxes: dict[str, Box] = {}
    edges: list[Edge] = []
    above: list[tuple[int, str]] = []
    for number, line in enumerate(line for line in plan.splitlines() if line.strip()):
        match = _LINE.fullmatch(line)
        assert match is not None
        depth, key = len(match[1]), str(number)
        boxes[key] = _box(match[3], has_state=match[2] == "stateful")
        while above and above[-1][0] >= depth:
            above.pop()
        if above:
            edges.append((key, above[-1][1]))
        above.append((depth, key))
    return boxes, edges


def _box(text: str, *, has_state: bool) -> Box:
    read, written = _READ.fullmatch(text), _WRITE.fullmatch(text)
    if read is not None:
        kind = "table" if read[1] == "table" else "topic"
        return Box.of(kind, read[3], f"{read[1]} {read[2]}", text, is_topic=True, has_state=has_state)
    if written is not None:
        return Box.of("topic", written[2], written[3], text, is_topic=True, has_state=has_state)
    verb, _, rest = text.partition(" ")
    kind = "table" if _TABLE.search(verb) else "stream"
    return Box.of(kind, verb, rest, text, is_topic=False, has_state=has_state)
