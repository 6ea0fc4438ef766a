"""Operators without state: plain columns of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BooleanType, StructType

from odradek.model.errors import ConfigError
from odradek.streams.plan.operators import (
    AsStream,
    AsTable,
    Exploded,
    Filtered,
    FrameSource,
    Merged,
    Operator,
    Peeked,
    Repartitioned,
    Selected,
    TopicSource,
    history_of,
)
from odradek.streams.processors.joins import LatestProcessor
from odradek.streams.processors.versions import VersionedProcessor
from odradek.streams.records import StreamRecord
from odradek.streams.translation.adapter import Port, keyed
from odradek.streams.translation.frames import (
    HEADERS,
    META,
    STATE,
    RecordFrame,
    carried,
    columns,
    named,
    parts,
    scope,
    struct_of,
    where,
)
from odradek.streams.translation.translator import Translator, translate


@translate.register
def _source(operator: TopicSource, translator: Translator) -> RecordFrame:
    frame = translator.read(operator)
    if operator.timestamp is not None:
        (when,) = columns([operator.timestamp])
        rows = scope(frame).withColumn("__timestamp", when.cast("bigint"))
        frame = frame.with_rows(rows.select(*frame.rows.columns))
    if not operator.table:
        return frame
    if operator.versioned_ms is not None:
        return _versioned(operator.name, frame, operator.versioned_ms, translator)
    return changelog(operator.name, frame, operator in translator.wants_old, translator)


def _versioned(name: str, frame: RecordFrame, history_ms: int, translator: Translator) -> RecordFrame:
    rows = where(frame.rows, sf.col("__key").isNotNull())
    value = rows.schema["__value"].dataType
    updates = keyed(
        [Port(rows=rows, key=sf.col("__key"), payload=sf.col("__value"))],
        VersionedProcessor(history_ms),
        name=name,
        tasks=translator.tasks,
        key=struct_in(rows, "__key"),
        outputs=StructType().add("__value", value).add("__old", value).add("__latest", BooleanType()),
    )
    return RecordFrame(rows=updates, old=True)


def latest_versions(frame: RecordFrame) -> RecordFrame:
    """A table's updates without those that came too late to change what is true now (KIP-914)."""
    if "__latest" not in frame.rows.columns:
        return frame
    return frame.with_rows(where(frame.rows, sf.col("__latest")).drop("__latest"))


def changelog(name: str, frame: RecordFrame, old: bool, translator: Translator) -> RecordFrame:
    """Updates of a table: records with a key. What they replace is looked up only where it is asked for."""
    rows = where(frame.rows, sf.col("__key").isNotNull())
    if not old:
        return frame.with_rows(rows)
    value = rows.schema["__value"].dataType
    updates = keyed(
        [Port(rows=rows, key=sf.col("__key"), payload=sf.col("__value"))],
        LatestProcessor(),
        name=name,
        tasks=translator.tasks,
        key=struct_in(rows, "__key"),
        outputs=StructType().add("__value", value).add("__old", value),
    )
    return RecordFrame(rows=updates, old=True)


def struct_in(rows: DataFrame, column: str) -> StructType:
    kind = rows.schema[column].dataType
    assert isinstance(kind, StructType)
    return kind


@translate.register
def _user_frame(operator: FrameSource, translator: Translator) -> RecordFrame:
    rows = operator.frame
    key = struct_of(named(rows, columns(operator.key), alone="key"), bare="key")
    value = struct_of(named(rows, columns(operator.value, rows.columns), alone="value"), bare="value")
    (when,) = columns([operator.timestamp])
    return RecordFrame(
        rows=rows.select(
            key.alias("__key"),
            value.alias("__value"),
            when.cast("bigint").alias("__timestamp"),
            sf.lit(None).cast(HEADERS).alias("__headers"),
            sf.array(when.cast("bigint"), *(sf.lit(0).cast("bigint") for _ in range(3))).alias("__order"),
        )
    )


