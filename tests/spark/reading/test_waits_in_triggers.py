"""What waits within triggers know of Spark: it commits a batch to all sources of a query as it begins the next one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit


class CountingSource(DataSource):
    """Has a number for each of the first batches, and writes to a file what Spark calls. Options: `path`, `count`."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "number INT"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return CountingReader(Path(self.options["path"]), int(self.options["count"]))


class CountingReader(DataSourceStreamReader):
    """Reads one number in a batch, as long as there are some."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.count = count

    def note(self, event: str) -> None:
        with self.path.open("a", encoding="utf-8") as events:
            events.write(f"{event}\n")

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"next": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        end = min(start["next"] + 1, self.count)
        self.note("more" if end > start["next"] else "nothing")
        return {"next": end}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["next"], end["next"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def commit(self, end: Mapping[str, int]) -> None:
        self.note("commit")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_source_with_nothing_to_read_sees_each_batch_of_its_query_but_the_first(
    spark: SparkSession, tmp_path: Path, is_first: bool
) -> None:
    spark.dataSource.register(CountingSource)

    def source(name: str, count: int) -> DataFrame:
        reader = spark.readStream.format("counting").option("path", str(tmp_path / name))
        return reader.option("count", str(count)).load()

    quiet, busy = source("quiet", 0), source("busy", 4)
    batches: list[int] = []

    def note(batch: DataFrame, _: int) -> None:
        batches.append(batch.count())

    frame = quiet.union(busy) if is_first else busy.union(quiet)
    query = frame.writeStream.foreachBatch(note).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert batches == [1, 1, 1, 1]
    events = (tmp_path / "quiet").read_text().split()
    assert events[:8] == ["nothing", "nothing", "commit", "nothing", "commit", "nothing", "commit", "nothing"]
    assert events.count("commit") == 3
