"""A processor in Spark: transformWithState runs it in a stream; over rows that are all there it runs in one call for each task.

Repartition: `task_of` divides keys into tasks, as Kafka Streams divides them into partitions. Spark groups by the task, and the
state of all its keys is one map. So a task sees its rows in one order, and has its own stream time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
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

from odradek.spark.engine.plain_errors import errors_in_one_line
from odradek.spark.engine.worker_garbage import loaded_modules
from odradek.streams.processors.columnar import columnar
from odradek.streams.processors.columns import OriginColumn, TaskColumns
from odradek.streams.processors.failures import FailedRows
from odradek.streams.processors.ports import KeyedProcessor, TaskStore, UpdateRow
from odradek.streams.processors.python_values import UnreadableValueError, python_values
from odradek.streams.processors.state.state_bytes import state_bytes, state_value
from odradek.streams.processors.stores import PagedStore, RecordingStore, latest_rows
from odradek.streams.processors.task import (
    CachedState,
    MemoryStore,
    ScriptStep,
    has_wall_clock,
    latest_only,
    next_wall_clock,
    own_state,
    run_batch,
    run_script,
)
from odradek.streams.translation.frames import ORIGIN, STATE, carried
from odradek.streams.translation.packing import (
    PACKED_BYTES,
    PACKED_TYPE,
    ROWS,
    TASK,
    packed,
    packed_rows,
    unpacked,
    unpacked_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

    from odradek.streams.restore.changelogs import StateChangelog
    from odradek.streams.translation.plain_records import PlainInput
    from odradek.streams.translation.translator import Tasks

_STATE: Final = "state"
_EXAMPLE: Final = b"example row"
_NAME_TYPE: Final = StructType().add("name", BinaryType())
_DATA_TYPE: Final = StructType().add("data", BinaryType())
"""Types of the state. As DDL, PySpark has the JVM parse each of them twice in every task."""
_PASSING: Final = StructType().add("topic", StringType()).add("records", BinaryType())
_HEADERS: Final = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One input: its rows with `__timestamp`, `__headers` and `__order`, and columns with the key and the payload.

    `everywhere`: every task gets all rows, whatever their keys. `turn`: which rows of one moment come first; None: by
    the ports.
    """

    rows: DataFrame
    key: Column
    payload: Column
    everywhere: bool = False
    turn: int | None = None
    plain: PlainInput | None = None
    """The same rows, where the source can pack them; None: Spark computes them."""


class MapStore:
    """The state store of a task in Spark: one map of Spark's state. Spark shows a task its own map only."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, name: bytes) -> bytes | None:
        stored = self._state.getValue((name,))
        return None if stored is None else bytes(stored[0])

    def put(self, name: bytes, data: bytes) -> None:
        self._state.updateValue((name,), (data,))

    def delete(self, name: bytes) -> None:
        self._state.removeKey((name,))

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        for name, data in self._state.iterator():
            yield bytes(name[0]), bytes(data[0])


@dataclass(frozen=True, slots=True)
class TaskRun:
    """Handles a task's rows of a batch. `old`: the indexes of replaced values among the outputs; None to emit every update.
    `schema`: the updates' schema.
    """

    processor: KeyedProcessor
    port_count: int
    outputs: tuple[str, ...]
    old: tuple[int, ...] | None
    schema: pa.Schema

    def updates(self, store: TaskStore, rows: pa.Table | None, now: int, failures: FailedRows) -> pa.Table:
        """Returns the processor's updates for records, in columns of `schema` but STATE."""
        origins = OriginColumn()
        if rows is not None and rows.num_rows:
            columns = TaskColumns.of(rows, self.port_count, ORIGIN if ORIGIN in rows.column_names else None)
            in_columns = self._in_columns(store, columns)
            if in_columns is not None:
                return in_columns
            origins = failures.origins = OriginColumn(columns)
            readable = columns.readable_rows(failures.add)
        else:
            readable = []
        updates = run_batch(self.processor, store, readable, now, failures)
        return self.table_of(list(updates if self.old is None else latest_only(updates, self.old)), origins)

    def _in_columns(self, store: TaskStore, rows: TaskColumns) -> pa.Table | None:
        if has_wall_clock(self.processor):
            return None
        state = CachedState(store)
        kinds = tuple(self.schema.field(name).type for name in self.outputs)
        updates = columnar(self.processor, rows, state, self.old, kinds)
        if updates is None:
            return None
        state.flush()
        width = updates.orders.shape[1]
        orders = pa.ListArray.from_arrays(
            pa.array(np.arange(0, updates.orders.size + 1, width, dtype=np.int32)),
            pa.array(updates.orders.ravel(), pa.int64()),
        )
        columns = [updates.keys, *updates.values, updates.timestamps, updates.headers, orders]
        columns += [updates.origins] if ORIGIN in self.schema.names else []
        return self._table(columns)

    def table_of(self, ordered: list[tuple[list[int], UpdateRow]], origins: OriginColumn) -> pa.Table:
        """Returns the updates that a processor emitted row by row."""
        updates = [update for _, update in ordered]
        columns: list[Any] = [[update.key for update in updates]]
        columns += [[update.values[index] for update in updates] for index in range(len(self.outputs))]
        columns.append([update.timestamp for update in updates])
        columns.append([update.headers for update in updates])
        columns.append([order for order, _ in ordered])
        if ORIGIN in self.schema.names:
            kind = self.schema.field(ORIGIN).type
            columns.append(origins.take((tuple(order[1:4]) for order, _ in ordered), kind))
        return self._table(columns)

    def _table(self, columns: list[Any]) -> pa.Table:
        """Returns a table. `columns`: in the order of the schema, without STATE, which is null in records."""
        count = len(columns[0])
        arrays, rest = [], iter(columns)
        for field in self.schema:
            if field.name == STATE:
                arrays.append(pa.nulls(count, field.type))
            else:
                column = next(rest)
                arrays.append(
                    column.cast(field.type) if isinstance(column, pa.Array) else pa.array(column, field.type)
                )
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def passing(self, example: dict[str, object], states: list[object]) -> pa.Table:
        """Returns side outputs as rows of the batch's schema: each state next to the fields of `example`."""
        return pa.Table.from_pylist([{**example, STATE: state} for state in states], schema=self.schema)

    def example(self, updates: pa.Table) -> dict[str, object]:
        """Returns the first emitted record; one that is null all over where none was, or Python does not hold it."""
        nothing = {"__timestamp": 0, "__order": [0, 0, 0, 0, 0]}
        try:
            return next(iter(python_values(updates.slice(0, 1))), nothing)
        except UnreadableValueError:
            return nothing


