"""Grouped streams and tables, which become tables again: aggregates, windows, processors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

from odradek.model.errors import ConfigError
from odradek.model.public import public
from odradek.streams.plan.arguments import checked_function, checked_mapping, checked_name, checked_text
from odradek.streams.plan.keyed import Aggregated, Cogrouped, Folded, FoldedBy, Processed, ProcessorOutput
from odradek.streams.plan.operators import Emit, Expression, Operator, at_least_one
from odradek.streams.plan.program import Program
from odradek.streams.plan.schemas import checked_schema
from odradek.streams.plan.user_code import AggregateChange, Aggregator, Fold, Initializer, Merger, Reducer
from odradek.streams.plan.windows import (
    Length,
    SessionWindows,
    SlidingWindows,
    WindowKind,
    idle_time,
    milliseconds,
    positive_milliseconds,
    time_windows,
)
from odradek.streams.processors.custom import Processor

TableT = TypeVar("TableT")
StreamT = TypeVar("StreamT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTypes(Generic[TableT, StreamT]):
    """Makes a table and a stream of an operator. Their module imports this one, which cannot import it."""

    table: Callable[[Program, Operator], TableT]
    stream: Callable[[Program, Operator], StreamT]


@public("odradek.streams")
class GroupedStream(Generic[TableT, StreamT]):
    """A KGroupedStream: records by key, to be aggregated.

    `emit`: an update for `every` record, or the `latest` of each key in a batch.
    """

    def __init__(
        self,
        program: Program,
        operator: Operator,
        key: tuple[Expression, ...] | None,
        results: ResultTypes[TableT, StreamT],
        window: WindowKind | None = None,
        *,
        final: bool = False,
    ) -> None:
        self._program = program
        self._results = results
        self._operator = operator
        self._key = key
        self._window = window
        self._final = final

    def window(
        self,
        size: Length,
        *,
        every: Length | None = None,
        grace: Length = 0,
        idle_timeout: Length | None = None,
    ) -> GroupedStream[TableT, StreamT]:
        """Tumbling windows, or hopping ones that begin `every` so often.

        The key gets the columns window_start and window_end (milliseconds). `idle_timeout`: a task that got no record for so
        long, on the clock, closes all its windows; a record that comes for one of them later is late.
        """
        return self._windowed(time_windows(size, every, grace, idle_timeout))

    def sliding(
        self, size: Length, *, grace: Length = 0, idle_timeout: Length | None = None
    ) -> GroupedStream[TableT, StreamT]:
        """Returns a window for every set of records that are at most `size` apart. `idle_timeout` as in `window`."""
        kind = SlidingWindows(
            size_ms=milliseconds(size, "sliding"),
            grace_ms=milliseconds(grace, "grace"),
            idle_ms=idle_time(idle_timeout),
        )
        return self._windowed(kind)

    def session(
        self,
        gap: Length,
        *,
        grace: Length = 0,
        retention: Length | None = None,
        idle_timeout: Length | None = None,
    ) -> GroupedStream[TableT, StreamT]:
        """Groups records in sessions: those that are at most `gap` apart belong together. `idle_timeout` as in `window`.

        `retention`: how long after its end a session can be joined to others by a record that is not late (Kafka Streams:
        `Materialized.withRetention`). It is at least the gap and the grace, which it is when it is not given."""
        kind = SessionWindows(
            gap_ms=positive_milliseconds(gap, "session"),
            grace_ms=milliseconds(grace, "grace"),
            retention_ms=None if retention is None else milliseconds(retention, "retention"),
            idle_ms=idle_time(idle_timeout),
        )
        kind.check_retention()
        return self._windowed(kind)

    def final(self) -> GroupedStream[TableT, StreamT]:
        """Emits each window once, when it is closed: stream time is past its end and the grace (Kafka Streams: suppress)."""
        if self._window is None:
            raise ConfigError(
                "final: only windows have final results; write window(…), session(…) or sliding(…) first"
            )
        return GroupedStream(
            self._program, self._operator, self._key, self._results, self._window, final=True
        )

    def _windowed(self, kind: WindowKind) -> GroupedStream[TableT, StreamT]:
        if self._operator.is_table:
            raise ConfigError("a table has no windows: a row of it has no time of its own")
        return GroupedStream(self._program, self._operator, self._key, self._results, kind)

    def _emit(self, asked: Emit | None) -> Emit:
        return "every" if self._final else self._program.emit_or_default(asked)

    def agg(self, *aggregates: str, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of SQL aggregates, such as `agg("count(*) AS n", "sum(amount) AS total")`;
        docs/streams-reference.md lists the functions."""
        return self._results.table(
            self._program,
            Aggregated(
                name=self._program.operator_name("aggregate", name),
                inputs=(self._operator,),
                key=self._key,
                aggregates=at_least_one(aggregates, "agg"),
                emit=self._emit(emit),
                window=self._window,
                final=self._final,
            ),
        )

    def _one(self, function: str, of: str, emit: Emit | None, name: str | None) -> TableT:
        checked_text(of, f"what {function} takes", "Spark SQL, such as 'amount'")
        return self.agg(f"{function}({of}) AS value", emit=emit, name=name)

    def count(self, *, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Counts the records of each key."""
        return self.agg("count(*) AS value", emit=emit, name=name)

    def sum(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of the sum of a column or SQL expression, such as `sum("amount")`, for each key."""
        return self._one("sum", of, emit, name)

    def min(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of the least value of a column or SQL expression, such as `min("amount")`, for each key."""
        return self._one("min", of, emit, name)

    def max(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of the greatest value of a column or SQL expression, such as `max("amount")`, for each key."""
        return self._one("max", of, emit, name)

    def avg(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of the mean of a column or SQL expression, such as `avg("amount")`, for each key."""
        return self._one("avg", of, emit, name)

    def latest(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of the last value by offset, not by time."""
        return self._one("latest", of, emit, name)

    def earliest(self, of: str, *, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of the first value by offset."""
        return self._one("earliest", of, emit, name)

    def reduce(
        self,
        add: Reducer,
        subtract: Reducer | None = None,
        *,
        emit: Emit | None = None,
        name: str | None = None,
    ) -> TableT:
        """Returns a table of the values of each key, reduced to one: `add(aggregate, value)` makes the next aggregate; the
        first value is the first one. A table also needs `subtract`."""
        return self._fold(None, add, subtract, None, None, emit, name)

    def aggregate(
        self,
        start: Initializer,
        add: Aggregator,
        subtract: Aggregator | None = None,
        *,
        schema: str,
        merge: Merger | None = None,
        emit: Emit | None = None,
        name: str | None = None,
    ) -> TableT:
        """Returns a table of aggregates: `add(key, value, aggregate)` makes the next aggregate, from `start()` on. `schema`:
        its type, as DDL. Sessions also need `merge(key, one, other)`."""
        self._needs_merge(merge)
        return self._fold(start, add, subtract, merge, schema, emit, name)

    def fold(self, fold: Fold, *, schema: str, emit: Emit | None = None, name: str | None = None) -> TableT:
        """Returns a table of the results of your own fold, an object that can be pickled. `schema`: the fields of its
        results, as DDL."""
        if isinstance(fold, type) or not isinstance(fold, Fold):
            raise ConfigError(
                f"fold takes an object with the methods add, remove, merge, result and copied, not {fold!r:.80}"
            )
        checked_schema(schema, "fold")
        operator = FoldedBy(
            name=self._program.operator_name("aggregate", name),
            inputs=(self._operator,),
            key=self._key,
            fold=fold,
            schema=schema,
            emit=self._emit(emit),
            window=self._window,
            final=self._final,
        )
        return self._results.table(self._program, operator)

    def cogroup(self, add: Aggregator) -> CogroupedStream[TableT, StreamT]:
        """Streams that are added to one aggregate: `a.cogroup(f).cogroup(b, g).aggregate(dict, schema=…)`."""
        self._no_table("cogroup")
        checked_function(add, "cogroup", "(key, value, aggregate)")
        return CogroupedStream(self._program, ((self, add),))

    @overload
    def process(self, processor: Processor, *, schema: str, name: str | None = None) -> StreamT: ...

    @overload
    def process(
        self, processor: Processor, *, outputs: Mapping[str, str], name: str | None = None
    ) -> dict[str, StreamT]: ...

    def process(
        self,
        processor: Processor,
        *,
        schema: str | None = None,
        outputs: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> StreamT | dict[str, StreamT]:
        """Runs a processor of yours: keyed state and timers. `schema`: the type of the values that it gives back, as DDL.

        `outputs`: names and schemas of several outputs, in place of `schema`. The processor gives back `Output(name, value)`;
        the result is a stream for each name.
        """
        self._no_table("process")
        _check_processor(processor)
        if (schema is None) == (not outputs):
            raise ConfigError("process: give schema=, or outputs= with a name and a schema for each")
        if outputs is None:
            checked_schema(schema, "process")
        else:
            for output, ddl in checked_mapping(
                outputs, "outputs", "{'good': 'n INT', 'bad': 'STRING'}"
            ).items():
                checked_name(output, "the name of an output", "text such as 'good'")
                checked_schema(ddl, f"output {output!r}")
        operator = Processed(
            name=self._program.operator_name("process", name),
            inputs=(self._operator,),
            key=self._key,
            processor=processor,
            outputs=tuple((outputs or {"": schema or ""}).items()),
        )
        if not outputs:
            return self._results.stream(self._program, operator)
        streams: dict[str, StreamT] = {}
        for output in outputs:
            part = ProcessorOutput(
                name=self._program.operator_name("output", f"{operator.name}-{output}"),
                inputs=(operator,),
                output=output,
            )
            streams[output] = self._results.stream(self._program, part)
        return streams

    def cogrouped(
        self,
        parts: tuple[tuple[GroupedStream[TableT, StreamT], Aggregator], ...],
        start: Initializer,
        merge: Merger | None,
        schema: str,
        emit: Emit | None,
        name: str | None,
    ) -> TableT:
        """Returns the table of a CogroupedStream, with the windows of this one."""
        self._needs_merge(merge)
        checked_function(start, "start", "without arguments, such as dict")
        checked_schema(schema, "aggregate")
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
        return self._results.table(self._program, operator)

    def check_cogroup(self, program: Program) -> None:
        """Raises ConfigError where it cannot be added to an aggregate of the program."""
        self._no_table("cogroup")
        if self._program is not program:
            raise ConfigError(
                f"{self._operator.name} belongs to another program, {self._program.name!r}: one app = Streams(…) makes all"
                " streams and tables of a program"
            )

    def _no_table(self, method: str) -> None:
        if self._operator.is_table or self._window is not None:
            raise ConfigError(f"{method} takes a grouped stream without windows")

    def _needs_merge(self, merge: Merger | None) -> None:
        """Raises ConfigError for sessions without a function that merges them."""
        if merge is not None:
            checked_function(merge, "merge", "(key, one, other)")
        if isinstance(self._window, SessionWindows) and merge is None:
            raise ConfigError(
                "aggregate: sessions need merge=, a function merge(key, one, other) that makes one aggregate of two,"
                " since a record may join two sessions"
            )

    def _fold(
        self,
        start: Initializer | None,
        add: AggregateChange,
        subtract: AggregateChange | None,
        merge: Merger | None,
        schema: str | None,
        emit: Emit | None,
        name: str | None,
    ) -> TableT:
        checked_function(add, "add", "(aggregate, value)" if start is None else "(key, value, aggregate)")
        if subtract is not None:
            checked_function(subtract, "subtract", "that takes a value back")
        if schema is not None or start is not None:
            checked_schema(schema, "aggregate")
            checked_function(start, "start", "without arguments, such as dict")
        if self._operator.is_table and subtract is None:
            raise ConfigError(
                "a grouped table needs subtract=: it takes back the old value of a row that changes"
            )
        return self._results.table(
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


def _check_processor(processor: object) -> None:
    """Raises ConfigError for a class, a function, or another object in place of a processor."""
    if isinstance(processor, Processor):
        return
    if isinstance(processor, type):
        raise ConfigError(
            f"process takes a processor, not its class: write process({processor.__name__}(), schema=…)"
        )
    if callable(processor):
        raise ConfigError(
            "process takes an object of a class that inherits odradek.streams.Processor, with a method"
            " process(record, state, timers), not a function"
        )
    raise ConfigError(
        f"process takes a processor: {type(processor).__name__} does not inherit odradek.streams.Processor"
    )


class CogroupedStream(Generic[TableT, StreamT]):
    """Several grouped streams, each with its own function `add(key, value, aggregate)`."""

    def __init__(
        self,
        program: Program,
        parts: tuple[tuple[GroupedStream[TableT, StreamT], Aggregator], ...],
        windowed: GroupedStream[TableT, StreamT] | None = None,
    ) -> None:
        self._program = program
        self._parts = parts
        self._windowed = windowed

    def cogroup(
        self, other: GroupedStream[TableT, StreamT], add: Aggregator
    ) -> CogroupedStream[TableT, StreamT]:
        """Adds one more stream. Its key has the same type."""
        if not isinstance(other, GroupedStream):
            raise ConfigError(
                f"cogroup takes a grouped stream, such as stream.group_by_key(), not {other!r:.80}"
            )
        checked_function(add, "cogroup", "(key, value, aggregate)")
        other.check_cogroup(self._program)
        return CogroupedStream(self._program, (*self._parts, (other, add)))

    def windowed(
        self, like: Callable[[GroupedStream[TableT, StreamT]], GroupedStream[TableT, StreamT]]
    ) -> CogroupedStream[TableT, StreamT]:
        """Aggregates by window: `windowed(lambda grouped: grouped.window("1 hour").final())`."""
        checked_function(
            like, "windowed", "of a grouped stream, such as lambda grouped: grouped.window('1 hour'),"
        )
        return CogroupedStream(self._program, self._parts, like(self._parts[0][0]))

    def aggregate(
        self,
        start: Initializer,
        *,
        schema: str,
        merge: Merger | None = None,
        emit: Emit | None = None,
        name: str | None = None,
    ) -> TableT:
        """Returns a table of one aggregate for each key, from `start()` on. Sessions also need `merge(key, one, other)`."""
        shape = self._windowed or self._parts[0][0]
        return shape.cogrouped(self._parts, start, merge, schema, emit, name)
