"""Spark's own Kafka connector: writes a batch, reads it back, and copies a topic in two runs of one streaming query.

Arguments: jars, servers, source, sink, directory, count. What it saw is written to `seen.json` in the directory.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

jars, servers, source, sink, place, wanted = sys.argv[1:]
directory, count = Path(place), int(wanted)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    .getOrCreate()
)


def write(first: int) -> None:
    number = f.col("id").cast("string")
    header = f.struct(f.lit("number").alias("key"), number.cast("binary").alias("value"))
    rows = spark.range(first, first + count).select(
        number.alias("key"),
        f.concat(f.lit("spark "), number).alias("value"),
        f.array(header).alias("headers"),
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", source).option(
        "includeHeaders", "true"
    ).save()


def read() -> DataFrame:
    options = {"kafka.bootstrap.servers": servers, "subscribe": source, "includeHeaders": "true"}
    return (
        spark.read.format("kafka").options(**options).option("kafka.isolation.level", "read_committed").load()
    )


def copy() -> None:
    """All that is there now, from where the last run ended."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    stream = (
        spark.readStream.format("kafka").options(**options).option("kafka.isolation.level", "read_committed")
    )
    written = stream.load().select("key", "value").writeStream.format("kafka")
    settings = {
        "kafka.bootstrap.servers": servers,
        "topic": sink,
        "checkpointLocation": str(directory / "check"),
    }
    query = written.options(**settings).trigger(availableNow=True).start()
    query.awaitTermination()


write(0)
rows = (
    read()
    .where("headers is not null")
    .selectExpr(
        "cast(key as string) key",
        "cast(value as string) value",
        "cast(headers[0].value as string) header",
        "partition",
    )
    .collect()
)
copy()
write(count)
copy()
seen = {
    "rows": sorted((row.key, row.value, row.header) for row in rows),
    "partitions": sorted({row.partition for row in rows}),
    "all": read().count(),
}
(directory / "seen.json").write_text(json.dumps(seen))
spark.stop()
