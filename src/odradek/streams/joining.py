"""Joins as operators: what each kind of join can say, and what is refused at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from odradek.model.errors import ConfigError
from odradek.streams.plan.keyed import ForeignKeyJoin, StreamStreamJoin, StreamTableJoin, TableTableJoin
from odradek.streams.plan.operators import Emit, Expression, JoinKind, Operator, listed
from odradek.streams.plan.program import Program
from odradek.streams.plan.windows import milliseconds

Sides: TypeAlias = tuple[Operator, Operator]
Select: TypeAlias = "Expression | Iterable[Expression] | None"


class JoinReach(NamedTuple):
    """How far apart two records may be: lengths of time as the user wrote them."""

    within: str | int
    before: str | int | None
    after: str | int | None
    grace: str | int


def stream_to_stream(
    program: Program,
    sides: Sides,
    how: JoinKind,
    reach: JoinReach,
    prefix: str,
    select: Select,
    name: str | None,
) -> StreamStreamJoin:
    within_ms = milliseconds(reach.within, "within")
    return StreamStreamJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        before_ms=within_ms if reach.before is None else milliseconds(reach.before, "before"),
        after_ms=within_ms if reach.after is None else milliseconds(reach.after, "after"),
        grace_ms=milliseconds(reach.grace, "grace"),
        prefix=prefix,
        value=_selected(select),
    )


def stream_to_table(
    program: Program,
    sides: Sides,
    how: JoinKind,
    on: Select,
    prefix: str,
    select: Select,
    name: str | None,
) -> StreamTableJoin:
    """ConfigError for an outer join."""
    if how == "outer":
        raise ConfigError("a stream and a table have inner and left joins: a table's change makes no record")
    return StreamTableJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        on=_selected(on),
        prefix=prefix,
        value=_selected(select),
    )


def table_to_table(
    program: Program,
    sides: Sides,
    how: JoinKind,
    prefix: str,
    select: Select,
    emit: Emit,
    name: str | None,
) -> TableTableJoin:
    return TableTableJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        prefix=prefix,
        value=_selected(select),
        emit=emit,
    )


def by_foreign_key(
    program: Program,
    sides: Sides,
    how: JoinKind,
    on: Expression | Iterable[Expression],
    prefix: str,
    select: Select,
    name: str | None,
) -> ForeignKeyJoin:
    """ConfigError for an outer join."""
    if how == "outer":
        raise ConfigError("a join by foreign key is inner or left: a right row without references has no key")
    return ForeignKeyJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        on=listed(on),
        prefix=prefix,
        value=_selected(select),
    )


def _selected(select: Select) -> tuple[Expression, ...] | None:
    return None if select is None else listed(select)
