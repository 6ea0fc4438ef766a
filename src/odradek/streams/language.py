"""Streams, records that follow one another, and tables, what is true now of each key and how it changes.

Each method makes a new stream or table; nothing runs before the program is started or tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.model.public import public
from odradek.streams import joining
from odradek.streams.grouped import GroupedStream, ResultTypes
from odradek.streams.joining import JoinReach
from odradek.streams.plan.arguments import checked_flag, checked_function, checked_name, checked_topic
from odradek.streams.plan.keyed import Suppressed
from odradek.streams.plan.known_schemas import written_format
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
    Repartitioned,
    Selected,
    TopicSink,
    TopicSource,
    at_least_one,
    checked_expressions,
    listed,
)
from odradek.streams.plan.program import Program
from odradek.streams.plan.schemas import Format, declared
from odradek.streams.plan.windows import Length, TimeLimit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odradek.streams import running
else:
    running = lazy("odradek.streams.running")


@public("odradek.streams")
class Stream:
    """A KStream: records with a key, a value and a timestamp.

    Expressions are Spark SQL or Columns: they see the columns of the value and of the key, `_timestamp` (milliseconds) and
    `_headers`.
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
        """Returns the records for which the condition holds; null does not hold."""
        checked_expressions((condition,), "filter")
        return self._filtered(condition, self._program.operator_name("filter", name))

    def _filtered(self, condition: Expression, name: str) -> Stream:
        return self._then(Filtered(name=name, inputs=(self.operator,), condition=condition))

    def filter_not(self, condition: Expression, *, name: str | None = None) -> Stream:
        """Returns the records for which the condition does not hold."""
        checked_expressions((condition,), "filter_not")
        name = self._program.operator_name("filter", name)
        return self._then(Filtered(name=name, inputs=(self.operator,), condition=condition, negated=True))

    def select(self, *value: Expression, null_stays: bool = False, name: str | None = None) -> Stream:
        """Returns a stream with a new value of these columns; the key stays (Kafka Streams: mapValues). One column called
        `value` is a bare value.

        A null value becomes one whose columns are computed from nulls, unless all of them are null. With `null_stays`, it
        stays null.
        """
        name = self._program.operator_name("select", name)
        columns = at_least_one(value, "select")
        stays = checked_flag("select: null_stays", null_stays)
        return self._then(Selected(name=name, inputs=(self.operator,), value=columns, null_value_stays=stays))

    def select_key(self, *key: Expression, keeps_nulls: bool = False, name: str | None = None) -> Stream:
        """Returns a new key of these columns. One column is a bare key.

        A record whose columns are all null has no key. With `keeps_nulls`, several columns make a key of nulls.
        """
        name = self._program.operator_name("select-key", name)
        key = at_least_one(key, "select_key")
        keeps_nulls = checked_flag("select_key: keeps_nulls", keeps_nulls)
        return self._then(Selected(name=name, inputs=(self.operator,), key=key, key_keeps_nulls=keeps_nulls))

    def map(
        self,
        *,
        key: Expression | Iterable[Expression],
        value: Expression | Iterable[Expression],
        name: str | None = None,
    ) -> Stream:
        """Returns a new key and a new value."""
        name = self._program.operator_name("map", name)
        return self._then(
            Selected(name=name, inputs=(self.operator,), key=listed(key, "key"), value=listed(value, "value"))
        )

    def with_timestamp(self, milliseconds: Expression, *, name: str | None = None) -> Stream:
        """Gives each record another time, such as `unix_millis(at)`."""
        checked_expressions((milliseconds,), "with_timestamp")
        name = self._program.operator_name("timestamp", name)
        return self._then(Selected(name=name, inputs=(self.operator,), timestamp=milliseconds))

    def flat_map(
        self,
        elements: Expression,
        *,
        key: Expression | Iterable[Expression] | None = None,
        value: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Stream:
        """Returns one record for each element of an array: structs become the value's columns, others a bare `value`.

        `key` and `value` make each record's key and value, as in `map`: they see the element's columns, and the key as it was.
        """
        checked_expressions((elements,), "flat_map")
        operator_name = self._program.operator_name("flat-map", name)
        exploded = self._then(Exploded(name=operator_name, inputs=(self.operator,), elements=elements))
        if key is None and value is None:
            return exploded
        selected = Selected(
            name=self._program.operator_name("flat-map-key", f"{operator_name}-records"),
            inputs=(exploded.operator,),
            key=None if key is None else listed(key, "key"),
            value=None if value is None else listed(value, "value"),
        )
        return self._then(selected)

    def split(
        self, *conditions: Expression, otherwise: bool = False, name: str | None = None
    ) -> list[Stream]:
        """Returns a stream for each condition; a record goes to the first that holds. `otherwise`: one more, for the rest."""
        name = self._program.operator_name("split", name)
        branches: list[Stream] = []
        chosen: list[Expression] = [*at_least_one(conditions, "split"), *(["true"] if otherwise else [])]
        for number, condition in enumerate(chosen):
            branches.append(
                self._then(
                    Filtered(
                        name=f"{name}-{number}",
                        inputs=(self.operator,),
                        condition=condition,
                        unless=tuple(conditions[:number]),
                    )
                )
            )
        return branches

    def merge(self, *others: Stream, name: str | None = None) -> Stream:
        """Returns the records of all of them, which have the same columns."""
        name = self._program.operator_name("merge", name)
        inputs = tuple(
            _operator_of(
                self._program, other, "merge takes streams; of a table write table.to_stream()", Stream
            )
            for other in others
        )
        return self._then(Merged(name=name, inputs=(self.operator, *inputs)))

    def peek(self, look: Callable[[Any], object], *, name: str | None = None) -> Stream:
        """Calls `look(record)` for each record, in Spark's tasks: again when Spark repeats a task."""
        checked_function(look, "peek", "of a record, such as print")
        name = self._program.operator_name("peek", name)
        return self._then(Peeked(name=name, inputs=(self.operator,), look=look))

    def foreach(self, call: Callable[[Any], object], *, name: str | None = None) -> None:
        """Calls `call(record)` for each record, on the driver. At least once."""
        checked_function(call, "foreach", "of a record, such as print")
        name = self._program.operator_name("foreach", name)
        self._program.end(Called(name=name, inputs=(self.operator,), call=call))

    def print(self, label: str = "", *, name: str | None = None) -> None:
        """Prints each record on standard output."""
        self.foreach(lambda record: print(f"{label}{record.key} {record.value}"), name=name)  # noqa: T201

    def repartition(self, *, name: str | None = None) -> Stream:
        """Returns the records that have a key, and the others where a left or outer join follows, as in Kafka Streams. Spark
        divides keys among tasks where an operator needs it.
        """
        name = self._program.operator_name("repartition", name)
        return self._then(Repartitioned(name=name, inputs=(self.operator,)))

    def to(
        self,
        topic: str | None = None,
        *,
        by: Expression | None = None,
        key_format: Format = "json",
        value_format: Format = "json",
        query: str | None = None,
        name: str | None = None,
    ) -> None:
        """Writes to a topic, or `by` an expression that names the topic of each record. `query`: outputs that name the same one
        are written by one query of Spark, in one transaction, and what they share is computed once.
        """
        if (topic is None) == (by is None):
            raise ConfigError("to: give a topic, or by= an expression that names one")
        if by is not None:
            checked_expressions((by,), "to(by=…)")
        else:
            checked_topic(topic, "to")
        self._program.end(
            TopicSink(
                name=self._program.operator_name("to", name),
                inputs=(self.operator,),
                topic=topic,
                topic_expression=by,
                key_format=written_format(self.operator, "key", key_format),
                value_format=written_format(self.operator, "value", value_format),
                query=_checked_query(query),
            )
        )

    def to_table(self, *, name: str | None = None) -> Table:
        """Returns the last value of each key; a null value deletes, a null key is left out."""
        name = self._program.operator_name("to-table", name)
        return Table(self._program, AsTable(name=name, inputs=(self.operator,)))

    def group_by(self, *key: Expression) -> GroupedStream[Table, Stream]:
        """Groups records with equal values of these expressions. A record with a null key, or a null value, takes no part."""
        return GroupedStream(self._program, self.operator, at_least_one(key, "group_by"), _RESULTS)

    def group_by_key(self) -> GroupedStream[Table, Stream]:
        """Groups records with equal keys."""
        return GroupedStream(self._program, self.operator, None, _RESULTS)

    @overload
    def join(
        self,
        other: Table | GlobalTable,
        *,
        how: Literal["inner", "left"] = "inner",
        on: Expression | Iterable[Expression] | None = None,
        grace: Length | None = None,
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Stream: ...

    @overload
    def join(
        self,
        other: Stream,
        *,
        within: Length,
        before: Length | None = None,
        after: Length | None = None,
        grace: Length = 0,
        how: JoinKind = "inner",
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Stream: ...

    def join(
        self,
        other: Stream | Table | GlobalTable,
        *,
        how: JoinKind = "inner",
        on: Expression | Iterable[Expression] | None = None,
        within: Length | None = None,
        before: Length | None = None,
        after: Length | None = None,
        grace: Length | None = None,
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Stream:
        """Joins each record with the table's row for its key, or for `on`, at that moment; results have the record's timestamp.
        With a versioned table, it joins with the row at the record's timestamp; with `grace`, records wait that long for
        versions that come late.

        Joins records of two streams with one key that are at most `within` apart; `before` and `after` limit how much older or
        newer the other one may be. A record without match (`how`) is emitted when stream time is past all possible matches,
        and the grace.

        `prefix` goes before a column of the right side whose name the left side has too. `select` makes the joined value.
        """
        needed = "join takes a stream, a table or a global table, such as app.table('users', …)"
        joined = _operator_of(self._program, other, needed, Stream, Table, GlobalTable)
        program, inputs = self._program, (self.operator, joined)
        if isinstance(other, Stream):
            if within is None or on is not None:
                raise ConfigError(
                    "a join of two streams needs within=, such as '5 minutes', and joins by key: no on="
                )
            reach = JoinReach(within, before, after, 0 if grace is None else grace)
            return self._then(joining.stream_to_stream(program, inputs, how, reach, prefix, select, name))
        if within is not None:
            raise ConfigError("within= is for a join of two streams; a table has no such time")
        return self._then(joining.stream_to_table(program, inputs, how, on, grace, prefix, select, name))

    def through(self, topic: str, *, name: str | None = None) -> Stream:
        """Writes to a topic, and continues with its records: what several outputs share is then computed once."""
        checked_topic(topic, "through")
        key, value = running.schemas(self._program, self.operator)
        self.to(topic, name=name)
        source = TopicSource(
            name=self._program.operator_name("stream", None),
            topic=topic,
            key=declared(key, "key"),
            value=declared(value, "value"),
        )
        return Stream(self._program, source)


class GlobalTable:
    """A GlobalKTable: every task has all of its rows. Streams join it by any expression, in any partition."""

    def __init__(self, program: Program, operator: Operator) -> None:
        self._program = program
        self.operator = operator


@public("odradek.streams")
class Table:
    """A KTable: a value for each key. An update with a null value is a delete."""

    def __init__(self, program: Program, operator: Operator) -> None:
        self._program = program
        self.operator = operator

    @property
    def df(self) -> DataFrame:
        """The updates as a streaming DataFrame; a delete has null in all columns of the value."""
        return running.data_frame(self._program, self.operator)

    def filter(self, condition: Expression, *, name: str | None = None) -> Table:
        """Returns the rows for which the condition holds. A row for which it no longer holds is deleted."""
        checked_expressions((condition,), "filter")
        name = self._program.operator_name("filter", name)
        return Table(self._program, Filtered(name=name, inputs=(self.operator,), condition=condition))

    def filter_not(self, condition: Expression, *, name: str | None = None) -> Table:
        """Returns the rows for which the condition does not hold."""
        checked_expressions((condition,), "filter_not")
        name = self._program.operator_name("filter", name)
        operator = Filtered(name=name, inputs=(self.operator,), condition=condition, negated=True)
        return Table(self._program, operator)

    def select(self, *value: Expression, name: str | None = None) -> Table:
        """Returns a new value of these columns."""
        name = self._program.operator_name("select", name)
        operator = Selected(name=name, inputs=(self.operator,), value=at_least_one(value, "select"))
        return Table(self._program, operator)

    def group_by(self, *key: Expression) -> GroupedStream[Table, Stream]:
        """Returns the rows by another key. When a row changes, its old value is taken back from the aggregate of its old
        key."""
        return GroupedStream(self._program, self.operator, at_least_one(key, "group_by"), _RESULTS)

    def suppress(self, *, until: TimeLimit, name: str | None = None) -> Table:
        """Holds updates back: it emits the latest of each key when the first has waited for the limit, in stream time.

        `until`: `time_limit("5 minutes", max_records=1_000)`. For one result of each window write `final()` before it.
        """
        if not isinstance(until, TimeLimit):
            raise ConfigError(
                f"suppress: until= is time_limit('5 minutes') of odradek.streams, not {until!r:.80};"
                " windows have final(), which emits each once when it is closed"
            )
        operator = Suppressed(
            name=self._program.operator_name("suppress", name), inputs=(self.operator,), until=until
        )
        return Table(self._program, operator)

    def to_stream(self, *, name: str | None = None) -> Stream:
        """Returns each update as a record; a delete has a null value."""
        name = self._program.operator_name("to-stream", name)
        return Stream(self._program, AsStream(name=name, inputs=(self.operator,)))

    def to(
        self,
        topic: str,
        *,
        key_format: Format = "json",
        value_format: Format = "json",
        query: str | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the updates to a topic, its changelog, which is made compacted if it is absent. `query` as in `Stream.to`."""
        checked_topic(topic, "to")
        source = self.to_stream().operator
        self._program.end(
            TopicSink(
                name=self._program.operator_name("to", name),
                inputs=(source,),
                topic=topic,
                key_format=written_format(self.operator, "key", key_format),
                value_format=written_format(self.operator, "value", value_format),
                is_changelog=True,
                query=_checked_query(query),
            )
        )

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
        needed = "a table joins a table; for a stream write stream.join(table)"
        inputs = (self.operator, _operator_of(self._program, other, needed, Table))
        if on is not None:
            return Table(
                self._program,
                joining.by_foreign_key(self._program, inputs, how, on, prefix, select, name),
            )
        emit = self._program.emit_or_default(emit)
        return Table(
            self._program,
            joining.table_to_table(self._program, inputs, how, prefix, select, emit, name),
        )

    def join_windows(
        self,
        other: Table,
        by: Expression | Iterable[Expression],
        *,
        how: JoinKind = "inner",
        held: Length | None = None,
        prefix: str = "",
        select: Expression | Iterable[Expression] | None = None,
        name: str | None = None,
    ) -> Table:
        """Joins each window of this table with the row of `other`, a table without windows. `by`: the columns of this
        table's key that are the other one's. The result has the windowed key.

        An update of `other` makes an update of each window of its key that is held: until stream time is `held` after the
        window's end; without it, until the window is deleted."""
        needed = "join_windows takes a table without windows, such as app.table('users', …)"
        inputs = (self.operator, _operator_of(self._program, other, needed, Table))
        return Table(
            self._program,
            joining.by_part_of_windowed_key(self._program, inputs, how, by, held, prefix, select, name),
        )


def _operator_of(program: Program, other: object, needed: str, *kinds: type[Any]) -> Operator:
    """Returns the operator of another stream or table. ConfigError for one of another program, and for other objects."""
    if not isinstance(other, kinds):
        raise ConfigError(f"{needed}, not {other!r:.80}")
    if other._program is not program:
        raise ConfigError(
            f"{other.operator.name} belongs to another program, {other._program.name!r}: one app = Streams(…) makes all"
            " streams and tables of a program"
        )
    operator: Operator = other.operator
    return operator


def _checked_query(query: object) -> str | None:
    """Raises ConfigError for what is no name of a query."""
    return None if query is None else checked_name(query, "query", "the name of a query")


_RESULTS: ResultTypes[Table, Stream] = ResultTypes(table=Table, stream=Stream)
