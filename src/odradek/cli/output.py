"""How results are printed: tables for people, JSON for machines. Results go to standard output, remarks to the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import click

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from rich import box, console, live
    from rich import table as rich_table
    from rich import text as rich_text
else:
    box = lazy("rich.box")
    console = lazy("rich.console")
    live = lazy("rich.live")
    rich_table = lazy("rich.table")
    rich_text = lazy("rich.text")


def print_json(value: Any) -> None:
    """Indented for a person's eyes on a terminal, one line otherwise."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers are set to the right. Cells are text as it is: no markup.

    On a terminal it fits the width. In a file or a pipe it is as wide as its content, so nothing is cut.
    """
    texts, to_the_right = _cells(columns, rows)
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
    console.Console(highlight=False).print(_rich_table(columns, rows, to_the_right))


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Any:
    table = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, right in zip(columns, to_the_right, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(rich_text.Text, row))
    return table


class RefreshingTable:
    """A table that is drawn again in its place on a terminal; in a file or a pipe, one below the other."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._live: Any = None
        self._shown = False

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            self._live = live.Live(auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, rows: Sequence[Sequence[object]], headline: str) -> None:
        if self._live is None:
            click.echo(("\n" if self._shown else "") + headline)
            print_table(self._columns, rows)
            sys.stdout.flush()
        else:
            table = _rich_table(self._columns, *_cells(self._columns, rows))
            self._live.update(console.Group(rich_text.Text(headline), table), refresh=True)
        self._shown = True


def _cells(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> tuple[list[list[str]], list[bool]]:
    """Texts, and which columns are numbers."""
    content = [list(row) for row in rows]
    to_the_right = [
        all(isinstance(row[index], int | float | None) for row in content)
        and any(row[index] is not None for row in content)
        for index in range(len(columns))
    ]
    return [[cell_text(cell) for cell in row] for row in content], to_the_right


def cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ",".join(str(element) for element in value)
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
