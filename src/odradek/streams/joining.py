"""Joins as operators: what each kind of join accepts, and what is refused at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from odradek.model.errors import ConfigError
from odradek.streams.plan.arguments import checked_join_kind, checked_prefix
from odradek.streams.plan.keyed import (
    ForeignKeyJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    WindowTableJoin,
)
from odradek.streams.plan.operators import Emit, Expression, JoinKind, Operator, history_of, listed
from odradek.streams.plan.program import Program
from odradek.streams.plan.windows import Length, milliseconds

Sides: TypeAlias = tuple[Operator, Operator]
Select: TypeAlias = "Expression | Iterable[Expression] | None"


class JoinReach(NamedTuple):
    """The distance that two records may have: lengths of time as the user wrote them."""

    within: Length
    before: Length | None
    after: Length | None
    grace: Length


def stream_to_stream(
    program: Program,
    sides: Sides,
    how: JoinKind,
    reach: JoinReach,
    prefix: str,
    select: Select,
    name: str | None,
) -> StreamStreamJoin:
    checked_join_kind(how)
    checked_prefix(prefix)
    within_ms = milliseconds(reach.within, "within")
    return StreamStreamJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        before_ms=within_ms if reach.before is None else milliseconds(reach.before, "before"),
        after_ms=within_ms if reach.after is None else milliseconds(reach.after, "after"),
        grace_ms=milliseconds(reach.grace, "grace"),
        prefix=prefix,
        value=_selected(select, "select"),
    )


def stream_to_table(
    program: Program,
    sides: Sides,
    how: JoinKind,
    on: Select,
    grace: Length | None,
    prefix: str,
    select: Select,
    name: str | None,
) -> StreamTableJoin:
    """Joins a stream with a table. ConfigError for an outer join, and for a grace for which the table has no history."""
    checked_join_kind(how)
    checked_prefix(prefix)
    if how == "outer":
        raise ConfigError("a stream and a table have inner and left joins: a table's change makes no record")
    grace_ms = None if grace is None else milliseconds(grace, "grace")
    history_ms = history_of(sides[1])
    if grace_ms is not None and (history_ms is None or history_ms < grace_ms):
        has = "no versions" if history_ms is None else f"versions of {history_ms} ms"
        raise ConfigError(
            f"grace={grace!r} is for a join with a versioned table that remembers as long; {sides[1].name} has {has}:"
            " write app.table(…, versioned='1 hour')"
        )
    return StreamTableJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        on=_selected(on, "on"),
        grace_ms=grace_ms,
        prefix=prefix,
        value=_selected(select, "select"),
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
    checked_join_kind(how)
    checked_prefix(prefix)
    return TableTableJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        prefix=prefix,
        value=_selected(select, "select"),
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
    """Returns the foreign-key join of two tables. Raises ConfigError for an outer join."""
    checked_join_kind(how)
    checked_prefix(prefix)
    if how == "outer":
        raise ConfigError("a join by foreign key is inner or left: a right row without references has no key")
    return ForeignKeyJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        on=listed(on, "on"),
        prefix=prefix,
        value=_selected(select, "select"),
    )


def by_part_of_windowed_key(
    program: Program,
    sides: Sides,
    how: JoinKind,
    by: Expression | Iterable[Expression],
    held: Length | None,
    prefix: str,
    select: Select,
    name: str | None,
) -> WindowTableJoin:
    """Returns the join of a windowed table with a table by a part of the windowed key. Raises ConfigError for an outer join."""
    checked_join_kind(how)
    checked_prefix(prefix)
    if how == "outer":
        raise ConfigError("windows join a table inner or left: a right row without a window has no key")
    return WindowTableJoin(
        name=program.operator_name("join", name),
        inputs=sides,
        kind=how,
        on=listed(by, "by"),
        prefix=prefix,
        value=_selected(select, "select"),
        held_ms=None if held is None else milliseconds(held, "held"),
    )


def _selected(select: Select, what: str) -> tuple[Expression, ...] | None:
    return None if select is None else listed(select, what)
