"""A program as a picture: SVG that browsers and documents show, without another tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from odradek.streams.plan.describing import subtopologies
from odradek.streams.plan.layout import Drawing, Point, layered
from odradek.streams.plan.operators import Called, FrameSource, Operator, TopicSink, TopicSource

_MARGIN: Final = 24
_HEAD: Final = 56
_LABEL: Final = 30
_BOX_HEIGHT: Final = 46
_LAYER_HEIGHT: Final = 84
_LETTER: Final = 6.6
"""The width of a letter of the small text, roughly, in pixels."""
_TEXT_MAX: Final = 44
_COLORS: Final = {
    "topic": ("#3b4252", "#2e3440", "#ffffff", "#c9d1de"),
    "stream": ("#eaf2fb", "#5b8fc7", "#1f2d3d", "#55677a"),
    "table": ("#fdf3e1", "#d39a3a", "#3d2f17", "#7b6a4b"),
}
"""The colors of each kind: fill, border, name, details."""
_WORDS: Final = {
    "AsStream": "as a stream",
    "AsTable": "as a table",
    "Merged": "merged",
    "Peeked": "looked at",
    "Called": "called",
}
Edge: TypeAlias = tuple[str, str]
"""The keys of the boxes at the start and at the end."""
_LEGEND: Final = (("topic", "topic"), ("stream", "stream"), ("table", "table"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A node. `kind` is topic, stream or table."""

    kind: str
    is_topic: bool
    name: str
    details: str
    full: str
    has_state: bool

    @classmethod
    def of(cls, kind: str, name: str, details: str, full: str, *, is_topic: bool, has_state: bool) -> Box:
        """Returns a box with its texts cut to what has room."""
        return cls(
            kind=kind,
            is_topic=is_topic,
            name=_cut(name, _TEXT_MAX - 8),
            details=_cut(details, _TEXT_MAX),
            full=full,
            has_state=has_state,
        )

    @property
    def width(self) -> float:
        letters = max(len(self.name) * 1.12, len(self.details), 12)
        return letters * _LETTER + 32 + 16 * self.has_state


def svg(name: str, ends: Sequence[Operator]) -> str:
    """Returns the picture of a program that ends with these operators."""
    x, tallest = float(_MARGIN), 0.0
    frames: list[str] = []
    drawn: list[str] = []
    written: dict[str, Point] = {}
    read: list[tuple[str, Point]] = []
    for number, group in enumerate(subtopologies(ends)):
        boxes = {operator.name: _box(operator) for operator in group}
        edges = [(source.name, operator.name) for operator in group for source in operator.inputs]
        tables = {operator.name for operator in group if operator.is_table}
        drawing = layered({key: box.width for key, box in boxes.items()}, edges, layer_height=_LAYER_HEIGHT)
        left, top = x + _MARGIN, float(_HEAD + _LABEL)
        frames += _frame(number, x, drawing)
        drawn += _lines(drawing, left, top, boxes, tables)
        drawn += [_drawn(box, _moved(drawing.centers[key], left, top)) for key, box in boxes.items()]
        for operator in group:
            center, half = drawing.centers[operator.name], boxes[operator.name].width / 2
            if isinstance(operator, TopicSink) and operator.topic is not None:
                written[operator.topic] = _moved(center, left + half, top)
            elif isinstance(operator, TopicSource):
                read.append((operator.topic, _moved(center, left - half, top)))
        x += drawing.width + 3 * _MARGIN
        tallest = max(tallest, drawing.height)
    again = [_through(written[topic], reader) for topic, reader in read if topic in written]
    width, height = max(x, 420.0), _HEAD + _LABEL + tallest + _MARGIN + 44
    parts = [*_opening(name, width, height), *frames, *again, *drawn, *_legend(height - 22)]
    return "\n".join([*parts, "</svg>", ""])


def boxes_svg(name: str, boxes: Mapping[str, Box], edges: Sequence[Edge]) -> str:
    """Returns the picture of boxes and lines that are not operators of a program, such as a plan of SQL."""
    tables = {key for key, box in boxes.items() if box.kind == "table"}
    drawing = layered({key: box.width for key, box in boxes.items()}, edges, layer_height=_LAYER_HEIGHT)
    left, top = float(2 * _MARGIN), float(_HEAD + _MARGIN)
    width, height = max(drawing.width + 4 * _MARGIN, 420.0), top + drawing.height + _MARGIN + 44
    drawn = [_drawn(box, _moved(drawing.centers[key], left, top)) for key, box in boxes.items()]
    lines = _lines(drawing, left, top, boxes, tables)
    parts = [*_opening(name, width, height), *lines, *drawn, *_legend(height - 22)]
    return "\n".join([*parts, "</svg>", ""])


