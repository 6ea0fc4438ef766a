"""A frame: the DataFrame that an operator's records are in, with columns of ours, and how expressions see them.

`__key` and `__value` are structs, or null. A table's frame may also have `__old`: the value before the update.
`__timestamp` is in
milliseconds, `__headers` an array of (key, value), `__order` is `InputRow.order`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.streams.plan.operators import Expression, TopicSource

if TYPE_CHECKING:
    import pyarrow as pa
    import pyspark.sql.functions as sf
    import pyspark.sql.types as types
    from pyspark.sql import Column, DataFrame

else:
    sf = lazy("pyspark.sql.functions")
    types = lazy("pyspark.sql.types")

HEADERS: Final = "array<struct<key:string,value:binary>>"
META: Final = ("__timestamp", "__headers", "__order")
STATE: Final = "__state"
"""The column that is null in records. Other rows take changes of a task's state, or a dead letter, to the sink, and pass
through all operators.
"""
KEPT: Final = "__kept"
"""The column of a row that is kept inside another one, and continues after an output on the way is written."""
_BY_SETTINGS: Final = re.compile("TIMESTAMP|CHAR|INTERVAL|COLLATE", re.IGNORECASE)
"""What a type has in its text if settings of the session change its meaning."""
_HOLDS: Final = "__holds_here"
_STEPS_MAX: Final = 1 << 20
ORIGIN: Final = "__origin"
"""The record that a row comes from, as it was read, for dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRecords:
    """The records of a topic, as `TaskRows` takes them. `load` returns them as a stream, with more options of the source."""

    load: Callable[[Mapping[str, str]], DataFrame]
    records: pa.Schema
    source: int
    key: str | None
    value: str | None
    skips_negative_times: bool
    needs_key: bool = False
    needs_value: bool = False
    hops: int = 0
    steps: tuple[int, ...] = ()

    def moved_on(self, steps: tuple[int, ...], hops: int) -> PlainRecords:
        return replace(self, steps=(*self.steps, *steps), hops=self.hops + hops)

    def present(self, *, key: bool = False, value: bool = False) -> PlainRecords:
        """Returns the records that have a key, or a value."""
        return replace(self, needs_key=self.needs_key or key, needs_value=self.needs_value or value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFrame:
    """An operator's records as a DataFrame.

    `old`: the column `__old` is there. `plain`: the records are as the source has read them; the frame of an operator that
    changes them has none.
    """

    rows: DataFrame
    old: bool = False
    plain: PlainRecords | None = None

    def fields(self, struct: str) -> tuple[str, ...]:
        kind = self.rows.schema[struct].dataType
        assert isinstance(kind, types.StructType)
        return tuple(kind.fieldNames())

    def with_rows(self, rows: DataFrame) -> RecordFrame:
        return replace(self, rows=rows, plain=None)


def moved_on(frame: RecordFrame, steps: Iterable[int], hops: int = 0) -> RecordFrame:
    """Returns the records one step further on their way: `hops` repartitions, then `steps` (`InputRow.order`)."""
    order, steps = sf.col("__order"), tuple(steps)
    if hops:
        passed = sf.get(order, sf.lit(4)) + sf.lit(hops).cast("bigint")
        order = sf.concat(sf.slice(order, 1, 4), sf.array(passed), sf.slice(order, 6, _STEPS_MAX))
    taken = [sf.lit(step).cast("bigint") for step in steps]
    if taken:
        order = sf.concat(order, sf.array(*taken))
    if not hops and not taken:
        return frame
    plain = None if frame.plain is None else frame.plain.moved_on(steps, hops)
    return replace(frame, rows=frame.rows.withColumn("__order", order), plain=plain)


def carried(rows: DataFrame) -> tuple[str, ...]:
    """Returns the columns that every operator hands on, where these rows have them."""
    return tuple(name for name in (STATE, ORIGIN, KEPT) if name in rows.columns)


def passes(rows: DataFrame) -> bool:
    """Tells whether some of these rows may be no records."""
    return STATE in rows.columns


def where(rows: DataFrame, condition: Column) -> DataFrame:
    """Returns the records for which it holds, and what passes."""
    return filtered(rows, condition | sf.col(STATE).isNotNull() if passes(rows) else condition)


def filtered(rows: DataFrame, condition: Column) -> DataFrame:
    """The rows for which it holds. Spark moves a plain `where` down to the source, and all that its condition comes from with
    it: functions in Python run twice then, and with each operator the condition grows.
    """
    marked = rows.select("*", computed_here(condition).alias(_HOLDS))
    return marked.where(sf.col(_HOLDS)).select(*rows.columns)


def computed_here(column: Column) -> Column:
    """Returns the column, such that Spark moves no filter below the operator that computes it, nor copies it into its uses.

    Without it CollapseProject writes what an operator computes into every use of that by the next one: the plan grows
    with the product of their columns, and the code that is made of it is more than a JVM takes (decision 0077).
    """
    return sf.when(sf.spark_partition_id() >= 0, column)


def of_records(rows: DataFrame, computed: Column) -> Column:
    """The column in records, and null in what passes: an expression of the user's counts, and raises, for records alone. It is
    for what goes into a task: the rows that come out of it look like records again.
    """
    return sf.when(sf.col(STATE).isNull(), computed) if passes(rows) else computed


def unless_empty(rows: DataFrame, computed: Column) -> Column:
    """Returns `of_records`, computed also for rows that pass through and look like records, which other expressions see. Spark
    calls functions in Python for all rows, even of the other branch, and they need values.
    """
    return (
        sf.when(sf.col(STATE).isNull() | sf.col("__value").isNotNull(), computed)
        if passes(rows)
        else computed
    )


def parts(rows: DataFrame, elements: Column) -> Column:
    """Returns an array's elements for `posexplode`: a row that passes through has one, which is null."""
    if not passes(rows):
        return elements
    kind = rows.select(elements.alias("x")).schema["x"].dataType
    assert isinstance(kind, types.ArrayType)
    nothing = sf.array(sf.lit(None).cast(kind.elementType))
    return sf.when(sf.col(STATE).isNotNull(), nothing).otherwise(elements)


def scope(frame: RecordFrame, value: str = "__value") -> DataFrame:
    """Returns the frame with its own columns and the columns that a user's expressions see."""
    values = frame.fields(value)
    seen = {name.lower() for name in values}
    return frame.rows.select(
        "*",
        *(sf.col(value).getField(name).alias(name) for name in values),
        *key_columns(frame, seen),
        sf.col("__timestamp").alias("_timestamp"),
        sf.col("__headers").alias("_headers"),
    )


def key_columns(frame: RecordFrame, taken: set[str]) -> list[Column]:
    """Returns the key's columns that no other hides (`taken`: names in lower case). A bare key is also called `key`."""
    names = frame.fields("__key")
    shown = [(name, name) for name in names if name.lower() not in taken]
    if len(names) == 1 and "key" not in {*taken, names[0].lower()}:
        shown.append((names[0], "key"))
    return [sf.col("__key").getField(name).alias(alias) for name, alias in shown]


def columns(expressions: Iterable[Expression], all_values: Iterable[str] = ()) -> list[Column]:
    """Returns Spark's columns for the user's expressions; `*` means all value columns."""
    outputs: list[Column] = []
    for expression in expressions:
        if isinstance(expression, str) and expression.strip() == "*":
            outputs += [sf.col(f"`{name}`") for name in all_values]
        else:
            outputs.append(sf.expr(expression) if isinstance(expression, str) else expression)
    return outputs


def named(rows: DataFrame, outputs: list[Column], *, alone: str) -> list[tuple[str, Column]]:
    """The columns with their names. One without a name is called `alone`; of several, each needs a name."""
    names = rows.select(*outputs).columns
    visible = {name.lower() for name in rows.columns}
    named_columns = []
    for name, column in zip(names, outputs, strict=True):
        unnamed = not name.isidentifier() and name.lower() not in visible
        if unnamed or name.startswith("__"):
            if len(outputs) > 1:
                raise ConfigError(f"one of several expressions needs a name: {column} AS name")
            name = alone
        named_columns.append((name, column.alias(name)))
    lower = [name.lower() for name, _ in named_columns]
    for name in lower:
        if lower.count(name) > 1:
            raise ConfigError(f"the column {name} is there twice: name one of them otherwise")
    return named_columns


def struct_of(outputs: list[tuple[str, Column]], *, bare: str, present: Column | None = None) -> Column:
    """Returns a struct; null where it is one column called `bare` that is null, or where `present` is false and all columns are
    null.
    """
    struct = sf.struct(*(column for _, column in outputs))
    if [name for name, _ in outputs] == [bare]:
        return sf.when(outputs[0][1].isNotNull(), struct)
    if present is None:
        return struct
    something = present
    for _, column in outputs:
        something = something | column.isNotNull()
    return sf.when(something, struct)


def struct_type(ddl: str) -> types.StructType:
    """Returns the type of these fields. Spark parses it in the JVM, once if no setting of the session changes what it means."""
    if _BY_SETTINGS.search(ddl):
        return _parsed(ddl)
    return types.StructType.fromJson(json.loads(_parsed_json(ddl)))


@functools.lru_cache(maxsize=1_000)
def _parsed_json(ddl: str) -> str:
    return _parsed(ddl).json()


def _parsed(ddl: str) -> types.StructType:
    kind = types.StructType.fromDDL(ddl)
    assert isinstance(kind, types.StructType)
    return kind


def record_schema(source: TopicSource) -> types.StructType:
    """Returns the columns of a frame that holds the records of a topic."""
    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    return (
        types.StructType()
        .add("__key", struct_type(source.key.ddl))
        .add("__value", struct_type(source.value.ddl))
        .add("__timestamp", types.LongType())
        .add("__headers", types.ArrayType(header))
        .add("__order", types.ArrayType(types.LongType()))
    )
