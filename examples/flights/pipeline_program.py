"""The pipeline in a process of its own, so that the demo can kill it: Spark's driver, and the JVM below it.

    python pipeline_program.py HOST:PORT DIRECTORY

Started again after it was killed, it goes on. Then it archives both topics, and reads the result back. It prints a JSON object
a line for what happens, and ends when its parent is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import hourly_departures
import pandas as pd
import spark_session
from pyspark.sql.streaming.query import StreamingQuery

from odradek.archive.row_columns import ValueFormat, row_columns
from odradek.archive.run import RunTerms, run_archive
from odradek.archive.store.location import archive_location

LOOK_EVERY_S = 0.2
ARCHIVE = "archive"
RESULT = "result.pickle"


def main() -> None:
    servers, directory = sys.argv[1], Path(sys.argv[2])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spark = spark_session.start(directory / "spark.log")
    assert spark.sparkContext._jvm is not None
    _say("started", jvm=spark.sparkContext._jvm.ProcessHandle.current().pid())
    _follow(hourly_departures.start(spark, servers, str(directory / "checkpoint")))
    _archive(servers, directory / ARCHIVE)
    _say("archived")
    result: pd.DataFrame = hourly_departures.read_back(spark, servers).toPandas()
    result.to_pickle(directory / RESULT)
    _say("read back")
    spark.stop()


def _follow(query: StreamingQuery) -> None:
    """Tell of each batch; raises what the query died of."""
    answer = -1
    while True:
        time.sleep(LOOK_EVERY_S)
        is_over = not query.isActive
        for batch in query.recentProgress:
            if batch["batchId"] > answer:
                answer = batch["batchId"]
                _say(
                    "batch",
                    number=answer,
                    rows=batch["numInputRows"],
                    seconds=batch["durationMs"]["triggerExecution"] / 1_000,
                    late=sum(entry["numRowsDroppedByWatermark"] for entry in batch["stateOperators"]),
                )
        if is_over:
            query.awaitTermination()
            _say("finished")
            return


def _archive(servers: str, place: Path) -> None:
    """`odradek archive run PLACE -t flights -t departures_hourly --partition-by topic --once`, in this session."""
    columns = row_columns(
        value=ValueFormat.RAW, value_schema=None, key_as_string=False, partition_by=["topic"]
    )
    terms = RunTerms(
        bootstrap=servers,
        location=archive_location(str(place)),
        topics=("flights", hourly_departures.RESULT_TOPIC),
        columns=columns,
        once=True,
    )
    run_archive(terms, lambda line: None, lambda: False)


def _say(event: str, **more: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        time.sleep(0)
    os._exit(1)


if __name__ == "__main__":
    main()
