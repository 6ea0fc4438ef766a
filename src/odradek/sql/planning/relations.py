"""FROM: sources, subqueries and joins, as steps with names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from sqlglot import exp

from odradek.sql.analysis.scope import NameScope, ScopedColumn, physical_name
from odradek.sql.analysis.typed_text import TypedText
from odradek.sql.language.queries import JoinRelation, NamedRelation, Query, Relation, SubqueryRelation
from odradek.sql.metastore.catalog import SqlCatalog, SqlColumn, SqlSource
from odradek.sql.planning.joins import JoinPlanner, semi_joined
from odradek.sql.planning.shapes import KeyColumn, RelationShape
from odradek.sql.planning.steps import (
    NamedColumn,
    OutputColumn,
    PlannedSteps,
    ProjectStep,
    ReadStep,
    Step,
    value_or_nothing,
)
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import WindowInfo
from odradek.values.types import BIGINT, INTEGER, SqlType

_DEPTH_MAX: Final = 2
"""Spark 4.3 copies an expression into the one that uses it: each query within a query multiplies them, up to gigabytes."""


class PlannedSubquery(Protocol):
    """A query as a relation needs it."""

    @property
    def step(self) -> Step: ...

    @property
    def key(self) -> tuple[OutputColumn, ...]: ...

    @property
    def selected_key(self) -> tuple[str | None, ...]:
        """The name of each key column in the projection; None of a column that is not selected."""

    @property
    def value(self) -> tuple[OutputColumn, ...]: ...

    @property
    def window(self) -> WindowInfo | None: ...

    @property
    def sources(self) -> tuple[SqlSource, ...]: ...


class RelationPlanner:
    """Plans one FROM clause: its sources and joins."""

    def __init__(
        self,
        catalog: SqlCatalog,
        query: Query,
        plan_query: Callable[[Query], PlannedSubquery],
        planned: PlannedSteps,
    ) -> None:
        self._catalog = catalog
        self._planned = planned
        self._plan_query = plan_query
        self._numbers = count()
        self._used = _names_in(query)

    def plan(self, relation: Relation) -> RelationShape:
        if isinstance(relation, JoinRelation):
            shape = self._join(relation)
        elif isinstance(relation, SubqueryRelation):
            shape = self._subquery(relation)
        else:
            self._planned.next = "read"
            shape = self._read(relation)
        self._planned.add(shape.step)
        return shape

    def _read(self, relation: NamedRelation) -> RelationShape:
        source = self._catalog.source(relation.name, relation.position)
        number = next(self._numbers)
        columns: list[ScopedColumn] = []
        value: list[NamedColumn] = []

        def add(
            name: str, kind: SqlType, text: str, *, is_pseudo: bool = False, is_key: bool = False
        ) -> None:
            column = f"{physical_name(name)}_{number}"
            value.append(NamedColumn(column, text))
            columns.append(
                ScopedColumn(
                    source=relation.alias,
                    name=name,
                    type=kind,
                    text=column,
                    is_pseudo=is_pseudo,
                    is_key=is_key,
                )
            )

        for index, key in enumerate(source.key):
            add(key.name, key.type, f"key_{index}", is_key=True)
        for name, kind, text in self._pseudo_columns(source):
            add(name, kind, text, is_pseudo=name not in ("WINDOWSTART", "WINDOWEND"))
        indexes = {column.name: index for index, column in enumerate(source.value)}
        for column in source.columns:
            if column.role == "value":
                add(column.name, column.type, f"value_{indexes[column.name]}")
            elif column.role == "headers":
                add(column.name, column.type, _headers_text(column))
        key_columns = tuple(
            KeyColumn(
                name=column.name,
                type=column.type,
                texts=(f"{physical_name(column.name)}_{number}",),
                shown=column.name,
            )
            for column in source.key
        )
        return RelationShape(
            step=ReadStep(source=source, value=tuple(value)),
            scope=NameScope(columns=tuple(columns), sources=(relation.alias,)),
            key=key_columns,
            window=source.window,
            sources=(source,),
        )

    def _subquery(self, relation: SubqueryRelation) -> RelationShape:
        query = relation.query
        if query.emit is not None or query.limit is not None:
            raise SqlError("EMIT and LIMIT are for the whole query, not for a subquery", query.position)
        if _depth_of(query.relation) >= _DEPTH_MAX:
            raise SqlError(
                f"subqueries are nested more than {_DEPTH_MAX} deep",
                query.position,
                "Write CREATE STREAM … AS or CREATE TABLE … AS of the inner ones, and read that.",
            )
        number = next(self._numbers)
        alias = relation.alias or f"SUBQUERY_{number}"
        planned = self._plan_query(query)
        keys = {name for name in planned.selected_key if name is not None}
        # The last step of a query is its projection: the columns get their new names there. Spark's plans grow with each more.
        projection = planned.step
        assert isinstance(projection, ProjectStep)
        texts = dict(projection.value)
        value = [NamedColumn(f"{output.column}_{number}", texts[output.column]) for output in planned.value]
        columns = [
            ScopedColumn(
                source=alias,
                name=output.name,
                type=output.type,
                text=f"{output.column}_{number}",
                is_key=output.name in keys,
            )
            for output in planned.value
        ]
        bounds = (
            [] if planned.window is None else [("WINDOWSTART", "window_start"), ("WINDOWEND", "window_end")]
        )
        known = {column.name for column in columns}
        for name, text in [("ROWTIME", "_timestamp"), *bounds]:
            if name in known or (name == "ROWTIME" and name not in self._used):
                continue
            value.append(NamedColumn(f"{name}_{number}", text))
            columns.append(
                ScopedColumn(source=alias, name=name, type=BIGINT, text=f"{name}_{number}", is_pseudo=True)
            )
        key = tuple(
            KeyColumn(
                name=column.name,
                type=column.type,
                texts=(f"key_{index}",) if name is None else (f"{physical_name(name)}_{number}",),
                shown=column.name,
            )
            for index, (name, column) in enumerate(zip(planned.selected_key, planned.key, strict=True))
        )
        return RelationShape(
            step=ProjectStep(inputs=projection.inputs, value=value_or_nothing(tuple(value))),
            scope=NameScope(columns=tuple(columns), sources=(alias,)),
            key=key,
            window=planned.window,
            sources=planned.sources,
        )

    def _join(self, relation: JoinRelation) -> RelationShape:
        left, right = self.plan(relation.left), self.plan(relation.right)
        self._planned.next = "join"
        return JoinPlanner(self._catalog, relation).plan(left, right)

    def semi_join(
        self, shape: RelationShape, member: TypedText, subquery: Query, *, is_in: bool
    ) -> RelationShape:
        """Returns the rows whose `member` is, or is not, a key of the table that the subquery makes. SqlError when it makes
        none."""
        planned = self.plan(SubqueryRelation(query=subquery, alias="", position=subquery.position))
        self._planned.next = "filter"
        return semi_joined(shape, member, planned, subquery.position, is_in=is_in)

    def _pseudo_columns(self, source: SqlSource) -> list[tuple[str, SqlType, str]]:
        """Returns the pseudo columns that the query uses, and always the bounds of windows, which are part of the key."""
        known = [
            ("ROWTIME", BIGINT, "_timestamp"),
            ("ROWPARTITION", INTEGER, "cast(__order[2] as int)"),
            ("ROWOFFSET", BIGINT, "__order[3]"),
        ]
        bounds = [("WINDOWSTART", BIGINT, "window_start"), ("WINDOWEND", BIGINT, "window_end")]
        own = {column.name for column in source.columns}
        used = [column for column in known if column[0] in self._used and column[0] not in own]
        return used + (bounds if source.window is not None else [])


def _depth_of(relation: Relation) -> int:
    """Returns the nesting depth of queries."""
    if isinstance(relation, JoinRelation):
        return max(_depth_of(relation.left), _depth_of(relation.right))
    return 0 if isinstance(relation, NamedRelation) else 1 + _depth_of(relation.query.relation)


def _headers_text(column: SqlColumn) -> str:
    if column.header is None:
        # Fields of a struct are known by name, and Spark's headers have names in lower case.
        return f"cast(coalesce(_headers, array()) AS {column.type.ddl})"
    name = column.header.replace("\\", "\\\\").replace("'", "\\'")
    return f"try_element_at(filter(_headers, h_ -> h_.key = '{name}'), -1).value"


def _names_in(query: Query) -> set[str]:
    trees = [
        *(getattr(part, "expression", None) for part in query.select),
        *query.group_by,
        *query.partition_by,
        query.where,
        query.having,
    ]
    return {
        column.name for tree in trees if tree is not None for column in tree.find_all(exp.Column)
    } | _names_in_joins(query.relation)


def _names_in_joins(relation: Relation) -> set[str]:
    if not isinstance(relation, JoinRelation):
        return set()
    names = {column.name for column in relation.condition.find_all(exp.Column)}
    return names | _names_in_joins(relation.left)


def refuse_kafka_values(query: Query, catalog: SqlCatalog) -> None:
    """Refuses joins and groups of sources with VALUE_FORMAT='KAFKA', as ksqlDB does."""
    is_join = isinstance(query.relation, JoinRelation)
    read = [catalog.source(name) for name in _names_in_relation(query.relation)]
    named = ", ".join(source.name for source in read if source.value_format.name == "KAFKA")
    if named and (is_join or query.group_by):
        clause = "JOIN" if is_join else "GROUP BY"
        raise SqlError(
            f"Source(s) {named} are using the 'KAFKA' value format. This format does not yet support {clause}",
            query.position,
            "Make a stream or table with another VALUE_FORMAT from it first.",
        )


def _names_in_relation(relation: Relation) -> list[str]:
    if isinstance(relation, JoinRelation):
        return _names_in_relation(relation.left) + _names_in_relation(relation.right)
    return [relation.name] if isinstance(relation, NamedRelation) else []
