"""A query that archives in batches of 20 records, and whose driver JVM is killed right after the commit of its second batch.

    python -m tests.spark.programs.killed_archive TERMS           # JSON: servers, topic, place, checkpoint

The process that kills the JVM ends itself at once, too, so that nothing is done after that moment.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from tests.spark.programs.own_program import own_session, run_patiently

from odradek.archive.options import archive_write_options
from odradek.archive.sink import ArchiveSink
from odradek.archive.source import ArchiveDataSource

KILLED_BATCH = 1


class KillingArchiveSink(ArchiveSink):
    """Kills the JVM once."""

    jvm = 0

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        super().commit(messages, batchId)
        if batchId == KILLED_BATCH:
            os.kill(self.jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


class KillingArchive(ArchiveDataSource):
    @classmethod
    def name(cls) -> str:
        return "killing-archive"

    def streamWriter(self, schema: Any, overwrite: bool) -> KillingArchiveSink:  # noqa: N802 - Spark's name
        given = {key: value for key, value in self.options.items() if key != "jvm"}
        sink = KillingArchiveSink(archive_write_options(given), schema)
        sink.jvm = int(self.options["jvm"])
        return sink


def main() -> None:
    terms = json.loads(sys.argv[1])
    spark = own_session()
    spark.dataSource.register(KillingArchive)
    jvm: Any = spark.sparkContext._jvm
    rows = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", terms["servers"])
        .option("subscribe", terms["topic"])
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", "20")
        .load()
        .select("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
    )
    writer = (
        rows.writeStream.format("killing-archive")
        .option("checkpointLocation", terms["checkpoint"])
        .option("jvm", str(jvm.ProcessHandle.current().pid()))
        .trigger(availableNow=True)
    )
    run_patiently(lambda: writer.start(terms["place"]).awaitTermination())


if __name__ == "__main__":
    main()
