"""How results are printed: tables for people, JSON for machines. Results go to standard output, remarks to the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click


def print_json(value: Any) -> None:
    """Indented for a person's eyes on a terminal, one line otherwise."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers are set to the right. Cells are text as it is: no markup.

    On a terminal it fits the width. In a file or a pipe it is as wide as its content, so nothing is cut.
    """
    content = [list(row) for row in rows]
    to_the_right = [
        bool(content) and all(isinstance(row[index], int | float) for row in content)
        for index in range(len(columns))
    ]
    texts = [[cell_text(cell) for cell in row] for row in content]
    if sys.stdout.isatty():
        _print_rich(columns, texts, to_the_right)
    else:
        click.echo("\n".join(_plain_lines([list(columns), *texts], to_the_right)))


def _plain_lines(rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Iterator[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(to_the_right))]
    for row in rows:
        cells = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, to_the_right, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column, right in zip(columns, to_the_right, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def remark(text: str) -> None:
    """A sentence for a person, out of the way of the result."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    remark(f"warning: {text}")


def bytes_text(count: float) -> str:
    """As people read sizes: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
