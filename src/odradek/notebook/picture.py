"""A picture of one thing of a cluster: facts and a table, as HTML for notebooks and as text for everything else.

The HTML is one piece: no script, no file from elsewhere, no colour that a dark page hides. All texts of it may come from
strangers, so they are escaped here, in one place, and shortened.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

from odradek.model.safe_text import safe_line

ROWS_MAX: Final = 200
TEXT_CHARS_MAX: Final = 200
_BAR_PX: Final = 120
_BAR_CHARS: Final = 20
_CELL: Final = "padding:2px 10px;text-align:left;white-space:nowrap"
_NUMBER: Final = "padding:2px 10px;text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
_LINE: Final = "border-bottom:1px solid rgba(128,128,128,.35)"
_PROBLEM: Final = "border-left:3px solid #d9534f;padding-left:8px;margin:4px 0"

Cell = str | int | None
"""A cell of a table; None is shown as a dash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRow:
    """A row: its cells, and the length of its bar between 0 and 1."""

    cells: tuple[Cell, ...]
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What `odradek.show` returns. Notebooks draw it; `print` writes the same as text."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong, one sentence each. They come first."""
    columns: tuple[str, ...] = ()
    rows: tuple[PictureRow, ...] = ()
    """At most `ROWS_MAX` of them are shown."""
    bar: str = ""
    """The heading of the column of bars; empty: there is none."""

    def _repr_html_(self) -> str:
        """Returns what Jupyter draws."""
        return self.html

    @property
    def html(self) -> str:
        parts = [
            f'<div style="font-family:sans-serif;font-size:13px"><div style="font-weight:bold">{_html(self.title)}</div>'
        ]
        parts += [f'<div style="{_PROBLEM}">{_html(problem)}</div>' for problem in self.problems]
        parts += [
            f'<div><span style="opacity:.65">{_html(name)}</span> {_html(text)}</div>'
            for name, text in self.facts
        ]
        if self.rows:
            heads = [*self.columns, *([self.bar] if self.bar else [])]
            parts.append('<table style="border-collapse:collapse;margin-top:6px"><thead><tr>')
            parts += [f'<th scope="col" style="{_CELL};{_LINE}">{_html(head)}</th>' for head in heads]
            parts.append("</tr></thead><tbody>")
            parts += [self._html_row(row) for row in self.rows[:ROWS_MAX]]
            parts.append("</tbody></table>")
        if self._hidden_count:
            parts.append(f'<div style="opacity:.65">{_html(self._rest)}</div>')
        return "".join([*parts, "</div>"])

    def _html_row(self, row: PictureRow) -> str:
        cells = [
            f'<td style="{_NUMBER if isinstance(cell, int) else _CELL}">{_html(_shown(cell))}</td>'
            for cell in row.cells
        ]
        if self.bar:
            width = round(_BAR_PX * _bounded(row.share))
            cells.append(
                f'<td style="{_CELL}"><div role="img" aria-label="{round(100 * _bounded(row.share))} %" '
                f'style="height:10px;width:{width}px;background:#4c8bf5"></div></td>'
            )
        return f"<tr>{''.join(cells)}</tr>"

    def __str__(self) -> str:
        lines = [_text(self.title)]
        lines += [f"! {_text(problem)}" for problem in self.problems]
        lines += [f"{_text(name)}: {_text(text)}" for name, text in self.facts]
        if self.rows:
            table = [[_text(column) for column in self.columns]]
            table += [[_text(_shown(cell)) for cell in row.cells] for row in self.rows[:ROWS_MAX]]
            widths = [max(len(line[position]) for line in table) for position in range(len(self.columns))]
            bars = [_text(self.bar), *("#" * round(_BAR_CHARS * _bounded(row.share)) for row in self.rows)]
            for number, line in enumerate(table):
                padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
                lines.append("  ".join([*padded, *([bars[number]] if self.bar else [])]).rstrip())
        if self._hidden_count:
            lines.append(self._rest)
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def _hidden_count(self) -> int:
        return max(len(self.rows) - ROWS_MAX, 0)

    @property
    def _rest(self) -> str:
        return f"… and {self._hidden_count} more"


def _bounded(share: float) -> float:
    return min(max(share, 0.0), 1.0)


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _text(text: str) -> str:
    line = safe_line(text[: TEXT_CHARS_MAX + 1])
    return line if len(text) <= TEXT_CHARS_MAX else f"{line[:TEXT_CHARS_MAX]}…"


def _html(text: str) -> str:
    return escape(_text(text))
