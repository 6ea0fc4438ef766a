"""Rows of a task as one: what Spark hands to and from a processor in Python costs as much for a row as for ten thousand.

Before the shuffle, the rows of each task are packed, in Arrow's stream format. What a processor emits is packed, too, and
unpacked after the processor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StructType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK: Final = "__task"
ROWS: Final = "__rows"
PACKED: Final = StructType().add(TASK, IntegerType()).add(ROWS, BinaryType())
PACKED_TYPE: Final = StructType().add(ROWS, BinaryType())
PACKED_BYTES: Final = 4 << 20
"""The size of the records that pass through in one row, roughly."""
ROW_BYTES_MAX: Final = 8 << 20
"""The size of the rows that are packed together, roughly."""


def packed_rows(rows: DataFrame) -> DataFrame:
    """Packs many rows with a column TASK into few rows of PACKED."""
    return rows.mapInArrow(RowPacker(), PACKED)


def unpacked_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """Returns the rows that were packed in the column ROWS."""
    return rows.mapInArrow(RowUnpacker(to_arrow_schema(schema, timezone="UTC")), schema)


class RowPacker:
    """Packs rows for Spark, whose plans show it by the name of its class: `small_batches/RowsInJvm.java` finds it by that."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: dict[int, list[pa.RecordBatch]] = {}
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            tasks = pc.unique(batch[TASK]).to_pylist()
            for task in tasks:
                part = batch if len(tasks) == 1 else batch.filter(pc.equal(batch[TASK], task))
                waiting.setdefault(task, []).append(part)
            size += batch.nbytes
            if size >= ROW_BYTES_MAX:
                yield _as_rows(waiting)
                waiting, size = {}, 0
        if waiting:
            yield _as_rows(waiting)


def _as_rows(waiting: dict[int, list[pa.RecordBatch]]) -> pa.RecordBatch:
    datas = [packed(pa.Table.from_batches(batches)) for batches in waiting.values()]
    return pa.RecordBatch.from_arrays(
        [pa.array(list(waiting), pa.int32()), pa.array(datas, pa.binary())], names=[TASK, ROWS]
    )


class RowUnpacker:
    """Unpacks rows for Spark, whose plans show it by the name of its class: `packed_output` finds it by that, and
    `small_batches/RowsInJvm.java`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch[ROWS]:
                for rows in unpacked(data.as_buffer()).cast(self._schema).to_batches():
                    if rows.num_rows:
                        yield rows


def packed(rows: pa.Table) -> bytes:
    """Returns rows in Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: object) -> pa.Table:
    """Reads rows in Arrow's stream format."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
