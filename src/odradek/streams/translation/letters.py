"""Dead letters in a plan: rows that are no records any more, and pass to the sink as changes of state do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, BooleanType

from odradek.dead_letters.headers import RecordFailure
from odradek.streams.processors.failures import Letters, packed_letter
from odradek.streams.translation.formats import arrow_column
from odradek.streams.translation.frames import HEADERS, ORIGIN, STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log: Final = logging.getLogger("odradek.streams")
ORIGIN_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
ORIGIN_TYPE: Final = (
    "struct<topic:string,partition:int,offset:bigint,timestamp:bigint,key:binary,value:binary,"
    f"headers:{HEADERS}>"
)
"""A record as it was read. The timestamp is in milliseconds."""
PASSING_TYPE: Final = "struct<topic:string,records:binary>"


def origin_of(*, key: Column, value: Column, headers: Column) -> Column:
    """Of a row as the source gives it."""
    return sf.struct(
        sf.col("topic"),
        sf.col("partition"),
        sf.col("offset"),
        sf.unix_millis("timestamp").alias("timestamp"),
        key.alias("key"),
        value.alias("value"),
        headers.cast(HEADERS).alias("headers"),
    ).cast(ORIGIN_TYPE)


def try_eval(column: Column, rows: DataFrame) -> Column:
    """The column; null where computing it raises. Spark has it as an expression, and for some functions only as SQL (try_…)."""
    jvm = rows.sparkSession._jvm
    assert jvm is not None
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(column._jc))
    return Column(expressions.column(tried))


def failed(rows: DataFrame, stage: str, exception: Column, message: Column, letters: Letters) -> DataFrame:
    """The records whose `exception` is not null become dead letters, or are left out. Rows have ORIGIN and STATE."""
    is_bad = exception.isNotNull() & sf.col(STATE).isNull()
    if letters.topic is None or letters.is_quiet:
        if letters.is_quiet:
            return rows.where(~is_bad)
        logged = arrow_column(_logger(stage), BooleanType(), sf.when(is_bad, sf.col(ORIGIN)), message)
        return rows.where(~sf.coalesce(logged, sf.lit(False)))
    packed = arrow_column(_packer(stage), BinaryType(), sf.when(is_bad, sf.col(ORIGIN)), exception, message)
    passing = sf.struct(sf.lit(letters.topic).alias("topic"), packed.alias("records")).cast(PASSING_TYPE)
    return rows.withColumn(STATE, sf.when(is_bad, passing).otherwise(sf.col(STATE)))


def _packer(stage: str) -> Any:
    def pack(origins: pa.Array, exceptions: pa.Array, messages: pa.Array) -> pa.Array:
        rows = zip(origins.to_pylist(), exceptions.to_pylist(), messages.to_pylist(), strict=True)
        return pa.array(
            [
                None
                if origin is None
                else packed_letter(origin, RecordFailure(exception=exception, message=message, stage=stage))
                for origin, exception, message in rows
            ],
            pa.binary(),
        )

    return pack


def _logger(stage: str) -> Any:
    def warn(origins: pa.Array, messages: pa.Array) -> pa.Array:
        for origin, message in zip(origins.to_pylist(), messages.to_pylist(), strict=True):
            if origin is not None:
                place = f"{origin['topic']}-{origin['partition']} offset {origin['offset']}"
                log.warning("left out: %s failed at %s: %s", stage, place, message)
        return pa.array([None if origin is None else True for origin in origins.to_pylist()], pa.bool_())

    return warn