@translate.register
def _filtered(operator: Filtered, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    if not operator.is_table:
        seen = scope(frame)
        return frame.with_rows(where(seen, _holds(operator)).select(*frame.rows.columns))
    rows = _blanked(frame, frame.rows, "__value", operator)
    if frame.old:
        rows = _blanked(frame, rows, "__old", operator)
        if operator in translator.wants_old and history_of(operator) is None:
            rows = where(rows, sf.col("__value").isNotNull() | sf.col("__old").isNotNull())
    return frame.with_rows(rows)


def _holds(operator: Filtered) -> Column:
    conditions = [
        sf.coalesce(column, sf.lit(False)) for column in columns([operator.condition, *operator.unless])
    ]
    first = ~conditions[0] if operator.negated else conditions[0]
    return reduce(lambda holding, condition: holding & ~condition, conditions[1:], first)


def _blanked(frame: RecordFrame, rows: DataFrame, column: str, operator: Filtered) -> DataFrame:
    """Null where the condition does not hold: for a table that is a delete."""
    seen = scope(frame.with_rows(rows), column)
    kept = sf.when(sf.col(column).isNotNull() & _holds(operator), sf.col(column))
    return seen.withColumn(column, kept).select(*frame.rows.columns)


@translate.register
def _selected(operator: Selected, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    if operator.is_table:
        assert operator.value is not None
        rows = _value_of_table(frame, frame.rows, "__value", operator)
        if frame.old:
            rows = _value_of_table(frame.with_rows(frame.rows), rows, "__old", operator, of=frame)
        return frame.with_rows(rows)
    seen = scope(frame)
    changed: dict[str, Column] = {}
    if operator.value is not None:
        made = named(seen, columns(operator.value, frame.fields("__value")), alone="value")
        changed["__value"] = struct_of(made, bare="value", present=sf.col("__value").isNotNull())
    if operator.key is not None:
        changed["__key"] = key_struct(seen, columns(operator.key, frame.fields("__key")))
    if operator.timestamp is not None:
        changed["__timestamp"] = columns([operator.timestamp])[0].cast("bigint")
    kept = [changed.get(name, sf.col(name)).alias(name) for name in frame.rows.columns]
    return frame.with_rows(seen.select(*kept))


def key_struct(seen: DataFrame, made: list[Column]) -> Column:
    """A key of these columns: null when all of them are."""
    fields = named(seen, made, alone="key")
    present = reduce(
        lambda any_present, is_present: any_present | is_present, (column.isNotNull() for _, column in fields)
    )
    return sf.when(present, sf.struct(*(column for _, column in fields)))


def _value_of_table(
    frame: RecordFrame, rows: DataFrame, column: str, operator: Selected, of: RecordFrame | None = None
) -> DataFrame:
    assert operator.value is not None
    seen = scope(frame.with_rows(rows), column)
    made = named(seen, columns(operator.value, (of or frame).fields(column)), alone="value")
    struct = struct_of(made, bare="value")
    return seen.withColumn(column, sf.when(sf.col(column).isNotNull(), struct)).select(*frame.rows.columns)


@translate.register
def _exploded(operator: Exploded, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    seen = scope(frame)
    (elements,) = columns([operator.elements])
    kind = seen.select(elements.alias("x")).schema["x"].dataType
    if not isinstance(kind, ArrayType):
        raise ConfigError(
            f"flat_map takes an expression that makes an array; {operator.elements} makes a {kind.simpleString()}"
        )
    rows = seen.select("*", sf.posexplode(parts(seen, elements)).alias("__place", "__element"))
    if isinstance(kind.elementType, StructType):
        value = sf.col("__element")
    else:
        value = sf.when(sf.col("__element").isNotNull(), sf.struct(sf.col("__element").alias("value")))
    return frame.with_rows(
        rows.select(
            "__key",
            value.alias("__value"),
            "__timestamp",
            "__headers",
            sf.concat("__order", sf.array(sf.col("__place").cast("bigint"))).alias("__order"),
            *carried(frame.rows),
        )
    )


@translate.register
def _merged(operator: Merged, translator: Translator) -> RecordFrame:
    frames = [translator.frame(source) for source in operator.inputs]
    first = frames[0]
    united: DataFrame | None = None
    passing = next((frame.rows.schema[STATE].dataType for frame in frames if carried(frame.rows)), None)
    for number, frame in enumerate(frames):
        for column in ("__key", "__value"):
            ours, theirs = first.rows.schema[column].dataType, frame.rows.schema[column].dataType
            if ours.simpleString() != theirs.simpleString():
                raise ConfigError(
                    f"merge: the {column.strip('_')} of {operator.inputs[number].name} is {theirs.simpleString()},"
                    f" that of {operator.inputs[0].name} {ours.simpleString()}"
                )
        order = sf.concat("__order", sf.array(sf.lit(number).cast("bigint"))).alias("__order")
        rows = frame.rows.select("__key", "__value", "__timestamp", "__headers", order, *carried(frame.rows))
        if passing is not None and not carried(frame.rows):
            rows = rows.withColumn(STATE, sf.lit(None).cast(passing))
        united = rows if united is None else united.union(rows)
    assert united is not None
    return RecordFrame(rows=united)


@translate.register
def _peeked(operator: Peeked, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    look = partial(
        _look_at_each, operator.look, _bare(frame, "__key", "key"), _bare(frame, "__value", "value")
    )
    return frame.with_rows(frame.rows.mapInArrow(look, frame.rows.schema))


def _bare(frame: RecordFrame, column: str, name: str) -> bool:
    return frame.fields(column) == (name,)


def _look_at_each(
    look: Callable[[StreamRecord], Any], bare_key: bool, bare_value: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        records = batch
        if STATE in batch.schema.names:
            records = batch.filter(pc.is_null(batch[STATE]))
        for row in records.select(["__key", "__value", *META[:2]]).to_pylist():
            look(StreamRecord.of(row, bare_key=bare_key, bare_value=bare_value))
        yield batch


@translate.register
def _repartitioned(operator: Repartitioned, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    if operator in translator.keep_null_keys:
        return frame
    return frame.with_rows(where(frame.rows, sf.col("__key").isNotNull()))


@translate.register
def _as_stream(operator: AsStream, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    return RecordFrame(rows=frame.rows.drop("__old", "__latest"))


@translate.register
def _as_table(operator: AsTable, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    return changelog(operator.name, frame, operator in translator.wants_old, translator)


def matching_key(rows: DataFrame, column: str, key: StructType, operator: Operator) -> Column:
    """The key under the names of the table's. Types must agree: else equal values would lie in other tasks."""
    kind = struct_in(rows, column)
    ours, theirs = ([field.dataType.simpleString() for field in struct.fields] for struct in (kind, key))
    if ours != theirs:
        raise ConfigError(
            f"{operator.name}: the keys differ: {', '.join(ours)} on the left, {', '.join(theirs)} on the right"
        )
    return sf.col(column).cast(key.toNullable())
