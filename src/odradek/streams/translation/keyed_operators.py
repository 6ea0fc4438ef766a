"""Operators with state: what goes into their tasks, and what comes out."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import LongType, StringType, StructField, StructType

from odradek.model.errors import ConfigError
from odradek.spark.rows.result_types import ResultType
from odradek.streams.plan.keyed import (
    Aggregated,
    Cogrouped,
    Folded,
    FoldedBy,
    Processed,
    ProcessorOutput,
    Suppressed,
)
from odradek.streams.plan.operators import Expression
from odradek.streams.plan.schemas import declared
from odradek.streams.plan.user_code import Fold
from odradek.streams.plan.windows import SlidingWindows
from odradek.streams.processors.aggregate import (
    AggregateProcessor,
    ByPort,
    CogroupFold,
    PythonFold,
    SqlFold,
)
from odradek.streams.processors.custom import CustomProcessor
from odradek.streams.processors.ports import KeyedProcessor
from odradek.streams.processors.suppress import SuppressProcessor
from odradek.streams.processors.windows import END, START, WindowProcessor, open_windows
from odradek.streams.translation.adapter import Port, keyed
from odradek.streams.translation.aggregates import SqlAggregates
from odradek.streams.translation.frames import (
    META,
    RecordFrame,
    carried,
    columns,
    named,
    of_records,
    parts,
    scope,
    struct_of,
    struct_type,
    where,
)
from odradek.streams.translation.plain_records import PlainInput, plain_arguments
from odradek.streams.translation.stateless import key_struct, latest_versions, matching_key, struct_in
from odradek.streams.translation.translator import Translator, translate


@translate.register
def _aggregated(operator: Aggregated, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    sql = SqlAggregates(operator.aggregates, scope(frame), translator.spark, removable=frame.old)
    plain = plain_arguments(sql.argument_texts, frame.fields("__value"))
    folded = _fold(operator, frame, translator, sql.arguments, SqlFold(sql.calls), sql.results, plain)
    rows = _finished(folded, "__value", sql)
    return RecordFrame(rows=_finished(folded.with_rows(rows), "__old", sql), old=True)


def _finished(frame: RecordFrame, column: str, sql: SqlAggregates) -> DataFrame:
    """Applies the user's expressions to the results of the functions."""
    seen = scope(frame, column)
    outputs = named(seen, columns(sql.expressions), alone="value")
    value = sf.when(sf.col(column).isNotNull(), struct_of(outputs, bare="value"))
    return seen.withColumn(column, value).select(*frame.rows.columns)


