"""One Spark session, two formats in turn, on topics that are not plain: what `benchmarks.spark.connector --shapes` runs.

    python -m benchmarks.spark.shapes HOST:PORT JARS ROUNDS SCALE MINUTES tcp|unix ONLY

It prints JSON as `benchmarks.spark.formats` does. A rate counts the rows of the topic, so a filter that reads a tenth of them
may reach ten times the rate. Each side asks in the way that its documentation advises, but both filter by the same
expression, for which the connector reads the whole topic: with `startingOffsets` it reads a tenth, too. The connector takes
minutes for a thousand partitions: it keeps 64 consumers, and the end of each of the others waits for a fetch under way.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.spark.connector import READY_MADE
from benchmarks.spark.formats import FORMATS, OURS, chosen, measured, session
from benchmarks.spark.ready_made import FIELDS, HEADERS, HEADERS_TYPE, flight
from odradek.client import Admin, NewTopic, Producer

_CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
_FILL_ROWS: Final = 20_000
PARTITIONS: Final = 1_000
_KIB: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A topic, and what each side is asked for."""

    topic: str
    rows: int
    odradek: Callable[[Any], DataFrame]
    """Takes a reader that knows servers and topic."""
    connector: Callable[[Any], DataFrame] | None = None
    """None where another row has it."""
    ready_made: str | None = None
    """The ready-made rows that the row is compared with (`ready_made.SHAPES`), none where there is no such thing."""
    value_bytes: int = _KIB


def main() -> None:
    servers, jars, rounds, scale = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    spark = session(jars, sys.argv[6])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    fill(servers, scale)
    shapes = shapes_of(scale)
    cases = {name: partial(_read, spark, servers, shape) for name, shape in shapes.items()}
    figures = measured(
        chosen(cases, sys.argv[7]),
        lambda name: _formats(shapes[name]),
        rounds,
        float(sys.argv[5]),
        once=[name for name, shape in shapes.items() if shape.topic == "partitions"],
    )
    sys.stdout.write(json.dumps({"spark": spark.version, "rows/s": figures}) + "\n")
    spark.stop()


def shapes_of(scale: float) -> dict[str, Shape]:
    """Returns what is measured, by the name of its row."""
    rows = int(500_000 * scale)
    compressed = {
        f"1 KiB of JSON, {codec}": Shape(
            topic=codec, rows=rows, connector=_plain, odradek=_plain, ready_made="plain"
        )
        for codec in _CODECS
    }
    return {
        "a filter for the last tenth of a partition's offsets, 1 KiB": Shape(
            topic="plain",
            rows=rows,
            connector=lambda reader: _last_tenth(reader, rows),
            odradek=lambda reader: _last_tenth(reader.option("filterPushdown", "true"), rows),
        ),
        "keys alone, of records with 1 KiB": Shape(
            topic="plain",
            rows=rows,
            connector=lambda reader: reader.load().select("key"),
            odradek=lambda reader: reader.option("columns", "key").load(),
            ready_made="key",
        ),
        "three headers and 100 B": Shape(
            topic="headers",
            rows=rows,
            connector=_with_headers,
            odradek=_with_headers,
            ready_made="headers",
            value_bytes=100,
        ),
        "six fields of JSON": Shape(
            topic="json",
            rows=rows,
            connector=_from_json,
            odradek=_value_decode,
            ready_made="fields",
            value_bytes=100,
        ),
        **compressed,
        f"{PARTITIONS:,} partitions, 1 KiB, ours with maxPartitions=8": Shape(
            topic="partitions",
            rows=rows,
            connector=_plain,
            odradek=lambda reader: reader.option("maxPartitions", "8").load(),
        ),
        f"{PARTITIONS:,} partitions, 1 KiB, ours with a task for each, too": Shape(
            topic="partitions", rows=rows, odradek=_plain
        ),
    }


def _plain(reader: Any) -> DataFrame:
    frame: DataFrame = reader.load()
    return frame


def _last_tenth(reader: Any, rows: int) -> DataFrame:
    return _plain(reader).where(f"offset >= {rows - rows // 10}")


def _with_headers(reader: Any) -> DataFrame:
    return _plain(reader.option("includeHeaders", "true"))


def _from_json(reader: Any) -> DataFrame:
    fields = f.from_json(f.col("value").cast("string"), FIELDS)
    return _plain(reader).select(fields.alias("value"))


def _value_decode(reader: Any) -> DataFrame:
    asked = reader.option("columns", "value").option("valueDecode", "json")
    return _plain(asked.option("valueSchema", FIELDS))


def fill(servers: str, scale: float) -> None:
    """Makes the topics, and writes their records."""
    rows = int(500_000 * scale)
    with Admin(servers) as admin:
        topics = [NewTopic(name, 1) for name in ("plain", "headers", "json", *_CODECS)]
        admin.create_topics([*topics, NewTopic("partitions", PARTITIONS)])
    plain = [b"v" * _KIB]
    small = [b"v" * 100]
    flights = [json.dumps(flight(number)).encode() for number in range(2_000)]
    # Texts that share most flights with their neighbours would shrink to a fiftieth, unlike those of a real topic.
    choose = random.Random(1)
    texts = [b"[%s]" % b",".join(choose.sample(flights, 9)) for _ in range(2_000)]
    texts = [text[:_KIB].ljust(_KIB) for text in texts]
    _write(servers, "plain", rows, plain)
    _write(servers, "headers", rows, small, headers=True)
    _write(servers, "json", rows, flights)
    _write(servers, "partitions", rows, plain, spread=True)
    for codec in _CODECS:
        _write(servers, codec, rows, texts, codec=codec)


def _write(
    servers: str,
    topic: str,
    rows: int,
    values: list[bytes],
    *,
    headers: bool = False,
    spread: bool = False,
    codec: str = "none",
) -> None:
    with Producer(servers, linger_ms=5, compression_type=codec) as producer:
        for batch in _record_batches(rows, values, headers=headers, spread=spread):
            producer.send_arrow(topic, batch)
        producer.flush()


def _record_batches(
    rows: int, values: list[bytes], *, headers: bool, spread: bool
) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, _FILL_ROWS):
        numbers = range(start, min(start + _FILL_ROWS, rows))
        columns: dict[str, Any] = {
            "key": pa.array([b"%010d" % number for number in numbers], pa.binary()),
            "value": pa.array([values[number % len(values)] for number in numbers], pa.binary()),
        }
        if headers:
            columns["headers"] = pa.array([HEADERS] * len(numbers), HEADERS_TYPE)
        if spread:
            columns["partition"] = pa.array([number % PARTITIONS for number in numbers], pa.int32())
        yield pa.RecordBatch.from_pydict(columns)


def _formats(shape: Shape) -> tuple[str, ...]:
    formats = FORMATS if shape.connector is not None else (OURS,)
    return (*formats, READY_MADE) if shape.ready_made else formats


def _read(spark: SparkSession, servers: str, shape: Shape, spark_format: str) -> float:
    began = time.perf_counter()  # load() of a source in Python calls a worker
    reader: Any = spark.read.format(spark_format)
    if spark_format == READY_MADE:
        assert shape.ready_made is not None
        reader = reader.option("rows", shape.rows).option("bytes", shape.value_bytes)
        rows = reader.option("shape", shape.ready_made).load()
    else:
        reader = reader.option("kafka.bootstrap.servers", servers).option("subscribe", shape.topic)
        reader = reader.option("minPartitions", "2")
        ask = shape.odradek if spark_format == OURS else shape.connector
        assert ask is not None
        rows = ask(reader)
    rows.write.format("noop").mode("overwrite").save()
    return shape.rows / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
