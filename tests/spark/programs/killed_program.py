"""A query with an exactly-once sink whose driver JVM is killed, or stands still, at a chosen moment of its second batch.

In its first batch one of the Python workers dies, and Spark tries its task again.

    python -m tests.spark.programs.killed_program TERMS      # JSON: servers, source, topic, sink, checkpoint, moment, tasks

The process that kills the JVM ends itself at once, too, so that nothing is done after that moment. A driver that stands still
makes the file `CHECKPOINT.still`, and goes on, and decides its batch, once someone has removed it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.spark.programs.own_program import own_session, run_patiently

from odradek.spark.sink import StreamSink
from odradek.spark.source import OdradekDataSource

MOMENTS = ("in a task", "before the decision", "after the decision", "between two ends", "after the last end")
STANDS_STILL = "stands still before the decision"
RETRIED_BATCH = 0
KILLED_BATCH = 1
STILL_MAX_S = 120.0


class KillingSink(StreamSink):
    """Kills the JVM once, at `moment`."""

    def __init__(self, options: Any, schema: Any, moment: str, jvm: int) -> None:
        super().__init__(options, schema)
        self.options = options
        self.moment = moment
        self.jvm = jvm

    def write(self, iterator: Iterator[Any]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.partitionId() != 1:
            return super().write(iterator)
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        if batch == RETRIED_BATCH and context.attemptNumber() == 0:
            return super().write(_first_then(iterator, _die))
        if batch == KILLED_BATCH and self.moment == "in a task":
            return super().write(_first_then(iterator, self.kill))
        return super().write(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        from odradek import Admin
        from odradek.spark.exactly_once.driver import SinkDriver

        if batchId != KILLED_BATCH:
            super().commit(messages, batchId)
            return
        end = Admin.end_transactions

        def end_one(admin: Admin, identities: Any, **more: Any) -> None:
            identities = list(identities)
            if len(identities) == 1:
                end(admin, identities, **more)  # the decision
                return
            end(admin, identities[:1], **more)
            self.kill()

        if self.moment == "before the decision":
            self.kill()
        if self.moment == STANDS_STILL:
            self.stand_still()
        if self.moment == "after the decision":
            SinkDriver.carry_out = lambda driver, decision: self.kill()  # type: ignore[method-assign, misc]
        if self.moment == "between two ends":
            Admin.end_transactions = end_one  # type: ignore[method-assign, assignment]
        super().commit(messages, batchId)
        self.kill()

    def stand_still(self) -> None:
        still = still_file(self.options.exactly_once.checkpoint)
        still.touch()
        deadline = time.monotonic() + STILL_MAX_S
        while still.exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def kill(self) -> None:
        os.kill(self.jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def still_file(checkpoint: str) -> Path:
    return Path(f"{checkpoint}.still")


def _first_then(batches: Iterator[Any], strike: Callable[[], None]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        strike()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillingDataSource(OdradekDataSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: Any, overwrite: bool) -> KillingSink:  # noqa: N802 - Spark's name
        from odradek.spark.options.option_table import Use
        from odradek.spark.options.options import write_options

        given = {key: value for key, value in self.options.items() if key not in ("moment", "jvm")}
        return KillingSink(
            write_options(given, Use.STREAM_WRITE), schema, self.options["moment"], int(self.options["jvm"])
        )


def main() -> None:
    terms = json.loads(sys.argv[1])
    spark = own_session("local[2,2]")
    spark.dataSource.register(KillingDataSource)
    jvm: Any = spark.sparkContext._jvm
    rows = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", terms["servers"])
        .option("subscribe", terms["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .load()
        .select("value")
        .repartition(terms["tasks"])
    )
    writer = (
        rows.writeStream.format("killing")
        .option("kafka.bootstrap.servers", terms["servers"])
        .option("topic", terms["topic"])
        .option("delivery", "exactly_once")
        .option("sinkId", terms["sink"])
        .option("checkpointLocation", terms["checkpoint"])
        .option("moment", terms["moment"])
        .option("jvm", str(jvm.ProcessHandle.current().pid()))
        .trigger(availableNow=True)
    )
    run_patiently(lambda: writer.start().awaitTermination())


if __name__ == "__main__":
    main()