@translate.register
def _folded(operator: Folded, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    values = frame.fields("__value")
    declared_kind = None if operator.schema is None else struct_type(declared(operator.schema, "value").ddl)
    kind = declared_kind or struct_in(frame.rows, "__value")
    key_frame = frame.fields("__key") if operator.key is None else operator.key
    fold = PythonFold(
        start=operator.start,
        add=operator.add,
        subtract=operator.subtract,
        merge=operator.merge,
        bare_key=key_name(scope(frame), operator.key, frame) if len(key_frame) == 1 else None,
        bare_value="value" if values == ("value",) else None,
        bare_result="value" if kind.fieldNames() == ["value"] else None,
    )
    everything = sf.struct(*(sf.col(f"`{name}`") for name in values))
    plain = tuple((name, name) for name in values)
    return _fold(operator, frame, translator, everything, fold, kind, plain)


@translate.register
def _folded_by(operator: FoldedBy, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    values = frame.fields("__value")
    everything = sf.struct(*(sf.col(f"`{name}`") for name in values))
    plain = tuple((name, name) for name in values)
    return _fold(operator, frame, translator, everything, operator.fold, struct_type(operator.schema), plain)


def _fold(
    operator: Aggregated | Folded | FoldedBy,
    frame: RecordFrame,
    translator: Translator,
    arguments: Column,
    fold: Fold,
    results: StructType,
    plain: tuple[tuple[str, str | None], ...] | None,
) -> RecordFrame:
    """Runs a fold. `plain` are the arguments as `PlainInput` has them; None where some are computed."""
    if frame.old:
        return _fold_table(operator, frame, translator, arguments, fold, results)
    seen = scope(frame)
    key = _key_of(seen, operator.key)
    payload = sf.struct(of_records(seen, arguments).alias("new"), sf.lit(None).cast("int").alias("old"))
    needs_value = operator.window is None or isinstance(operator.window, SlidingWindows)
    present = sf.col("__by").isNotNull()
    if needs_value:  # other windows take nulls: KStreamWindowAggregate
        present = present & sf.col("__value").isNotNull()
    rows = where(seen.withColumn("__by", key), present)
    kind = struct_in(rows, "__by")
    plain_rows = None
    if frame.plain is not None and plain is not None and operator.key is None:
        of_present = frame.plain.present(key=True, value=needs_value)
        plain_rows = PlainInput(of=of_present, arguments=plain)
    port = Port(rows=rows, key=sf.col("__by"), payload=payload, plain=plain_rows)
    return RecordFrame(rows=_run_fold(operator, [port], kind, fold, results, translator), old=True)


def _run_fold(
    operator: Aggregated | Folded | FoldedBy | Cogrouped,
    ports: list[Port],
    kind: StructType,
    fold: Fold,
    results: StructType,
    translator: Translator,
) -> DataFrame:
    computed, is_partial = results, isinstance(fold, SqlFold)
    if isinstance(fold, SqlFold):
        computed = StructType([field for field in results.fields if field.name in fold.computed])
    fitting = ResultType(to_arrow_type(computed, timezone="UTC"), is_partial)
    processor: KeyedProcessor = AggregateProcessor(fold, fitting)
    if operator.window is not None:
        for name in (START, END):
            if name in kind.fieldNames():
                raise ConfigError(
                    f"{operator.name}: a window adds the column {name} to the key, which has one"
                )
            kind = StructType([*kind.fields, StructField(name, LongType())])
        windows = open_windows(operator.window, fold)
        processor = WindowProcessor(
            windows, fold, final=operator.final, idle_ms=operator.window.idle_ms, results=fitting
        )
    if isinstance(operator, Cogrouped):
        processor = ByPort(processor)
    return keyed(
        ports,
        processor,
        name=operator.name,
        tasks=translator.tasks,
        key=kind,
        outputs=StructType().add("__value", results).add("__old", results),
        old=(1,) if translator.says_latest(operator) else None,
    )


def _fold_table(
    operator: Aggregated | Folded | FoldedBy,
    frame: RecordFrame,
    translator: Translator,
    arguments: Column,
    fold: Fold,
    results: StructType,
) -> RecordFrame:
    """A table's update takes the old value back under its old key, and adds the new one under its new key."""
    frame = latest_versions(frame)
    rows = frame.rows
    for column, by, value in (("__value", "__new_by", "__new"), ("__old", "__old_by", "__was")):
        seen = scope(frame.with_rows(rows), column)
        key = sf.col("__key") if operator.key is None else key_struct(seen, columns(operator.key))
        present = sf.col(column).isNotNull()
        others = [sf.col(name) for name in rows.columns]
        rows = seen.select(*others, sf.when(present, key).alias(by), sf.when(present, arguments).alias(value))
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
    updates = rows.select(
        *META, *carried(rows), sf.posexplode(parts(rows, changes)).alias("__number", "__change")
    )
    ordered = where(updates, sf.col("__change.by").isNotNull()).withColumn(
        "__order", sf.concat("__order", sf.array(sf.col("__number").cast("bigint")))
    )
    payload = sf.struct(sf.col("__change.new").alias("new"), sf.col("__change.old").alias("old"))
    port = Port(rows=ordered, key=sf.col("__change.by"), payload=payload)
    kind = struct_in(rows, "__new_by")
    return RecordFrame(rows=_run_fold(operator, [port], kind, fold, results, translator), old=True)


def _key_of(seen: DataFrame, key: tuple[Expression, ...] | None) -> Column:
    """Returns the key by which records are grouped; None: the key that they have."""
    return sf.col("__key") if key is None else of_records(seen, key_struct(seen, columns(key)))


def key_name(seen: DataFrame, key: tuple[Expression, ...] | None, frame: RecordFrame) -> str:
    """Returns the name of the only column of a key."""
    if key is None:
        return frame.fields("__key")[0]
    ((name, _),) = named(seen, columns(key), alone="key")
    return name


@translate.register
def _processed(operator: Processed, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    seen = scope(frame)
    key = _key_of(seen, operator.key)
    rows = where(seen.withColumn("__by", key), sf.col("__by").isNotNull())
    by = struct_in(rows, "__by")
    plain = None
    if frame.plain is not None and operator.key is None:
        plain = PlainInput(of=frame.plain.present(key=True))
    kinds = [struct_type(declared(schema, "value").ddl) for _, schema in operator.outputs]
    bare_key = by.fieldNames()[0] if len(by.fields) == 1 else None
    single = [name for name, _ in operator.outputs] == [""]
    outputs = StructType() if single else StructType().add("__output", StringType())
    for (name, _), kind in zip(operator.outputs, kinds, strict=True):
        outputs = outputs.add(_output_column(name), kind)
    processor = CustomProcessor(
        operator.processor,
        bare_key=bare_key,
        bare_value="value" if frame.fields("__value") == ("value",) else None,
        outputs={
            name: "value" if kind.fieldNames() == ["value"] else None
            for (name, _), kind in zip(operator.outputs, kinds, strict=True)
        },
        key_type=ResultType(to_arrow_type(by, timezone="UTC")),
        output_types={
            name: ResultType(to_arrow_type(kind, timezone="UTC"))
            for (name, _), kind in zip(operator.outputs, kinds, strict=True)
        },
    )
    updates = keyed(
        [Port(rows=rows, key=sf.col("__by"), payload=sf.col("__value"), plain=plain)],
        processor,
        name=operator.name,
        tasks=translator.tasks,
        key=by,
        outputs=outputs,
    )
    return RecordFrame(rows=updates)


@translate.register
def _suppressed(operator: Suppressed, translator: Translator) -> RecordFrame:
    frame = latest_versions(translator.input(operator))
    rows, value = frame.rows, struct_in(frame.rows, "__value")
    old = sf.col("__old") if frame.old else sf.lit(None).cast(value.simpleString())
    payload = sf.struct(sf.col("__value").alias("value"), old.alias("old"))
    updates = keyed(
        [Port(rows=rows, key=sf.col("__key"), payload=payload)],
        SuppressProcessor(operator.until),
        name=operator.name,
        tasks=translator.tasks,
        key=struct_in(rows, "__key"),
        outputs=StructType().add("__value", value).add("__old", value),
    )
    return RecordFrame(rows=updates if frame.old else updates.drop("__old"), old=frame.old)


def _output_column(name: str) -> str:
    return f"__value_{name}" if name else "__value"


@translate.register
def _processor_output(operator: ProcessorOutput, translator: Translator) -> RecordFrame:
    rows = where(translator.input(operator).rows, sf.col("__output") == operator.output)
    value = sf.col(f"`{_output_column(operator.output)}`").alias("__value")
    return RecordFrame(rows=rows.select("__key", value, *META, *carried(rows)))


@translate.register
def _cogrouped(operator: Cogrouped, translator: Translator) -> RecordFrame:
    ports: list[Port] = []
    kind: StructType | None = None
    bare_values: list[str | None] = []
    for frame, key in zip(translator.inputs(operator), operator.keys, strict=True):
        seen = scope(frame)
        present = sf.col("__by").isNotNull()
        if operator.window is None or isinstance(operator.window, SlidingWindows):
            present = present & sf.col("__value").isNotNull()
        rows = where(seen.withColumn("__by", _key_of(seen, key)), present)
        kind = kind or struct_in(rows, "__by")
        ports.append(
            Port(rows=rows, key=matching_key(rows, "__by", kind, operator), payload=sf.col("__value"))
        )
        bare_values.append("value" if frame.fields("__value") == ("value",) else None)
    assert kind is not None
    results = struct_type(declared(operator.schema, "value").ddl)
    fold = CogroupFold(
        start=operator.start,
        adders=operator.adders,
        merge=operator.merge,
        bare_key=kind.fieldNames()[0] if len(kind.fields) == 1 else None,
        bare_values=tuple(bare_values),
        bare_result="value" if results.fieldNames() == ["value"] else None,
    )
    return RecordFrame(rows=_run_fold(operator, ports, kind, fold, results, translator), old=True)
