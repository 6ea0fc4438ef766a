"""Printing of results: tables for people, JSON for machines. Results go to standard output, remarks to standard error.

All commands print through this file, which makes text safe for a terminal (`model/safe_text.py`): names and contents come from
strangers. A test looks for printers that do not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Self

import click

from odradek.model.lazy import lazy
from odradek.model.safe_text import safe_json, safe_line, safe_lines

if TYPE_CHECKING:
    from rich import box, console, live
    from rich import table as rich_table
    from rich import text as rich_text
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
else:
    box = lazy("rich.box")
    console = lazy("rich.console")
    live = lazy("rich.live")
    rich_table = lazy("rich.table")
    rich_text = lazy("rich.text")

_SEPARATING: Final = re.compile(r"(?<=\s)\s|^\s|\s$")
_BYTE_MAX: Final = 0xFF
_MARK: Final = ">"
"""Begins each further line of a cell on a terminal. A cell whose text begins with it is escaped."""


def print_json(value: object) -> None:
    """Prints JSON, indented on a terminal, else in one line."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(safe_json(value, indent=indent, default=str))


def print_json_line(value: object) -> None:
    """Prints one of many objects, on a line of its own."""
    click.echo(safe_json(value, default=str))


def say(text: str = "", *, label: str = "", err: bool = False) -> None:
    """Prints one line, whatever the text holds. `label`: our own words before it, which may have colours."""
    click.echo(label + safe_line(text), err=err)


def say_lines(text: str | Iterable[str], *, err: bool = False, nl: bool = True) -> None:
    """Prints lines. Each is safe by itself; a text is cut at its line ends, so names in it must be safe
    already."""
    lines = safe_lines(text) if isinstance(text, str) else "\n".join(map(safe_line, text))
    click.echo(lines, err=err, nl=nl)


def say_in_red(text: str) -> None:
    """Prints an error that does not end the session, to standard error."""
    click.secho(safe_lines(text), fg="red", err=True)


def say_in_place(text: str) -> None:
    """Prints a count over the one before it, to standard error. For terminals."""
    click.echo(f"\r{safe_line(text)}", nl=False, err=True)


def confirm(question: str, *, abort: bool = False) -> bool:
    """Asks on a terminal."""
    return click.confirm(safe_line(question), abort=abort)


def write_raw(content: bytes) -> None:
    """Writes bytes as they are."""
    sys.stdout.buffer.write(content)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers are set to the right. Cells are text as it is: no markup.

    On a terminal it fits the width. In a file or a pipe it is as wide as its content, so nothing is cut.
    """
    texts, to_the_right = _cells(columns, rows)
    if sys.stdout.isatty():
        _print_rich(columns, texts, to_the_right)
    else:
        click.echo("\n".join(_plain_lines([[*map(safe_line, columns)], *texts], to_the_right)))


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


def _rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]
) -> rich_table.Table:
    table = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, right in zip(columns, to_the_right, strict=True):
        table.add_column(
            rich_text.Text(safe_line(column)), justify="right" if right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(_Cell, row))
    return table


class _Cell:
    """A cell of a terminal's table. Where it takes several lines, each further one begins with a mark, so that no name looks
    like rows of its own.
    """

    def __init__(self, text: str) -> None:
        self._text = f"\\x{ord(_MARK):02x}{text[1:]}" if text.startswith(_MARK) else text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return rich_text.Text(self._text).__rich_measure__(console, options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[rich_text.Text]:
        width, text = options.max_width, rich_text.Text(self._text)
        lines = text.wrap(console, width, justify=options.justify, overflow="fold")
        if len(lines) == 1 or width <= len(_MARK) + 1:
            yield from lines
            return
        first, *others = text.wrap(console, width - len(_MARK) - 1, overflow="fold")
        yield first
        yield from (rich_text.Text(f"{_MARK} {line.plain}") for line in others)


class RefreshingTable:
    """A table that is drawn again in its place on a terminal; in a file or a pipe, one below the other."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._live: live.Live | None = None
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
            click.echo(("\n" if self._shown else "") + safe_line(headline))
            print_table(self._columns, rows)
            sys.stdout.flush()
        else:
            table = _rich_table(self._columns, *_cells(self._columns, rows))
            self._live.update(console.Group(rich_text.Text(safe_line(headline)), table), refresh=True)
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
    """Returns a cell on one line, safe for a terminal. It does not look like two: blanks at its ends, and
    blanks after a blank, are escaped.
    """
    return _SEPARATING.sub(_escaped_blank, safe_line(_text(value)))


def _escaped_blank(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= _BYTE_MAX else f"\\u{code:04x}"


def _text(value: object) -> str:
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
    """Prints a sentence for a person to standard error, apart from the result."""
    say(text, err=True)


def warn(text: str) -> None:
    remark(f"warning: {text}")


def bytes_text(count: float) -> str:
    """Writes a size as people read it: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
