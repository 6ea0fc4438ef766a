"""A sink that stands still at chosen moments, so that a test can do something to the brokers meanwhile.

It makes a file, named after the moment, in the directory that the option `pauses` names, and goes on when the file is gone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

from odradek.spark.options.option_table import Use
from odradek.spark.options.options import write_options
from odradek.spark.sink import StreamSink
from odradek.spark.source import OdradekDataSource

FORMAT = "pausing"
IN_A_TASK = "in-a-task"
BEFORE_THE_DECISION = "before-the-decision"
BATCHES = {IN_A_TASK: 1, BEFORE_THE_DECISION: 2}
"""Each moment comes in one batch."""
PAUSE_MAX_S = 120.0


class PausingSink(StreamSink):
    def __init__(self, options: Any, schema: Any, directory: Path) -> None:
        super().__init__(options, schema)
        self.directory = directory

    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        if (batch, context.partitionId()) == (BATCHES[IN_A_TASK], 0):
            iterator = self.with_pause(iterator)
        return super().write(iterator)

    def with_pause(self, batches: Iterator[Any]) -> Iterator[Any]:
        """After the first rows: the task has its transaction then."""
        for batch in batches:
            yield batch
            self.pause(IN_A_TASK)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        if batchId == BATCHES[BEFORE_THE_DECISION]:
            self.pause(BEFORE_THE_DECISION)
        super().commit(messages, batchId)

    def pause(self, moment: str) -> None:
        file = self.directory / moment
        file.touch()
        deadline = time.monotonic() + PAUSE_MAX_S
        while file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)


class PausingDataSource(OdradekDataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> PausingSink:  # noqa: N802 - Spark's name
        given = {key: value for key, value in self.options.items() if key != "pauses"}
        return PausingSink(write_options(given, Use.STREAM_WRITE), schema, Path(str(self.options["pauses"])))


def register(spark: SparkSession) -> None:
    """Spark's Python processes need not find this module: it goes with the classes."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(PausingDataSource)
