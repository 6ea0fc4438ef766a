"""Operators with state: what goes into their tasks, and what comes out."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.model.errors import ConfigError
from odradek.streams.plan.keyed import Aggregated, Folded, StreamTableJoin, TableTableJoin
from odradek.streams.plan.operators import Operator
from odradek.streams.plan.schemas import declared
from odradek.streams.processors.aggregate import AggregateProcessor, Fold, PythonFold, SqlFold
from odradek.streams.processors.joins import StreamTableProcessor, TableTableProcessor
from odradek.streams.translation.adapter import Port, keyed
from odradek.streams.translation.aggregates import SqlAggregates
from odradek.streams.translation.frames import (
    META,
    RecordFrame,
    columns,
    key_columns,
    named,
    scope,
    struct_of,
    struct_type,
)
from odradek.streams.translation.stateless import key_struct
from odradek.streams.translation.translator import Translator, translate


@translate.register
def _aggregated(operator: Aggregated, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    sql = SqlAggregates(operator.aggregates, scope(frame), translator.spark, removable=frame.old)
    folded = _fold(operator, frame, translator, sql.arguments, SqlFold(sql.calls), sql.results)
    rows = _finished(folded, "__value", sql)
    return RecordFrame(rows=_finished(folded.with_rows(rows), "__old", sql), old=True)


def _finished(frame: RecordFrame, column: str, sql: SqlAggregates) -> DataFrame:
    """What the user's expressions make of the results of the functions."""
    seen = scope(frame, column)
    made = named(seen, columns(sql.expressions), alone="value")
    value = sf.when(sf.col(column).isNotNull(), struct_of(made, bare="value"))
    return seen.withColumn(column, value).select(*frame.rows.columns)


@translate.register
def _folded(operator: Folded, translator: Translator) -> RecordFrame:
    frame = translator.frame(operator.inputs[0])
    values = frame.fields("__value")
    declared_kind = None if operator.schema is None else struct_type(declared(operator.schema, "value").ddl)
    kind = declared_kind or _struct(frame.rows, "__value")
    bare_key = operator.key is None and frame.fields("__key") == ("key",)
    fold = PythonFold(
        start=operator.start,
        add=operator.add,
        subtract=operator.subtract,
        merge=operator.merge,
        bare_key="key" if bare_key else None,
        bare_value="value" if values == ("value",) else None,
        bare_result="value" if kind.fieldNames() == ["value"] else None,
    )
    everything = sf.struct(*(sf.col(f"`{name}`") for name in values))
    return _fold(operator, frame, translator, everything, fold, kind)


def _fold(
    operator: Aggregated | Folded,
    frame: RecordFrame,
    translator: Translator,
    arguments: Column,
    fold: Fold,
    results: StructType,
) -> RecordFrame:
    if frame.old:
        return _fold_table(operator, frame, translator, arguments, fold, results)
    seen = scope(frame)
    key = sf.col("__key") if operator.key is None else key_struct(seen, columns(operator.key))
    payload = sf.struct(arguments.alias("new"), sf.lit(None).cast("int").alias("old"))
    rows = seen.withColumn("__by", key).where(sf.col("__by").isNotNull() & sf.col("__value").isNotNull())
    port = Port(rows=rows, key=sf.col("__by"), payload=payload)
    return RecordFrame(rows=_run_fold(operator, port, fold, results, translator), old=True)


def _run_fold(
    operator: Aggregated | Folded, port: Port, fold: Fold, results: StructType, translator: Translator
) -> DataFrame:
    kind = port.rows.select(port.key.alias("x")).schema["x"].dataType
    assert isinstance(kind, StructType)
    return keyed(
        [port],
        AggregateProcessor(fold),
        tasks=translator.tasks,
        key=kind,
        outputs=StructType().add("__value", results).add("__old", results),
        old=(1,) if operator.emit == "latest" else None,
    )


def _fold_table(
    operator: Aggregated | Folded,
    frame: RecordFrame,
    translator: Translator,
    arguments: Column,
    fold: Fold,
    results: StructType,
) -> RecordFrame:
    """A table's update takes the old value back under its old key, and adds the new one under its new key."""
    rows = frame.rows
    for column, by, made in (("__value", "__new_by", "__new"), ("__old", "__old_by", "__was")):
        seen = scope(frame.with_rows(rows), column)
        key = sf.col("__key") if operator.key is None else key_struct(seen, columns(operator.key))
        present = sf.col(column).isNotNull()
        kept = [sf.col(name) for name in rows.columns]
        rows = seen.select(*kept, sf.when(present, key).alias(by), sf.when(present, arguments).alias(made))
    same = sf.col("__new_by") == sf.col("__old_by")
    nothing = sf.lit(None).cast(rows.schema["__new"].dataType)
    change = "struct<by:{0},new:{1},old:{1}>".format(
        rows.schema["__new_by"].dataType.simpleString(), rows.schema["__new"].dataType.simpleString()
    )

    def one(by: str, new: Column, old: Column) -> Column:
        return sf.struct(sf.col(by).alias("by"), new.alias("new"), old.alias("old"))

    new, was = sf.col("__new"), sf.col("__was")
    both = sf.array(one("__old_by", nothing, was), one("__new_by", new, nothing)).cast(f"array<{change}>")
    single = sf.array(one("__new_by", new, was)).cast(f"array<{change}>")
    changes = sf.when(sf.coalesce(same, sf.lit(False)), single).otherwise(both)
    parts = rows.select(*META, sf.posexplode(changes).alias("__place", "__change")).where(
        "__change.by IS NOT NULL"
    )
    ordered = parts.withColumn("__order", sf.concat("__order", sf.array(sf.col("__place").cast("bigint"))))
    payload = sf.struct(sf.col("__change.new").alias("new"), sf.col("__change.old").alias("old"))
    port = Port(rows=ordered, key=sf.col("__change.by"), payload=payload)
    return RecordFrame(rows=_run_fold(operator, port, fold, results, translator), old=True)


