"""Operators without state: plain columns of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BooleanType, StructType

from odradek.model.errors import ConfigError
from odradek.spark.engine.catalyst import cannot_raise, try_eval
from odradek.spark.engine.plain_errors import errors_in_one_line
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
from odradek.streams.processors.failures import FailedRows
from odradek.streams.processors.joins import LatestProcessor
from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.python_values import UnreadableValueError, python_values
from odradek.streams.processors.records import StreamRecord
from odradek.streams.processors.versions import VersionedProcessor
from odradek.streams.translation.adapter import Port, keyed, letters_of
from odradek.streams.translation.frames import (
    HEADERS,
    META,
    ORIGIN,
    STATE,
    RecordFrame,
    carried,
    columns,
    computed_here,
    moved_on,
    named,
    of_records,
    parts,
    scope,
    struct_of,
    unless_empty,
    where,
)
from odradek.streams.translation.incoming import without_negative_times
from odradek.streams.translation.letters import PASSING_TYPE, failed, origin_within
from odradek.streams.translation.plain_records import PlainInput
from odradek.streams.translation.translator import Translator, translate


@translate.register
def _source(operator: TopicSource, translator: Translator) -> RecordFrame:
    frame = moved_on(translator.read(operator), translator.events.source_steps(operator))
    if operator.timestamp is not None:
        (when,) = columns([operator.timestamp])
        rows = scope(frame)
        rows = rows.withColumn("__timestamp", of_records(rows, when.cast("bigint")))
        rows = rows.select(*frame.rows.columns)
        letters = translator.tasks.letters(operator.name)
        frame = frame.with_rows(without_negative_times(rows, operator, letters))
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
    """Returns a table's updates without those that came too late to change what is true now (KIP-914)."""
    if "__latest" not in frame.rows.columns:
        return frame
    return frame.with_rows(where(frame.rows, sf.col("__latest")).drop("__latest"))


def changelog(name: str, frame: RecordFrame, old: bool, translator: Translator) -> RecordFrame:
    """Updates of a table: records with a key. What they replace is looked up only where it is asked for."""
    rows = where(frame.rows, sf.col("__key").isNotNull())
    if not old:
        plain = None if frame.plain is None else frame.plain.present(key=True)
        return replace(frame, rows=rows, plain=plain)
    plain_rows = None if frame.plain is None else PlainInput(of=frame.plain.present(key=True))
    value = rows.schema["__value"].dataType
    updates = keyed(
        [Port(rows=rows, key=sf.col("__key"), payload=sf.col("__value"), plain=plain_rows)],
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
            sf.array(when.cast("bigint"), *(sf.lit(0).cast("bigint") for _ in range(4))).alias("__order"),
            *_nothing_to_tell(operator.name, translator),
        )
    )


def _nothing_to_tell(name: str, translator: Translator) -> list[Column]:
    """Columns of a DataFrame's rows, so that they can fail."""
    if translator.tasks.letters(name) is None:
        return []
    return [sf.lit(None).cast(PASSING_TYPE).alias(STATE), origin_within(name).alias(ORIGIN)]


