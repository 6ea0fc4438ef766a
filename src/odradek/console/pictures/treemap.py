"""Topics as areas: a squarified treemap (Bruls, Huizing, van Wijk, 2000). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

WIDTH: Final = 1_180.0
HEIGHT: Final = 240.0


class Tile(NamedTuple):
    """The rectangle of one topic."""

    name: str
    size_bytes: int
    x: float
    y: float
    width: float
    height: float


def treemap(sizes: Sequence[tuple[str, int]]) -> list[Tile]:
    """Returns a tile for each name, its area in proportion to its size. `sizes`: positive, the largest first."""
    total = sum(size for _, size in sizes)
    if total <= 0:
        return []
    scale = WIDTH * HEIGHT / total
    tiles: list[Tile] = []
    x, y, width, height = 0.0, 0.0, WIDTH, HEIGHT
    rest = list(sizes)
    while rest:
        row = _best_row([size * scale for _, size in rest], min(width, height))
        area = sum(size * scale for _, size in rest[:row])
        is_column = width >= height
        depth = area / (height if is_column else width)
        offset = 0.0
        for name, size in rest[:row]:
            length = size * scale / depth
            if is_column:
                tiles.append(_tile(name, size, x, y + offset, depth, length))
            else:
                tiles.append(_tile(name, size, x + offset, y, length, depth))
            offset += length
        if is_column:
            x, width = x + depth, width - depth
        else:
            y, height = y + depth, height - depth
        rest = rest[row:]
    return tiles


def _best_row(areas: Sequence[float], side: float) -> int:
    """Returns the number of areas whose row, along this side, has the tiles that are most like squares."""
    best, count = _worst_ratio(areas[:1], side), 1
    while count < len(areas):
        ratio = _worst_ratio(areas[: count + 1], side)
        if ratio > best:
            break
        best, count = ratio, count + 1
    return count


def _worst_ratio(areas: Sequence[float], side: float) -> float:
    total = sum(areas)
    return max(side * side * max(areas) / (total * total), total * total / (side * side * min(areas)))


def _tile(name: str, size: int, x: float, y: float, width: float, height: float) -> Tile:
    return Tile(name, size, round(x, 1), round(y, 1), round(width, 1), round(height, 1))
