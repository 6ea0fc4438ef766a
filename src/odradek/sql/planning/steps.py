"""The steps of a query, its logical plan: values, which `building.py` turns into operators of `odradek.streams`.

Columns are Spark's columns. The key of every frame has the columns `key_0`, `key_1` …, and `window_start`, `window_end` if it
is windowed. The columns of a value are in upper case, so that none of them hides one of the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from odradek.sql.functions import FunctionLibrary
from odradek.sql.metastore.catalog import SqlSource
from odradek.values.formats.format_info import WindowInfo
from odradek.values.rows import SqlValue
from odradek.values.types import BOOLEAN, SqlType

HAS_VALUE: Final = "__value is not null"
NO_COLUMN: Final = "NOTHING_"
"""The column of a value that has none."""


class NamedColumn(NamedTuple):
    """A column that is computed: its name in Spark, and Spark SQL."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a logical plan. `inputs` are the steps that it reads; `is_table` is whether it makes a table."""

    inputs: tuple[Step, ...] = ()

    @property
    def is_table(self) -> bool:
        return self.inputs[0].is_table

    @property
    def has_state(self) -> bool:
        return False

    def shown(self) -> str:
        """Returns the step's text for EXPLAIN."""
        return type(self).__name__.removesuffix("Step")


class PlannedSteps:
    """The steps of a query while it is planned: those that no other reads yet, and what is planned next. EXPLAIN of a refused
    query shows them.
    """

    def __init__(self) -> None:
        self.ends: list[Step] = []
        self.next = ""

    def add(self, step: Step) -> None:
        """Adds a step in place of those that it reads, and of another one that reads the same."""
        read = list(step.inputs)
        for inner in read:
            read += inner.inputs
        self.ends = [
            end
            for end in self.ends
            if all(end is not inner for inner in read) and not (end.inputs and end.inputs is step.inputs)
        ]
        self.ends.append(step)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep(Step):
    """A topic. `value`: the columns of the frame, over the source's own."""

    source: SqlSource
    value: tuple[NamedColumn, ...]

    @property
    def is_table(self) -> bool:
        return self.source.is_table

    def shown(self) -> str:
        return f"read {self.source.kind} {self.source.name} from topic {self.source.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterStep(Step):
    condition: str
    written: str

    def shown(self) -> str:
        return f"filter {self.written}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectStep(Step):
    value: tuple[NamedColumn, ...]

    def shown(self) -> str:
        return f"select {', '.join(column.name for column in self.value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RekeyStep(Step):
    """Gives each record another key. `key` is empty for no key. With `keeps_null`, records whose key is null are emitted,
    too, and several parts that are null are a key.
    """

    key: tuple[str, ...]
    keeps_null: bool
    written: str

    def shown(self) -> str:
        return f"partition by {self.written}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodeStep(Step):
    """Makes one record for each element of arrays. `arrays` has a column for each, side by side, null where one is shorter;
    `carried` are the other columns."""

    carried: tuple[str, ...]
    arrays: tuple[NamedColumn, ...]

    def shown(self) -> str:
        return f"explode {', '.join(column.name for column in self.arrays)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """A call of an aggregate function. `arguments` are columns of the frame before it; `result` is the column of its result."""

    name: str
    kinds: tuple[SqlType, ...]
    constants: tuple[SqlValue, ...]
    arguments: tuple[str, ...]
    result: str
    returns: SqlType


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStep:
    """A step that puts records into windows.

    `retention_ms`: how long after its start, of a session after its end, a window is kept.
    """

    kind: Literal["tumbling", "hopping", "session"]
    size_ms: int
    advance_ms: int | None
    grace_ms: int
    retention_ms: int
    final: bool

    @property
    def info(self) -> WindowInfo:
        if self.kind == "session":
            return WindowInfo(kind=self.kind, size_ms=None, held_ms=self.retention_ms)
        return WindowInfo(kind=self.kind, size_ms=self.size_ms, held_ms=self.retention_ms - self.size_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateStep(Step):
    """A step that aggregates the rows of each key.

    `key`: columns, none of which may be null.
    """

    key: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    window: WindowStep | None
    functions: FunctionLibrary
    written: str

    @property
    def is_table(self) -> bool:
        return True

    @property
    def has_state(self) -> bool:
        return True

    def shown(self) -> str:
        window = "" if self.window is None else f", {self.window.kind} window of {self.window.size_ms} ms"
        calls = ", ".join(call.name for call in self.calls) or "the key"
        return f"aggregate {calls} by {self.written}{window}"


JoinWay: TypeAlias = Literal["inner", "left", "outer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStep(Step):
    """A join of two inputs, whose keys are equal, or where `on` is the right side's key as a column of the left (a foreign
    key).

    `within`: before, after and grace in ms, for two streams. `window`: of the left side, where the right one has none.
    `of_key`: `on` is a column of the left side's key."""

    way: JoinWay
    on: str | None = None
    within: tuple[int, int, int] | None = None
    window: WindowInfo | None = None
    of_key: bool = False

    @property
    def has_state(self) -> bool:
        return True

    def shown(self) -> str:
        left, right = ("table" if side.is_table else "stream" for side in self.inputs)
        if self.window is not None:
            by = "a part of its key" if self.of_key else "another column"
            held_ms = self.window.held_ms if self.of_key else None
            held = "" if held_ms is None else f", windows held {held_ms} ms after their end"
            return f"{self.way} join of windowed {left} and {right} by {by}{held}"
        foreign = "" if self.on is None else " by foreign key"
        return f"{self.way} join of {left} and {right}{foreign}"


class OutputColumn(NamedTuple):
    """A column of a query's output.

    `name`: of ksqlDB; `column`: of the frame.
    """

    name: str
    column: str
    type: SqlType


def value_or_nothing(columns: tuple[NamedColumn, ...]) -> tuple[NamedColumn, ...]:
    """A value has at least one column."""
    return columns or (NamedColumn(NO_COLUMN, "true"),)


NOTHING: Final = OutputColumn(NO_COLUMN, NO_COLUMN, BOOLEAN)
