"""The pipeline: flights as they happen, joined with their airlines, counted by hour, origin and carrier.

Each hour is written once, when the watermark says that no more of its flights will come. A watermark only moves when an
event moves it: in a live stream the next day's flights see to that, but the flights of 2013 end, and their last week would
wait for ever. So the topic ends with one record that is no flight, `last_event()`, dated late enough to close every hour
before it. It belongs to no airline, so the join drops it, and no hour counts it.

(The other way would be update mode, where a topic holds every version of an hour and the last one wins. Spark refuses
update mode to sinks written in Python; it would take `foreachBatch`, see docs/spark.md.)

The result is written exactly once: a batch's rows are all there or not at all, each once, whatever is killed when. It takes a
name of the sink, `sinkId`, and readers that read committed records alone.

Departure times are local; `time_hour` in the data is the same hour in UTC, so clock changes need no thought here.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

ROWS_PER_BATCH = 60_000
LATENESS = timedelta(days=7)
"""Partitions are read side by side and drift apart, by up to four days of 2013: no flight may be too late for its hour."""
HOUR = timedelta(hours=1)

FLIGHT = "time_hour TIMESTAMP, origin STRING, carrier STRING, dep_time INT, dep_delay DOUBLE"
AIRLINE = "carrier STRING, name STRING"
HOURLY = (
    "hour TIMESTAMP, origin STRING, carrier STRING, airline STRING,"
    " departures BIGINT, cancellations BIGINT, mean_delay DOUBLE"
)
RESULT_TOPIC = "departures_hourly"
SINK = "departures-hourly"


def last_event(last_hour: datetime) -> bytes:
    """What to send after the last flight: it moves the watermark behind the end of `last_hour`."""
    return json.dumps({"time_hour": (last_hour + HOUR + LATENESS).isoformat(), "carrier": "(none)"}).encode()


def flights(spark: SparkSession, servers: str) -> DataFrame:
    return (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .option("columns", "value")
        .option("valueDecode", "json")
        .option("valueSchema", FLIGHT)
        .load()
        .select("value.*")
    )


def airlines(spark: SparkSession, servers: str) -> DataFrame:
    return (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "airlines")
        .option("columns", "value")
        .option("valueDecode", "json")
        .option("valueSchema", AIRLINE)
        .load()
        .select("value.*")
    )


def hourly(departing: DataFrame, carriers: DataFrame) -> DataFrame:
    """Departures, cancellations and mean delay in minutes, for each hour, origin and carrier."""
    return (
        departing.withWatermark("time_hour", f"{LATENESS.days} days")
        .join(F.broadcast(carriers.withColumnRenamed("name", "airline")), "carrier")
        .groupBy(F.window("time_hour", "1 hour"), "origin", "carrier", "airline")
        .agg(
            F.count("dep_time").alias("departures"),
            F.count_if(F.col("dep_time").isNull()).alias("cancellations"),
            F.avg("dep_delay").alias("mean_delay"),
        )
        .select(
            F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ssXXX").alias("hour"),
            "origin",
            "carrier",
            "airline",
            "departures",
            "cancellations",
            "mean_delay",
        )
    )


def start(spark: SparkSession, servers: str, checkpoint: str) -> StreamingQuery:
    """Run the pipeline over everything that is in the topics now, from where it was; the query ends by itself."""
    result = hourly(flights(spark, servers), airlines(spark, servers).cache())
    return (
        result.select(
            F.concat_ws("|", "origin", "carrier", "hour").alias("key"),
            F.to_json(F.struct("*")).alias("value"),
        )
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", RESULT_TOPIC)
        .option("delivery", "exactly_once")
        .option("sinkId", SINK)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


def read_back(spark: SparkSession, servers: str) -> DataFrame:
    """The result as a table. `versions` counts the rows of an hour: exactly once, that is 1."""
    return (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", RESULT_TOPIC)
        .option("kafka.isolation.level", "read_committed")
        .option("columns", "key,value,offset")
        .option("keyDecode", "utf8")
        .option("valueDecode", "json")
        .option("valueSchema", HOURLY)
        .load()
        .groupBy("key")
        .agg(F.max_by("value", "offset").alias("last"), F.count("*").alias("versions"))
        .select("last.*", "versions")
    )
