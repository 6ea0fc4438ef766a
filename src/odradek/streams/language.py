"""Streams, records that follow one another, and tables, what is true now of each key and how it changes.

Each method makes a new stream or table; nothing runs before the program is started or tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.streams.plan.keyed import (
    Aggregated,
    Cogrouped,
    Folded,
    ForeignKeyJoin,
    Processed,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
)
from odradek.streams.plan.operators import (
    AsStream,
    AsTable,
    Called,
    Emit,
    Exploded,
    Expression,
    Filtered,
    JoinKind,
    Merged,
    Operator,
    Peeked,
    Selected,
    TopicSink,
    TopicSource,
)
from odradek.streams.plan.program import Program
from odradek.streams.plan.schemas import declared
from odradek.streams.plan.windows import (
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    WindowKind,
    milliseconds,
)
from odradek.streams.processors.custom import Processor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odradek.streams import running
else:
    running = lazy("odradek.streams.running")


class Stream:
    """Records with a key, a value and a timestamp. Expressions are Spark SQL or Columns: they see the columns of the
    value, those of
    the key, `_timestamp` (milliseconds) and `_headers`.
    """

    def __init__(self, program: Program, operator: Operator) -> None:
        self._program = program
        self.operator = operator

    @property
    def df(self) -> DataFrame:
        """The stream as a streaming DataFrame: the value's columns, the key's, `_timestamp`, `_headers`."""
        return running.data_frame(self._program, self.operator)

    def _then(self, operator: Operator) -> Stream:
        return Stream(self._program, operator)

    def filter(self, condition: Expression, *, name: str | None = None) -> Stream:
        """The records for which the condition holds; null does not hold."""
        return self._filtered(condition, self._program.operator_name("filter", name))

    def _filtered(self, condition: Expression, name: str) -> Stream:
        return self._then(Filtered(name=name, inputs=(self.operator,), condition=condition))

    def filter_not(self, condition: Expression, *, name: str | None = None) -> Stream:
        """The others."""
        name = self._program.operator_name("filter", name)
        return self._then(Filtered(name=name, inputs=(self.operator,), condition=condition, negated=True))

    def select(self, *value: Expression, name: str | None = None) -> Stream:
        """A new value of these columns; the key stays (Kafka Streams: mapValues). One column called `value` is a bare value."""
        name = self._program.operator_name("select", name)
        return self._then(Selected(name=name, inputs=(self.operator,), value=_some(value, "select")))

    def select_key(self, *key: Expression, name: str | None = None) -> Stream:
        """A new key of these columns. One column is a bare key."""
        name = self._program.operator_name("select-key", name)
        return self._then(Selected(name=name, inputs=(self.operator,), key=_some(key, "select_key")))

    def map(
        self,
        *,
        key: Expression | Iterable[Expression],
        value: Expression | Iterable[Expression],
        name: str | None = None,
    ) -> Stream:
        """A new key and a new value."""
        name = self._program.operator_name("map", name)
        return self._then(Selected(name=name, inputs=(self.operator,), key=listed(key), value=listed(value)))

    def with_timestamp(self, milliseconds: Expression, *, name: str | None = None) -> Stream:
        """Another time for each record, such as `unix_millis(at)`."""
        name = self._program.operator_name("timestamp", name)
        return self._then(Selected(name=name, inputs=(self.operator,), timestamp=milliseconds))

    def flat_map(self, elements: Expression, *, name: str | None = None) -> Stream:
        """One record for each element of an array: structs become the value's columns, others a bare `value`."""
        name = self._program.operator_name("flat-map", name)
        return self._then(Exploded(name=name, inputs=(self.operator,), elements=elements))

    def split(
        self, *conditions: Expression, otherwise: bool = False, name: str | None = None
    ) -> list[Stream]:
        """A stream for each condition; a record goes to the first that holds. `otherwise`: one more, for the rest."""
        name = self._program.operator_name("split", name)
        made: list[Stream] = []
        chosen: list[Expression] = [*_some(conditions, "split"), *(["true"] if otherwise else [])]
        for number, condition in enumerate(chosen):
            made.append(
                self._then(
                    Filtered(
                        name=f"{name}-{number}",
                        inputs=(self.operator,),
                        condition=condition,
                        unless=tuple(conditions[:number]),
                    )
                )
            )
        return made

    def merge(self, *others: Stream, name: str | None = None) -> Stream:
        """The records of all of them, which have the same columns."""
        name = self._program.operator_name("merge", name)
        inputs = (self.operator, *(other.operator for other in others))
        return self._then(Merged(name=name, inputs=inputs))

    def peek(self, look: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """`look(record)` for each record, in Spark's tasks: again when Spark repeats a task."""
        name = self._program.operator_name("peek", name)
        return self._then(Peeked(name=name, inputs=(self.operator,), look=look))

    def foreach(self, call: Callable[[Any], Any], *, name: str | None = None) -> None:
        """`call(record)` for each record, on the driver. At least once."""
        name = self._program.operator_name("foreach", name)
        self._program.end(Called(name=name, inputs=(self.operator,), call=call))

    def print(self, label: str = "", *, name: str | None = None) -> None:
        """Each record on standard output."""
        self.foreach(lambda record: print(f"{label}{record.key} {record.value}"), name=name)  # noqa: T201

    def repartition(self, *, name: str | None = None) -> Stream:
        """The records that have a key, as in Kafka Streams. Spark divides keys among tasks where an operator needs it."""
        return self._filtered("__key IS NOT NULL", self._program.operator_name("repartition", name))

    def to(
        self,
        topic: str | None = None,
        *,
        by: Expression | None = None,
        key_format: str = "json",
        value_format: str = "json",
        name: str | None = None,
    ) -> None:
        """Write to a topic, or `by` an expression that names the topic of each record."""
        if (topic is None) == (by is None):
            raise ConfigError("to: give a topic, or by= an expression that names one")
        self._program.end(
            TopicSink(
                name=self._program.operator_name("to", name),
                inputs=(self.operator,),
                topic=topic,
                topic_expression=by,
                key_format=key_format,
                value_format=value_format,
            )
        )

    def to_table(self, *, name: str | None = None) -> Table:
        """The last value of each key; a null value deletes, a null key is left out."""
        name = self._program.operator_name("to-table", name)
        return Table(self._program, AsTable(name=name, inputs=(self.operator,)))

    def group_by(self, *key: Expression) -> GroupedStream:
        """Records with equal values of these. A record with a null key, or a null value, takes no part."""
        return GroupedStream(self._program, self.operator, _some(key, "group_by"))

    def group_by_key(self) -> GroupedStream:
        """Records with equal keys."""
        return GroupedStream(self._program, self.operator, None)

    @overload
    def join(
        self,
        other: Table,
        *,
        how: Literal["inner", "left"] = "inner",
        on: Expression | Iterable[Expression] | None = None,
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Stream: ...

    @overload
    def join(
        self,
        other: Stream,
        *,
        within: str | int,
        before: str | int | None = None,
        after: str | int | None = None,
        grace: str | int = 0,
        how: JoinKind = "inner",
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Stream: ...

    def join(
        self,
        other: Stream | Table,
        *,
        how: JoinKind = "inner",
        on: Expression | Iterable[Expression] | None = None,
        within: str | int | None = None,
        before: str | int | None = None,
        after: str | int | None = None,
        grace: str | int = 0,
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Stream:
        """With a table: each record with what the table holds for its key, or for `on`, at that moment, and the record's
        timestamp.

        With a stream: records of one key that are at most `within` apart; `before` and `after` say how much older or newer
        the other
        one may be. A record without match (`how`) is said when stream time is past all that could match, and the grace.

        `prefix` goes before a column of the right side whose name the left side has too. `select` makes the joined value.
        """
        value = None if select is None else listed(select)
        if isinstance(other, Stream):
            if within is None or on is not None:
                raise ConfigError(
                    "a join of two streams needs within=, such as '5 minutes', and joins by key: no on="
                )
            reach = milliseconds(within, "within")
            return self._then(
                StreamStreamJoin(
                    name=self._program.operator_name("join", name),
                    inputs=(self.operator, other.operator),
                    kind=how,
                    before_ms=reach if before is None else milliseconds(before, "before"),
                    after_ms=reach if after is None else milliseconds(after, "after"),
                    grace_ms=milliseconds(grace, "grace"),
                    prefix=prefix,
                    value=value,
                )
            )
        if within is not None:
            raise ConfigError("within= is for a join of two streams; a table has no such time")
        if how == "outer":
            raise ConfigError(
                "a stream and a table have inner and left joins: a table's change makes no record"
            )
        return self._then(
            StreamTableJoin(
                name=self._program.operator_name("join", name),
                inputs=(self.operator, other.operator),
                kind=how,
                on=None if on is None else listed(on),
                prefix=prefix,
                value=value,
            )
        )

    def through(self, topic: str, *, name: str | None = None) -> Stream:
        """Write to a topic, and go on with what it holds: what several outputs share is then computed once."""
        key, value = running.schemas(self._program, self.operator)
        self.to(topic, name=name)
        source = TopicSource(
            name=self._program.operator_name("stream", None),
            topic=topic,
            key=declared(key, "key"),
            value=declared(value, "value"),
        )
        return Stream(self._program, source)


class GroupedStream:
    """Records by key, to be aggregated. `emit`: an update for `every` record, or the `latest` of each key in a batch."""

    def __init__(
        self,
        program: Program,
        operator: Operator,
        key: tuple[Expression, ...] | None,
        window: WindowKind | None = None,
        *,
        final: bool = False,
    ) -> None:
        self._program = program
        self._operator = operator
        self._key = key
        self._window = window
        self._final = final

    def window(
        self, size: str | int, *, every: str | int | None = None, grace: str | int = 0
    ) -> GroupedStream:
        """Tumbling windows, or hopping ones that begin `every` so often.

        The key gets the columns window_start and window_end (milliseconds).
        """
        size_ms = milliseconds(size, "window")
        every_ms = size_ms if every is None else milliseconds(every, "every")
        if not 0 < every_ms <= size_ms:
            raise ConfigError(
                f"windows of {size_ms} ms begin every 1 to {size_ms} ms, not every {every_ms} ms"
            )
        return self._windowed(
            TimeWindows(size_ms=size_ms, every_ms=every_ms, grace_ms=milliseconds(grace, "grace"))
        )

    def sliding(self, size: str | int, *, grace: str | int = 0) -> GroupedStream:
        """A window for every set of records that are at most `size` apart."""
        kind = SlidingWindows(size_ms=milliseconds(size, "sliding"), grace_ms=milliseconds(grace, "grace"))
        return self._windowed(kind)

    def session(self, gap: str | int, *, grace: str | int = 0) -> GroupedStream:
        """Records that are at most `gap` apart belong together."""
        kind = SessionWindows(gap_ms=milliseconds(gap, "session"), grace_ms=milliseconds(grace, "grace"))
        return self._windowed(kind)

    def final(self) -> GroupedStream:
        """Say each window once, when it is closed: stream time is past its end and the grace (Kafka Streams: suppress)."""
        if self._window is None:
            raise ConfigError(
                "final: only windows have final results; write window(…), session(…) or sliding(…) first"
            )
        return GroupedStream(self._program, self._operator, self._key, self._window, final=True)

    def _windowed(self, kind: WindowKind) -> GroupedStream:
        if self._operator.is_table:
            raise ConfigError("a table has no windows: a row of it has no time of its own")
        return GroupedStream(self._program, self._operator, self._key, kind)

    def _emit(self, asked: Emit | None) -> Emit:
        return "every" if self._final else self._program.emit_or_default(asked)

    def agg(self, *aggregates: str, emit: Emit | None = None, name: str | None = None) -> Table:
        """A table of SQL aggregates, such as `agg("count(*) AS n", "sum(amount) AS total")`; docs/streams.md lists the
        functions.
        """
        return Table(
            self._program,
            Aggregated(
                name=self._program.operator_name("aggregate", name),
                inputs=(self._operator,),
                key=self._key,
                aggregates=_some(aggregates, "agg"),
                emit=self._emit(emit),
                window=self._window,
                final=self._final,
            ),
        )

    def count(self, *, emit: Emit | None = None, name: str | None = None) -> Table:
        """How many records each key has."""
        return self.agg("count(*) AS value", emit=emit, name=name)

    def sum(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> Table:
        return self.agg(f"sum({of}) AS value", emit=emit, name=name)

    def min(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> Table:
        return self.agg(f"min({of}) AS value", emit=emit, name=name)

    def max(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> Table:
        return self.agg(f"max({of}) AS value", emit=emit, name=name)

    def avg(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> Table:
        return self.agg(f"avg({of}) AS value", emit=emit, name=name)

    def latest(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> Table:
        """The last one by offset, not by time."""
        return self.agg(f"latest({of}) AS value", emit=emit, name=name)

    def earliest(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> Table:
        """The first one by offset."""
        return self.agg(f"earliest({of}) AS value", emit=emit, name=name)

    def reduce(
        self,
        add: Callable[[Any, Any], Any],
        subtract: Callable[[Any, Any], Any] | None = None,
        *,
        emit: Emit | None = None,
        name: str | None = None,
    ) -> Table:
        """`add(aggregate, value)` makes the next aggregate; the first value is the first one. A table also needs `subtract`."""
        return self._fold(None, add, subtract, None, None, emit, name)

    def aggregate(
        self,
        start: Callable[[], Any],
        add: Callable[[Any, Any, Any], Any],
        subtract: Callable[[Any, Any, Any], Any] | None = None,
        *,
        schema: str,
        merge: Callable[[Any, Any, Any], Any] | None = None,
        emit: Emit | None = None,
        name: str | None = None,
    ) -> Table:
        """`add(key, value, aggregate)` makes the next aggregate, from `start()` on. `schema`: its type, as DDL."""
        return self._fold(start, add, subtract, merge, schema, emit, name)

    def cogroup(self, add: Callable[[Any, Any, Any], Any]) -> CogroupedStream:
        """Streams that are added to one aggregate: `a.cogroup(f).cogroup(b, g).aggregate(dict, schema=…)`."""
        self._no_table("cogroup")
        return CogroupedStream(self._program, ((self, add),))

    def process(self, processor: Processor, *, schema: str, name: str | None = None) -> Stream:
        """A processor of yours: keyed state and timers. `schema`: the type of the values that it gives back, as DDL."""
        self._no_table("process")
        operator = Processed(
            name=self._program.operator_name("process", name),
            inputs=(self._operator,),
            key=self._key,
            processor=processor,
            schema=schema,
        )
        return Stream(self._program, operator)

    def cogrouped(
        self,
        parts: tuple[tuple[GroupedStream, Callable[[Any, Any, Any], Any]], ...],
        start: Callable[[], Any],
        merge: Callable[[Any, Any, Any], Any] | None,
        schema: str,
        emit: Emit | None,
        name: str | None,
    ) -> Table:
        """The table of a CogroupedStream, with the windows of this one."""
        operator = Cogrouped(
            name=self._program.operator_name("cogroup", name),
            inputs=tuple(grouped._operator for grouped, _ in parts),
            keys=tuple(grouped._key for grouped, _ in parts),
            adders=tuple(add for _, add in parts),
            start=start,
            merge=merge,
            schema=schema,
            emit=self._emit(emit),
            window=self._window,
            final=self._final,
        )
        return Table(self._program, operator)

    def _no_table(self, method: str) -> None:
        if self._operator.is_table or self._window is not None:
            raise ConfigError(f"{method} takes a grouped stream without windows")

    def _fold(
        self,
        start: Callable[[], Any] | None,
        add: Callable[..., Any],
        subtract: Callable[..., Any] | None,
        merge: Callable[..., Any] | None,
        schema: str | None,
        emit: Emit | None,
        name: str | None,
    ) -> Table:
        if self._operator.is_table and subtract is None:
            raise ConfigError(
                "a grouped table needs subtract=: it takes back the old value of a row that changes"
            )
        return Table(
            self._program,
            Folded(
                name=self._program.operator_name("aggregate", name),
                inputs=(self._operator,),
                key=self._key,
                start=start,
                add=add,
                subtract=subtract,
                merge=merge,
                schema=schema,
                emit=self._emit(emit),
                window=self._window,
                final=self._final,
            ),
        )


class CogroupedStream:
    """Several grouped streams, each with its own function `add(key, value, aggregate)`."""

    def __init__(
        self,
        program: Program,
        parts: tuple[tuple[GroupedStream, Callable[[Any, Any, Any], Any]], ...],
        windowed: GroupedStream | None = None,
    ) -> None:
        self._program = program
        self._parts = parts
        self._windowed = windowed

    def cogroup(self, other: GroupedStream, add: Callable[[Any, Any, Any], Any]) -> CogroupedStream:
        """One more stream. Its key has the same type."""
        return CogroupedStream(self._program, (*self._parts, (other, add)))

    def windowed(self, like: Callable[[GroupedStream], GroupedStream]) -> CogroupedStream:
        """Aggregates by window: `windowed(lambda grouped: grouped.window("1 hour").final())`."""
        return CogroupedStream(self._program, self._parts, like(self._parts[0][0]))

    def aggregate(
        self,
        start: Callable[[], Any],
        *,
        schema: str,
        merge: Callable[[Any, Any, Any], Any] | None = None,
        emit: Emit | None = None,
        name: str | None = None,
    ) -> Table:
        """A table of one aggregate for each key, from `start()` on. Sessions also need `merge(key, one, other)`."""
        shape = self._windowed or self._parts[0][0]
        return shape.cogrouped(self._parts, start, merge, schema, emit, name)


class Table:
    """A value for each key. An update with a null value is a delete."""

    def __init__(self, program: Program, operator: Operator) -> None:
        self._program = program
        self.operator = operator

    @property
    def df(self) -> DataFrame:
        """The updates as a streaming DataFrame; a delete has null in all columns of the value."""
        return running.data_frame(self._program, self.operator)

    def filter(self, condition: Expression, *, name: str | None = None) -> Table:
        """The rows for which the condition holds. A row for which it no longer holds is deleted."""
        name = self._program.operator_name("filter", name)
        return Table(self._program, Filtered(name=name, inputs=(self.operator,), condition=condition))

    def filter_not(self, condition: Expression, *, name: str | None = None) -> Table:
        """The others."""
        name = self._program.operator_name("filter", name)
        operator = Filtered(name=name, inputs=(self.operator,), condition=condition, negated=True)
        return Table(self._program, operator)

    def select(self, *value: Expression, name: str | None = None) -> Table:
        """A new value of these columns."""
        if not value:
            raise ConfigError("select takes at least one expression")
        name = self._program.operator_name("select", name)
        return Table(self._program, Selected(name=name, inputs=(self.operator,), value=value))

    def group_by(self, *key: Expression) -> GroupedStream:
        """The rows by another key. When a row changes, its old value is taken back from the aggregate of its old key."""
        if not key:
            raise ConfigError("group_by takes at least one expression")
        return GroupedStream(self._program, self.operator, key)

    def to_stream(self, *, name: str | None = None) -> Stream:
        """Each update as a record; a delete has a null value."""
        name = self._program.operator_name("to-stream", name)
        return Stream(self._program, AsStream(name=name, inputs=(self.operator,)))

    def to(
        self,
        topic: str,
        *,
        key_format: str = "json",
        value_format: str = "json",
        name: str | None = None,
    ) -> None:
        """Write the updates to a topic, its changelog: compact it."""
        self.to_stream().to(topic, key_format=key_format, value_format=value_format, name=name)

    def join(
        self,
        other: Table,
        *,
        how: JoinKind = "inner",
        on: Expression | Iterable[Expression] | None = None,
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        emit: Emit | None = None,
        name: str | None = None,
    ) -> Table:
        """Rows of equal keys. An update of either side makes an update, whose timestamp is the larger of both sides'.

        `on`: what of a left row is the right table's key (a foreign key, inner or left). The result has the left key.
        """
        if not isinstance(other, Table):
            raise ConfigError("a table joins a table; for a stream write stream.join(table)")
        if on is not None:
            if how == "outer":
                raise ConfigError(
                    "a join by foreign key is inner or left: a right row without references has no key"
                )
            foreign = ForeignKeyJoin(
                name=self._program.operator_name("join", name),
                inputs=(self.operator, other.operator),
                kind=how,
                on=listed(on),
                prefix=prefix,
                value=None if select is None else listed(select),
            )
            return Table(self._program, foreign)
        operator = TableTableJoin(
            name=self._program.operator_name("join", name),
            inputs=(self.operator, other.operator),
            kind=how,
            prefix=prefix,
            value=None if select is None else listed(select),
            emit=self._program.emit_or_default(emit),
        )
        return Table(self._program, operator)


def listed(expressions: Expression | Iterable[Expression]) -> tuple[Expression, ...]:
    """One or several. A Column is one, though Python can iterate it."""
    if isinstance(expressions, str) or not isinstance(expressions, (list, tuple)):
        return (expressions,)  # type: ignore[return-value]
    return tuple(expressions)


def _some(expressions: tuple[Any, ...], method: str) -> tuple[Any, ...]:
    if not expressions:
        raise ConfigError(f"{method} takes at least one expression")
    return expressions
