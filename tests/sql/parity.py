"""The page that compares SQL here with ksqlDB's reference, and what tries each of its rows.

`python -m tests.sql.parity > docs/sql-statements.md` writes it from `parity.txt`: there, a row is `== what ksqlDB has`, a line
that says how it is here, and a line `-- file: case` or `-- test_name` for each thing that tries it. Other lines are the page's.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.sql.case_files import cases_of

FOLDER: Final = Path(__file__).parent
SOURCE: Final = FOLDER / "parity.txt"
PAGE: Final = FOLDER.parents[1] / "docs" / "sql-statements.md"
_HEAD: Final = "| ksqlDB | here | tried by |\n|---|---|---|"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityRow:
    what: str
    here: str
    tried_by: tuple[str, ...]


def parts() -> Iterator[str | ParityRow]:
    """Lines of the page, and its rows, in order."""
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if not line.startswith("== "):
            yield line
            continue
        here, tried_by = lines[place], []
        place += 1
        while place < len(lines) and lines[place].startswith("-- "):
            tried_by.append(lines[place].removeprefix("-- "))
            place += 1
        yield ParityRow(what=line.removeprefix("== "), here=here, tried_by=tuple(tried_by))


def page() -> str:
    written: list[str] = []
    for part in parts():
        if isinstance(part, ParityRow):
            if written[-2:-1] and written[-1] == "" and written[-2].startswith("| "):
                written.pop()
            else:
                written.append(_HEAD)
            tried = "; ".join(name.replace("|", "\\|") for name in part.tried_by)
            written.append(f"| {part.what} | {part.here} | {tried} |")
        else:
            written.append(part)
    return "\n".join(written) + "\n"


def known_cases() -> set[str]:
    """All that a row may name."""
    names = {
        f"{path.stem}: {case.name}" for path in (FOLDER / "cases").glob("*.case") for case in cases_of(path)
    }
    expressions = (FOLDER / "cases" / "expressions.cases").read_text(encoding="utf-8")
    names |= {f"expressions: {line.partition(' ==> ')[0]}" for line in expressions.splitlines()}
    for folder in (
        "tests/unit/sql",
        "tests/unit/values",
        "tests/spark/sql",
        "tests/sql",
        "tests/interop/languages",
    ):
        for path in (FOLDER.parents[1] / folder).rglob("test_*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names |= {
                node.name
                for node in tree.body
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            }
    return names


if __name__ == "__main__":
    sys.stdout.write(page())
