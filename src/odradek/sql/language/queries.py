"""A query as it is written: clauses are values of ours, expressions are sqlglot's trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlglot import exp

from odradek.values.errors import Position

Expression: TypeAlias = exp.Expr
JoinType: TypeAlias = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectExpression:
    """An expression in SELECT. With `alias` None the column's name is generated."""

    expression: Expression
    alias: str | None
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectStar:
    """A `*` in SELECT: of all sources, of one source (`a.*`), or of a struct (`address->*`)."""

    source: str | None = None
    struct: Expression | None = None
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRelation:
    """A stream or table. `alias`: its name when it has none of its own."""

    name: str
    alias: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryRelation:
    """A query in brackets, which is read as a source."""

    query: Query
    alias: str
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """The WITHIN of a join of two streams, in milliseconds: how much older and newer the right record may be.
    `grace_ms` None: not specified.
    """

    before_ms: int
    after_ms: int
    grace_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRelation:
    kind: JoinType
    left: Relation
    right: NamedRelation | SubqueryRelation
    condition: Expression
    within: Within | None
    position: Position


Relation: TypeAlias = NamedRelation | SubqueryRelation | JoinRelation


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClause:
    """The WINDOW clause of a query. `size_ms` is the size, or the gap of a session; `advance_ms` the advance of
    hopping windows. Times that the clause leaves out are None."""

    kind: Literal["tumbling", "hopping", "session"]
    size_ms: int
    advance_ms: int | None = None
    retention_ms: int | None = None
    grace_ms: int | None = None
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query as it is written. With `emit` None it is a pull query, or a persistent query, which emits changes.
    `subqueries` are WHERE's subqueries, by `subquery_of`."""

    select: tuple[SelectExpression | SelectStar, ...]
    relation: Relation
    window: WindowClause | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    emit: Literal["changes", "final"] | None = None
    limit: int | None = None
    subqueries: tuple[Query, ...] = ()
    position: Position


def mark_subquery(tree: exp.In, number: int) -> None:
    """Puts a mark into the brackets of an IN, for the subquery of that number."""
    tree.set("expressions", [])
    tree.set("query", exp.Placeholder(this=str(number)))


def subquery_of(tree: exp.Expr) -> int | None:
    """Returns the number of the subquery of an IN; None of any other expression."""
    query = tree.args.get("query") if isinstance(tree, exp.In) else None
    return int(query.name) if isinstance(query, exp.Placeholder) else None


def with_members(where: Expression, members: Sequence[Sequence[object]]) -> Expression:
    """Returns a condition with constants in place of its subqueries."""
    changed = where.copy()
    for tree in list(changed.find_all(exp.In)):
        number = subquery_of(tree)
        if number is None:
            continue
        tree.set("query", None)
        tree.set("expressions", [exp.convert(value) for value in members[number]])
        if not members[number]:
            nothing = exp.false()
            if tree is changed:
                return nothing
            tree.replace(nothing)
    return changed


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """Returns the parts between ANDs."""
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.this), *conjuncts(tree.expression)]
    return conjuncts(tree.this) if isinstance(tree, exp.Paren) else [tree]
