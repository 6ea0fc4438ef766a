"""Writes docs/sql-functions.md from the table of functions: `python -m odradek.sql.functions.document`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from odradek.sql.functions.aggregates import AggregateDefinition
from odradek.sql.functions.library import FUNCTIONS, Definition
from odradek.sql.functions.signatures import Signature

_INTRODUCTION: Final = """\
# Functions of SQL

<!-- Written by `python -m odradek.sql.functions.document`, from the table in src/odradek/sql/functions. -->

Names, arguments and results follow ksqlDB's reference. `SHOW FUNCTIONS` lists them, `DESCRIBE FUNCTION name` describes one.

- **Errors.** A function that fails gives null; one in Python also a line in the log. A null argument gives null unless a
  function's row has another rule.
- **Types.** INTEGER becomes BIGINT, DECIMAL and DOUBLE where a function wants it. A call that fits no function is refused, with
  what there is.
- **T, U, K, V, P** mean any type, the same one wherever the letter occurs; P means any but ARRAY, MAP and STRUCT.
- **Times** are in UTC unless a zone is named. Patterns follow Java's DateTimeFormatter: `yyyy-MM-dd HH:mm:ss.SSS`. The
  letters are `G y u M L d D E a H h K k m s S n V z X x Z O`, text in single quotes, and `[ ]` for what may be absent.
- **Lambdas**: `TRANSFORM(prices, x => x * 2)`, `FILTER(map, (k, v) => v > 0)`. In a lambda, functions that are marked
  *Python* cannot be called: Spark runs them in another process.
- **Over a table** only aggregates can be used that can take a value back: a row may change. They are marked.
"""
_PARITY: Final = """\

## Parity with ksqlDB

Every function of the reference of ksqlDB 0.29 is here: {count} in all, of which {scalars} are scalar, {aggregates} aggregate
and {tables} table functions. `ARRAY[…]`, `MAP(…)`, `STRUCT(…)` and `CAST` belong to the language. What differs:

| function | difference |
|---|---|
"""
_ELSEWHERE: Final = (
    (
        "`URL_ENCODE_PARAM`, `URL_EXTRACT_PATH`",
        "as ksqlDB does, not as its examples show: a space is `+`, a path begins with `/`",
    ),
    ("`REGEXP_*`", "an expression that is no regular expression ends the query; ksqlDB gives null"),
    ("`MASK*`", "the masking characters are written down: ksqlDB also takes columns"),
    ("`EARLIEST_BY_OFFSET`, `LATEST_BY_OFFSET`", "sessions that merge are ordered by time, not by offset"),
    ("`COLLECT_LIST`, `COLLECT_SET`", "without a limit, as ksqlDB's default"),
    ("dates", "years are 1 to 9999"),
)


def page() -> str:
    """Returns the whole page."""
    return "".join(_page())


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    categories: dict[str, list[Definition]] = {}
    for definition in FUNCTIONS.definitions():
        categories.setdefault(definition.category, []).append(definition)
    for category in sorted(categories):
        yield f"\n## {category.capitalize()}\n\n| function | gives | |\n|---|---|---|\n"
        for definition in categories[category]:
            yield _row(definition)
    lines = FUNCTIONS.listed()
    kinds = [line.kind for line in lines]
    yield _PARITY.format(
        count=len(lines),
        scalars=kinds.count("SCALAR"),
        aggregates=kinds.count("AGGREGATE"),
        tables=kinds.count("TABLE"),
    )
    for name, difference in _ELSEWHERE:
        yield f"| {name} | {difference} |\n"
    for definition in FUNCTIONS.definitions():
        if definition.note:
            yield f"| `{definition.name}` | {definition.note} |\n"


def _row(definition: Definition) -> str:
    calls = "<br>".join(
        f"`{definition.name}({_arguments(wanted)})` {returns.replace('<', '&lt;')}"
        for wanted, returns in definition.variations
    )
    remarks = [definition.description]
    instead = getattr(definition, "instead", "")
    if instead:
        remarks.append(f"Deprecated: use `{instead}`.")
    if isinstance(definition, AggregateDefinition) and definition.takes_back:
        remarks.append("*Also over tables.*")
    if _is_python(definition):
        remarks.append("*Python.*")
    return f"| `{definition.name}` | {calls} | {' '.join(remarks)} |\n"


def _arguments(wanted: Signature) -> str:
    return str(wanted).replace("|", "\\|")


def _is_python(definition: Definition) -> bool:
    texts = [getattr(overload, "spark", "") for overload in definition.overloads]
    return any(isinstance(text, str) and "odradek_" in text for text in texts) or definition.name in _PYTHON


_PYTHON: Final = frozenset(
    ["DOUBLE_FROM_BYTES", "PARSE_DATE", "PARSE_TIME", "PARSE_TIMESTAMP", "STRINGTODATE", "STRINGTOTIMESTAMP"]
)


if __name__ == "__main__":
    sys.stdout.write(page())
