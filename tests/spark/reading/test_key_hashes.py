"""The hash of keys in the source is Spark's: a record goes to the task that has its key's state."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from odradek.spark.reading.key_hashes import hashes

_ROW_COUNT = 300
_LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 11, 16, 255, 256, 257, 300, 1_000)
_KINDS = {
    "text": pa.string(),
    "number": pa.int32(),
    "large": pa.int64(),
    "flag": pa.bool_(),
    "data": pa.binary(),
}


def test_keys_have_the_hash_that_spark_gives_them(spark: SparkSession) -> None:
    random = Random(5)
    rows = [tuple(_values(random)) for _ in range(_ROW_COUNT)]
    frame = spark.createDataFrame(rows, "text STRING, number INT, large BIGINT, flag BOOLEAN, data BINARY")
    parts = {
        name: pa.array([row[place] for row in rows], kind)
        for place, (name, kind) in enumerate(_KINDS.items())
    }
    for names in (*((name,) for name in _KINDS), tuple(_KINDS), ("flag", "text")):
        expected = [row[0] for row in frame.select(sf.hash(sf.struct(*names))).collect()]
        keys = pa.StructArray.from_arrays([parts[name] for name in names], names=names)
        assert hashes(keys).tolist() == expected, names
        assert hashes(keys.slice(17, 40)).tolist() == expected[17:57], names


def test_a_null_key_has_the_seed(spark: SparkSession) -> None:
    nothing = sf.lit(None).cast("struct<key:string>")
    (expected,) = {row[0] for row in spark.range(1).select(sf.hash(nothing)).collect()}
    keys = pa.array([None, {"key": "a"}], pa.struct([pa.field("key", pa.string())]))
    assert hashes(keys).tolist()[0] == expected


def _values(random: Random) -> Any:
    text = "".join(
        chr(random.choice((random.randrange(1, 128), random.randrange(160, 0x7FF), 0x1F600)))
        for _ in range(random.choice(_LENGTHS))
    )
    yield random.choice((None, text, text, text))
    for bits in (32, 64):
        yield random.choice((None, 0, -1, random.randrange(-(1 << (bits - 1)), 1 << (bits - 1))))
    yield random.choice((None, True, False))
    yield random.choice((None, random.randbytes(random.randrange(12)), b"\xff" * 7))
