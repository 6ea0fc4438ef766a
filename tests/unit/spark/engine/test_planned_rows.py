"""PySpark's planner of streams answers with rows where a reader has them, and as ever where it has not."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

import pytest

from odradek.spark.engine.planned_rows import STREAM_PLANNER, answer_in_planner, answer_with_rows

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import serializers
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import LongType, StructType

read_int: Any = serializers.read_int
write_with_length: Any = serializers.write_with_length
SCHEMA = StructType().add("n", LongType())
ROWS = pa.record_batch({"n": pa.array([1, 2], pa.int64())})


class Reader(DataSourceStreamReader):
    """A reader of one partition, or of more."""

    def __init__(self, partition_count: int = 1) -> None:
        self.partition_count = partition_count

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition((start, end, number)) for number in range(self.partition_count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("no task runs here")


class ReaderWithRows(Reader):
    def __init__(self, rows: list[pa.RecordBatch] | None) -> None:
        super().__init__()
        self.rows = rows

    def planned_rows(self, partitions: Sequence[InputPartition]) -> list[pa.RecordBatch] | None:
        assert len(partitions) == self.partition_count
        return self.rows


@pytest.fixture
def planner() -> ModuleType:
    """PySpark's module, executed once more: another test of this process may have changed the one that is imported."""
    spec = runner.__spec__
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(planner: ModuleType, reader: Reader) -> tuple[list[Any], int, io.BytesIO]:
    """The values of the partitions, the kind of the rows, and what comes after."""
    asked, answered = io.BytesIO(), io.BytesIO()
    for offset in ({"t": {"0": 1}}, {"t": {"0": 3}}):
        write_with_length(json.dumps(offset).encode(), asked)
    asked.seek(0)
    planner.partitions_func(reader, None, SCHEMA, 1_000, asked, answered)
    answered.seek(0)
    partitions = [
        planner.pickleSer.loads(answered.read(read_int(answered))) for _ in range(read_int(answered))
    ]
    return [partition.value for partition in partitions], read_int(answered), answered


EXPECTED = [({"t": {"0": 1}}, {"t": {"0": 3}}, 0)]


def test_rows_follow_the_partition_as_those_of_a_simple_reader_do(planner: ModuleType) -> None:
    answer_with_rows(planner)
    values, kind, rest = answer(planner, ReaderWithRows([ROWS, ROWS]))
    assert values == EXPECTED
    assert kind == runner.NON_EMPTY_PYARROW_RECORD_BATCHES
    assert read_int(rest) == serializers.SpecialLengths.START_ARROW_STREAM
    assert pa.ipc.open_stream(rest).read_all().to_pydict() == {"n": [1, 2, 1, 2]}


def test_a_batch_without_rows_says_so(planner: ModuleType) -> None:
    answer_with_rows(planner)
    values, kind, rest = answer(planner, ReaderWithRows([]))
    assert (values, kind, rest.read()) == (EXPECTED, runner.EMPTY_PYARROW_RECORD_BATCHES, b"")


@pytest.mark.parametrize("reader", [Reader(), Reader(3), ReaderWithRows(None)])
def test_without_rows_the_answer_is_that_of_pyspark(planner: ModuleType, reader: Reader) -> None:
    untouched = answer(planner, reader)
    answer_with_rows(planner)
    values, kind, rest = answer(planner, reader)
    assert (values, kind) == (untouched[0], runner.PREFETCHED_RECORDS_NOT_FOUND)
    assert rest.read() == untouched[2].read() == b""


def test_what_a_reader_cannot_read_is_an_error_before_anything_was_answered(planner: ModuleType) -> None:
    class Refusing(ReaderWithRows):
        def planned_rows(self, partitions: Sequence[InputPartition]) -> list[pa.RecordBatch] | None:
            raise ZeroDivisionError

    answer_with_rows(planner)
    answered = io.BytesIO()
    asked = io.BytesIO()
    for _ in range(2):
        write_with_length(b"{}", asked)
    asked.seek(0)
    with pytest.raises(ZeroDivisionError):
        planner.partitions_func(Refusing(None), None, SCHEMA, 1_000, asked, answered)
    assert not answered.getvalue()


def test_a_pyspark_that_differs_is_left_as_it_is(planner: ModuleType) -> None:
    def another(reader: object, infile: object, outfile: object) -> None: ...

    vars(planner)["partitions_func"] = another
    answer_with_rows(planner)
    assert planner.partitions_func is another
    vars(planner)["partitions_func"] = runner.partitions_func
    del vars(planner)["send_batch_func"]
    answer_with_rows(planner)
    assert vars(planner)["partitions_func"] is vars(runner)["partitions_func"]


def test_a_module_that_answers_with_rows_is_not_changed_again(planner: ModuleType) -> None:
    answer_with_rows(planner)
    first = planner.partitions_func
    answer_with_rows(planner)
    assert planner.partitions_func is first


@pytest.mark.parametrize("name", [STREAM_PLANNER, "pyspark.sql.worker.write_into_data_source"])
def test_a_process_of_its_own_answers_with_rows_if_it_plans_a_stream(
    planner: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    planner.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, "__main__", planner)
    answer_in_planner()
    _, kind, _ = answer(planner, ReaderWithRows([ROWS]))
    has_rows = kind == runner.NON_EMPTY_PYARROW_RECORD_BATCHES
    assert has_rows == (name == runner.__name__)


def test_a_program_that_is_a_file_is_no_planner(planner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    planner.__spec__ = None
    monkeypatch.setitem(sys.modules, "__main__", planner)
    answer_in_planner()
    assert answer(planner, ReaderWithRows([ROWS]))[1] == runner.PREFETCHED_RECORDS_NOT_FOUND
