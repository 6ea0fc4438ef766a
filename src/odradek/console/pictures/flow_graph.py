"""A graph of what flows where: boxes in layers, lines with a text on them. Pure; `flow_graph.html` draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.streams.plan.layout import Point, layered

BOXES_MAX: Final = 120
LAYER_HEIGHT: Final = 108.0
BOX_HEIGHT: Final = 50.0
_MARGIN: Final = 12.0
_LETTER: Final = 7.0
"""The width of a letter of the small text, roughly, in pixels."""
_NAME_LETTER: Final = 8.0
_LETTERS_MAX: Final = 40
_WIDTH_MIN: Final = 110.0
_PADDING: Final = 30.0
_STORE: Final = 20.0
_ROW: Final = 13.0
_ROWS: Final = 2
"""The number of rows by which a text may move down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBox:
    """A node. `kind` is topic, stream, table or program; `link` is a path of the console, or empty."""

    kind: str
    name: str
    details: str = ""
    full: str = ""
    """The whole text, where `name` and `details` are cut."""
    has_state: bool = False
    link: str = ""


class FlowNode(NamedTuple):
    """A box with its place: its corner and its width."""

    box: FlowBox
    name: str
    details: str
    x: float
    y: float
    width: float


class FlowEdge(NamedTuple):
    """A line from box to box; `text` is written at (`x`, `y`)."""

    path: str
    text: str
    x: float
    y: float
    start: str
    end: str


class FlowGraph(NamedTuple):
    """A whole picture."""

    width: float
    height: float
    nodes: tuple[FlowNode, ...]
    edges: tuple[FlowEdge, ...]


def flow_graph(boxes: Mapping[str, FlowBox], edges: Mapping[tuple[str, str], str]) -> FlowGraph | None:
    """Returns the picture of these boxes, and of lines with their texts. None for none, or for more than `BOXES_MAX`."""
    if not boxes or len(boxes) > BOXES_MAX:
        return None
    widths = {key: _width(box) for key, box in boxes.items()}
    drawing = layered(widths, list(edges), layer_height=LAYER_HEIGHT)
    nodes = []
    for key, box in boxes.items():
        center_x, center_y = drawing.centers[key]
        x, y = center_x - widths[key] / 2 + _MARGIN, center_y - BOX_HEIGHT / 2 + _MARGIN
        nodes.append(
            FlowNode(box, _cut(box.name), _cut(box.details), round(x, 1), round(y, 1), round(widths[key], 1))
        )
    lines = []
    for (start, end), text in edges.items():
        points = [(x + _MARGIN, y + _MARGIN) for x, y in drawing.routes[start, end]]
        lines.append(_edge(points, text, boxes[start].name, boxes[end].name))
    lines = _apart(lines)
    return FlowGraph(
        round(drawing.width + 2 * _MARGIN, 1),
        round(drawing.height + 2 * _MARGIN, 1),
        tuple(nodes),
        tuple(lines),
    )


def _edge(points: list[Point], text: str, start: str, end: str) -> FlowEdge:
    points[0] = (points[0][0], points[0][1] + BOX_HEIGHT / 2)
    points[-1] = (points[-1][0], points[-1][1] - BOX_HEIGHT / 2)
    (x, y), (to_x, to_y) = points[0], points[1]
    return FlowEdge(_curve(points), text, round((x + to_x) / 2, 1), round((y + to_y) / 2 + 4, 1), start, end)


def _apart(edges: list[FlowEdge]) -> list[FlowEdge]:
    """Moves a text down where it would be written over the one to its left."""
    moved: dict[int, FlowEdge] = {}
    ends: dict[float, float] = {}
    for index in sorted(range(len(edges)), key=lambda index: edges[index].x):
        edge = edges[index]
        half = len(edge.text) * _LETTER / 2
        y = edge.y
        while edge.text and y < edge.y + _ROWS * _ROW and ends.get(y, -math.inf) > edge.x - half:
            y += _ROW
        ends[y] = edge.x + half
        moved[index] = edge._replace(y=y)
    return [moved[index] for index in range(len(edges))]


def _curve(points: Sequence[Point]) -> str:
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


def _width(box: FlowBox) -> float:
    letters = max(len(_cut(box.name)) * _NAME_LETTER, len(_cut(box.details)) * _LETTER)
    return max(_WIDTH_MIN, letters + _PADDING) + _STORE * box.has_state


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS_MAX else text[: _LETTERS_MAX - 1].rstrip() + "…"
