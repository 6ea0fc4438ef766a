"""Dropping what an at-least-once sink wrote twice.

The sink marks each record with the query, the micro-batch, the task and the row's number in that task. A
retried task writes the same rows under the same marks. Two records are one and the same when their marks
*and* their contents agree: were the marks enough, a plan that yields its rows in another order the second
time would lose rows here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.model.public import public

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, functions
else:
    functions = lazy("pyspark.sql.functions")

QUERY_HEADER: Final = "odradek.query"
BATCH_HEADER: Final = "odradek.batch"
PARTITION_HEADER: Final = "odradek.partition"
SEQUENCE_HEADER: Final = "odradek.sequence"
MARK_HEADERS: Final = (QUERY_HEADER, BATCH_HEADER, PARTITION_HEADER, SEQUENCE_HEADER)

_NEEDED: Final = ("key", "value", "topic", "partition", "offset", "headers")
_IDENTITY: Final = "__odradek_identity"


@public("odradek.spark")
def deduplicate(records: DataFrame, *, within: str | None = None) -> DataFrame:
    """Keeps one of each record that `format("odradek")` wrote more than once; others pass untouched.

    `records` has the columns of a read with `includeHeaders=true`. A stream needs `within`, such as "1 hour":
    how far apart in event time (column `timestamp`) two copies may be; it bounds the state that Spark keeps.
    """
    missing = [name for name in _NEEDED if name not in records.columns]
    if missing:
        raise ConfigError(
            f"deduplicate() needs the column{'s' * (len(missing) > 1)} {', '.join(missing)}:"
            " read with includeHeaders=true, and deduplicate before selecting"
        )
    marked = records.withColumn(_IDENTITY, _identity())
    if not records.isStreaming:
        return marked.dropDuplicates([_IDENTITY]).drop(_IDENTITY)
    if within is None:
        raise ConfigError(
            'deduplicate() of a stream needs within="1 hour" or so, or its state would grow forever'
        )
    return (
        marked.withWatermark("timestamp", within).dropDuplicatesWithinWatermark([_IDENTITY]).drop(_IDENTITY)
    )


def _identity() -> Column:
    """Marks and content of a marked record; the record's own place for one without marks."""
    marks = [_header(name) for name in MARK_HEADERS]
    is_marked = marks[0].isNotNull()
    for mark in marks[1:]:
        is_marked = is_marked & mark.isNotNull()
    content = functions.hex(functions.xxhash64("key", "value"))
    coordinates = functions.concat_ws(
        "@",
        functions.col("topic"),
        functions.col("partition").cast("string"),
        functions.col("offset").cast("string"),
    )
    return functions.when(
        is_marked, functions.concat_ws("/", *marks, functions.col("topic"), content)
    ).otherwise(coordinates)


def _header(name: str) -> Column:
    """The last header of this name: those before it may be marks of an earlier write, of a record that was copied."""
    column = functions.filter("headers", lambda header: header["key"] == name)
    return functions.try_element_at(column, functions.lit(-1))["value"].cast("string")
