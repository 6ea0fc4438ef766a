"""Builds the physical plan of a query: operators of `odradek.streams` from its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING, TypeAlias

from odradek.model.lazy import lazy
from odradek.sql.metastore.catalog import SqlSource
from odradek.sql.planning.aggregation import SqlAggregation
from odradek.sql.planning.steps import (
    HAS_VALUE,
    NOTHING,
    AggregateStep,
    ExplodeStep,
    FilterStep,
    JoinStep,
    NamedColumn,
    OutputColumn,
    ProjectStep,
    ReadStep,
    RekeyStep,
    Step,
    WindowStep,
)
from odradek.sql.planning.timestamps import timestamp_text
from odradek.streams import Stream, Streams, Table
from odradek.streams.plan.operators import TopicSource, walk
from odradek.values.errors import SqlError
from odradek.values.formats import NO_KEY, RecordFormat, record_format

if TYPE_CHECKING:
    from odradek.streams.grouped import GroupedStream
    from odradek.streams.translation import translator
else:
    translator = lazy("odradek.streams.translation.translator")

Built: TypeAlias = Stream | Table


@singledispatch
def build(step: Step, app: Streams) -> Built:
    raise AssertionError(f"no operator for {type(step).__name__}")


def reads_with_state(step: Step) -> list[ReadStep]:
    """Returns the tables whose rows are kept where they are read: an operator after them needs what an update replaces."""
    built = build(step, Streams("explained")).operator
    sources = [operator for operator in walk(built) if isinstance(operator, TopicSource)]
    with_old = translator.operators_with_old_values([built])
    return [read for read, source in zip(_reads(step), sources, strict=True) if source in with_old]


def _reads(step: Step) -> Iterator[ReadStep]:
    """Yields the steps that read sources, in the order in which they are built."""
    if isinstance(step, ReadStep):
        yield step
    for source in step.inputs:
        yield from _reads(source)


def source_formats(source: SqlSource) -> tuple[RecordFormat, RecordFormat]:
    """Returns the formats in which records of a source are read: key and value."""
    keys = [OutputColumn(column.name, f"key_{index}", column.type) for index, column in enumerate(source.key)]
    values = [
        OutputColumn(column.name, f"value_{index}", column.type) for index, column in enumerate(source.value)
    ]
    return (
        record_format(source.key_format, tuple(keys), is_key=True, window=source.window),
        record_format(source.value_format, tuple(values) or (NOTHING,), is_key=False),
    )


@build.register
def _read(step: ReadStep, app: Streams) -> Built:
    source = step.source
    key, value = source_formats(source)
    timestamp = None if source.timestamp is None else timestamp_text(source)
    if not source.is_table:
        read = app.stream(source.topic, key_format=key, value_format=value, bad=source.bad).operator
    else:
        read = app.table(source.topic, key_format=key, value_format=value, bad=source.bad).operator
    assert isinstance(read, TopicSource)
    read = replace(read, timestamp=timestamp, skips_negative_times=True)  # as Kafka Streams below ksqlDB
    if not source.is_table:
        return _selected(Stream(app.program, read), step.value)
    table = Table(app.program, read)
    return table.select(*_texts(step.value))


def _selected(stream: Stream, value: tuple[NamedColumn, ...]) -> Stream:
    """Returns the stream with these columns; a null value stays null."""
    return stream.select(*_texts(value), null_stays=True)


def _texts(columns: tuple[NamedColumn, ...]) -> list[str]:
    return [f"{text} AS `{name}`" for name, text in columns]


@build.register
def _filter(step: FilterStep, app: Streams) -> Built:
    source = build(step.inputs[0], app)
    if isinstance(source, Table):
        return source.filter(step.condition)
    return source.filter(f"{HAS_VALUE} and {step.condition}")


@build.register
def _project(step: ProjectStep, app: Streams) -> Built:
    source = build(step.inputs[0], app)
    if isinstance(source, Table):
        return source.select(*_texts(step.value))
    return _selected(source, step.value)


@build.register
def _rekey(step: RekeyStep, app: Streams) -> Built:
    source = build(step.inputs[0], app)
    assert isinstance(source, Stream)
    if not step.key:
        return source.select_key(f"cast(null as string) AS {NO_KEY}")
    if not step.keeps_null:
        present = " and ".join(f"({text}) is not null" for text in step.key)
        source = source.filter(f"{HAS_VALUE} and {present}")
    key = (f"{text} AS key_{index}" for index, text in enumerate(step.key))
    return source.select_key(*key, keeps_nulls=step.keeps_null)


@build.register
def _explode(step: ExplodeStep, app: Streams) -> Built:
    source = build(step.inputs[0], app)
    assert isinstance(source, Stream)
    # A column first: Spark refuses a function in Python inside a lambda.
    columns = tuple(NamedColumn(name, f"`{name}`") for name in step.carried)
    source = _selected(source, (*columns, *step.arrays))
    sizes = ", ".join(f"coalesce(size(`{name}`), 0)" for name, _ in step.arrays)
    longest = f"greatest({sizes})" if len(step.arrays) > 1 else sizes
    numbers = f"if({HAS_VALUE} and {longest} > 0, sequence(1, {longest}), array())"
    fields = [f"'{name}', `{name}`" for name in step.carried]
    parts = [f"'{name}', try_element_at(`{name}`, p_)" for name, _ in step.arrays]
    return source.flat_map(f"transform({numbers}, p_ -> named_struct({', '.join([*fields, *parts])}))")


@build.register
def _aggregate(step: AggregateStep, app: Streams) -> Built:
    source = build(step.inputs[0], app)
    present = " and ".join(f"({text}) is not null" for text in step.key)
    condition = present if isinstance(source, Table) else f"{HAS_VALUE} and {present}"
    source = source.filter(condition)
    grouped = source.group_by(*(f"{text} AS key_{index}" for index, text in enumerate(step.key)))
    if step.window is not None:
        grouped = _windowed(grouped, step.window)
    fold = SqlAggregation(step.calls, step.functions)
    return grouped.fold(fold, schema=fold.ddl)


def _windowed(grouped: GroupedStream[Table, Stream], window: WindowStep) -> GroupedStream[Table, Stream]:
    if window.kind == "session":
        grouped = grouped.session(window.size_ms, grace=window.grace_ms)
    else:
        grouped = grouped.window(window.size_ms, every=window.advance_ms, grace=window.grace_ms)
    return grouped.final() if window.final else grouped


@build.register
def _join(step: JoinStep, app: Streams) -> Built:
    left, right = (build(side, app) for side in step.inputs)
    if isinstance(left, Table):
        assert isinstance(right, Table)
        if step.of_key:
            assert step.on is not None
            assert step.window is not None
            return left.join_windows(right, step.on, how=step.way, held=step.window.held_ms)
        return left.join(right, how=step.way, on=step.on)
    if isinstance(right, Table):
        if step.way == "outer":
            raise SqlError("a stream and a table have no FULL OUTER JOIN")
        return left.join(right, how=step.way, on=step.on)
    assert step.within is not None
    before_ms, after_ms, grace_ms = step.within
    return left.join(
        right, how=step.way, within=max(before_ms, after_ms), before=before_ms, after=after_ms, grace=grace_ms
    )
