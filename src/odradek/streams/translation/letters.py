"""Dead letters in a plan: rows that are no records any more, and pass to the sink as changes of state do."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
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
    if letters.is_quiet:
        return rows.where(~is_bad)
    failure_json = _failure_json(is_bad, exception, message)
    if letters.topic is None:
        logged = arrow_column(_logger(stage), BooleanType(), failure_json)
        return rows.where(~sf.coalesce(logged, sf.lit(False)))
    packed = arrow_column(_packer(stage), BinaryType(), failure_json)
    passing = sf.struct(sf.lit(letters.topic).alias("topic"), packed.alias("records")).cast(PASSING_TYPE)
    return rows.withColumn(STATE, sf.when(is_bad, passing).otherwise(sf.col(STATE)))


def _failure_json(is_bad: Column, exception: Column, message: Column) -> Column:
    """What Python hears of each record: nothing of most. Spark would write structs with lists in quadratic time where most
    are null, so it is JSON, with bytes in base 64.
    """
    failure = sf.struct(
        sf.col(ORIGIN).alias("origin"), exception.alias("exception"), message.alias("message")
    )
    return sf.when(is_bad & sf.col(ORIGIN).isNotNull(), sf.to_json(failure, {"ignoreNullFields": "false"}))


def _failures(documents: pa.Array) -> Iterator[tuple[int, dict[str, Any]]]:
    """By their rows."""
    for row in pc.indices_nonzero(pc.is_valid(documents)).to_pylist():
        failure = json.loads(documents[row].as_py())
        origin = failure["origin"]
        parts = [
            (origin, "key"),
            (origin, "value"),
            *((header, "value") for header in origin["headers"] or ()),
        ]
        for holder, part in parts:
            if holder[part] is not None:
                holder[part] = base64.b64decode(holder[part])
        yield row, failure


def _packer(stage: str) -> Any:
    def pack(documents: pa.Array) -> pa.Array:
        packed: list[bytes | None] = [None] * len(documents)
        for row, failure in _failures(documents):
            known = RecordFailure(exception=failure["exception"], message=failure["message"], stage=stage)
            packed[row] = packed_letter(failure["origin"], known)
        return pa.array(packed, pa.binary())

    return pack


def _logger(stage: str) -> Any:
    def warn(documents: pa.Array) -> pa.Array:
        for _, failure in _failures(documents):
            origin = failure["origin"]
            place = f"{origin['topic']}-{origin['partition']} offset {origin['offset']}"
            log.warning("left out: %s failed at %s: %s", stage, place, failure["message"])
        return pc.is_valid(documents)

    return warn
