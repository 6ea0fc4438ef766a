"""Operators with state: each task keeps what it needs of the keys that are its own."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.streams.plan.operators import Emit, Expression, JoinKind, Operator
from odradek.streams.plan.user_code import (
    AggregateChange,
    Aggregator,
    Fold,
    Initializer,
    Merger,
    RecordProcessor,
)
from odradek.streams.plan.windows import TimeLimit, WindowKind, duration


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedOperator(Operator):
    """Keys are divided among tasks, and each task keeps what it needs of its own."""

    @property
    def has_state(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aggregated(KeyedOperator):
    """One value for each key. `key` None: the records' own. `window` None: of all time."""

    key: tuple[Expression, ...] | None
    aggregates: tuple[Expression, ...]
    emit: Emit
    window: WindowKind | None = None
    final: bool = False

    @property
    def is_table(self) -> bool:
        return True

    def details(self) -> str:
        parts = [", ".join(map(str, self.aggregates))]
        if self.key is not None:
            parts.append(f"by {', '.join(map(str, self.key))}")
        if self.window is not None:
            parts.append(str(self.window))
        return ", ".join([*parts, "final results" if self.final else f"emit {self.emit}"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Folded(KeyedOperator):
    """An aggregation by functions in Python. `start` None: the first value of a key is its first aggregate (reduce)."""

    key: tuple[Expression, ...] | None
    start: Initializer | None
    add: AggregateChange
    subtract: AggregateChange | None
    merge: Merger | None
    schema: str | None
    emit: Emit
    window: WindowKind | None = None
    final: bool = False

    @property
    def is_table(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldedBy(KeyedOperator):
    """An aggregation by a fold that is a value. `schema`: the fields of its results."""

    key: tuple[Expression, ...] | None
    fold: Fold
    schema: str
    emit: Emit
    window: WindowKind | None = None
    final: bool = False

    @property
    def is_table(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamTableJoin(KeyedOperator):
    """A join of a stream and a table. Joins each record of the stream with the table's row at that time. `grace_ms`, with a
    versioned table: how long records wait for versions that come late.
    """

    kind: JoinKind
    on: tuple[Expression, ...] | None
    prefix: str
    value: tuple[Expression, ...] | None
    grace_ms: int | None = None

    def details(self) -> str:
        on = "" if self.on is None else f", on {', '.join(map(str, self.on))}"
        return f"{self.kind}{on}" + ("" if self.grace_ms is None else f", grace {self.grace_ms} ms")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableTableJoin(KeyedOperator):
    """A join of two tables with the same key."""

    kind: JoinKind
    prefix: str
    value: tuple[Expression, ...] | None
    emit: Emit

    @property
    def is_table(self) -> bool:
        return True

    def details(self) -> str:
        return f"{self.kind}, emit {self.emit}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StreamStreamJoin(KeyedOperator):
    """A join of two streams by key. A right record matches from `before_ms` before a left one to `after_ms` after."""

    kind: JoinKind
    before_ms: int
    after_ms: int
    grace_ms: int
    prefix: str
    value: tuple[Expression, ...] | None

    def details(self) -> str:
        return (
            f"{self.kind}, from {duration(self.before_ms)} before to {duration(self.after_ms)} after,"
            f" grace {duration(self.grace_ms)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suppressed(KeyedOperator):
    """A table's updates, held back for a time."""

    until: TimeLimit

    @property
    def is_table(self) -> bool:
        return True

    def details(self) -> str:
        return str(self.until)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignKeyJoin(KeyedOperator):
    """A join of two tables. `on`: the part of a left row that is the right table's key."""

    kind: JoinKind
    on: tuple[Expression, ...]
    prefix: str
    value: tuple[Expression, ...] | None

    @property
    def is_table(self) -> bool:
        return True

    def details(self) -> str:
        return f"{self.kind}, on {', '.join(map(str, self.on))}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowTableJoin(ForeignKeyJoin):
    """A join of a windowed table with one that is not windowed. `on` reads the left key only: a window refers to one right
    row for good.

    `held_ms` is how long after its end a window is held; None: until its tombstone."""

    held_ms: int | None

    def details(self) -> str:
        held = "" if self.held_ms is None else f", windows held {duration(self.held_ms)}"
        return f"{self.kind}, on {', '.join(map(str, self.on))}{held}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Processed(KeyedOperator):
    """A processor of the user's. `key` None: the records' own. `outputs`: names and schemas; a single one has no name."""

    key: tuple[Expression, ...] | None
    processor: RecordProcessor
    outputs: tuple[tuple[str, str], ...]

    def details(self) -> str:
        listed = "; ".join(f"{name or 'value'} {schema}" for name, schema in self.outputs)
        return f"{type(self.processor).__name__}, {listed}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProcessorOutput(Operator):
    """One of several outputs of a processor."""

    output: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cogrouped(KeyedOperator):
    """Several streams, each with its own way to add to one aggregate. `keys` and `adders`: one of each input."""

    keys: tuple[tuple[Expression, ...] | None, ...]
    adders: tuple[Aggregator, ...]
    start: Initializer
    merge: Merger | None
    schema: str
    emit: Emit
    window: WindowKind | None = None
    final: bool = False

    @property
    def is_table(self) -> bool:
        return True
