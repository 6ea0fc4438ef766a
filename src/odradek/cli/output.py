"""How results are printed: tables for people, JSON for machines. Results go to standard output, remarks to the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

_PIPED_WIDTH: Final = 10_000
"""A table that goes to a file or a pipe is as wide as its content: nothing is cut or wrapped."""


def print_json(value: Any) -> None:
    """Indented for a person's eyes on a terminal, one line otherwise."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """Numbers are set to the right. Cells are text as it is: no markup."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    content = [list(row) for row in rows]
    console = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False)
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        numbers = all(isinstance(row[index], int | float) for row in content)
        table.add_column(column, justify="right" if numbers and content else "left", overflow="fold")
    for row in content:
        table.add_row(*(Text(cell_text(cell)) for cell in row))
    console.print(table)


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
