"""Joins: what goes into their tasks, and how a joined value is made of both sides."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.model.errors import ConfigError
from odradek.streams.plan.event_order import SIDE_TURNS, TABLE_TURN
from odradek.streams.plan.keyed import (
    ForeignKeyJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    WindowTableJoin,
)
from odradek.streams.plan.operators import TopicSource, history_of
from odradek.streams.processors.foreign_keys import ForeignKeyProcessor
from odradek.streams.processors.joins import StreamTableProcessor, TableTableProcessor
from odradek.streams.processors.ports import KeyedProcessor
from odradek.streams.processors.stream_joins import StreamStreamProcessor
from odradek.streams.processors.versions import VersionedJoinProcessor
from odradek.streams.processors.window_tables import WindowTableProcessor
from odradek.streams.processors.windows import END
from odradek.streams.translation.adapter import Port, keyed
from odradek.streams.translation.frames import (
    RecordFrame,
    carried,
    columns,
    key_columns,
    moved_on,
    named,
    of_records,
    parts,
    scope,
    struct_of,
)
from odradek.streams.translation.plain_records import PlainInput, plain_input
from odradek.streams.translation.stateless import (
    changelog,
    key_struct,
    latest_versions,
    matching_key,
    struct_in,
)
from odradek.streams.translation.translator import Translator, translate


@translate.register
def _stream_table(operator: StreamTableJoin, translator: Translator) -> RecordFrame:
    stream, table = translator.inputs(operator)
    seen = scope(stream)
    key = sf.col("__key") if operator.on is None else of_records(seen, key_struct(seen, columns(operator.on)))
    rows = seen.withColumn("__by", key)
    table_key = struct_in(table.rows, "__key")
    by = matching_key(rows, "__by", table_key, operator)
    payload = sf.struct(sf.col("__key").alias("key"), sf.col("__value").alias("value"))
    history_ms = history_of(operator.inputs[1])
    plain = None
    if stream.plain is not None and operator.on is None:
        plain = PlainInput(of=stream.plain, has_key_beside=True)
    processor: KeyedProcessor = StreamTableProcessor(operator.kind)
    if history_ms is not None:
        processor = VersionedJoinProcessor(operator.kind, history_ms=history_ms, grace_ms=operator.grace_ms)
    everywhere = isinstance(operator.inputs[1], TopicSource) and operator.inputs[1].everywhere
    value, table_value = struct_in(stream.rows, "__value"), struct_in(table.rows, "__value")
    joined = keyed(
        [
            Port(rows=rows, key=by, payload=payload, plain=plain),
            Port(
                rows=table.rows,
                key=sf.col("__key"),
                payload=sf.col("__value"),
                everywhere=everywhere,
                turn=TABLE_TURN,
                plain=plain_input(table),
            ),
        ],
        processor,
        name=operator.name,
        tasks=translator.tasks,
        key=struct_in(stream.rows, "__key"),
        outputs=StructType().add("__left", value).add("__right", table_value),
    )
    return RecordFrame(rows=joined_value(RecordFrame(rows=joined), "__left", "__right", "__value", operator))


@translate.register
def _table_table(operator: TableTableJoin, translator: Translator) -> RecordFrame:
    left, right = map(latest_versions, translator.inputs(operator))
    key = struct_in(left.rows, "__key")
    ours, theirs = struct_in(left.rows, "__value"), struct_in(right.rows, "__value")
    matching = matching_key(right.rows, "__key", key, operator)
    outputs = StructType()
    for name, kind in (("__left", ours), ("__right", theirs), ("__old_left", ours), ("__old_right", theirs)):
        outputs = outputs.add(name, kind)
    left_turn, right_turn = SIDE_TURNS if translator.reading == "stored" else (0, 1)
    joined = keyed(
        [
            Port(
                rows=left.rows,
                key=sf.col("__key"),
                payload=sf.col("__value"),
                turn=left_turn,
                plain=plain_input(left),
            ),
            Port(
                rows=right.rows,
                key=matching,
                payload=sf.col("__value"),
                turn=right_turn,
                plain=plain_input(right),
            ),
        ],
        TableTableProcessor(operator.kind),
        name=operator.name,
        tasks=translator.tasks,
        key=key,
        outputs=outputs,
        old=(2, 3) if translator.says_latest(operator) else None,
    )
    rows = joined_value(RecordFrame(rows=joined), "__left", "__right", "__value", operator)
    rows = joined_value(RecordFrame(rows=rows), "__old_left", "__old_right", "__old", operator)
    return RecordFrame(rows=rows, old=True)


def joined_value(
    frame: RecordFrame,
    left: str,
    right: str,
    name: str,
    operator: StreamTableJoin | TableTableJoin | StreamStreamJoin | ForeignKeyJoin,
) -> DataFrame:
    """Returns the joined value in place of both sides. Null where the kind of join has none: then a table deletes."""
    ours, theirs = frame.fields(left), frame.fields(right)
    taken = {column.lower() for column in ours}
    pairs = [
        (column, f"{operator.prefix}{column}" if column.lower() in taken else column) for column in theirs
    ]
    for column, shown in pairs:
        if shown.lower() in taken:
            raise ConfigError(
                f"{operator.name}: both sides have a column {column}: give prefix=, such as prefix='right_'"
            )
    seen = frame.rows.select(
        "*",
        *(sf.col(left).getField(column).alias(column) for column in ours),
        *(sf.col(right).getField(column).alias(shown) for column, shown in pairs),
        *key_columns(frame, taken | {shown.lower() for _, shown in pairs}),
        sf.col("__timestamp").alias("_timestamp"),
    )
    everything = [*ours, *(shown for _, shown in pairs)]
    chosen = ("*",) if operator.value is None else operator.value
    outputs = named(seen, columns(chosen, everything), alone="value")
    bare = "value" if operator.value is not None else ""
    sides = [sf.col(left).isNotNull(), sf.col(right).isNotNull()]
    here = {"inner": sides[0] & sides[1], "left": sides[0], "outer": sides[0] | sides[1]}[operator.kind]
    value = sf.when(here, struct_of(outputs, bare=bare)).alias(name)
    others = [column for column in frame.rows.columns if column not in (left, right)]
    return seen.select(*others, value)


@translate.register
def _stream_stream(operator: StreamStreamJoin, translator: Translator) -> RecordFrame:
    left, right = translator.inputs(operator)
    key = struct_in(left.rows, "__key")
    matching = matching_key(right.rows, "__key", key, operator)
    ours, theirs = struct_in(left.rows, "__value"), struct_in(right.rows, "__value")
    joined = keyed(
        [
            Port(rows=left.rows, key=sf.col("__key"), payload=sf.col("__value"), plain=plain_input(left)),
            Port(rows=right.rows, key=matching, payload=sf.col("__value"), plain=plain_input(right)),
        ],
        StreamStreamProcessor(
            operator.kind,
            before_ms=operator.before_ms,
            after_ms=operator.after_ms,
            grace_ms=operator.grace_ms,
        ),
        name=operator.name,
        tasks=translator.tasks,
        key=key,
        outputs=StructType().add("__left", ours).add("__right", theirs),
    )
    return RecordFrame(rows=joined_value(RecordFrame(rows=joined), "__left", "__right", "__value", operator))


@translate.register
def _foreign_key(operator: ForeignKeyJoin, translator: Translator) -> RecordFrame:
    left, right = map(latest_versions, translator.inputs(operator))
    key = struct_in(left.rows, "__key")
    ours, theirs = struct_in(left.rows, "__value"), struct_in(right.rows, "__value")
    rows = _references(operator, left)
    by = matching_key(rows, "__by", struct_in(right.rows, "__key"), operator)
    payload = sf.struct(
        sf.col("__key").alias("key"),
        sf.col("__value").alias("value"),
        sf.col("__instruction").alias("instruction"),
    )
    joined = keyed(
        [
            Port(rows=rows, key=by, payload=payload),
            Port(rows=right.rows, key=sf.col("__key"), payload=sf.col("__value")),
        ],
        ForeignKeyProcessor(operator.kind),
        name=operator.name,
        tasks=translator.tasks,
        key=key,
        outputs=StructType().add("__left", ours).add("__right", theirs),
    )
    rows = joined_value(RecordFrame(rows=joined), "__left", "__right", "__value", operator)
    wanted = operator in translator.wants_old or translator.tasks.count > 1
    answers = moved_on(RecordFrame(rows=rows), (), translator.events.answer_hops(operator))
    return changelog(f"{operator.name}-old", answers, wanted, translator)


@translate.register
def _window_table(operator: WindowTableJoin, translator: Translator) -> RecordFrame:
    windows, table = map(latest_versions, translator.inputs(operator))
    key = struct_in(windows.rows, "__key")
    if operator.held_ms is not None and END not in key.fieldNames():
        raise ConfigError(f"{operator.name}: held= is for a windowed table, whose key has the column {END}")
    seen = scope(windows)
    on = of_records(seen, key_struct(seen, columns(operator.on)))
    rows = seen.select(*windows.rows.columns, on.alias("__by"))
    by = matching_key(rows, "__by", struct_in(table.rows, "__key"), operator)
    payload = sf.struct(sf.col("__key").alias("key"), sf.col("__value").alias("value"))
    ours, theirs = struct_in(windows.rows, "__value"), struct_in(table.rows, "__value")
    joined = keyed(
        [
            Port(rows=rows, key=by, payload=payload),
            Port(rows=table.rows, key=sf.col("__key"), payload=sf.col("__value")),
        ],
        WindowTableProcessor(operator.kind, held_ms=operator.held_ms),
        name=operator.name,
        tasks=translator.tasks,
        key=key,
        outputs=StructType().add("__left", ours).add("__right", theirs),
    )
    rows = joined_value(RecordFrame(rows=joined), "__left", "__right", "__value", operator)
    wanted = operator in translator.wants_old
    return changelog(f"{operator.name}-old", RecordFrame(rows=rows), wanted, translator)


def _references(operator: ForeignKeyJoin, left: RecordFrame) -> DataFrame:
    """Returns, for each update of the left table, its subscriptions: the messages to its old and to its new foreign key."""
    rows = left.rows
    for column, by in (("__value", "__new_by"), ("__old", "__old_by")):
        seen = scope(left.with_rows(rows), column)
        key = sf.when(sf.col(column).isNotNull(), key_struct(seen, columns(operator.on)))
        rows = seen.select(*(sf.col(name) for name in rows.columns), key.alias(by))
    new, old = sf.col("__new_by"), sf.col("__old_by")
    here, was = sf.col("__value").isNotNull(), sf.col("__old").isNotNull()
    same = new.eqNullSafe(old)
    moved = here & was & ~same

    def to(by: Column, instruction: str, when: Column) -> Column:
        return sf.when(when, sf.struct(by.alias("by"), sf.lit(instruction).alias("instruction")))

    left_kind = sf.lit(operator.kind == "left")
    gone = ~here | (moved & new.isNull() & ~left_kind)
    leaves = to(old, "leave", moved & old.isNotNull() & (new.isNotNull() | left_kind))
    deletes = to(old, "delete", was & gone & (old.isNotNull() | left_kind))
    moves = to(new, "move", moved & old.isNotNull() & new.isNotNull())
    keeps = to(new, "keep", here & (~was | same | old.isNull()) & new.isNotNull())
    nowhere = to(new, "keep", here & new.isNull() & left_kind)
    subscriptions = sf.array_compact(sf.array(leaves, deletes, moves, keeps, nowhere))
    messages = rows.select(
        "__key",
        "__value",
        "__timestamp",
        "__headers",
        "__order",
        *carried(rows),
        sf.posexplode(parts(rows, subscriptions)).alias("__number", "__to"),
    )
    return messages.select(
        "__key",
        "__value",
        "__timestamp",
        "__headers",
        sf.concat("__order", sf.array(sf.col("__number").cast("bigint"))).alias("__order"),
        sf.col("__to.by").alias("__by"),
        sf.col("__to.instruction").alias("__instruction"),
        *carried(rows),
    )
