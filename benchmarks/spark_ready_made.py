"""A data source in Python that has its Arrow batches before Spark asks: how fast rows come into Spark through Python at all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

TASKS: Final = 2
_BATCH_BYTES: Final = 8 << 20
_BATCH_ROWS_MAX: Final = 32_768


class ReadyMadeSource(DataSource):
    """Options: `rows`, and `bytes` of each value. The columns are those of `format("odradek")`."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> str:
        return (
            "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
            " timestampType INT"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["bytes"]))


class _Reader(DataSourceReader):
    def __init__(self, row_count: int, value_bytes: int) -> None:
        self._row_count = row_count
        self._value_bytes = value_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self._row_count // TASKS
        rows = _batch(min(max(_BATCH_BYTES // self._value_bytes, 1), _BATCH_ROWS_MAX), self._value_bytes)
        while left:
            count = min(left, rows.num_rows)
            yield rows.slice(0, count)
            left -= count


def _batch(count: int, value_bytes: int) -> pa.RecordBatch:
    now_us = time.time_ns() // 1_000
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"%010d" % number for number in range(count)], pa.binary()),
            "value": pa.array([b"v" * value_bytes] * count, pa.binary()),
            "topic": pa.array(["rows"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([now_us] * count, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
    )
