"""Dead letters of a plan: records that fail become a side output, and pass to the sink as changes of state do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType

from odradek.spark.dead_letters.passing import log_failure
from odradek.streams.processors.failures import Letters
from odradek.streams.translation.formats import arrow_column
from odradek.streams.translation.frames import HEADERS, ORIGIN, STATE, computed_here, filtered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN_TYPE: Final = (
    "struct<topic:string,partition:int,offset:bigint,timestamp:bigint,key:binary,value:binary,"
    f"headers:{HEADERS}>"
)
"""A record as it was read. The timestamp is in milliseconds."""
PASSING_TYPE: Final = "struct<topic:string,records:binary>"
"""The type of rows that `odradek.spark.dead_letters.passing` reads."""


def origin_of(*, key: Column, value: Column, headers: Column) -> Column:
    """Returns the origin of a row as the source returns it."""
    return sf.struct(
        sf.col("topic"),
        sf.col("partition"),
        sf.col("offset"),
        sf.unix_millis("timestamp").alias("timestamp"),
        key.alias("key"),
        value.alias("value"),
        headers.cast(HEADERS).alias("headers"),
    ).cast(ORIGIN_TYPE)


def origin_within(name: str) -> Column:
    """Returns the origin of a row that comes from no record: a dead letter can only name its place in the program."""
    nothing = sf.lit(None)
    coordinates = [
        sf.lit(name).alias("topic"),
        *(sf.lit(0).alias(part) for part in ("partition", "offset", "timestamp")),
    ]
    return sf.struct(*coordinates, *(nothing.alias(part) for part in ("key", "value", "headers"))).cast(
        ORIGIN_TYPE
    )


def failed(rows: DataFrame, stage: str, exception: Column, message: Column, letters: Letters) -> DataFrame:
    """Turns the records whose `exception` is not null into rows that pass through. Rows have ORIGIN and STATE."""
    is_bad = exception.isNotNull() & sf.col(STATE).isNull()
    if letters.is_quiet:
        return filtered(rows, ~is_bad)
    failure = sf.struct(
        sf.coalesce(sf.col(ORIGIN), origin_within(stage)).alias("origin"),
        exception.alias("exception"),
        message.alias("message"),
        sf.lit(stage).alias("stage"),
    )
    passing = sf.struct(
        sf.lit(letters.passing_topic).alias("topic"),
        sf.to_json(failure, {"ignoreNullFields": "false"}).cast("binary").alias("records"),
    )
    state = sf.when(is_bad, passing.cast(PASSING_TYPE)).otherwise(sf.col(STATE))
    return rows.withColumn(STATE, computed_here(state))


def records_alone(rows: DataFrame) -> DataFrame:
    """Leaves only records, for a plan without a sink of ours; logs records that failed, even if they have a topic."""
    is_record = arrow_column(_logged, BooleanType(), sf.col(STATE).getField("records"))
    return filtered(rows, is_record)


def _logged(passing: pa.Array) -> pa.Array:
    for records in passing.drop_null():
        log_failure(records.as_buffer())
    return passing.is_null()
