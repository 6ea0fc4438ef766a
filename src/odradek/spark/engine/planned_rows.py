"""A small batch of a stream comes with its rows, so that no worker has to read them.

Spark's process for the planning of a stream may answer the question for a batch's partitions with the batch's rows: that is
how `SimpleDataSourceStreamReader` reads. Spark keeps the rows as a block until the stream's next batch, and tasks read the
block. Where it is lost, a worker reads the partition as ever. PySpark (4.3) does so for readers of that class only. In the
shared process (`shared_planners.py`), and in the process that Spark starts for each stream without it, a reader with
`planned_rows` does it, too.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

log: Final = logging.getLogger("odradek.spark")

STREAM_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that plans a stream's batches, in a process of its own or on a thread of `shared_planners.py`."""
_ANSWER: Final = "partitions_func"
_PARAMETERS: Final = ("reader", "data_source", "schema", "max_arrow_batch_size", "infile", "outfile")
_USED: Final = (
    "send_batch_func",
    "write_int",
    "pickleSer",
    "utf8_deserializer",
    "PREFETCHED_RECORDS_NOT_FOUND",
)


@runtime_checkable
class PlansRows(Protocol):
    """A stream's reader that may have a batch's rows when the batch is planned."""

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """Returns the partitions of a batch."""

    def planned_rows(self, partitions: Sequence[InputPartition]) -> list[pa.RecordBatch] | None:
        """Returns the rows of a batch that has one partition. None: tasks must read it."""


def answer_in_planner() -> None:
    """Has PySpark's planner ask its reader for rows, where this process is the planner of one stream."""
    running = sys.modules["__main__"]
    spec = getattr(running, "__spec__", None)
    if spec is not None and spec.name == STREAM_PLANNER:
        answer_with_rows(running)


def answer_with_rows(module: ModuleType) -> None:
    """Has PySpark's planner of streams ask readers for rows. It stays as it is where PySpark differs from what is known."""
    names = vars(module)
    current = names.get(_ANSWER)
    if isinstance(current, _PartitionsAnswer):
        return
    if not callable(current) or not _is_known(current, names):
        log.info("this PySpark plans streams in another way: workers read batches of any size")
        return
    names[_ANSWER] = _PartitionsAnswer(current, module)


def _is_known(function: Callable[..., object], names: dict[str, object]) -> bool:
    return tuple(inspect.signature(function).parameters) == _PARAMETERS and names.keys() >= set(_USED)


class _PartitionsAnswer:
    """The answer to the question for a batch's partitions, in place of PySpark's."""

    def __init__(self, pyspark_answer: Callable[..., object], module: ModuleType) -> None:
        self._pyspark_answer = pyspark_answer
        self._module: Any = module

    def __call__(
        self,
        reader: object,
        data_source: object,
        schema: StructType,
        max_arrow_batch_size: int,
        infile: IO[bytes],
        outfile: IO[bytes],
    ) -> None:
        pyspark = self._module
        if not isinstance(reader, PlansRows):
            self._pyspark_answer(reader, data_source, schema, max_arrow_batch_size, infile, outfile)
            return
        start = json.loads(pyspark.utf8_deserializer.loads(infile))
        end = json.loads(pyspark.utf8_deserializer.loads(infile))
        partitions = reader.partitions(start, end)
        rows = reader.planned_rows(partitions)
        pyspark.write_int(len(partitions), outfile)
        for partition in partitions:
            pyspark.pickleSer._write_with_length(partition, outfile)
        if rows is None:
            pyspark.write_int(pyspark.PREFETCHED_RECORDS_NOT_FOUND, outfile)
        else:
            pyspark.send_batch_func(iter(rows), outfile, schema, max_arrow_batch_size, data_source)
