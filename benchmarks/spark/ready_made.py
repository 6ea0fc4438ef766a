"""A data source in Python that has its Arrow batches before Spark asks: how fast rows come into Spark through Python at all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.spark.engine.prompt_input import PromptInput

TASKS: Final = 2
_BATCH_BYTES: Final = 2 << 20
_BATCH_ROWS_MAX: Final = 32_768
_SAMPLE_ROWS: Final = 100


_PLAIN: Final = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
FIELDS: Final = "carrier STRING, flight INT, origin STRING, dest STRING, dep_delay DOUBLE, distance BIGINT"
"""The fields of a value in JSON, as DDL."""
SHAPES: Final[Mapping[str, str]] = {
    "plain": _PLAIN,
    "key": "key BINARY",
    "headers": f"{_PLAIN}, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "fields": f"value STRUCT<{FIELDS}>",
}


HEADERS: Final = [
    {"key": "trace", "value": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    {"key": "source", "value": b"billing"},
    {"key": "attempt", "value": b"1"},
]
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_FLIGHT: Final = pa.struct(
    [
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.float64()),
        ("distance", pa.int64()),
    ]
)


def flight(number: int) -> dict[str, Any]:
    """Makes the fields of one value (`FIELDS`)."""
    return {
        "carrier": ("UA", "AA", "B6")[number % 3],
        "flight": 1_000 + number % 700,
        "origin": ("EWR", "LGA", "JFK")[number % 3],
        "dest": ("IAH", "MIA", "BQN", "ATL")[number % 4],
        "dep_delay": number % 97 / 4,
        "distance": 200 + number % 2_500,
    }


class ReadyMadeSource(DataSource):
    """Options: `rows`, and `bytes` of each value; of streams, the rows of each micro-batch as `batchRows`. The columns are
    those of `format("odradek")`, those of a `shape` (`SHAPES`) where the option names one.
    """

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> str:
        return SHAPES[self.options.get("shape", "plain")]

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self.options
        return _Reader(int(options["rows"]), int(options["bytes"]), options.get("shape", "plain"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = self.options
        return _StreamReader(int(options["rows"]), int(options["bytes"]), int(options["batchRows"]))


class _Rows(InputPartition):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class _Reader(PromptInput, DataSourceReader):
    def __init__(self, row_count: int, value_bytes: int, shape: str) -> None:
        self._row_count = row_count
        self._value_bytes = value_bytes
        self._shape = shape

    def partitions(self) -> list[InputPartition]:
        return [_Rows(self._row_count // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        return _batches(partition.count, self._value_bytes, self._shape)


class _StreamReader(PromptInput, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One task a micro-batch, as a topic of one partition has."""

    def __init__(self, row_count: int, value_bytes: int, batch_rows: int) -> None:
        self._row_count = row_count
        self._value_bytes = value_bytes
        self._batch_rows = batch_rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._batch_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        rows = self._row_count if isinstance(limit, ReadAllAvailable) else self._batch_rows
        return {"row": min(start["row"] + rows, self._row_count)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """All of it is available from the beginning."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [_Rows(end["row"] - start["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        return _batches(partition.count, self._value_bytes)


def _batches(row_count: int, value_bytes: int, shape: str = "plain") -> Iterator[pa.RecordBatch]:
    rows = _ready(value_bytes, shape)
    while row_count > 0:
        count = min(row_count, rows.num_rows)
        yield rows.slice(0, count)
        row_count -= count


@cache
def _ready(value_bytes: int, shape: str) -> pa.RecordBatch:
    """Makes the rows of one batch: as many bytes of all columns as `format("odradek")` puts into one."""
    row_bytes = -(-_rows_of(_SAMPLE_ROWS, value_bytes, shape).nbytes // _SAMPLE_ROWS)
    return _rows_of(min(max(_BATCH_BYTES // row_bytes, 1), _BATCH_ROWS_MAX), value_bytes, shape)


def _rows_of(count: int, value_bytes: int, shape: str) -> pa.RecordBatch:
    if shape == "fields":
        return pa.RecordBatch.from_pydict(
            {"value": pa.array([flight(number) for number in range(count)], _FLIGHT)}
        )
    columns: dict[str, pa.Array[Any]] = {
        "key": pa.array([b"%010d" % number for number in range(count)], pa.binary())
    }
    if shape != "key":
        now_us = time.time_ns() // 1_000
        columns |= {
            "value": pa.array([b"v" * value_bytes] * count, pa.binary()),
            "topic": pa.array(["rows"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([now_us] * count, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
    if shape == "headers":
        columns["headers"] = pa.array([HEADERS] * count, HEADERS_TYPE)
    return pa.RecordBatch.from_pydict(columns)
