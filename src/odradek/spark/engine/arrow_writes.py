"""The function that writes in a task goes to Spark by its name.

PySpark (4.3) makes it within another function as it plans a write. So for each micro-batch it is pickled with its code and with
what converts rows, by a pickler in Python. A writer that takes columns converts no rows. In the process of the writes
(`write_drivers.py`), a writer of ours goes with the name of a class that does the same, by Python's own pickler.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import IO, TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import WriterCommitMessage

from odradek.model.lazy import lazy
from odradek.spark.engine.prompt_input import PromptInput

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

log: Final = logging.getLogger("odradek.spark")

_SERIALIZER: Final = "pickleSer"
_MAIN: Final = "_main"
_FUNCTION: Final = "data_source_write_func"
_CAPTURED: Final = frozenset({"converters", "fields", "pa", "return_col_name", "writer"})
_USED: Final = frozenset(
    {
        "DataSourceArrowWriter",
        "DataSourceStreamArrowWriter",
        "Iterator",
        "PySparkRuntimeError",
        "Row",
        "WriterCommitMessage",
        "__name__",
        "array",
        "dumps",
        "isinstance",
        "pickleSer",
        "record_batch",
        "type",
        "write",
    }
)


class ArrowWrite:
    """The write of a task by a writer that takes columns. It yields the writer's message, pickled, in a column of this name."""

    def __init__(self, writer: Any, column: str) -> None:
        self._writer = writer
        self._column = column
        self.__module__ = (
            "pyspark.sql.worker.write_into_data_source"  # workers ask, and measure sources apart
        )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = self._writer.write(batches)
        if not isinstance(message, WriterCommitMessage):
            raise PySparkRuntimeError(
                errorClass="DATA_SOURCE_TYPE_MISMATCH",
                messageParameters={
                    "expected": "'WriterCommitMessage' as the return type of the `write` method",
                    "actual": type(message).__name__,
                },
            )
        yield pa.record_batch([pa.array([_pickled(message)])], names=[self._column])


def send_by_name(module: ModuleType) -> None:
    """Has PySpark's planner of writes send ours by name. It stays as it is where PySpark differs from what is known."""
    names = vars(module)
    if isinstance(names.get(_SERIALIZER), WritesByName):
        return
    if not _is_known(names):
        log.info("this PySpark plans writes in another way: what writes in a task is sent with its code")
        return
    names[_SERIALIZER] = WritesByName()


def _is_known(names: dict[str, Any]) -> bool:
    planner = names.get(_MAIN)
    if type(names.get(_SERIALIZER)) is not CPickleSerializer or not isinstance(planner, FunctionType):
        return False
    within = [constant for constant in planner.__code__.co_consts if isinstance(constant, CodeType)]
    codes = [code for code in within if code.co_name == _FUNCTION]
    return (
        len(codes) == 1 and _CAPTURED.issuperset(codes[0].co_freevars) and _USED.issuperset(codes[0].co_names)
    )


class WritesByName(CPickleSerializer):
    """PySpark's serializer, except for our writers, and for the function that PySpark makes of one."""

    def _write_with_length(self, obj: object, stream: IO[bytes]) -> None:
        content = self._by_name(obj)
        if content is None:
            send: Any = super()._write_with_length
            send(obj, stream)
        else:
            stream.write(len(content).to_bytes(4, "big"))
            stream.write(content)

    def _by_name(self, obj: object) -> bytes | None:
        if isinstance(obj, PromptInput):
            return _pickled(obj)
        if not isinstance(obj, tuple) or len(obj) != 2 or not isinstance(obj[0], FunctionType):
            return None
        function, return_type = obj
        captured = {
            name: cell.cell_contents
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        }
        writer = captured.get("writer")
        if not isinstance(writer, PromptInput):
            return None
        return _pickled((ArrowWrite(writer, captured["return_col_name"]), return_type))


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
