"""The tables of ARCHITECTURE.md that lead through the files of a request or a batch, as steps that a test can compare."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
_ROW: Final = re.compile(r"^\| ([0-9]+) \| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)


class Step(NamedTuple):
    """A function, by the path of its file below the package and its qualified name: one row of a table."""

    file: str
    function: str


def walk_of(heading: str) -> list[Step]:
    """Returns the steps of the table below a heading."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    rows = _ROW.findall(table)
    assert rows, f"ARCHITECTURE.md has no walk {heading!r}"
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    return [Step(file, function) for _, file, function in rows]


def first_not_reached(walk: Iterable[Step], calls: Iterable[Step]) -> Step | None:
    """Returns the first step that no call reaches behind the call of the step before it; None where all are reached."""
    remaining = iter(calls)
    return next((step for step in walk if step not in remaining), None)
