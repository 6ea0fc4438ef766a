"""Places the boxes of a picture: layers from top to bottom, few crossings, straight lines where there is room.

The method comes from Sugiyama, Tagawa and Toda (1981): it puts nodes into layers by their longest way from the top, orders a
layer by the mean position of neighbours, and then finds positions near neighbours that keep their distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

_SWEEPS: Final = 12
_GAP: Final = 28.0
_BEND_WIDTH: Final = 12.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The layout of a graph.

    `centers`: of each node. `routes`: for each edge the points that its line goes through, from node to node.
    """

    centers: Mapping[str, Point]
    routes: Mapping[tuple[str, str], Sequence[Point]]
    width: float
    height: float


@dataclass(slots=True)
class _Node:
    name: str
    width: float
    above: list[_Node] = field(default_factory=list)
    below: list[_Node] = field(default_factory=list)
    x: float = 0.0


def layered(widths: Mapping[str, float], edges: Iterable[tuple[str, str]], *, layer_height: float) -> Drawing:
    """Lays a graph out in layers. `widths` names the nodes, in the order in which they are drawn where nothing else gives one.
    Edges of a cycle that would lead up are drawn, but place nothing."""
    known = list(dict.fromkeys(edges))
    depths = _depths(list(widths), known)
    layers: list[list[_Node]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    nodes = {name: _Node(name, width) for name, width in widths.items()}
    for name in widths:
        layers[depths[name]].append(nodes[name])
    chains = {
        edge: _chain(edge, nodes, depths, layers) for edge in known if depths[edge[0]] < depths[edge[1]]
    }
    for sweep in range(_SWEEPS):
        _order(layers, down=sweep % 2 == 0)
    _straighten(layers)
    left = min((node.x - node.width / 2 for layer in layers for node in layer), default=0.0)
    right = max((node.x + node.width / 2 for layer in layers for node in layer), default=0.0)
    centers = {name: (nodes[name].x - left, (depths[name] + 0.5) * layer_height) for name in widths}
    routes = {
        edge: [
            (node.x - left, (depths[edge[0]] + step + 0.5) * layer_height)
            for step, node in enumerate(chains[edge])
        ]
        if edge in chains
        else [centers[edge[0]], centers[edge[1]]]
        for edge in known
    }
    return Drawing(centers=centers, routes=routes, width=right - left, height=len(layers) * layer_height)


def _depths(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Returns the longest way to each node from one that nothing leads to, without edges that close a cycle."""
    sources: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        sources[target].append(source)
    depths: dict[str, int] = {}

    def depth(name: str, above: frozenset[str]) -> int:
        if name not in depths:
            inner = above | {name}
            depths[name] = max(
                (depth(source, inner) + 1 for source in sources[name] if source not in inner), default=0
            )
        return depths[name]

    for name in names:
        depth(name, frozenset())
    return depths


def _chain(
    edge: tuple[str, str], nodes: Mapping[str, _Node], depths: Mapping[str, int], layers: list[list[_Node]]
) -> list[_Node]:
    """Returns the nodes of an edge, and a bend in each layer between them."""
    source, target = edge
    chain = [nodes[source]]
    for depth in range(depths[source] + 1, depths[target]):
        bend = _Node(f"{source}>{target}", _BEND_WIDTH)
        layers[depth].append(bend)
        chain.append(bend)
    chain.append(nodes[target])
    for upper, lower in pairwise(chain):
        upper.below.append(lower)
        lower.above.append(upper)
    return chain


def _order(layers: list[list[_Node]], *, down: bool) -> None:
    ranks = {id(node): float(rank) for layer in layers for rank, node in enumerate(layer)}
    for layer in layers if down else reversed(layers):
        for node in layer:
            neighbours = node.above if down else node.below
            if neighbours:
                ranks[id(node)] = sum(ranks[id(other)] for other in neighbours) / len(neighbours)
        layer.sort(key=lambda node: ranks[id(node)])
        for rank, node in enumerate(layer):
            ranks[id(node)] = float(rank)


def _straighten(layers: list[list[_Node]]) -> None:
    for layer in layers:
        x = 0.0
        for node in layer:
            node.x = x + node.width / 2
            x += node.width + _GAP
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = []
            for node in layer:
                neighbours = (node.above if down else node.below) or [*node.above, *node.below]
                wanted.append(
                    sum(other.x for other in neighbours) / len(neighbours) if neighbours else node.x
                )
            for node, x in zip(layer, _apart(layer, wanted), strict=True):
                node.x = x


def _apart(layer: Sequence[_Node], wanted: Sequence[float]) -> list[float]:
    """Places in this order and at their distance, as near as may be to those that are wanted.

    Neighbours that come too close form a block, which is placed where its members would be in the mean.
    """
    blocks: list[tuple[float, float, int]] = []  # (sum of wanted starts, length, members)
    offsets: list[float] = []
    offset = 0.0
    for number, (node, x) in enumerate(zip(layer, wanted, strict=True)):
        if number:
            offset += (layer[number - 1].width + node.width) / 2 + _GAP
        offsets.append(offset)
        blocks.append((x - offset, 0.0, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][2] > blocks[-1][0] / blocks[-1][2]:
            last = blocks.pop()
            before = blocks.pop()
            blocks.append((before[0] + last[0], 0.0, before[2] + last[2]))
    starts = [total / count for total, _, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]