@translate.register
def _filtered(operator: Filtered, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    if not operator.is_table:
        seen, computed = _tried(scope(frame), {"__holds": _holds(operator)}, operator, translator)
        return frame.with_rows(where(seen, computed["__holds"]).select(*frame.rows.columns))
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
    """Returns values, null where the condition does not hold: in a table, null is a delete."""
    seen = scope(frame.with_rows(rows), column)
    value = sf.when(sf.col(column).isNotNull() & _holds(operator), sf.col(column))
    return seen.withColumn(column, computed_here(value)).select(*frame.rows.columns)


@translate.register
def _selected(operator: Selected, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    if operator.is_table:
        assert operator.value is not None
        rows = _value_of_table(frame, frame.rows, "__value", operator)
        if frame.old:
            rows = _value_of_table(frame.with_rows(frame.rows), rows, "__old", operator, of=frame)
        return frame.with_rows(rows)
    seen = scope(frame)
    changed: dict[str, Column] = {}
    if operator.value is not None:
        outputs = named(seen, columns(operator.value, frame.fields("__value")), alone="value")
        present = sf.col("__value").isNotNull()
        if operator.null_value_stays:
            changed["__value"] = sf.when(present, struct_of(outputs, bare="value"))
        else:
            changed["__value"] = struct_of(outputs, bare="value", present=present)
    if operator.key is not None:
        key = columns(operator.key, frame.fields("__key"))
        changed["__key"] = key_struct(seen, key, keeps_nulls=operator.key_keeps_nulls)
    if operator.timestamp is not None:
        changed["__timestamp"] = columns([operator.timestamp])[0].cast("bigint")
    seen, changed = _tried(seen, changed, operator, translator)
    selected = [changed.get(name, sf.col(name)).alias(name) for name in frame.rows.columns]
    return frame.with_rows(seen.select(*selected))


def _tried(
    seen: DataFrame, computed: dict[str, Column], operator: Operator, translator: Translator
) -> tuple[DataFrame, dict[str, Column]]:
    """Returns expressions as they are; or, where the program skips records that fail, as fields of a column that is null for
    these records.
    """
    letters = translator.tasks.letters(operator.name)
    if letters is None or not carried(seen):
        return seen, {name: computed_here(unless_empty(seen, column)) for name, column in computed.items()}
    if cannot_raise(list(computed.values()), seen):  # each expression that is tried costs three projections
        return seen, {name: computed_here(of_records(seen, column)) for name, column in computed.items()}
    good = sf.col(STATE).isNull()
    # What occurs twice Spark computes ahead of try_eval, unless in a branch that may not be taken.
    taken = good & (sf.size("__order") > 0)
    struct = sf.when(taken, sf.struct(*(column.alias(name) for name, column in computed.items())))
    outcome = computed_here(try_eval(struct, seen))
    tried = seen.withColumn("__outcome", outcome)
    wrong = good & sf.col("__outcome").isNull()
    passing = failed(
        tried,
        operator.name,
        sf.when(wrong, sf.lit("ExpressionError")),
        sf.lit(f"{operator.details()} cannot be computed for this record"),
        letters,
    )
    return passing, {name: sf.col("__outcome").getField(name) for name in computed}


def key_struct(seen: DataFrame, outputs: list[Column], *, keeps_nulls: bool = False) -> Column:
    """Returns a key of these columns: null when all of them are. With `keeps_nulls`, several columns make a key of nulls."""
    fields = named(seen, outputs, alone="key")
    if keeps_nulls and len(fields) > 1:
        return sf.struct(*(column for _, column in fields))
    present = reduce(
        lambda any_present, is_present: any_present | is_present, (column.isNotNull() for _, column in fields)
    )
    return sf.when(present, sf.struct(*(column for _, column in fields)))


def _value_of_table(
    frame: RecordFrame, rows: DataFrame, column: str, operator: Selected, of: RecordFrame | None = None
) -> DataFrame:
    assert operator.value is not None
    seen = scope(frame.with_rows(rows), column)
    outputs = named(seen, columns(operator.value, (of or frame).fields(column)), alone="value")
    struct = struct_of(outputs, bare="value")
    changed = computed_here(sf.when(sf.col(column).isNotNull(), struct))
    return seen.withColumn(column, changed).select(*frame.rows.columns)


@translate.register
def _exploded(operator: Exploded, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    seen = scope(frame)
    (elements,) = columns([operator.elements])
    kind = seen.select(elements.alias("x")).schema["x"].dataType
    if not isinstance(kind, ArrayType):
        raise ConfigError(
            f"flat_map takes an expression that makes an array; {operator.elements} makes a {kind.simpleString()}"
        )
    seen, computed = _tried(seen, {"__elements": elements}, operator, translator)
    exploded = sf.posexplode(parts(seen, computed["__elements"]))
    rows = seen.select("*", exploded.alias("__number", "__element"))
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
            sf.concat("__order", sf.array(sf.col("__number").cast("bigint"))).alias("__order"),
            *carried(frame.rows),
        )
    )


@translate.register
def _merged(operator: Merged, translator: Translator) -> RecordFrame:
    frames = translator.inputs(operator)
    first = frames[0]
    united: DataFrame | None = None
    handed_on = {name: frame.rows.schema[name].dataType for frame in frames for name in carried(frame.rows)}
    for number, frame in enumerate(frames):
        for column in ("__key", "__value"):
            ours, theirs = first.rows.schema[column].dataType, frame.rows.schema[column].dataType
            if ours.simpleString() != theirs.simpleString():
                raise ConfigError(
                    f"merge: the {column.strip('_')} of {operator.inputs[number].name} is {theirs.simpleString()},"
                    f" the one of {operator.inputs[0].name} is {ours.simpleString()}"
                )
        order = sf.concat("__order", sf.array(sf.lit(number).cast("bigint"))).alias("__order")
        present = carried(frame.rows)
        more = [
            sf.col(name) if name in present else sf.lit(None).cast(kind).alias(name)
            for name, kind in handed_on.items()
        ]
        rows = frame.rows.select("__key", "__value", "__timestamp", "__headers", order, *more)
        united = rows if united is None else united.union(rows)
    assert united is not None
    return RecordFrame(rows=united)


@translate.register
def _peeked(operator: Peeked, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    look = partial(
        _peek_each,
        operator.look,
        _bare(frame, "__key", "key"),
        _bare(frame, "__value", "value"),
        translator.tasks.failures(operator.name),
    )
    return frame.with_rows(frame.rows.mapInArrow(partial(_in_one_line, look), frame.rows.schema))


def _bare(frame: RecordFrame, column: str, name: str) -> bool:
    return frame.fields(column) == (name,)


def _peek_each(
    look: Callable[[StreamRecord], object],
    bare_key: bool,
    bare_value: bool,
    failures: FailedRows,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        failed: dict[int, dict[str, object] | None] = {}
        for index, (row, unreadable) in enumerate(_python_rows(batch)):
            if row.get(STATE) is None:
                try:
                    if unreadable is not None:
                        raise unreadable
                    look(StreamRecord.of(row, bare_key=bare_key, bare_value=bare_value))
                except Exception as error:  # noqa: BLE001 - code of the program's, which may raise anything
                    failed[index] = _letter_of(row, error, failures)
        yield _without(batch, failed) if failed else batch


def _in_one_line(
    peeked: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with errors_in_one_line():
        yield from peeked(batches)


def _python_rows(batch: pa.RecordBatch) -> Iterator[tuple[dict[str, object], UnreadableValueError | None]]:
    """Yields the rows; of those with values that Python does not hold, what else there is, and the error."""
    try:
        yield from ((row, None) for row in python_values(batch))
    except UnreadableValueError:
        for index in range(batch.num_rows):
            row = batch.slice(index, 1)
            try:
                yield python_values(row)[0], None
            except UnreadableValueError as error:
                rest = [name for name in (*META, STATE, ORIGIN) if name in batch.schema.names]
                yield python_values(row.select(rest))[0], error


def _without(batch: pa.RecordBatch, failed: Mapping[int, Mapping[str, object] | None]) -> pa.RecordBatch:
    """Returns the batch without its failed rows. `failed`: by row number, what passes instead of the record; None where it
    is left out."""
    columns = batch.columns
    if STATE in batch.schema.names:
        number = batch.schema.get_field_index(STATE)
        states = columns[number].to_pylist()
        for index, letter in failed.items():
            states[index] = letter
        columns[number] = pa.array(states, columns[number].type)
    is_passing = [failed.get(index, {}) is not None for index in range(batch.num_rows)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema).filter(pa.array(is_passing))


def _letter_of(row: dict[str, Any], error: Exception, failures: FailedRows) -> dict[str, object] | None:
    """Returns a row that passes in place of the record; None where it is left out."""
    of_row = replace(failures, origins={tuple(row["__order"][1:4]): row.get(ORIGIN)}, packed=[])
    of_row.add(InputRow(0, None, None, row["__timestamp"], None, row["__order"]), error)
    letters = letters_of(of_row)
    return letters[0] if letters else None


@translate.register
def _repartitioned(operator: Repartitioned, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    if operator in translator.keep_null_keys:
        return frame
    return frame.with_rows(where(frame.rows, sf.col("__key").isNotNull()))


@translate.register
def _as_stream(operator: AsStream, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    return RecordFrame(rows=frame.rows.drop("__old", "__latest"))


@translate.register
def _as_table(operator: AsTable, translator: Translator) -> RecordFrame:
    frame = translator.input(operator)
    return changelog(operator.name, frame, operator in translator.wants_old, translator)


def matching_key(rows: DataFrame, column: str, key: StructType, operator: Operator) -> Column:
    """Returns the key under the names of the table's. Types must agree: else equal values would be in different tasks."""
    kind = struct_in(rows, column)
    ours, theirs = ([field.dataType.simpleString() for field in struct.fields] for struct in (kind, key))
    if ours != theirs:
        raise ConfigError(
            f"{operator.name}: the keys differ: {', '.join(ours)} on the left, {', '.join(theirs)} on the right"
        )
    return sf.col(column).cast(key.toNullable())
