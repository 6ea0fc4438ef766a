"""JOIN: two relations become one, and IN with a subquery, which joins a table of keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from odradek.sql.analysis.expressions import ExpressionCompiler, where_of
from odradek.sql.analysis.scope import NameScope, ScopedColumn
from odradek.sql.analysis.typed_text import TypedText
from odradek.sql.language.queries import JoinRelation
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.planning.shapes import KeyColumn, RelationShape
from odradek.sql.planning.steps import FilterStep, JoinStep, JoinWay, RekeyStep, Step
from odradek.values.errors import Position, SqlError
from odradek.values.formats.format_info import WindowInfo

_DAY_MS: Final = 86_400_000

JoinSide = tuple[RelationShape, TypedText]
"""A relation, and the expression of its columns that it is joined on."""


class JoinPlanner:
    """Plans one JOIN: of two streams, a stream and a table, two tables, or a windowed source and a table."""

    def __init__(self, catalog: SqlCatalog, relation: JoinRelation) -> None:
        self._catalog: Final = catalog
        self._relation: Final = relation

    def plan(self, left: RelationShape, right: RelationShape) -> RelationShape:
        """Returns the shape of the joined rows. Raises SqlError for a join that is not supported."""
        relation = self._relation
        where = relation.position
        has_one_window = (left.window is None) != (right.window is None)
        if has_one_window:
            _refuse_stream_without_window(left, right, where)
        _refuse_other_windows(left, right, where)
        if left.is_table and not right.is_table:
            raise SqlError(
                "Invalid join order: table-stream joins are not supported; only stream-table joins",
                where,
                "Put the stream before the table.",
            )
        left_on, right_on = self._sides(left.scope, right.scope)
        if left_on.type != right_on.type:
            raise SqlError(
                f"Invalid join condition: types don't match. Got {left_on.type} = {right_on.type}",
                where_of(relation.condition, where),
                "Write a CAST.",
            )
        if left_on.type.holds_map:
            raise SqlError("a join by a MAP is not supported", where_of(relation.condition, where))
        if not left.is_table and not right.is_table:
            return self._stream_stream((left, left_on), (right, right_on))
        if relation.within is not None:
            raise SqlError(
                "A window definition was provided for a join with a table", where, "Leave WITHIN out."
            )
        if has_one_window:
            return self._one_window((left, left_on), (right, right_on))
        if not left.is_table:
            return self._stream_table((left, left_on), (right, right_on))
        return self._table_table((left, left_on), (right, right_on))

    def _sides(self, left: NameScope, right: NameScope) -> tuple[TypedText, TypedText]:
        condition = self._relation.condition
        while isinstance(condition, exp.Paren):
            condition = condition.this
        where = where_of(condition, self._relation.position)
        if not isinstance(condition, exp.EQ):
            raise SqlError(
                "JOIN condition must be an equality of an expression of each side",
                where,
                "Put the rest into WHERE.",
            )
        both = left.and_those_of(right)
        compiled: dict[str, TypedText] = {}
        for side in (condition.left, condition.right):
            columns = [
                both.resolve(column.name, column.table or None) for column in side.find_all(exp.Column)
            ]
            names = {"left" if column in left.columns else "right" for column in columns}
            if len(names) != 1:
                raise SqlError("each side of a JOIN condition needs columns of one source", where)
            compiled[names.pop()] = ExpressionCompiler(scope=both, catalog=self._catalog).typed(side)
        if len(compiled) != 2:
            raise SqlError("both sides of the JOIN condition are of the same source", where)
        return compiled["left"], compiled["right"]

    def _stream_stream(self, left: JoinSide, right: JoinSide) -> RelationShape:
        relation = self._relation
        if relation.within is None:
            raise SqlError(
                "Stream-Stream joins must have a WITHIN clause specified. None was provided",
                relation.position,
                "Write JOIN … WITHIN 1 HOUR ON ….",
            )
        before_ms, after_ms, grace = (
            relation.within.before_ms,
            relation.within.after_ms,
            relation.within.grace_ms,
        )
        grace_ms = grace if grace is not None else (_DAY_MS if relation.kind == "inner" else 0)
        sides = [_by(*left), _by(*right)]
        if relation.kind == "right":
            sides.reverse()
            before_ms, after_ms = after_ms, before_ms
        way: JoinWay = "left" if relation.kind == "right" else relation.kind
        step = JoinStep(inputs=tuple(sides), way=way, within=(before_ms, after_ms, grace_ms))
        return self._joined(step, left, right)

    def _stream_table(self, left: JoinSide, right: JoinSide) -> RelationShape:
        relation = self._relation
        if relation.kind not in ("inner", "left"):
            raise SqlError(
                f"Unsupported join type: a stream and a table have INNER and LEFT joins, not {relation.kind.upper()}",
                relation.position,
            )
        _needs_primary_key(right, relation.position, "stream-table")
        step = JoinStep(inputs=(_by(*left), right[0].step), way=relation.kind)
        return self._joined(step, left, right)

    def _table_table(self, left: JoinSide, right: JoinSide) -> RelationShape:
        relation = self._relation
        _needs_primary_key(right, relation.position, "table-table")
        if _is_key(*left):
            inputs = (left[0].step, right[0].step)
            swapped = relation.kind == "right"
            way: JoinWay = "left" if relation.kind == "right" else relation.kind
            step = JoinStep(inputs=inputs[::-1] if swapped else inputs, way=way)
            return self._joined(step, left, right)
        if relation.kind not in ("inner", "left"):
            raise SqlError(
                "Invalid join type: a join by foreign key is INNER or LEFT",
                relation.position,
                "Swap the tables.",
            )
        step = JoinStep(inputs=(left[0].step, right[0].step), way=relation.kind, on=left[1].text)
        joined = self._joined(step, left, right)
        return replace(joined, key=left[0].key, scope=left[0].scope.and_those_of(right[0].scope))

    def _one_window(self, left: JoinSide, right: JoinSide) -> RelationShape:
        """Plans the join of a windowed source with a table that has no windows: the result has the windows, and their key."""
        relation = self._relation
        is_swapped = left[0].window is None
        (windowed, on), (table, table_on) = (right, left) if is_swapped else (left, right)
        names = tuple(" and ".join(shape.scope.sources) for shape in (windowed, table))
        ways: dict[str, JoinWay] = {"inner": "inner", "right" if is_swapped else "left": "left"}
        way = ways.get(relation.kind)
        if way is None:
            raise SqlError(
                f"Invalid join type: a row of {names[1]} without one of {names[0]} has no window",
                relation.position,
                f"Write {names[0]} LEFT JOIN {names[1]}.",
            )
        if not _is_key(table, table_on):
            named = ", ".join(column.name for column in table.key)
            raise SqlError(
                f"Invalid join condition: windows join the primary key of a table without windows, {names[1]}",
                relation.position,
                f"Its primary key is {named}.",
            )
        scope = left[0].scope.and_those_of(right[0].scope)
        key = list(windowed.key)
        key_index = _index_in_key(windowed, on)
        if key_index is not None:
            texts = key[key_index].texts + (table.key[0].texts if way == "inner" else ())
            names_of_key = [column.full_name for column in scope.columns if column.text in texts]
            key[key_index] = replace(key[key_index], texts=texts, shown=" or ".join(names_of_key))
        return RelationShape(
            step=_windows_with_table(windowed, on, table.step, way),
            scope=scope,
            key=tuple(key),
            window=windowed.window,
            sources=left[0].sources + right[0].sources,
            is_join=True,
        )

    def _joined(self, step: JoinStep, left: JoinSide, right: JoinSide) -> RelationShape:
        """Returns the shape with both sides' columns. Its key is what they are joined on, or ROWKEY if no column holds that."""
        kind = self._relation.kind
        scope = left[0].scope.and_those_of(right[0].scope)
        plain = {column.text: column for column in scope.columns}
        texts: tuple[str, ...] = {
            "inner": (left[1].text, right[1].text),
            "left": (left[1].text,),
            "right": (right[1].text,),
        }.get(kind, ())
        both = () if kind == "outer" else (left, right)
        viable = [plain[on.text] for _, on in both if on.text in plain]
        if viable:
            equivalent = tuple(text for text in texts if text in plain)
            selectable: tuple[str, ...] = ()
            for shape, on in both:
                selectable += shape.key[0].chosen if _is_named(shape, on) else ()
                selectable += (on.text,)
                if on.text in equivalent and _is_key(shape, on):
                    equivalent += tuple(text for text in shape.key[0].texts if text not in equivalent)
            selectable = tuple(text for text in dict.fromkeys(selectable) if text in plain)
            key = KeyColumn(
                name=viable[0].name,
                type=viable[0].type,
                texts=equivalent or ("key_0",),
                shown=" or ".join(column.full_name for column in viable),
                nullable=tuple(text for text in selectable if text not in equivalent),
                chosen_first=selectable,
            )
        else:
            name = "ROWKEY"
            key = KeyColumn(name=name, type=left[1].type, texts=("key_0",), shown=name)
            rowkey = ScopedColumn(source="", name=name, type=left[1].type, text="key_0", is_key=True)
            columns = tuple(column for column in scope.columns if column.source)
            scope = NameScope(columns=(rowkey, *columns), sources=scope.sources)
        return RelationShape(
            step=step,
            scope=scope,
            key=(key,),
            window=left[0].window,
            sources=left[0].sources + right[0].sources,
            is_join=True,
        )


