"""`python -m benchmarks.spark.batches HOST:PORT BATCHES`: seconds of each micro-batch with both deliveries, as JSON.

One session, two queries from one topic, in turn, a few batches each time: what the machine does meanwhile hits both.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from odradek.client import Admin, NewTopic, Producer

TASKS: Final = 2
ROWS: Final = 100
TURNS: Final = 5
WARM_TURNS: Final = 3
VALUE: Final = b"v" * 100
DELIVERIES: Final = {"at least once": "at_least_once", "exactly once": "exactly_once"}


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # its workers are of this environment
    servers, batches = sys.argv[1], int(sys.argv[2])
    per_turn = max(batches // TURNS, 1)
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    source, target = (f"spark-batches-{way}-{time.time_ns()}" for way in ("in", "out"))
    seconds: dict[str, list[float]] = {delivery: [] for delivery in DELIVERIES}
    with Admin(servers) as admin, tempfile.TemporaryDirectory(prefix="odradek-bench-") as temporary:
        admin.create_topics([NewTopic(source, TASKS), NewTopic(target, TASKS)])
        for turn in range(WARM_TURNS + TURNS):
            _fill(servers, source, per_turn)
            for delivery, option in DELIVERIES.items():
                result = _run(spark, servers, source, target, option, Path(temporary) / option)
                if turn >= WARM_TURNS:
                    seconds[delivery] += result
        admin.delete_topics([source, target])
    sys.stdout.write(json.dumps(seconds) + "\n")
    spark.stop()


def _fill(servers: str, topic: str, batches: int) -> None:
    with Producer(servers) as producer:
        for partition in range(TASKS):
            for _ in range(ROWS * batches):
                producer.send(topic, VALUE, partition=partition)


def _run(
    spark: SparkSession, servers: str, source: str, target: str, delivery: str, checkpoint: Path
) -> list[float]:
    """Seconds that each batch spent in the sink's half."""
    options = {"delivery": delivery}
    if delivery == "exactly_once":
        options["sinkId"] = target
    query: Any = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(TASKS * ROWS))
        .load()
        .select("value")
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("deliveryHeaders", "false")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [entry for entry in query.recentProgress if entry["numInputRows"]]
    return [
        entry["durationMs"]["addBatch"] / 1000 for entry in progress[1:]
    ]  # the first one starts processes


if __name__ == "__main__":
    main()