class TaskProcessor(StatefulProcessor):
    """The processor that Spark calls. It gets the rows of a task packed in few rows, and returns its updates packed in one.

    With a changelog, it also emits what changed of the state, in rows that are no records; and it lets such rows pass that
    arrive. These look like the last emitted record, since the user's expressions see them.
    """

    def __init__(
        self,
        run: TaskRun,
        *,
        name: str,
        tasks: tuple[int, ...],
        failures: FailedRows | None = None,
        changelog: StateChangelog | None = None,
    ) -> None:
        self._name = name
        self._numbers = {task: number for number, task in enumerate(tasks)}
        self._run = run
        self._changelog = changelog
        self._failures = failures or FailedRows(operator=name, letters=None, topics={})

    def init(self, handle: StatefulProcessorHandle) -> None:
        loaded_modules.leave_out()
        self._handle = handle
        self._row = Row(ROWS)
        self._state = MapStore(handle.getMapState(_STATE, _NAME_TYPE, _DATA_TYPE))

    def handleInitialState(  # noqa: N802  # Spark's name
        self,
        key: tuple[int, ...],
        initialState: object,  # noqa: N803
        timerValues: TimerValues,  # noqa: N803
    ) -> None:
        """Restores a task's state from its partition of the changelog topic."""
        assert self._changelog is not None
        rows = latest_rows(self._changelog.read(self._numbers[key[0]]))
        store = PagedStore(self._state)
        store.fill(rows, self._changelog.topic_id)
        self._set_timer(store, timerValues)

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: tuple[int, ...],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        tables = [unpacked(row[ROWS]) for row in rows]
        with errors_in_one_line():
            yield from self._handle_batch(key, concatenated(tables), timerValues)

    def handleExpiredTimer(  # noqa: N802  # Spark's name
        self,
        key: tuple[int, ...],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        with errors_in_one_line():
            yield from self._handle_batch(key, None, timerValues)

    def _handle_batch(
        self, key: tuple[int, ...], rows: pa.Table | None, timer_values: TimerValues
    ) -> Iterator[Row]:
        """Handles a batch, which may have no rows."""
        changelog = self._changelog
        paged = PagedStore(self._state)
        recording = RecordingStore(paged)
        begun = list(paged.begin(None if changelog is None else changelog.topic_id))
        store: TaskStore = paged
        if changelog is not None:
            recording.changes.update(begun)
            store = recording
        own_state(store, self._name, len(self._numbers))
        failures = replace(self._failures, origins={}, packed=[])
        passing: list[object] = []
        if rows is not None:
            rows, passing = separated(rows)
        now: int = timer_values.getCurrentProcessingTimeInMs() if has_wall_clock(self._run.processor) else 0
        updates = self._run.updates(store, rows, now, failures)
        self._set_timer(store, timer_values)
        tables = [updates]
        if STATE in self._run.schema.names:
            example = self._example(store, updates)
            passing += letters_of(failures)
            if changelog is not None:
                changes = packed_changes(recording.changes, self._numbers[key[0]])
                passing += [{"topic": changelog.topic, "records": records} for records in changes]
            tables.append(self._run.passing(example, passing))
        paged.flush()
        passed = pa.concat_tables(tables)
        if passed.num_rows:
            yield self._row(packed(passed))

    def _set_timer(self, store: TaskStore, timer_values: TimerValues) -> None:
        """Sets a timer of Spark for what the processor waits for."""
        if not has_wall_clock(self._run.processor):
            return
        due = next_wall_clock(self._run.processor, store)
        if due is not None:
            self._handle.registerTimer(max(due, timer_values.getCurrentProcessingTimeInMs() + 1))

    def close(self) -> None:
        pass

    def _example(self, store: TaskStore, updates: pa.Table) -> dict[str, object]:
        """Returns a record that was emitted in this batch or an earlier one."""
        stored = store.get(_EXAMPLE)
        if not updates.num_rows and stored is not None:
            earlier: dict[str, object] = state_value(stored)
            return earlier
        example = self._run.example(updates)
        if updates.num_rows and stored is None:
            store.put(_EXAMPLE, state_bytes(example))
        return example


def concatenated(tables: list[pa.Table]) -> pa.Table:
    """Returns all rows of tables. A source's packed tables and Spark's differ in what may be null."""
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    return pa.concat_tables([table.cast(schema) for table in tables])


def separated(rows: pa.Table) -> tuple[pa.Table, list[Any]]:
    """Returns the records, and what passes."""
    if STATE not in rows.column_names or rows[STATE].null_count == rows.num_rows:
        return rows, []
    passes = pc.is_valid(rows[STATE])
    return rows.filter(pc.invert(passes)), rows[STATE].filter(passes).to_pylist()


def letters_of(failures: FailedRows) -> list[dict[str, object]]:
    """Returns dead letters in the form of rows that pass through."""
    topic = None if failures.letters is None else failures.letters.topic
    return [{"topic": topic, "records": letter} for letter in failures.packed]


def keyed(
    ports: list[Port],
    processor: KeyedProcessor,
    *,
    name: str,
    tasks: Tasks,
    key: StructType,
    outputs: StructType,
    old: tuple[int, ...] | None = None,
) -> DataFrame:
    """Runs a processor. `name` is the operator's: its state belongs to it. `key` is the type of the keys that it emits,
    `outputs` its columns, `old` the indexes of replaced values among them; None to emit every update.
    """
    rows = _united(ports, tasks.names)
    schema = StructType().add("__key", key)
    for output in outputs.fields:
        schema = schema.add(output.name, output.dataType)
    schema = (
        schema.add("__timestamp", LongType()).add("__headers", _HEADERS).add("__order", ArrayType(LongType()))
    ).toNullable()  # a literal is never null, but a delete is
    changelog = None if tasks.changelogs is None else tasks.changelogs(name)
    kinds: dict[str, Any] = {
        column: port.rows.schema[column].dataType for port in ports for column in carried(port.rows)
    }
    if changelog is not None:
        kinds[STATE] = _PASSING
    for column, kind in kinds.items():
        schema = schema.add(column, kind)
    failures = tasks.failures(name)
    arrow = to_arrow_schema(schema, timezone="UTC")
    run = TaskRun(processor, len(ports), tuple(outputs.fieldNames()), old, arrow)
    if rows.isStreaming:
        task = TaskProcessor(run, name=name, tasks=tasks.names, failures=failures, changelog=changelog)
        initial = None
        if changelog is not None and changelog.ranges:
            # A table of Arrow's becomes a local relation, whose rows Spark can count: a small batch stays small.
            names = pa.table({TASK: pa.array(tasks.names, pa.int32())})
            initial = rows.sparkSession.createDataFrame(names, f"{TASK} INT").groupBy(TASK)
        time_mode = "ProcessingTime" if has_wall_clock(processor) else "None"
        groups = _packed(ports, rows, tasks.names).groupBy(TASK)
        return unpacked_rows(
            groups.transformWithState(task, PACKED_TYPE, "append", time_mode, initial), schema
        )
    script = tasks.script

    def batch(rows):  # type: ignore[no-untyped-def]  # Spark looks for annotations, and knows few
        return _batch(run, rows, script, failures)

    return rows.groupBy(TASK).applyInArrow(batch, schema)


@errors_in_one_line()
def _batch(run: TaskRun, rows: pa.Table, script: tuple[ScriptStep, ...], failures: FailedRows) -> pa.Table:
    """Runs a task over all its rows at once: its state begins empty, and is dropped at the end."""
    failures = replace(failures, origins={}, packed=[])
    records, passing = separated(rows)
    if script:
        columns = TaskColumns.of(records, run.port_count, ORIGIN if ORIGIN in records.column_names else None)
        origins = failures.origins = OriginColumn(columns)
        readable = columns.readable_rows(failures.add)
        ordered = list(run_script(run.processor, MemoryStore(), readable, script, run.old, failures))
        updates = run.table_of(ordered, origins)
    else:
        updates = run.updates(MemoryStore(), records, 0, failures)
    passing += letters_of(failures)
    if not passing:
        return updates
    return pa.concat_tables([updates, run.passing(run.example(updates), passing)])


def task_of(port: Port, tasks: tuple[int, ...]) -> Column:
    """Returns the task that has a row's key. It depends on the key alone, so inputs need no co-partitioning."""
    every = sf.array(*map(sf.lit, tasks))
    if port.everywhere:
        if STATE in port.rows.columns:
            every = sf.when(sf.col(STATE).isNull(), every).otherwise(sf.array(sf.lit(tasks[0])))
        return sf.explode(every)
    return sf.get(every, sf.pmod(sf.hash(port.key), sf.lit(len(tasks))))


def _packed(ports: list[Port], united: DataFrame, tasks: tuple[int, ...]) -> DataFrame:
    """Returns the rows of all ports, packed: by the source where it can, and else from `united`, which has the same rows.

    Sources stay in the order of the ports: a checkpoint may know them by it.
    """
    if all(port.plain is None for port in ports):
        return packed_rows(united)
    schema = to_arrow_schema(united.schema, timezone="UTC")
    frames = []
    for number, (port, rows) in enumerate(zip(ports, _rows_of_ports(ports, tasks), strict=True)):
        turn = () if len(ports) == 1 else (_turn(port, number),)
        frames.append(
            packed_rows(rows)
            if port.plain is None
            else port.plain.packed(rows=schema, tasks=tasks, port=number, turn=turn)
        )
    return reduce(DataFrame.union, frames)


def _united(ports: list[Port], tasks: tuple[int, ...]) -> DataFrame:
    return reduce(DataFrame.union, _rows_of_ports(ports, tasks))


def _turn(port: Port, number: int) -> int:
    return number if port.turn is None else port.turn


def _rows_of_ports(ports: list[Port], tasks: tuple[int, ...]) -> list[DataFrame]:
    kinds = [port.rows.select(port.payload.alias("payload")).schema["payload"].dataType for port in ports]
    frames = []
    handed_on = {column: port.rows.schema[column].dataType for port in ports for column in carried(port.rows)}
    for number, port in enumerate(ports):
        present = carried(port.rows)
        more = [
            sf.col(column) if column in present else sf.lit(None).cast(kind).alias(column)
            for column, kind in handed_on.items()
        ]
        payloads = [
            (port.payload if index == number else sf.lit(None).cast(kind)).alias(f"__payload{index}")
            for index, kind in enumerate(kinds)
        ]
        order = (
            sf.col("__order")
            if len(ports) == 1
            else sf.concat("__order", sf.array(sf.lit(_turn(port, number)).cast("bigint")))
        )
        frames.append(
            port.rows.select(
                task_of(port, tasks).alias(TASK),
                sf.lit(number).alias("__port"),
                port.key.alias("__key"),
                *payloads,
                "__timestamp",
                # Spark writes a column of null lists in quadratic time: for each row, all before it again
                sf.coalesce("__headers", sf.array().cast(_HEADERS)).alias("__headers"),
                order.alias("__order"),
                *more,
            )
        )
    return frames


def packed_changes(changes: Mapping[bytes, bytes | None], task: int) -> Iterator[bytes]:
    """Changes of a task's state as records of its changelog, in Arrow's stream format: about PACKED_BYTES in each."""
    names: list[bytes] = []
    datas: list[bytes | None] = []
    size = 0
    for name, data in changes.items():
        names.append(name)
        datas.append(data)
        size += len(name) + len(data or b"")
        if size >= PACKED_BYTES:
            yield _records(names, datas, task)
            names, datas, size = [], [], 0
    if names:
        yield _records(names, datas, task)


def _records(names: list[bytes], datas: list[bytes | None], task: int) -> bytes:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(names, pa.binary()),
            "value": pa.array(datas, pa.binary()),
            "partition": pa.array([task] * len(names), pa.int32()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