def semi_joined(
    shape: RelationShape, member: TypedText, planned: RelationShape, position: Position, *, is_in: bool
) -> RelationShape:
    """Returns the rows of `shape` whose `member` is, or is not, a key of the table `planned`. SqlError if that is no table."""
    columns = [column for column in planned.scope.columns if not column.is_pseudo]
    if len(columns) != 1:
        raise SqlError(f"a subquery of IN has one column, not {len(columns)}", position)
    text = columns[0].text
    is_keyed = len(planned.key) == 1 and text in planned.key[0].texts and planned.window is None
    if not planned.is_table or not is_keyed:
        name = columns[0].name
        raise SqlError(
            f"a subquery of IN is a table with the key {name}",
            position,
            f"Write IN (SELECT {name} FROM … GROUP BY {name}), which makes one.",
        )
    if columns[0].type != member.type:
        raise SqlError(f"IN compares {member.type} with {columns[0].type}", position, "Write a CAST.")
    way: JoinWay = "inner" if is_in else "left"
    step: Step
    if shape.window is not None:
        step = _windows_with_table(shape, member, planned.step, way)
    elif shape.is_table:
        on = None if _is_key(shape, member) else member.text
        step = JoinStep(inputs=(shape.step, planned.step), way=way, on=on)
    else:
        step = JoinStep(inputs=(_by(shape, member), planned.step), way=way)
    if not is_in:
        absent = f"({member.text}) is not null and `{text}` is null"
        step = FilterStep(inputs=(step,), condition=absent, written="NOT IN (SELECT …)")
    if not shape.is_table and shape.window is None and not _is_key(shape, member):
        own_key = tuple(column.texts[0] for column in shape.key)
        written = ", ".join(column.shown for column in shape.key) or "NULL"
        step = RekeyStep(inputs=(step,), key=own_key, keeps_null=True, written=written)
    return replace(shape, step=step, sources=shape.sources + planned.sources)


