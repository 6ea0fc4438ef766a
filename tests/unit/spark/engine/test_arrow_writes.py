"""PySpark's planner of writes sends writers of ours by name; what tasks do with them is what PySpark's function does."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from odradek.spark.engine.arrow_writes import ArrowWrite, send_by_name
from odradek.spark.engine.prompt_input import PromptInput

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import serializers
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, LongType, StructType
from pyspark.sql.worker import write_into_data_source

read_int: Any = serializers.read_int
write_int: Any = serializers.write_int
write_with_length: Any = serializers.write_with_length
SCHEMA = StructType().add("n", LongType())
ROWS = pa.record_batch({"n": pa.array([1, 2], pa.int64())})


@dataclass
class Total(WriterCommitMessage):
    total: int


class Writer(DataSourceStreamArrowWriter):
    """A writer of someone else's."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        total = sum(batch.column("n").to_numpy().sum() for batch in iterator)
        return Total(int(total)) if self.options.get("answers") != "nothing" else None


class OwnWriter(PromptInput, Writer):
    """A writer as ours are."""


class Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "source"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: N802 - Spark's name
        return (OwnWriter if self.options.get("is") == "ours" else Writer)(dict(self.options))


@pytest.fixture
def planner() -> ModuleType:
    """A copy of PySpark's module, whose names the test may change."""
    module = ModuleType("copy")
    vars(module).update(vars(write_into_data_source))
    pyspark_main: Any = vars(write_into_data_source)["_main"]
    vars(module)["_main"] = type(pyspark_main)(pyspark_main.__code__, vars(module), "_main")
    return module


def planned(planner: ModuleType, **options: str) -> tuple[Any, StructType, Writer]:
    """The function, its type and the writer that PySpark sends, as Spark and a worker read them."""
    stream = io.BytesIO()
    write_with_length(pickle.dumps(Source), stream)
    for text in ("source", SCHEMA.json(), StructType().add("message", BinaryType()).json()):
        write_with_length(text.encode(), stream)
    write_int(len(options), stream)
    for text in (text for option in options.items() for text in option):
        write_with_length(text.encode(), stream)
    stream.write(bytes([False, True, False]))  # overwrite, a stream, no rows as bytes
    stream.seek(0)
    output = io.BytesIO()
    vars(planner)["_main"](stream, output)
    output.seek(0)
    function, kind = pickle.loads(output.read(read_int(output)))
    writer = pickle.loads(output.read(read_int(output)))
    assert output.read() == b""
    return function, kind, writer


def message_of(function: Any) -> tuple[list[str], Any]:
    (rows,) = function(iter([ROWS, ROWS]))
    return rows.schema.names, pickle.loads(rows.column(0)[0].as_py())


def test_a_writer_of_ours_goes_by_name_and_does_what_pysparks_function_does(planner: ModuleType) -> None:
    function_before, *others_before = planned(planner, **{"is": "ours", "topic": "a"})
    send_by_name(planner)
    function, kind, writer = planned(planner, **{"is": "ours", "topic": "a"})
    assert type(function) is ArrowWrite
    assert type(function_before) is not ArrowWrite
    assert message_of(function) == message_of(function_before) == (["message"], Total(6))
    assert function.__module__ == function_before.__module__ == write_into_data_source.__name__
    assert [kind, type(writer)] == [others_before[0], type(others_before[1])] == [kind, OwnWriter]
    assert writer.options == others_before[1].options


def test_a_writer_of_someone_else_goes_as_ever(planner: ModuleType) -> None:
    send_by_name(planner)
    function, _, writer = planned(planner, topic="a")
    assert type(function) is not ArrowWrite
    assert type(writer) is Writer
    assert message_of(function) == (["message"], Total(6))


def test_a_writer_without_a_message_is_refused_as_by_pyspark(planner: ModuleType) -> None:
    errors = []
    for _ in range(2):
        function, _, _ = planned(planner, **{"is": "ours", "answers": "nothing"})
        with pytest.raises(PySparkRuntimeError) as refused:
            message_of(function)
        errors.append(str(refused.value))
        send_by_name(planner)
    assert errors[0] == errors[1]


def test_a_planner_that_is_not_known_stays_as_it_is(planner: ModuleType) -> None:
    def main(infile: Any, outfile: Any) -> None:
        def data_source_write_func(iterator: Any) -> Any:
            return planner, iterator

        planner.__dict__["command"] = data_source_write_func

    vars(planner)["_main"] = main
    serializer = vars(planner)["pickleSer"]
    send_by_name(planner)
    assert vars(planner)["pickleSer"] is serializer
