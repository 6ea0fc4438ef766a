"""Operators: the nodes of a plan. Each knows its name and its inputs; what it does on Spark is decided in `translation/`.

A name is given by the user, or made of the kind and a number in the order in which a program makes its operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from odradek.model.errors import ConfigError
from odradek.streams.plan.schemas import DeclaredSchema, Format

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Expression: TypeAlias = "str | Column"
"""Spark SQL, or a Column."""
Emit: TypeAlias = Literal["every", "latest"]
JoinKind: TypeAlias = Literal["inner", "left", "outer"]
_SEQUENCE: Final = count()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """A node. Two nodes are never equal: their place in the plan tells them apart."""

    name: str
    inputs: tuple[Operator, ...] = ()
    built: int = field(default_factory=lambda: next(_SEQUENCE), repr=False)
    """Its number among all operators, in the order in which they are made."""

    @property
    def is_table(self) -> bool:
        return False

    @property
    def has_state(self) -> bool:
        """Does it keep something of its records?"""
        return False

    def details(self) -> str:
        """Returns the text of `describe()` after the name."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicSource(Operator):
    """Records of a topic: a stream, or a table's changelog."""

    topic: str
    key: DeclaredSchema
    value: DeclaredSchema
    table: bool = False
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timestamp: Expression | None = None
    """Milliseconds; in place of the record's timestamp."""
    bad: str | None = None
    """The topic for records that cannot be decoded."""
    skips_negative_times: bool = False
    """Records whose timestamp is negative are left out, as those are that cannot be decoded."""
    versioned_ms: int | None = None
    """A table: how long it remembers what was true. None: it knows what is true now."""
    everywhere: bool = False
    """A table: every task has all of it."""

    @property
    def is_table(self) -> bool:
        return self.table

    def details(self) -> str:
        versioned = "" if self.versioned_ms is None else f", versions of {self.versioned_ms} ms"
        everywhere = ", whole in every task" if self.everywhere else ""
        return f"topic {self.topic}, key {self.key.text}, value {self.value.text}{versioned}{everywhere}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameSource(Operator):
    """A DataFrame of the user's. `timestamp` is in milliseconds."""

    frame: DataFrame
    key: tuple[Expression, ...]
    value: tuple[Expression, ...]
    timestamp: Expression


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filtered(Operator):
    condition: Expression
    negated: bool = False
    unless: tuple[Expression, ...] = ()
    """Conditions of earlier branches: none of them may hold."""

    @property
    def is_table(self) -> bool:
        return self.inputs[0].is_table

    def details(self) -> str:
        return f"{'not ' if self.negated else ''}{self.condition}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selected(Operator):
    """New key columns, new value columns, or both. None: they stay. `key_keeps_nulls`: several key columns that are all null
    are a key. `null_value_stays`: a value that is null stays null, whatever its columns would be.
    """

    value: tuple[Expression, ...] | None = None
    null_value_stays: bool = False
    key: tuple[Expression, ...] | None = None
    key_keeps_nulls: bool = False
    timestamp: Expression | None = None

    @property
    def is_table(self) -> bool:
        return self.inputs[0].is_table

    def details(self) -> str:
        parts = [] if self.key is None else [f"key {_text(self.key)}"]
        return ", ".join(parts + ([] if self.value is None else [f"value {_text(self.value)}"]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exploded(Operator):
    """One record for each element of an array."""

    elements: Expression

    def details(self) -> str:
        return str(self.elements)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Merged(Operator):
    """An operator that emits all records of all inputs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Peeked(Operator):
    """An operator that calls a function with each record.

    `look` is called with each record, in the tasks; the records go on unchanged.
    """

    look: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repartitioned(Operator):
    """A repartition, without a topic: Spark's shuffle divides keys among tasks where an operator needs it.

    Records without a key are dropped, unless a left or outer join follows, which can use them (KIP-962).
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AsStream(Operator):
    """A table's updates as records."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AsTable(Operator):
    """A stream's records as updates of a table. Also what gives a table its old values."""

    emit: Emit = "every"

    @property
    def is_table(self) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopicSink(Operator):
    """An operator that writes records to a topic, or to the topic that an expression names for each record."""

    topic: str | None
    topic_expression: Expression | None = None
    key_format: Format = "json"
    value_format: Format = "json"
    is_changelog: bool = False
    """The output is a table's: only the last record of each key counts."""
    query: str | None = None
    """The Spark query that writes it; None: a query of its own, with the output's name."""

    def details(self) -> str:
        query = "" if self.query is None else f", query {self.query}"
        topic = self.topic if self.topic_expression is None else f"by {self.topic_expression}"
        return f"topic {topic}{query}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Called(Operator):
    """A sink: `call` gets each record, on the driver, in batches."""

    call: Callable[[Any], Any]


def walk(*ends: Operator) -> Iterator[Operator]:
    """Yields every operator once, inputs before their readers."""
    seen: set[int] = set()
    pending = [(end, False) for end in reversed(ends)]
    while pending:
        operator, ready = pending.pop()
        if ready:
            yield operator
        elif id(operator) not in seen:
            seen.add(id(operator))
            pending.append((operator, True))
            pending.extend((source, False) for source in reversed(operator.inputs))


def history_of(operator: Operator) -> int | None:
    """Returns the history of a table, or of the one that it filters or selects, in milliseconds; None: it has none."""
    while isinstance(operator, (Filtered, Selected)) and operator.is_table:
        (operator,) = operator.inputs
    return operator.versioned_ms if isinstance(operator, TopicSource) else None


def listed(expressions: Expression | Iterable[Expression], method: str) -> tuple[Expression, ...]:
    """Returns one or several. A Column is one, though Python can iterate it."""
    several = tuple(expressions) if isinstance(expressions, (list, tuple)) else (expressions,)
    return at_least_one(several, method)


def at_least_one(expressions: tuple[object, ...], method: str) -> tuple[Any, ...]:
    """Returns the expressions that a method was given. ConfigError for none, and for what is no expression."""
    if not expressions:
        raise ConfigError(f"{method} takes at least one expression")
    return checked_expressions(expressions, method)


def checked_expressions(expressions: tuple[object, ...], method: str) -> tuple[object, ...]:
    """Returns the same expressions. ConfigError for a function, a type or a value in place of Spark SQL or a Column."""
    for expression in expressions:
        if isinstance(expression, str) and not expression.strip():
            raise ConfigError(f"{method} is empty text: write Spark SQL, such as 'amount > 10'")
        if not isinstance(expression, str) and not hasattr(expression, "alias"):
            raise ConfigError(
                f"{method} takes Spark SQL or a Column, not {_shown(expression)}{_instead(expression)}"
            )
    return expressions


def _shown(value: object) -> str:
    if isinstance(value, type):
        return f"the type {value.__name__}"
    return f"the function {value.__name__}" if hasattr(value, "__name__") else f"{value!r:.80}"


def _instead(value: object) -> str:
    """Returns what to write in place of a value that is no expression."""
    if isinstance(value, type) or not callable(value):
        return ""
    return (
        ": Spark computes expressions itself, so write 'amount > 10'; Python belongs into a processor"
        " (group_by_key().process(…)), or into Spark's udf, which makes a Column"
    )


def _text(expressions: tuple[Expression, ...]) -> str:
    return ", ".join(map(str, expressions))
