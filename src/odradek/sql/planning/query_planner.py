"""A query as steps: WHERE, table functions, GROUP BY, HAVING, PARTITION BY, SELECT, and the key of what comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Final

from sqlglot import exp

from odradek.sql.analysis.expressions import ExpressionCompiler, constant_of, where_of
from odradek.sql.analysis.scope import NameScope, ScopedColumn, physical_name
from odradek.sql.analysis.typed_text import TypedText
from odradek.sql.language.dialect import position_of
from odradek.sql.language.queries import Query, SelectExpression, SelectStar, conjuncts, subquery_of
from odradek.sql.metastore.catalog import PSEUDO_COLUMNS, WINDOW_BOUNDS, SqlCatalog, SqlColumn, SqlSource
from odradek.sql.planning.relations import RelationPlanner, refuse_kafka_values
from odradek.sql.planning.shapes import KeyColumn, RelationShape
from odradek.sql.planning.steps import (
    NO_COLUMN,
    AggregateCall,
    AggregateStep,
    ExplodeStep,
    FilterStep,
    NamedColumn,
    OutputColumn,
    PlannedSteps,
    ProjectStep,
    RekeyStep,
    Step,
    WindowStep,
    value_or_nothing,
)
from odradek.values.errors import Position, SqlError
from odradek.values.formats.format_info import WindowInfo
from odradek.values.types import BIGINT, BOOLEAN

_DAY_MS: Final = 86_400_000
_GROUP_WINDOWS_HINT: Final = (
    "Select AS_VALUE(key) AS … and WINDOWSTART AS … where the windows are made, declare their topic again as a stream whose key"
    " is BYTES, without WINDOW_TYPE, and group that."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """The planned steps of a query, and the columns that they end with. `key` has the output's names and the columns of the
    frame's key; `value`, the columns of the frame's value."""

    step: Step
    key: tuple[OutputColumn, ...]
    value: tuple[OutputColumn, ...]
    window: WindowInfo | None
    sources: tuple[SqlSource, ...]
    selected_key: tuple[str | None, ...]
    """The name of each key column in the projection; None of a column that is not selected."""

    @property
    def is_table(self) -> bool:
        return self.step.is_table

    @property
    def columns(self) -> tuple[SqlColumn, ...]:
        keys = tuple(SqlColumn(name=column.name, type=column.type, role="key") for column in self.key)
        return keys + tuple(SqlColumn(name=column.name, type=column.type) for column in self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A column of the result. `name` None: one is made. `is_written`: it is in SELECT itself, and comes from no `*`."""

    name: str | None
    tree: exp.Expr
    position: Position
    is_written: bool = True