def _box(operator: Operator) -> Box:
    full = operator.details()
    kind = "table" if operator.is_table else "stream"
    name = operator.name
    details = full or _WORDS.get(type(operator).__name__, type(operator).__name__)
    is_topic = isinstance(operator, (TopicSource, FrameSource, TopicSink, Called))
    if is_topic and not operator.is_table:
        kind = "topic"
    if isinstance(operator, TopicSource):
        name, details = (
            operator.topic,
            f"{operator.name} · {operator.key.text} → {operator.value.text}",
        )
    elif isinstance(operator, TopicSink):
        name, details = operator.topic or f"by {operator.topic_expression}", operator.name
    described = f"{operator.name}: {type(operator).__name__}" + (f"\n{full}" if full else "")
    return Box.of(kind, name, details, described, is_topic=is_topic, has_state=operator.has_state)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def _moved(point: Point, x: float, y: float) -> Point:
    return point[0] + x, point[1] + y


def _opening(name: str, width: float, height: float) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' height="{height:.0f}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
    )
    yield f"<title>{escape(name)}</title>"
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#8a94a6"/></marker></defs>'
    )
    yield f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    yield f'<text x="{_MARGIN}" y="36" font-size="19" font-weight="600" fill="#2e3440">{escape(name)}</text>'


def _frame(number: int, x: float, drawing: Drawing) -> Iterator[str]:
    yield (
        f'<rect x="{x:.1f}" y="{_HEAD}" width="{drawing.width + 2 * _MARGIN:.1f}" height="{drawing.height + _LABEL + 12:.1f}"'
        ' rx="12" fill="#f8f9fb" stroke="#e1e5ec"/>'
    )
    yield f'<text x="{x + 14:.1f}" y="{_HEAD + 20}" font-size="11" fill="#8a94a6">sub-topology {number}</text>'


def _lines(
    drawing: Drawing, left: float, top: float, boxes: Mapping[str, Box], tables: set[str]
) -> Iterator[str]:
    for (source, target), route in drawing.routes.items():
        points = [_moved(point, left, top) for point in route]
        points[0] = (points[0][0], points[0][1] + _BOX_HEIGHT / 2)
        points[-1] = (points[-1][0], points[-1][1] - _BOX_HEIGHT / 2)
        color = "#d39a3a" if source in tables else "#8a94a6"
        yield (
            f'<path d="{_curve(points)}" fill="none" stroke="{color}" stroke-width="1.6" marker-end="url(#tip)">'
            f"<title>{escape(boxes[source].name)} → {escape(boxes[target].name)}</title></path>"
        )


def _curve(points: Sequence[Point]) -> str:
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


def _drawn(box: Box, center: Point) -> str:
    fill, border, name, details = _COLORS[box.kind]
    x, y = center[0] - box.width / 2, center[1] - _BOX_HEIGHT / 2
    radius = _BOX_HEIGHT / 2 if box.is_topic else 7
    text_x = center[0] - 8 * box.has_state
    parts = [
        f"<g><title>{escape(box.full)}</title>",
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{_BOX_HEIGHT}" rx="{radius:g}" fill="{fill}"'
        f' stroke="{border}" stroke-width="1.2"/>',
        f'<text x="{text_x:.1f}" y="{y + 19:.1f}" font-size="13" font-weight="600" text-anchor="middle" fill="{name}">'
        f"{escape(box.name)}</text>",
        f'<text x="{text_x:.1f}" y="{y + 35:.1f}" font-size="11" text-anchor="middle" fill="{details}">'
        f"{escape(box.details)}</text>",
    ]
    if box.has_state:
        parts.append(_store(x + box.width - 26, y + 12, border))
    return "".join([*parts, "</g>"])


def _store(x: float, y: float, color: str) -> str:
    """Returns the cylinder that marks a state store."""
    return (
        f'<path d="M{x:.1f} {y + 3:.1f} v15 a7 3 0 0 0 14 0 v-15" fill="#ffffff" stroke="{color}"/>'
        f'<ellipse cx="{x + 7:.1f}" cy="{y + 3:.1f}" rx="7" ry="3" fill="#ffffff" stroke="{color}"/>'
    )


def _through(written: Point, read: Point) -> str:
    """Draws a curve from where a program writes a topic to where it reads it."""
    (x, y), (to_x, to_y) = written, read
    return (
        f'<path d="M{x:.1f} {y:.1f} C{x + 90:.1f} {y:.1f} {to_x - 90:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}" fill="none"'
        ' stroke="#8a94a6" stroke-width="1.4" stroke-dasharray="5 4" marker-end="url(#tip)"/>'
    )


def _legend(y: float) -> Iterator[str]:
    x = float(_MARGIN)
    for kind, text in _LEGEND:
        fill, border, _, _ = _COLORS[kind]
        radius = 7 if kind == "topic" else 3
        yield (
            f'<rect x="{x:g}" y="{y - 11:.0f}" width="22" height="14" rx="{radius}" fill="{fill}" stroke={quoteattr(border)}/>'
        )
        yield f'<text x="{x + 29:g}" y="{y:.0f}" font-size="11" fill="#55677a">{text}</text>'
        x += 92
    yield _store(x, y - 15, "#55677a")
    yield f'<text x="{x + 22:g}" y="{y:.0f}" font-size="11" fill="#55677a">keeps state</text>'