def _is_key(shape: RelationShape, on: TypedText) -> bool:
    return len(shape.key) == 1 and on.text in shape.key[0].texts


def _is_named(shape: RelationShape, on: TypedText) -> bool:
    return len(shape.key) == 1 and on.text in shape.key[0].chosen


def _index_in_key(shape: RelationShape, on: TypedText) -> int | None:
    """Returns which column of a key it is."""
    return next((index for index, column in enumerate(shape.key) if on.text in column.texts), None)


def _windows_with_table(windowed: RelationShape, on: TypedText, table: Step, way: JoinWay) -> JoinStep:
    """Returns the join of a windowed relation with a table. `on` is the table's key as a text of the windowed side."""
    inputs, key_index = (windowed.step, table), _index_in_key(windowed, on)
    if key_index is None or not windowed.is_table:
        return JoinStep(inputs=inputs, way=way, on=on.text, window=windowed.window)
    # A tombstone has the columns of the key only.
    return JoinStep(inputs=inputs, way=way, on=f"key_{key_index}", window=windowed.window, of_key=True)


def _refuse_other_windows(left: RelationShape, right: RelationShape, position: Position) -> None:
    """Windows are joined when they begin and end at the same time."""
    if left.window is None or right.window is None or left.window.size_ms == right.window.size_ms:
        return
    described = [
        f"{' and '.join(shape.scope.sources)} has {_written_window(window)}"
        for shape, window in ((left, left.window), (right, right.window))
    ]
    raise SqlError(
        f"Incompatible windowed sources: {' and '.join(described)}, so that no two windows are the same",
        position,
        "Group both in the same WINDOW.",
    )


def _written_window(window: WindowInfo) -> str:
    return "sessions" if window.size_ms is None else f"windows of {window.size_ms} milliseconds"


def _refuse_stream_without_window(left: RelationShape, right: RelationShape, position: Position) -> None:
    """Refuses a join of a windowed side with a stream that has no window."""
    windowed, other = (left, right) if right.window is None else (right, left)
    if other.is_table:
        return
    names = tuple(" and ".join(shape.scope.sources) for shape in (windowed, other))
    if windowed.is_table:
        hint = f"GROUP {names[1]} BY its key in the same WINDOW, and join the two tables."
    else:
        hint = f"Make a table of {names[1]}, with LATEST_BY_OFFSET(…) and GROUP BY, and join that."
    raise SqlError(
        f"a record of {names[1]} is in no window, so that it has none in common with {names[0]}",
        position,
        hint,
    )


def _by(shape: RelationShape, on: TypedText) -> Step:
    """Returns the stream by the expression that it is joined on."""
    if _is_key(shape, on):
        return shape.step
    if shape.window is not None:
        raise SqlError("a windowed source is joined by its key only")
    return RekeyStep(inputs=(shape.step,), key=(on.text,), keeps_null=False, written=on.text)


def _needs_primary_key(side: JoinSide, position: Position, kind: str) -> None:
    if not _is_key(*side):
        named = ", ".join(column.name for column in side[0].key)
        raise SqlError(
            f"Invalid join condition: {kind} joins require to join on the primary key of the right table",
            position,
            f"Its primary key is {named}.",
        )