class QueryPlanner:
    """Plans one query. With `needs_key` the result is stored, so its key must be selected."""

    def __init__(
        self, catalog: SqlCatalog, query: Query, planned: PlannedSteps, *, needs_key: bool, sink: str = ""
    ) -> None:
        self._catalog = catalog
        self._planned = planned
        self._query = query
        self._needs_key = needs_key
        self._sink = sink
        self._generated = count()

    def plan(self) -> QueryPlan:
        query = self._query
        relations = RelationPlanner(self._catalog, query, self._plan_subquery, self._planned)
        shape = relations.plan(query.relation)
        refuse_kafka_values(query, self._catalog)
        if query.where is not None:
            self._planned.next = "filter"
            shape = self._where(relations, shape, query.where)
            self._planned.add(shape.step)
        self._planned.next = "select"
        items = list(self._items(shape))
        aggregates = [selection for selection in items if self._has_aggregate(selection.tree)]
        if query.group_by:
            if query.partition_by:
                raise SqlError("PARTITION BY and GROUP BY cannot be in one query", query.position)
            self._planned.next = "aggregate"
            return self._grouped(shape, items)
        if aggregates:
            raise SqlError(
                "Use of aggregate function without a GROUP BY clause is not supported",
                position_of(aggregates[0].tree),
                "Write GROUP BY, such as GROUP BY 1 for all records together.",
            )
        if query.having is not None:
            raise SqlError("HAVING needs GROUP BY", where_of(query.having, query.position))
        if query.window is not None:
            raise SqlError("WINDOW needs GROUP BY and an aggregate", query.window.position)
        if query.emit == "final":
            raise SqlError("EMIT FINAL is only supported for windowed aggregations", query.position)
        shape, items = self._exploded(shape, items)
        if query.partition_by:
            self._planned.add(shape.step)
            self._planned.next = "partition by"
            partitioned = self._partitioned(shape)
            items = [*self._keys_of_star(shape, partitioned, items), *items]
            shape = partitioned
        self._planned.add(shape.step)
        self._planned.next = "select"
        return self._selected(shape, items, ExpressionCompiler(scope=shape.scope, catalog=self._catalog))

    def _plan_subquery(self, query: Query) -> QueryPlan:
        return QueryPlanner(self._catalog, query, self._planned, needs_key=False).plan()

    def _where(self, relations: RelationPlanner, shape: RelationShape, condition: exp.Expr) -> RelationShape:
        """Conditions of a row, then those that need another table."""
        members: list[tuple[exp.In, int, bool]] = []
        others: list[exp.Expr] = []
        for part in conjuncts(condition):
            inner = part.this.unnest() if isinstance(part, exp.Not) else part
            number = subquery_of(inner)
            if number is None or not isinstance(inner, exp.In):
                others.append(part)
            else:
                members.append((inner, number, inner is part))
        if not members:
            return self._filtered(shape, condition, "WHERE")
        if others:
            shape = self._filtered(shape, exp.and_(*others, copy=True), "WHERE")
        for tree, number, is_in in members:
            member = ExpressionCompiler(scope=shape.scope, catalog=self._catalog).typed(tree.this)
            shape = relations.semi_join(shape, member, self._query.subqueries[number], is_in=is_in)
        return shape

    def _filtered(self, shape: RelationShape, condition: exp.Expr, clause: str) -> RelationShape:
        compiler = ExpressionCompiler(scope=shape.scope, catalog=self._catalog)
        text = compiler.as_type(condition, BOOLEAN, f"the {clause} condition")
        step = FilterStep(inputs=(shape.step,), condition=text, written=condition.sql())
        return replace(shape, step=step)

    # ---- SELECT

    def _items(self, shape: RelationShape) -> Iterator[_Item]:
        taken = {column.name for column in shape.scope.columns}
        taken |= {
            part.alias for part in self._query.select if isinstance(part, SelectExpression) and part.alias
        }
        for selection in self._query.select:
            if isinstance(selection, SelectExpression):
                name = selection.alias or self._natural_name(selection.expression, shape, taken)
                yield _Item(name=name, tree=selection.expression, position=selection.position)
            else:
                yield from self._star(selection, shape)

    def _star(self, star: SelectStar, shape: RelationShape) -> Iterator[_Item]:
        if star.struct is not None:
            struct = ExpressionCompiler(scope=shape.scope, catalog=self._catalog).typed(star.struct)
            if struct.type.kind != "STRUCT":
                raise SqlError(f"->* needs a STRUCT before it, not a {struct.type}", star.position)
            for name, _ in struct.type.fields:
                field = exp.Dot(this=star.struct.copy(), expression=_identifier(name))
                yield _Item(name=name, tree=field, position=star.position, is_written=False)
            return
        if star.source is not None and star.source not in shape.scope.sources:
            raise SqlError(f"'{star.source}' is not a valid stream/table name or alias", star.position)
        chosen = (
            tuple(column for column in shape.scope.columns if not column.is_pseudo)
            if star.source is None
            else shape.scope.of(star.source)
        )
        for column in self._repartitioned(chosen, shape) if self._query.partition_by else chosen:
            tree = exp.Column(
                this=_identifier(column.name), table=_identifier(column.source) if column.source else None
            )
            name = f"{column.source}_{column.name}" if shape.is_join and column.source else column.name
            yield _Item(name=name, tree=tree, position=star.position, is_written=False)

    def _repartitioned(
        self, chosen: tuple[ScopedColumn, ...], shape: RelationShape
    ) -> Iterable[ScopedColumn]:
        """Returns the order after PARTITION BY: the new key, then of each source its values and the key that it had."""
        trees = [tree for tree in self._query.partition_by if isinstance(tree, exp.Column)]
        new_key = [shape.scope.resolve(tree.name, tree.table or None, position_of(tree)) for tree in trees]
        first = [column for column in new_key if column in chosen]
        others = (column for column in chosen if column not in first)
        order = {source: number for number, source in enumerate(shape.scope.sources)}
        return [*first, *sorted(others, key=lambda column: (order.get(column.source, 0), column.is_key))]

    def _keys_of_star(
        self, before: RelationShape, shape: RelationShape, items: list[_Item]
    ) -> Iterator[_Item]:
        """Yields the columns that `*` has because PARTITION BY makes them of expressions: `before` has none of them, and
        `shape` has."""
        stars = [part for part in self._query.select if isinstance(part, SelectStar) and part.struct is None]
        star = next((part for part in stars if part.source is None or not shape.is_join), None)
        if star is None or not shape.key:
            return
        compiler = ExpressionCompiler(scope=before.scope, catalog=self._catalog)
        known = {compiler.canonical(selection.tree) for selection in items}
        taken = {selection.name for selection in items if selection.name is not None}
        taken |= {column.name for column in before.scope.columns}
        for tree in self._query.partition_by:
            if compiler.canonical(tree) in known:
                continue
            name = self._natural_name(tree, before, taken) or self._generated_name(taken)
            yield _Item(name=name, tree=tree, position=star.position, is_written=False)

    def _natural_name(self, tree: exp.Expr, shape: RelationShape, taken: set[str]) -> str | None:
        """Returns ksqlDB's name: the column's or field's name, with the source's name where several sources have it."""
        if isinstance(tree, exp.Column):
            if tree.table and shape.is_join and shape.scope.is_clashing(tree.name):
                return f"{tree.table}_{tree.name}"
            return str(tree.name)
        return _free_name(str(tree.expression.name), taken) if isinstance(tree, exp.Dot) else None

    def _has_aggregate(self, tree: exp.Expr) -> bool:
        functions = self._catalog.functions
        return any(functions.is_aggregate(call.name.upper()) for call in tree.find_all(exp.Anonymous))

    def _selected(self, shape: RelationShape, items: list[_Item], compiler: ExpressionCompiler) -> QueryPlan:
        taken = {selection.name for selection in items}
        names: list[str | None] = [None] * len(shape.key)
        value: list[OutputColumn] = []
        texts: list[NamedColumn] = []
        typed = [compiler.typed(selection.tree) for selection in items]
        selected = {selected_text.text for selected_text in typed}
        chosen = [next((text for text in column.chosen if text in selected), None) for column in shape.key]
        for selection, written in zip(items, typed, strict=True):
            name, selected_text = selection.name or self._generated_name(taken), written
            key_index = _key_index(
                shape, chosen, compiler.canonical(selection.tree), selection.tree, selected_text
            )
            if self._needs_key and (selection.is_written or key_index is None):
                _check_name(name, selection)
            if key_index is not None and selected_text.text in shape.key[key_index].nullable:
                selected_text = TypedText(f"key_{key_index}", selected_text.type)
            if key_index is not None and (self._needs_key or names[key_index] is None):
                if names[key_index] is not None:
                    raise SqlError(
                        f"The projection contains a key column (`{shape.key[key_index].name}`) more than once",
                        selection.position,
                        "AS_VALUE(…) copies a key column into the value.",
                    )
                names[key_index] = name
                if self._needs_key:
                    continue
            is_bound = name in WINDOW_BOUNDS and selected_text.text in _bound_texts(shape)
            if self._needs_key and is_bound and shape.window is not None:
                continue
            if selected_text.type.kind == "NULL":
                raise SqlError("a column needs a type", selection.position, "Write CAST(NULL AS …).")
            column = physical_name(name)
            value.append(OutputColumn(name, column, selected_text.type))
            texts.append(NamedColumn(column, selected_text.text))
        self._check_key(shape, names)
        _check_once(
            [*(name for name in names if name and self._needs_key), *(column.name for column in value)],
            self._query,
        )
        key = tuple(
            OutputColumn(name or column.name, f"key_{key_index}", column.type)
            for key_index, (name, column) in enumerate(zip(names, shape.key, strict=True))
        )
        step = ProjectStep(inputs=(shape.step,), value=value_or_nothing(tuple(texts)))
        self._planned.add(step)
        self._planned.next = "write"
        return QueryPlan(
            step=step,
            key=key,
            value=tuple(value),
            window=shape.window,
            sources=shape.sources,
            selected_key=tuple(names),
        )

    def _generated_name(self, taken: AbstractSet[str | None]) -> str:
        while (name := f"KSQL_COL_{next(self._generated)}") in taken:
            pass
        return name

    def _check_key(self, shape: RelationShape, names: list[str | None]) -> None:
        absent = [column.shown for column, name in zip(shape.key, names, strict=True) if name is None]
        if absent and self._needs_key:
            columns = ", ".join(absent)
            raise SqlError(
                f"Key missing from projection. The query used to build `{self._sink}` must include the key column(s)"
                f" {columns} in its projection",
                self._query.position,
                f"Write SELECT {absent[0].split(' or ')[0]}, ….",
            )

    # ---- table functions

    def _exploded(self, shape: RelationShape, items: list[_Item]) -> tuple[RelationShape, list[_Item]]:
        functions, compiler = (
            self._catalog.functions,
            ExpressionCompiler(scope=shape.scope, catalog=self._catalog),
        )
        arrays: list[NamedColumn] = []
        added: list[ScopedColumn] = []
        changed: list[_Item] = []
        for selection in items:
            tree = selection.tree.copy()
            for call in list(tree.find_all(exp.Anonymous)):
                name = call.name.upper()
                if not functions.is_table(name):
                    continue
                if any(
                    functions.is_table(inner.name.upper())
                    for part in call.expressions
                    for inner in part.find_all(exp.Anonymous)
                ):
                    raise SqlError("table functions cannot be nested", selection.position)
                arguments = compiler.arguments(name, call)
                function = functions.table(name, [argument.type for argument in arguments])
                column = f"ROWS_OF_{len(arrays)}"
                arrays.append(NamedColumn(column, function.spark([argument.text for argument in arguments])))
                added.append(
                    ScopedColumn(source="", name=column, type=function.returns, text=column, is_pseudo=True)
                )
                replacement = exp.Column(this=_identifier(column))
                tree = replacement if call is tree else tree
                call.replace(replacement) if call is not tree and tree is not replacement else None
            changed.append(replace(selection, tree=tree))
        if not arrays:
            return shape, items
        if shape.is_table:
            raise SqlError("Table functions cannot be used with table source", self._query.position)
        carried = tuple(column.text for column in shape.scope.columns if not column.text.startswith("key_"))
        step = ExplodeStep(inputs=(shape.step,), carried=carried, arrays=tuple(arrays))
        return replace(shape, step=step, scope=shape.scope.with_columns(added)), changed

    # ---- PARTITION BY

    def _partitioned(self, shape: RelationShape) -> RelationShape:
        if shape.is_table:
            raise SqlError(
                "Table: PARTITION BY is not supported on tables", self._query.position, "Use GROUP BY."
            )
        if shape.window is not None:
            raise SqlError("PARTITION BY is not supported on a windowed stream", self._query.position)
        trees = self._query.partition_by
        if len(trees) == 1 and isinstance(trees[0], exp.Null):
            step = RekeyStep(inputs=(shape.step,), key=(), keeps_null=True, written="NULL")
            return replace(shape, step=step, key=())
        if any(isinstance(tree, exp.Null) for tree in trees):
            raise SqlError("Cannot PARTITION BY multiple columns including NULL", self._query.position)
        compiler = ExpressionCompiler(scope=shape.scope, catalog=self._catalog)
        keys = [compiler.typed(tree) for tree in trees]
        key = tuple(self._new_key(compiler, tree, typed) for tree, typed in zip(trees, keys, strict=True))
        written = ", ".join(tree.sql() for tree in trees)
        step = RekeyStep(
            inputs=(shape.step,), key=tuple(typed.text for typed in keys), keeps_null=True, written=written
        )
        return replace(shape, step=step, key=key)

    def _new_key(self, compiler: ExpressionCompiler, tree: exp.Expr, typed: TypedText) -> KeyColumn:
        """Returns a column of the new key. An expression that is selected is the key under its name there."""
        if typed.type.holds_map:
            raise SqlError("PARTITION BY is not supported with MAP columns", position_of(tree))
        return KeyColumn(
            name=_shown(tree),
            type=typed.type,
            texts=(typed.text,) if isinstance(tree, exp.Column) else (),
            shown=_shown(tree),
            canonical=compiler.canonical(tree),
        )

    # ---- GROUP BY

    def _grouped(self, shape: RelationShape, items: list[_Item]) -> QueryPlan:
        query = self._query
        window = self._window(shape)
        if query.emit == "final" and window is None:
            raise SqlError("EMIT FINAL is only supported for windowed aggregations", query.position)
        if shape.window is not None:
            raise SqlError(
                "GROUP BY on windowed sources is not supported", query.position, _GROUP_WINDOWS_HINT
            )
        before = ExpressionCompiler(scope=shape.scope, catalog=self._catalog)
        key: list[KeyColumn] = []
        replaced: dict[str, TypedText] = {}
        texts: list[str] = []
        for index, tree in enumerate(query.group_by):
            compiled = before.typed(tree)
            if compiled.type.holds_map:
                raise SqlError("GROUP BY is not supported with MAP columns", position_of(tree))
            if self._has_aggregate(tree):
                raise SqlError("GROUP BY does not support aggregate functions", position_of(tree))
            texts.append(compiled.text)
            replaced[before.canonical(tree)] = TypedText(f"key_{index}", compiled.type)
            grouped_by = KeyColumn(
                name=_shown(tree), type=compiled.type, texts=(f"key_{index}",), shown=_shown(tree)
            )
            key.append(replace(grouped_by, canonical=before.canonical(tree)))
        if window is not None:
            replaced["WINDOWSTART"] = TypedText("window_start", BIGINT)
            replaced["WINDOWEND"] = TypedText("window_end", BIGINT)
        collector = _AggregateCollector(before, self._catalog, on_table=shape.is_table)
        scope = shape.scope if window is None else _with_bounds(shape.scope)
        after = ExpressionCompiler(
            scope=scope, catalog=self._catalog, replaced=_Replaced(replaced), on_aggregate=collector.call
        )
        for selection in items:
            after.typed(selection.tree)
        having = None
        if query.having is not None:
            having = after.as_type(query.having, BOOLEAN, "the HAVING condition")
        step: Step = AggregateStep(
            inputs=(collector.arguments(shape.step, texts),),
            key=tuple(f"G_{index}" for index in range(len(texts))),
            calls=tuple(collector.calls),
            window=window,
            functions=self._catalog.functions,
            written=", ".join(_shown(tree) for tree in query.group_by),
        )
        if having is not None and query.having is not None:
            step = FilterStep(inputs=(step,), condition=having, written=f"HAVING {query.having.sql()}")
        grouped = RelationShape(
            step=step,
            scope=scope,
            key=tuple(key),
            window=None if window is None else window.info,
            sources=shape.sources,
            is_join=shape.is_join,
        )
        self._planned.add(step)
        self._planned.next = "select"
        return self._selected(grouped, items, after)

    def _window(self, shape: RelationShape) -> WindowStep | None:
        clause = self._query.window
        if clause is None:
            return None
        if shape.is_table:
            raise SqlError("WINDOW clause is only supported on streams", clause.position)
        if clause.retention_ms is not None and clause.retention_ms < clause.size_ms + (clause.grace_ms or 0):
            raise SqlError("RETENTION is shorter than the window and its GRACE PERIOD", clause.position)
        if clause.advance_ms is not None and not 0 < clause.advance_ms <= clause.size_ms:
            raise SqlError("ADVANCE BY is longer than the window, or zero", clause.position)
        is_final = self._query.emit == "final"
        grace_ms = (0 if is_final else _DAY_MS) if clause.grace_ms is None else clause.grace_ms
        return WindowStep(
            kind=clause.kind,
            size_ms=clause.size_ms,
            advance_ms=clause.advance_ms,
            grace_ms=grace_ms,
            retention_ms=clause.size_ms + grace_ms if clause.retention_ms is None else clause.retention_ms,
            final=is_final,
        )