@translate.register
def _stream_table(operator: StreamTableJoin, translator: Translator) -> RecordFrame:
    stream, table = (translator.frame(each) for each in operator.inputs)
    seen = scope(stream)
    key = sf.col("__key") if operator.on is None else key_struct(seen, columns(operator.on))
    rows = seen.withColumn("__by", key)
    table_key = _struct(table.rows, "__key")
    by = _matching(rows, "__by", table_key, operator)
    payload = sf.struct(sf.col("__key").alias("key"), sf.col("__value").alias("value"))
    value, found = _struct(stream.rows, "__value"), _struct(table.rows, "__value")
    joined = keyed(
        [
            Port(rows=rows, key=by, payload=payload),
            Port(rows=table.rows, key=sf.col("__key"), payload=sf.col("__value")),
        ],
        StreamTableProcessor(operator.kind),
        tasks=translator.tasks,
        key=_struct(stream.rows, "__key"),
        outputs=StructType().add("__left", value).add("__right", found),
    )
    return RecordFrame(rows=joined_value(RecordFrame(rows=joined), "__left", "__right", "__value", operator))


def _matching(rows: DataFrame, column: str, key: StructType, operator: Operator) -> Column:
    """The key under the names of the table's. Types must agree: else equal values would lie in other tasks."""
    kind = _struct(rows, column)
    ours, theirs = ([field.dataType.simpleString() for field in each.fields] for each in (kind, key))
    if ours != theirs:
        raise ConfigError(
            f"{operator.name}: the keys differ: {', '.join(ours)} on the left, {', '.join(theirs)} on the right"
        )
    return sf.col(column).cast(key)


@translate.register
def _table_table(operator: TableTableJoin, translator: Translator) -> RecordFrame:
    left, right = (translator.frame(each) for each in operator.inputs)
    key = _struct(left.rows, "__key")
    ours, theirs = _struct(left.rows, "__value"), _struct(right.rows, "__value")
    matching = _matching(right.rows, "__key", key, operator)
    outputs = StructType()
    for name, kind in (("__left", ours), ("__right", theirs), ("__old_left", ours), ("__old_right", theirs)):
        outputs = outputs.add(name, kind)
    joined = keyed(
        [
            Port(rows=left.rows, key=sf.col("__key"), payload=sf.col("__value")),
            Port(rows=right.rows, key=matching, payload=sf.col("__value")),
        ],
        TableTableProcessor(operator.kind),
        tasks=translator.tasks,
        key=key,
        outputs=outputs,
        old=(2, 3) if operator.emit == "latest" else None,
    )
    rows = joined_value(RecordFrame(rows=joined), "__left", "__right", "__value", operator)
    rows = joined_value(RecordFrame(rows=rows), "__old_left", "__old_right", "__old", operator)
    return RecordFrame(rows=rows, old=True)


def joined_value(
    frame: RecordFrame,
    left: str,
    right: str,
    name: str,
    operator: StreamTableJoin | TableTableJoin,
) -> DataFrame:
    """The joined value in place of both sides. Null where the kind of join has none: then a table deletes."""
    ours, theirs = frame.fields(left), frame.fields(right)
    taken = {each.lower() for each in ours}
    pairs = [(each, f"{operator.prefix}{each}" if each.lower() in taken else each) for each in theirs]
    for each, shown in pairs:
        if shown.lower() in taken:
            raise ConfigError(
                f"{operator.name}: both sides have a column {each}: give prefix=, such as prefix='right_'"
            )
    seen = frame.rows.select(
        "*",
        *(sf.col(left).getField(each).alias(each) for each in ours),
        *(sf.col(right).getField(each).alias(shown) for each, shown in pairs),
        *key_columns(frame, taken | {shown.lower() for _, shown in pairs}),
        sf.col("__timestamp").alias("_timestamp"),
    )
    everything = [*ours, *(shown for _, shown in pairs)]
    chosen = ("*",) if operator.value is None else operator.value
    made = named(seen, columns(chosen, everything), alone="value")
    bare = "value" if operator.value is not None else ""
    sides = [sf.col(left).isNotNull(), sf.col(right).isNotNull()]
    here = {"inner": sides[0] & sides[1], "left": sides[0], "outer": sides[0] | sides[1]}[operator.kind]
    value = sf.when(here, struct_of(made, bare=bare)).alias(name)
    kept = [each for each in frame.rows.columns if each not in (left, right)]
    return seen.select(*kept, value)


def _struct(rows: DataFrame, column: str) -> StructType:
    kind = rows.schema[column].dataType
    assert isinstance(kind, StructType)
    return kind
