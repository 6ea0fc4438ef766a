"""Turns frames into the rows that `format("odradek")` writes; and adds outputs that branch off before a query's end.

A query of Spark has one plan and one sink. Other topics are side outputs: their records are computed from a copy of each row,
packed, and pass through to the sink as changes of state do, in rows that are no records.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, StructType

from odradek.spark.engine.column_plans import column_plan
from odradek.spark.writing.outgoing import PACKED, RowFormat
from odradek.spark.writing.outgoing_rows import outgoing_rows
from odradek.spark.writing.packed_rows import PackedRows
from odradek.streams.plan.operators import TopicSink
from odradek.streams.plan.schemas import check_holds, is_bare
from odradek.streams.processors.python_values import values_of
from odradek.streams.translation.formats import encoded, format_text, typed_fields
from odradek.streams.translation.frames import (
    HEADERS,
    KEPT,
    STATE,
    RecordFrame,
    columns,
    passes,
    scope,
)
from odradek.streams.translation.letters import PASSING_TYPE
from odradek.streams.translation.packing import PACKED_BYTES, PACKED_TYPE, RowUnpacker, packed

_IS_KEPT: Final = "__is_kept"
_IS_LAST: Final = "__is_last"
_BEFORE: Final = "__before"
_LAYOUT: Final = RowFormat(topic=None, columns=frozenset({"key", "value", "topic", "timestamp", "headers"}))


def sink_formats(sink: TopicSink) -> dict[str, str]:
    """Returns options of the sink by which it encodes keys and values. What functions of the plan encode has none."""
    texts = {"keyFormat": format_text(sink.key_format), "valueFormat": format_text(sink.value_format)}
    return {option: text for option, text in texts.items() if text is not None}


def outgoing(sink: TopicSink, frame: RecordFrame, options: Container[str] = ()) -> DataFrame:
    """Returns the rows that `format("odradek")` writes, if it has the options of `sink_formats`; without them all are bytes."""
    rows = scope(frame) if sink.topic_expression is not None else frame.rows
    topic = sf.lit(sink.topic) if sink.topic_expression is None else columns([sink.topic_expression])[0]
    passing: list[Column] = []
    if passes(rows):
        topic = sf.coalesce(sf.col(STATE).getField("topic"), topic.cast("string"))
        passing.append(sf.col(STATE).getField("records").alias(PACKED))
    passing += [sf.col(name) for name in (KEPT,) if name in rows.columns]
    kinds = {name: frame.rows.schema[name].dataType for name in ("__key", "__value")}
    key, value = kinds["__key"], kinds["__value"]
    assert isinstance(key, StructType)
    assert isinstance(value, StructType)
    written = (("key", key, sink.key_format), ("value", value, sink.value_format))
    for role, struct, form in written:
        fields = typed_fields(struct)
        check_holds(form, fields, role, bare=is_bare(fields, role), where=f"output {sink.name}: ")
    return rows.select(
        *(
            (
                sf.col(f"__{role}")
                if f"{role}Format" in options
                else encoded(f"__{role}", struct, form, bare=is_bare(typed_fields(struct), role))
            ).alias(role)
            for role, struct, form in written
        ),
        topic.cast("string").alias("topic"),
        sf.timestamp_millis("__timestamp").alias("timestamp"),
        sf.coalesce("__headers", sf.array().cast(HEADERS)).alias("headers"),
        *passing,
    )


def packed_output(rows: DataFrame) -> tuple[DataFrame, Mapping[str, str]]:
    """Returns what a query hands to its sink, and options of the sink: the rows that the last operator with state packed, where
    the sink can compute the columns of `rows` from them; or else `rows`, and no options.
    """
    plan = column_plan(rows, RowUnpacker.__name__)
    if plan is None or plan.below.schema != PACKED_TYPE:
        return rows, {}
    packed_rows = PackedRows(
        packed=to_arrow_schema(plan.columns, timezone="UTC"),
        computed=to_arrow_schema(rows.schema, timezone="UTC"),
        written=rows.schema.jsonValue(),
        instructions=plan.instructions,
        keep=plan.keep,
        outputs=plan.outputs,
    )
    return plan.below, {"packedRows": packed_rows.to_text()}


def doubled(frame: RecordFrame, *, held_back: bool) -> RecordFrame:
    """Returns each record, followed by a row that passes and keeps it. What passed before is kept, too, and not doubled.

    `held_back`: the rows are every update of a table, of which only the last one of each key is for the output.
    """
    rows = frame.rows
    marked = _with_last_marked(frame) if held_back else rows
    copies, one_copy = sf.array(sf.lit(False), sf.lit(True)), sf.array(sf.lit(True))
    if passes(rows):
        copies = sf.when(sf.col(STATE).isNull(), copies).otherwise(one_copy)
    if held_back:
        copies = sf.when(sf.col(_IS_LAST), copies).otherwise(one_copy)
    is_passed_on = sf.col(_IS_KEPT)
    passing = sf.struct(sf.lit("").alias("topic"), sf.lit(None).cast("binary").alias("records"))
    columns = {name: sf.col(name) for name in rows.columns if name != STATE}
    if _BEFORE in marked.columns:
        columns["__old"] = sf.when(is_passed_on, sf.col("__old")).otherwise(sf.col(_BEFORE)).alias("__old")
    return frame.with_rows(
        marked.select("*", sf.explode(copies).alias(_IS_KEPT)).select(
            *columns.values(),
            sf.when(is_passed_on, passing.cast(PASSING_TYPE)).alias(STATE),
            sf.when(is_passed_on, sf.struct(*(sf.col(name) for name in rows.columns))).alias(KEPT),
        )
    )


def _with_last_marked(frame: RecordFrame) -> DataFrame:
    """Which update is the last of its key, and what the first one replaced. All updates of a key are in one partition, in their
    order, since no operator is between them and the task that emitted them.
    """
    rows = frame.rows
    schema = StructType([*rows.schema.fields]).add(_IS_LAST, BooleanType())
    if frame.old:
        schema = schema.add(_BEFORE, rows.schema["__old"].dataType)
    return rows.mapInArrow(partial(_mark_last, to_arrow_schema(schema, timezone="UTC")), schema)


def _mark_last(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    collected = list(batches)
    if not collected:
        return
    rows = pa.Table.from_batches(collected)
    keys = values_of(rows["__key"])
    records = range(rows.num_rows)
    if STATE in rows.column_names:
        records = pc.indices_nonzero(pc.is_null(rows[STATE])).to_pylist()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    names = {index: repr(keys[index]) for index in records}
    for index, name in names.items():
        first.setdefault(name, index)
        last[name] = index
    is_last = [index in names and last[names[index]] == index for index in range(rows.num_rows)]
    rows = rows.append_column(schema.field(_IS_LAST), pa.array(is_last))
    if _BEFORE in schema.names:
        begins = [first[names[index]] if index in names else index for index in range(rows.num_rows)]
        rows = rows.append_column(schema.field(_BEFORE), rows["__old"].take(pa.array(begins, pa.int64())))
    yield from rows.to_batches()


def undoubled(frame: RecordFrame, written: DataFrame) -> RecordFrame:
    """Returns the frame as it was before `doubled`; what was made of the copies, to be `written`, passes in it."""
    rows = frame.rows
    schema = StructType([*rows.schema.fields]).toNullable()
    if not passes(rows):
        schema = schema.add(STATE, PASSING_TYPE)
    rejoin = partial(_rejoined, to_arrow_schema(schema, timezone="UTC"))
    return frame.with_rows(written.mapInArrow(rejoin, schema))


def _rejoined(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the kept rows; at the end, a row like the last of them for each few megabytes to write."""
    by_topic: dict[str, list[pa.RecordBatch]] = {}
    letters: list[dict[str, object]] = []
    last: pa.RecordBatch | None = None
    for batch in batches:
        is_passed_on = pc.is_valid(batch[KEPT])
        restored = _restored(batch[KEPT].filter(is_passed_on), schema)
        if restored.num_rows:
            last = restored.slice(restored.num_rows - 1)
            yield restored
        others = batch.filter(pc.invert(is_passed_on))
        is_record = pc.is_null(others[PACKED])
        letters += others.filter(pc.invert(is_record)).select(["topic", PACKED]).to_pylist()
        of_topics = outgoing_rows(others.filter(is_record), _LAYOUT, marks=None, first_sequence=0)
        for topic, records in of_topics:
            by_topic.setdefault(topic, []).append(records)
    states = [{"topic": letter["topic"], "records": letter[PACKED]} for letter in letters]
    states += [
        {"topic": topic, "records": data} for topic, records in by_topic.items() for data in _packed(records)
    ]
    if states:
        assert last is not None  # each record has a copy that is kept
        yield _rows_like(last, states, schema)


def _restored(rows: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    fields = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
    arrays = [
        fields[field.name].cast(field.type) if field.name in fields else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _packed(batches: list[pa.RecordBatch]) -> Iterator[bytes]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(records.nbytes for records in waiting) >= PACKED_BYTES:
            yield packed(pa.Table.from_batches(waiting))
            waiting = []
    if waiting:
        yield packed(pa.Table.from_batches(waiting))


def _rows_like(
    row: pa.RecordBatch, states: Sequence[Mapping[str, object]], schema: pa.Schema
) -> pa.RecordBatch:
    """Rows that pass: expressions of the user's see them, and the tasks of one key keep their order."""
    copies = row.take(pa.array([0] * len(states)))
    arrays = [pa.array(states, field.type) if field.name == STATE else copies[field.name] for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