class _Replaced(dict[str, TypedText]):
    """The members that are the same in every scope."""


class _AggregateCollector:
    """Gathers calls of aggregate functions; equal ones are computed once."""

    def __init__(self, compiler: ExpressionCompiler, catalog: SqlCatalog, *, on_table: bool) -> None:
        self._compiler = compiler
        self._catalog = catalog
        self._on_table = on_table
        self._known: dict[str, TypedText] = {}
        self._arguments: list[NamedColumn] = []
        self.calls: list[AggregateCall] = []

    def call(self, name: str, tree: exp.Anonymous) -> TypedText:
        written = self._compiler.canonical(tree)
        known = self._known.get(written)
        if known is None:
            known = self._known[written] = self._added(name, tree)
        return known

    def _added(self, name: str, tree: exp.Anonymous) -> TypedText:
        trees = list(tree.expressions)
        if len(trees) == 1 and isinstance(trees[0], exp.Star):
            trees = []
        if len(trees) == 1 and isinstance(trees[0], exp.Distinct):
            if name != "COUNT":
                raise SqlError(f"DISTINCT is for COUNT, not for {name}", position_of(tree))
            name, trees = "COUNT_DISTINCT", list(trees[0].expressions)
        for argument in trees:
            for inner in argument.find_all(exp.Anonymous):
                if self._catalog.functions.is_aggregate(inner.name.upper()):
                    raise SqlError(f"Aggregate functions can not be nested: {name}({inner.name.upper()}())")
        arguments = [self._compiler.typed(argument) for argument in trees]
        kinds = tuple(argument.type for argument in arguments)
        constants = tuple(constant_of(argument) for argument in trees)
        function = self._catalog.functions.aggregate(name, kinds, constants, of_table=self._on_table)
        columns = []
        for argument in arguments:
            columns.append(f"A_{len(self._arguments)}")
            self._arguments.append(NamedColumn(columns[-1], argument.text))
        result_column = f"R_{len(self.calls)}"
        call = AggregateCall(
            name=name,
            kinds=kinds,
            constants=constants,
            arguments=tuple(columns) or (NO_COLUMN,),
            result=result_column,
            returns=function.returns,
        )
        self.calls.append(call)
        return TypedText(result_column, function.returns)

    def arguments(self, step: Step, key: list[str]) -> Step:
        """Returns the frame that is aggregated: the columns of GROUP BY and the arguments."""
        keys = tuple(NamedColumn(f"G_{index}", text) for index, text in enumerate(key))
        return ProjectStep(inputs=(step,), value=(*keys, *self._arguments, NamedColumn(NO_COLUMN, "true")))


