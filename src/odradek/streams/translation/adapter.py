"""A processor in Spark: a stream runs it in transformWithState, rows that are all there in one call for each task.

Keys are divided into tasks, as Kafka Streams divides them into partitions: Spark groups by the task, and the state of all
its keys is one
map. So a task sees its rows in one order, and knows its own stream time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructType,
)

from odradek.streams.processors.ports import InputRow, KeyedProcessor
from odradek.streams.processors.task import (
    MemoryStore,
    has_wall_clock,
    latest_only,
    next_wall_clock,
    own_state,
    run_batch,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

_STATE: Final = "state"
_HEADERS: Final = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One input: its rows with `__timestamp`, `__headers` and `__order`, and columns that say the key and the payload.

    `everywhere`: every task gets all rows, whatever their keys.
    """

    rows: DataFrame
    key: Column
    payload: Column
    everywhere: bool = False


class MapStore:
    """One map of Spark's state. Spark knows of each group's own map only, so a task's state is its own."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, name: bytes) -> bytes | None:
        stored = self._state.getValue((name,))
        return None if stored is None else bytes(stored[0])

    def put(self, name: bytes, data: bytes) -> None:
        self._state.updateValue((name,), (data,))

    def delete(self, name: bytes) -> None:
        self._state.removeKey((name,))


class TaskProcessor(StatefulProcessor):
    """What Spark calls. `old`: the places of old values among the outputs; None to emit every update."""

    def __init__(
        self,
        processor: KeyedProcessor,
        ports: int,
        outputs: tuple[str, ...],
        old: tuple[int, ...] | None,
        *,
        name: str,
        tasks: int,
    ) -> None:
        self._name = name
        self._tasks = tasks
        self._processor = processor
        self._ports = ports
        self._outputs = outputs
        self._old = old

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._store = MapStore(handle.getMapState(_STATE, "name BINARY", "data BINARY"))

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        yield from self._run(rows, timerValues)

    def handleExpiredTimer(  # noqa: N802  # Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        yield from self._run((), timerValues)

    def _run(self, rows: Iterable[Row], timer_values: Any) -> Iterator[Row]:
        """A batch, which may have no rows; then a timer of Spark for what the processor waits for."""
        own_state(self._store, self._name, self._tasks)
        timed = has_wall_clock(self._processor)
        now: int = timer_values.getCurrentProcessingTimeInMs() if timed else 0
        given = (_input_row(row, self._ports) for row in rows)
        made: Iterable[Any] = run_batch(self._processor, self._store, given, now)
        if self._old is not None:
            made = latest_only(made, self._old)
        row = Row("__key", *self._outputs, "__timestamp", "__headers", "__order")
        for order, update in made:
            yield row(update.key, *update.values, update.timestamp, update.headers, order)
        due = next_wall_clock(self._processor, self._store) if timed else None
        if due is not None:
            self._handle.registerTimer(max(due, now + 1))

    def close(self) -> None:
        pass


def _input_row(row: Any, ports: int) -> InputRow:
    port = row["__port"]
    return InputRow(
        port, row["__key"], row[f"__payload{port}"], row["__timestamp"], row["__headers"], row["__order"]
    )


def keyed(
    ports: list[Port],
    processor: KeyedProcessor,
    *,
    name: str,
    tasks: int,
    key: StructType,
    outputs: StructType,
    old: tuple[int, ...] | None = None,
) -> DataFrame:
    """Run a processor. `name` is the operator's: its state belongs to it. `key` is the type of the keys that it says,
    `outputs` its columns.
    """
    rows = _united(ports, tasks)
    schema = StructType().add("__key", key)
    for field in outputs.fields:
        schema = schema.add(field.name, field.dataType)
    schema = (
        schema.add("__timestamp", LongType()).add("__headers", _HEADERS).add("__order", ArrayType(LongType()))
    ).toNullable()  # a literal is never null, but a delete is
    names, count = tuple(outputs.fieldNames()), len(ports)
    groups = rows.groupBy("__task")
    if rows.isStreaming:
        task = TaskProcessor(processor, count, names, old, name=name, tasks=tasks)
        time_mode = "ProcessingTime" if has_wall_clock(processor) else "None"
        return groups.transformWithState(task, schema, "append", time_mode)
    arrow = to_arrow_schema(schema, timezone="UTC")

    def batch(rows):  # type: ignore[no-untyped-def]  # Spark looks for annotations, and knows few
        return _batch(processor, rows, count, names, old, arrow)

    return groups.applyInArrow(batch, schema)


def _batch(
    processor: KeyedProcessor,
    rows: pa.Table,
    ports: int,
    outputs: tuple[str, ...],
    old: tuple[int, ...] | None,
    schema: pa.Schema,
) -> pa.Table:
    """A task over rows that are all there: its state begins empty, and nothing of it stays."""
    given = (_input_row(row, ports) for row in rows.to_pylist())
    made: Iterable[Any] = run_batch(processor, MemoryStore(), given)
    if old is not None:
        made = latest_only(made, old)
    said = [
        {
            "__key": update.key,
            **dict(zip(outputs, update.values, strict=True)),
            "__timestamp": update.timestamp,
            "__headers": update.headers,
            "__order": order,
        }
        for order, update in made
    ]
    return pa.Table.from_pylist(said, schema=schema)


def task_of(port: Port, tasks: int) -> Column:
    """Which task has a row's key, from 0 on."""
    if port.everywhere:
        return sf.explode(sf.sequence(sf.lit(0), sf.lit(tasks - 1)))
    return sf.pmod(sf.hash(port.key), sf.lit(tasks)).cast("int")


def _united(ports: list[Port], tasks: int) -> DataFrame:
    kinds = [port.rows.select(port.payload.alias("payload")).schema["payload"].dataType for port in ports]
    frames = []
    for number, port in enumerate(ports):
        payloads = [
            (port.payload if index == number else sf.lit(None).cast(kind)).alias(f"__payload{index}")
            for index, kind in enumerate(kinds)
        ]
        order = (
            sf.col("__order")
            if len(ports) == 1
            else sf.concat("__order", sf.array(sf.lit(number).cast("bigint")))
        )
        frames.append(
            port.rows.select(
                task_of(port, tasks).alias("__task"),
                sf.lit(number).alias("__port"),
                port.key.alias("__key"),
                *payloads,
                "__timestamp",
                "__headers",
                order.alias("__order"),
            )
        )
    united = frames[0]
    for frame in frames[1:]:
        united = united.union(frame)
    return united
