"""The same query on Spark: a driver JVM, Python workers, and one task for each partition, or fewer.

    python -m tests.faults.sink.spark_query JOB            # JSON: a Job

When the query fails it is started again in the same session; when the JVM dies this process ends, too. It prints the JVM's
process id once, and a line for each failure.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.faults.sink.job import Job
from tests.faults.sink.lifeline import end_with_parent

from odradek.spark.engine.unpacked_pyspark import unpacked_pyspark


def main() -> None:
    end_with_parent()
    job = Job.from_text(sys.argv[1])
    with unpacked_pyspark():
        spark = (
            SparkSession.builder.master(f"local[{job.workers},4]")  # a task is tried four times
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "OFF")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .getOrCreate()
        )
    assert spark.sparkContext._jvm is not None
    _say(str(spark.sparkContext._jvm.ProcessHandle.current().pid()))
    while True:
        try:
            _start(spark, job).awaitTermination()
        except PySparkException as error:
            _say(f"failed: {_reason(error)}")


def _start(spark: SparkSession, job: Job) -> Any:
    rows = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", job.servers)
        .option("subscribe", job.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.records_per_batch))
        .load()
        .select("key", "value")
        .coalesce(random.randint(1, job.partitions))
    )
    return (
        rows.writeStream.format("odradek")
        .option("kafka.bootstrap.servers", job.servers)
        .option("topic", job.target)
        .option("delivery", "exactly_once")
        .option("sinkId", job.sink_id)
        .option("checkpointLocation", job.checkpoint)
        .start()
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _reason(error: PySparkException) -> str:
    """The line that says it."""
    lines = [line.strip() for line in str(error).splitlines() if "Error" in line]
    return (lines or [str(error)])[-1][:200]


if __name__ == "__main__":
    main()