def _key_index(
    shape: RelationShape, chosen: list[str | None], canonical: str, tree: exp.Expr, typed: TypedText
) -> int | None:
    """Returns which column of the key a selection is. AS_VALUE makes a copy of one, unless the key is made by it."""
    for index, column in enumerate(shape.key):
        if column.canonical is not None and column.canonical == canonical:
            return index
        if typed.text == chosen[index] and isinstance(tree.unnest(), exp.Column):
            return index
    return None


def _with_bounds(scope: NameScope) -> NameScope:
    bounds = [
        ScopedColumn(source="", name=name, type=BIGINT, text=name, is_pseudo=True) for name in WINDOW_BOUNDS
    ]
    return scope.with_columns(bounds)


def _bound_texts(shape: RelationShape) -> set[str]:
    texts = {column.text for column in shape.scope.columns if column.name in WINDOW_BOUNDS}
    return texts | {"window_start", "window_end"}


def _shown(tree: exp.Expr) -> str:
    return str(tree.name) if isinstance(tree, exp.Column) else tree.sql()


def _identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def _check_name(name: str, selection: _Item) -> None:
    """Checks a name. `*` of a windowed source has the bounds, which are in the key: they are left out."""
    if name in PSEUDO_COLUMNS and (selection.is_written or name not in WINDOW_BOUNDS):
        raise SqlError(
            f"Reserved column name in select: `{name}`. Please remove or alias the column",
            selection.position,
            f"Write {name} AS ….",
        )


def _free_name(name: str, taken: set[str]) -> str:
    """A field of a STRUCT has its own name in the result, with a number where that is taken already."""
    free = next(
        candidate
        for candidate in chain([name], (f"{name}_{number}" for number in count(1)))
        if candidate not in taken
    )
    taken.add(free)
    return free


def _check_once(names: list[str], query: Query) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SqlError(
                f"Duplicate output column name: `{name}`", query.position, "Give one of them an alias."
            )
