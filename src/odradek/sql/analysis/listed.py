"""Values of one list, of IN, ARRAY and MAP, whose literals take the type of what is before them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Final, TypeVar

from sqlglot import exp

from odradek.model.java_numbers import trimmed
from odradek.sql.analysis.times import TIME_COLUMNS, epoch_ms
from odradek.sql.language.dialect import position_of
from odradek.values.errors import SqlError
from odradek.values.java_text import double_text
from odradek.values.types import BOOLEAN, DECIMAL_PRECISION_MAX, NULL, SqlType, common_type

T = TypeVar("T")
_NUMBER: Final = re.compile(r"[+-]?([0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?")
_BOOLEANS: Final = {"true": True, "yes": True, "false": False, "no": False}


def in_one_type(
    trees: Sequence[exp.Expr],
    compiled: Callable[[exp.Expr], T],
    type_of: Callable[[T], SqlType],
    kind: SqlType = NULL,
) -> Iterator[tuple[exp.Expr, T]]:
    """Yields the values, with each literal in the type of those before it. Raises SqlError for a text that is no such value.

    `IN (1, '2')` has two numbers, and `ARRAY['a', 2]` two texts. What is no literal stays as it is. `kind`: the first type.
    Each value is compiled once: nested lists would be compiled again and again.
    """
    for tree in trees:
        written = _in_type(tree, kind)
        typed = compiled(written)
        kind = common_type(kind, type_of(typed)) or kind
        yield written, typed


def beside(column: exp.Expr, trees: Sequence[exp.Expr]) -> Sequence[exp.Expr]:
    """Returns the members of `column IN (…)`: for ROWTIME and the bounds of windows, texts are times, as in comparisons."""
    if not isinstance(column, exp.Column) or column.name not in TIME_COLUMNS:
        return trees
    return [_moment(tree, position_of(column)) for tree in trees]


def _moment(tree: exp.Expr, position: tuple[int, int] | None) -> exp.Expr:
    written = tree.unnest()
    if not isinstance(written, exp.Literal) or not written.is_string:
        return tree
    moment = exp.Literal(this=str(epoch_ms(written.this, position)), is_string=False)
    moment.meta.update(written.meta)
    return moment


def _in_type(tree: exp.Expr, kind: SqlType) -> exp.Expr:
    written = tree.unnest()
    constant: exp.Expr | None = None
    if isinstance(written, exp.Literal) and written.is_string:
        if kind.is_number:
            constant = _number(written, kind)
        elif kind == BOOLEAN:
            constant = _boolean(written)
    elif kind.kind == "STRING":
        constant = _text(written)
    if constant is None:
        return tree
    constant.meta.update(written.meta)
    return constant


def _number(tree: exp.Literal, kind: SqlType) -> exp.Expr:
    written = trimmed(tree.this)
    if _NUMBER.fullmatch(written) and abs((value := Decimal(written)).adjusted()) <= DECIMAL_PRECISION_MAX:
        return exp.Literal(this=format(value, "f"), is_string=False)
    raise _no_value(tree, kind)


def _boolean(tree: exp.Literal) -> exp.Expr:
    word = tree.this.strip().lower()
    for constant, value in _BOOLEANS.items():
        if word and constant.startswith(word):
            return exp.Boolean(this=value)
    raise _no_value(tree, BOOLEAN)


def _text(tree: exp.Expr) -> exp.Expr | None:
    """Returns a number or a BOOLEAN as the text that Java makes of it; None of what is no literal."""
    if isinstance(tree, exp.Boolean):
        return exp.Literal.string("true" if tree.this else "false")
    sign, literal = ("-", tree.this) if isinstance(tree, exp.Neg) else ("", tree)
    if not isinstance(literal, exp.Literal) or literal.is_string:
        return None
    written = f"{sign}{literal.this}"
    return exp.Literal.string(double_text(float(written)) if "e" in written.lower() else written)


def _no_value(tree: exp.Literal, kind: SqlType) -> SqlError:
    return SqlError(
        f"{tree.this!r} is no {kind}", position_of(tree), "Write a value of that type, or a CAST."
    )
