"""A document as a program of `odradek.streams` whose processors run without Spark: a few milliseconds instead of a second.

The language, the plan and the processors are the real ones. What `translation/` makes of them with Spark SQL is done
here in Python, so this finds faults of processors; faults of the translation show through Spark (`ours.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import Any, NamedTuple, TypeAlias

from tests.streams.oracle import sql
from tests.streams.oracle.comparison import Outputs
from tests.streams.oracle.generator import Document
from tests.streams.oracle.ours import build, emit_of

from odradek.streams import Streams
from odradek.streams.plan import keyed, operators
from odradek.streams.plan.event_order import SIDE_TURNS, TABLE_TURN, EventOrder, Reading
from odradek.streams.plan.windows import SlidingWindows, WindowKind
from odradek.streams.processors.aggregate import (
    AggregateProcessor,
    ByPort,
    CalledFunction,
    CogroupFold,
    Fold,
    PythonFold,
    SqlFold,
)
from odradek.streams.processors.foreign_keys import ForeignKeyProcessor
from odradek.streams.processors.joins import LatestProcessor, StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.ports import InputRow, KeyedProcessor, UpdateRow
from odradek.streams.processors.stream_joins import StreamStreamProcessor
from odradek.streams.processors.task import MemoryStore, latest_only, run_batch
from odradek.streams.processors.versions import VersionedJoinProcessor, VersionedProcessor
from odradek.streams.processors.windows import WindowProcessor, open_windows
from odradek.streams.translation.translator import (
    operators_with_old_values,
    repartitions_with_null_keys,
)

Fields: TypeAlias = dict[str, Any] | None


class DirectRow(NamedTuple):
    """A row of a frame of `translation/`."""

    key: Fields
    value: Fields
    old: Fields
    timestamp: int
    order: list[int]
    latest: bool = True


class DirectFrame(NamedTuple):
    """`old`: rows know what they replace."""

    rows: list[DirectRow]
    old: bool = False


PortRows: TypeAlias = list[tuple[Fields, Any, DirectRow]]
"""Key and payload of each row."""


@dataclass(frozen=True)
class Ways:
    """What makes some of the processors: ours, or others for comparison."""

    windows: Callable[..., KeyedProcessor]
    versions: Callable[[int], KeyedProcessor]
    versioned_join: Callable[..., KeyedProcessor]


def _our_windows(kind: WindowKind, fold: Fold, *, final: bool) -> KeyedProcessor:
    return WindowProcessor(open_windows(kind, fold), fold, final=final)


OUR_WAYS = Ways(windows=_our_windows, versions=VersionedProcessor, versioned_join=VersionedJoinProcessor)


class DirectProgram:
    """A program with its state, which goes on from batch to batch, or from what an earlier one has `saved`."""

    def __init__(
        self,
        document: Document,
        state: dict[str, dict[bytes, bytes]] | None = None,
        *,
        ways: Ways = OUR_WAYS,
    ) -> None:
        self._ways = ways
        app = Streams(f"program-{document['seed']}", emit=emit_of(document))
        self._topics = build(app, document)
        self._ends = app.program.ends
        self._wants_old = operators_with_old_values(self._ends)
        self._keep_null_keys = repartitions_with_null_keys(self._ends)
        self._state: dict[str, dict[bytes, bytes]] = {} if state is None else state
        self._fed: list[tuple[int, Any]] = []
        self._events = EventOrder(self._ends)
        self._reading: Reading = "written"
        self._frames: dict[tuple[operators.Operator, Reading], DirectFrame] = {}

    def batch(self, inputs: Sequence[Any], first: int = 0) -> Outputs:
        """What is written for these records, of which the first is number `first`."""
        self._fed = list(enumerate(inputs, start=first))
        self._frames = {}
        written: Outputs = {topic: [] for topic in self._topics}
        for sink in self._ends:
            assert isinstance(sink, operators.TopicSink)
            assert sink.topic is not None
            rows = sorted(self._frame(sink.inputs[0]).rows, key=lambda row: row.order)
            written[sink.topic] += [[_plain_key(row.key), _plain(row.value), row.timestamp] for row in rows]
        return written

    def saved(self) -> dict[str, dict[bytes, bytes]]:
        """A copy of all state."""
        return {name: dict(data) for name, data in self._state.items()}

    def _frame(self, operator: operators.Operator, asked: Reading = "written") -> DirectFrame:
        reading = self._events.reading(operator, asked)
        frame = self._frames.get((operator, reading))
        if frame is None:
            reader, self._reading = self._reading, reading
            frame = self._frames[operator, reading] = self._made(operator)
            self._reading = reader
        return frame

    def _inputs(self, operator: operators.Operator) -> list[DirectFrame]:
        ways = self._events.ways(operator, self._reading)
        return [_moved_on(self._frame(way.source, way.reading), way.steps, way.hops) for way in ways]

    def _run(
        self,
        name: str,
        processor: KeyedProcessor,
        *ports: PortRows,
        turns: Sequence[int] = (0, 1, 2, 3),
        old: tuple[int, ...] | None = None,
    ) -> list[tuple[list[int], UpdateRow]]:
        store = MemoryStore()
        store.data = self._state.setdefault(f"{name} {self._reading}", {})
        rows = [
            InputRow(number, key, payload, row.timestamp, None, [*row.order, *([turn] * (len(ports) > 1))])
            for number, (turn, port) in enumerate(zip(turns, ports, strict=False))
            for key, payload, row in port
        ]
        updates = run_batch(processor, store, rows)
        return list(updates if old is None else latest_only(updates, old))

    def _says_latest(self, operator: operators.Operator) -> bool:
        return getattr(operator, "emit", None) == "latest" and self._reading == "written"

    @singledispatchmethod
    def _made(self, operator: operators.Operator) -> DirectFrame:
        raise NotImplementedError(type(operator).__name__)

    # --- without state

    @_made.register
    def _(self, operator: operators.TopicSource) -> DirectFrame:
        steps = self._events.source_steps(operator)
        rows = [
            DirectRow(
                _struct("key", key),
                _struct("value", _fields(value)),
                None,
                at,
                [number, 0, 0, number, 0, *steps],
            )
            for number, (topic, key, value, at) in self._fed
            if topic == operator.topic
        ]
        if operator.versioned_ms is not None:
            port = _by_key([row for row in rows if row.key is not None])
            updates = self._run(operator.name, self._ways.versions(operator.versioned_ms), port)
            return DirectFrame([_row(order, update) for order, update in updates], old=True)
        return self._changelog(operator, operator.name, rows) if operator.table else DirectFrame(rows)

    def _changelog(self, operator: operators.Operator, name: str, rows: list[DirectRow]) -> DirectFrame:
        rows = [row for row in rows if row.key is not None]
        if operator not in self._wants_old:
            return DirectFrame(rows)
        updates = self._run(name, LatestProcessor(), _by_key(rows))
        return DirectFrame([_row(order, update) for order, update in updates], old=True)

    @_made.register
    def _(self, operator: operators.Filtered) -> DirectFrame:
        (frame,) = self._inputs(operator)

        def holds(row: DirectRow, value: Fields) -> bool:
            seen = _seen(row, value)
            first = bool(_of(operator.condition, seen)) != operator.negated
            return first and not any(_of(condition, seen) for condition in operator.unless)

        if not operator.is_table:
            return DirectFrame([row for row in frame.rows if holds(row, row.value)])
        rows = [
            row._replace(
                value=row.value if row.value is not None and holds(row, row.value) else None,
                old=row.old if row.old is not None and holds(row, row.old) else None,
            )
            for row in frame.rows
        ]
        if frame.old and operator in self._wants_old and operators.history_of(operator) is None:
            rows = [row for row in rows if row.value is not None or row.old is not None]
        return DirectFrame(rows, old=frame.old)

    @_made.register
    def _(self, operator: operators.Selected) -> DirectFrame:
        (frame,) = self._inputs(operator)
        rows = []
        for row in frame.rows:
            seen = _seen(row, row.value)
            if operator.key is not None:
                row = row._replace(key=_struct("key", _of(operator.key[0], seen)))
            if operator.value is not None:
                made = _struct("value", _of(operator.value[0], seen))
                row = row._replace(value=None if operator.is_table and row.value is None else made)
                if row.old is not None:
                    row = row._replace(old=_struct("value", _of(operator.value[0], _seen(row, row.old))))
            rows.append(row)
        return DirectFrame(rows, old=frame.old)

    @_made.register
    def _(self, operator: operators.Exploded) -> DirectFrame:
        (frame,) = self._inputs(operator)
        return DirectFrame(
            [
                row._replace(value=element, order=[*row.order, place])
                for row in frame.rows
                for place, element in enumerate(_of(operator.elements, _seen(row, row.value)) or ())
            ]
        )

    @_made.register
    def _(self, operator: operators.Merged) -> DirectFrame:
        return DirectFrame(
            [
                row._replace(order=[*row.order, number])
                for number, frame in enumerate(self._inputs(operator))
                for row in frame.rows
            ]
        )

    @_made.register
    def _(self, operator: operators.Repartitioned) -> DirectFrame:
        (frame,) = self._inputs(operator)
        if operator in self._keep_null_keys:
            return frame
        return DirectFrame([row for row in frame.rows if row.key is not None])

    @_made.register
    def _(self, operator: operators.AsStream) -> DirectFrame:
        (frame,) = self._inputs(operator)
        return DirectFrame([row._replace(old=None) for row in frame.rows])

    @_made.register
    def _(self, operator: operators.AsTable) -> DirectFrame:
        (frame,) = self._inputs(operator)
        return self._changelog(operator, operator.name, frame.rows)

    # --- aggregates

    @_made.register
    def _(self, operator: keyed.Aggregated) -> DirectFrame:
        (frame,) = self._inputs(operator)
        (aggregate,) = operator.aggregates
        function = "sum" if aggregate == sql.SUMMED else "count"
        call = CalledFunction(
            function=function, arguments=("argument",), constants=(), out="value", removable=frame.old
        )

        def arguments(row: DirectRow, value: Fields) -> Any:
            return {"argument": _of(aggregate, _seen(row, value)) if function == "sum" else True}

        made = self._fold(operator, frame, SqlFold((call,)), arguments)
        if function == "count":
            return made
        return DirectFrame(
            [row._replace(value=_or_zero(row.value), old=_or_zero(row.old)) for row in made.rows], old=True
        )

    @_made.register
    def _(self, operator: keyed.Folded) -> DirectFrame:
        (frame,) = self._inputs(operator)
        fold = PythonFold(
            start=operator.start,
            add=operator.add,
            subtract=operator.subtract,
            merge=operator.merge,
            bare_key="key",
            bare_value="value",
            bare_result="value",
        )
        return self._fold(operator, frame, fold, lambda _, value: value or {"value": None})

    def _fold(
        self,
        operator: keyed.Aggregated | keyed.Folded,
        frame: DirectFrame,
        fold: Fold,
        arguments: Callable[[DirectRow, Fields], Any],
    ) -> DirectFrame:
        port: PortRows = []
        for row in frame.rows:
            if frame.old and row.latest:
                port += _table_changes(operator, row, arguments)
            if frame.old:
                continue
            key = _key(operator.key, row, row.value)
            takes_nulls = operator.window is not None and not isinstance(operator.window, SlidingWindows)
            if key is not None and (row.value is not None or takes_nulls):
                port.append((key, {"new": arguments(row, row.value), "old": None}, row))
        return self._folded(operator, fold, port)

    def _folded(
        self, operator: keyed.Aggregated | keyed.Folded | keyed.Cogrouped, fold: Fold, *ports: PortRows
    ) -> DirectFrame:
        processor: KeyedProcessor = AggregateProcessor(fold)
        if operator.window is not None:
            processor = self._ways.windows(operator.window, fold, final=operator.final)
        if isinstance(operator, keyed.Cogrouped):
            processor = ByPort(processor)
        old = (1,) if self._says_latest(operator) else None
        updates = self._run(operator.name, processor, *ports, old=old)
        return DirectFrame([_row(order, update) for order, update in updates], old=True)

    @_made.register
    def _(self, operator: keyed.Cogrouped) -> DirectFrame:
        takes_nulls = operator.window is not None and not isinstance(operator.window, SlidingWindows)
        ports = [
            [
                (row.key, row.value, row)
                for row in frame.rows
                if row.key is not None and (row.value is not None or takes_nulls)
            ]
            for frame in self._inputs(operator)
        ]
        fold = CogroupFold(
            start=operator.start,
            adders=operator.adders,
            merge=operator.merge,
            bare_key="key",
            bare_values=("value",) * len(ports),
            bare_result="value",
        )
        return self._folded(operator, fold, *ports)

    # --- joins

    @_made.register
    def _(self, operator: keyed.StreamTableJoin) -> DirectFrame:
        stream, table = self._inputs(operator)
        left: PortRows = [
            (_key(operator.on, row, row.value), {"key": row.key, "value": row.value}, row)
            for row in stream.rows
        ]
        history_ms = operators.history_of(operator.inputs[1])
        processor: KeyedProcessor = StreamTableProcessor(operator.kind)
        if history_ms is not None:
            processor = self._ways.versioned_join(
                operator.kind, history_ms=history_ms, grace_ms=operator.grace_ms
            )
        updates = self._run(operator.name, processor, left, _by_key(table.rows), turns=(0, TABLE_TURN))
        return _joined(operator, updates)

    @_made.register
    def _(self, operator: keyed.TableTableJoin) -> DirectFrame:
        left, right = map(_latest_versions, self._inputs(operator))
        updates = self._run(
            operator.name,
            TableTableProcessor(operator.kind),
            _by_key(left.rows),
            _by_key(right.rows),
            turns=SIDE_TURNS if self._reading == "stored" else (0, 1),
            old=(2, 3) if self._says_latest(operator) else None,
        )
        return _joined(operator, updates)

    @_made.register
    def _(self, operator: keyed.StreamStreamJoin) -> DirectFrame:
        left, right = self._inputs(operator)
        processor = StreamStreamProcessor(
            operator.kind,
            before_ms=operator.before_ms,
            after_ms=operator.after_ms,
            grace_ms=operator.grace_ms,
        )
        return _joined(operator, self._run(operator.name, processor, _by_key(left.rows), _by_key(right.rows)))

    @_made.register
    def _(self, operator: keyed.ForeignKeyJoin) -> DirectFrame:
        left, right = map(_latest_versions, self._inputs(operator))
        references: PortRows = []
        for row in left.rows:
            for place, (by, said) in enumerate(_references(operator, row)):
                payload = {"key": row.key, "value": row.value, "instruction": said}
                references.append((by, payload, row._replace(order=[*row.order, place])))
        updates = self._run(
            operator.name, ForeignKeyProcessor(operator.kind), references, _by_key(right.rows)
        )
        joined = _moved_on(_joined(operator, updates), (), self._events.answer_hops(operator))
        return self._changelog(operator, f"{operator.name}-old", joined.rows)


def answers(documents: list[Document]) -> list[Outputs | str]:
    """What our processors say to each, or the error that they raised."""
    made: list[Outputs | str] = []
    for document in documents:
        try:
            made.append(DirectProgram(document).batch(document["inputs"]))
        except Exception as problem:  # noqa: BLE001 a program that fails is a finding, and the others go on
            made.append(f"{type(problem).__name__}: {str(problem)[:400]}")
    return made


def _moved_on(frame: DirectFrame, steps: tuple[int, ...], hops: int = 0) -> DirectFrame:
    """Does what `frames.moved_on` does, row by row."""

    def order(row: DirectRow) -> list[int]:
        return [*row.order[:4], row.order[4] + hops, *row.order[5:], *steps]

    return frame._replace(rows=[row._replace(order=order(row)) for row in frame.rows])


def _struct(name: str, content: Any) -> Fields:
    return None if content is None else {name: content}


def _fields(value: Any) -> Any:
    return None if value is None else {"tag": value[0], "n": value[1]}


def _plain(value: Fields) -> Any:
    return None if value is None else [value["value"]["tag"], value["value"]["n"]]


def _plain_key(key: Fields) -> Any:
    if key is None:
        return None
    return key["key"] if len(key) == 1 else [key["key"], key["window_start"], key["window_end"]]


def _seen(row: DirectRow, value: Fields) -> dict[str, Any]:
    return {**(row.key or {}), **(value or {})}


def _of(expression: Any, seen: dict[str, Any]) -> Any:
    """What an expression of a document, or one that the language itself adds, makes of these columns."""
    if isinstance(expression, sql.TwinExpression):
        return expression.of(seen)
    return {"true": True}[expression]


def _key(by: Sequence[Any] | None, row: DirectRow, value: Fields) -> Fields:
    return row.key if by is None else _struct("key", _of(by[0], _seen(row, value)))


def _by_key(rows: list[DirectRow]) -> PortRows:
    return [(row.key, row.value, row) for row in rows]


def _latest_versions(frame: DirectFrame) -> DirectFrame:
    return frame._replace(rows=[row for row in frame.rows if row.latest])


def _row(order: list[int], update: UpdateRow) -> DirectRow:
    value, old, *latest = update.values
    return DirectRow(update.key, value, old, update.timestamp, order, *latest)


def _or_zero(value: Fields) -> Fields:
    return None if value is None else {"value": value["value"] or 0}


def _table_changes(
    operator: keyed.Aggregated | keyed.Folded, row: DirectRow, arguments: Callable[[DirectRow, Fields], Any]
) -> PortRows:
    """An update takes the old value back under its old key, and adds the new one under its new key."""
    new_by, old_by = (
        None if value is None else _key(operator.key, row, value) for value in (row.value, row.old)
    )
    new, old = (None if value is None else arguments(row, value) for value in (row.value, row.old))
    if new_by is not None and new_by == old_by:
        changes = [(new_by, {"new": new, "old": old})]
    else:
        changes = [(old_by, {"new": None, "old": old}), (new_by, {"new": new, "old": None})]
    return [
        (key, payload, row._replace(order=[*row.order, place]))
        for place, (key, payload) in enumerate(changes)
        if key is not None
    ]


def _references(operator: keyed.ForeignKeyJoin, row: DirectRow) -> list[tuple[Fields, str]]:
    """As the translation: what an update says to the foreign key that it had, and to the one that it has."""
    here, was = row.value is not None, row.old is not None
    new = _key(operator.on, row, row.value) if here else None
    old = _key(operator.on, row, row.old) if was else None
    left, same = operator.kind == "left", new == old
    moved = here and was and not same
    gone = not here or (moved and new is None and not left)
    said = [
        (old, "leave", moved and old is not None and (new is not None or left)),
        (old, "delete", was and gone and (old is not None or left)),
        (new, "move", moved and old is not None and new is not None),
        (new, "keep", here and (not was or same or old is None) and new is not None),
        (new, "keep", here and new is None and left),
    ]
    return [(by, word) for by, word, when in said if when]


def _joined(operator: Any, updates: list[tuple[list[int], UpdateRow]]) -> DirectFrame:
    """The joined value in place of both sides."""
    (expression,) = operator.value

    def value(left: Fields, right: Fields) -> Fields:
        sides = (left is not None, right is not None)
        here = {"inner": all(sides), "left": sides[0], "outer": any(sides)}[operator.kind]
        seen = {"value": (left or {}).get("value"), "r_value": (right or {}).get("value")}
        return _struct("value", _of(expression, seen)) if here else None

    has_old = bool(updates) and len(updates[0][1].values) == 4
    rows = [
        DirectRow(
            update.key,
            value(*update.values[:2]),
            value(*update.values[2:]) if has_old else None,
            update.timestamp,
            order,
        )
        for order, update in updates
    ]
    return DirectFrame(rows, old=isinstance(operator, keyed.TableTableJoin))
