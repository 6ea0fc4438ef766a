"""Rows of a query as a person or a program reads them: a table that grows with its rows, lines of PRINT, JSON, CSV. No I/O."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, Protocol

from odradek.model.safe_text import safe_json, safe_line
from odradek.sql.shell.rendering import cell, fitting, line_of, width_of

OutputFormat = Literal["table", "json", "csv"]
Columns = Sequence[tuple[str, str]]
"""Name and type of each."""
_NUMBERS: Final = ("INTEGER", "INT", "BIGINT", "DOUBLE", "DECIMAL")
_GROWTH: Final = 4
"""A column that becomes wider gets this many cells more than it needs, so that the head is seldom drawn again."""


class RowLines(Protocol):
    """The lines that show rows. `end` is called once, after the last row."""

    def batch(self, rows: Sequence[Sequence[object]]) -> Iterator[str]: ...

    def end(self) -> Iterator[str]: ...


class LiveTable:
    """Draws rows as a table that grows. Columns are as wide as their content, as far as the terminal has room; numbers are
    aligned right.

    The head is drawn before the first rows, and again when later rows need wider columns."""

    def __init__(self, columns: Columns, width: Callable[[], int]) -> None:
        self._names: Final = [safe_line(name) for name, _ in columns]
        self._to_the_right: Final = [kind.upper().startswith(_NUMBERS) for _, kind in columns]
        self._wanted = [width_of(name) for name in self._names]
        self._width = width
        self._widths: list[int] | None = None

    def batch(self, rows: Sequence[Sequence[object]]) -> Iterator[str]:
        texts = [[cell(value) for value in row] for row in rows]
        for index, before in enumerate(self._wanted):
            needed = max((width_of(row[index]) for row in texts), default=0)
            if needed > before:
                self._wanted[index] = needed + (0 if self._widths is None else _GROWTH)
        yield from self._head()
        for row in texts:
            yield from self._drawn(row)

    def end(self) -> Iterator[str]:
        if self._widths is None:
            yield from self._head()

    def _head(self) -> Iterator[str]:
        widths = fitting(self._wanted, self._width())
        if self._names and widths != self._widths:
            self._widths = widths
            yield from self._drawn(self._names)
            yield "-+-".join("-" * cells for cells in widths)

    def _drawn(self, texts: Sequence[str]) -> Iterator[str]:
        return (line.rstrip() for line in line_of(texts, self._widths or (), self._to_the_right))


class PrintedLines:
    """Records of PRINT, each on a line, as ksqlDB's shell writes them."""

    def __init__(self, columns: Columns) -> None:
        self._names: Final = [safe_line(name.lower()) for name, _ in columns]

    def batch(self, rows: Sequence[Sequence[object]]) -> Iterator[str]:
        for row in rows:
            members = zip(self._names, row, strict=True)
            yield ", ".join(
                f"{name}: {'<null>' if value is None else cell(value)}" for name, value in members
            )

    def end(self) -> Iterator[str]:
        return iter(())


class JsonRows:
    """An object a line."""

    def __init__(self, columns: Columns) -> None:
        self._names: Final = [name for name, _ in columns]

    def batch(self, rows: Sequence[Sequence[object]]) -> Iterator[str]:
        for row in rows:
            yield safe_json(dict(zip(self._names, row, strict=True)))

    def end(self) -> Iterator[str]:
        return iter(())


class CsvLines:
    """A line with the names, then one for each row, as RFC 4180 has them: null is nothing, structs and arrays are JSON."""

    def __init__(self, columns: Columns) -> None:
        self._names: Final = [name for name, _ in columns]
        self._has_begun = False

    def batch(self, rows: Sequence[Sequence[object]]) -> Iterator[str]:
        yield from self.end()
        yield from (csv_line(row) for row in rows)

    def end(self) -> Iterator[str]:
        if not self._has_begun:
            self._has_begun = True
            yield csv_line(self._names)


def csv_line(values: Sequence[object]) -> str:
    """Returns a line of CSV without its line end. Texts with quotes, commas and line ends are in quotes."""
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow([_csv_cell(value) for value in values])
    return written.getvalue()


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else safe_json(value)


def row_lines(
    output: OutputFormat, columns: Columns, width: Callable[[], int], *, is_print: bool
) -> RowLines:
    """Returns the lines of a query's rows. `is_print`: the query is a PRINT."""
    if output == "json":
        return JsonRows(columns)
    if output == "csv":
        return CsvLines(columns)
    return PrintedLines(columns) if is_print else LiveTable(columns, width)
