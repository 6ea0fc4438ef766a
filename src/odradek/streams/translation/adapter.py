"""A processor in Spark: a stream runs it in transformWithState, rows that are all there in one call for each task.

Keys are divided into tasks, as Kafka Streams divides them into partitions: Spark groups by the task, and the state of all
its keys is one
map. So a task sees its rows in one order, and knows its own stream time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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

from odradek.streams.processors.failures import FailedRows
from odradek.streams.processors.ports import ByteStore, InputRow, KeyedProcessor, UpdateRow
from odradek.streams.processors.stores import PagedStore, RecordingStore, latest_rows
from odradek.streams.processors.task import (
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

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from odradek.streams.changelogs import StateChangelog
    from odradek.streams.translation.translator import Tasks

_STATE: Final = "state"
_EXAMPLE: Final = b"example"
PACKED_BYTES: Final = 4 << 20
"""Of changes in one row, about."""
_PASSING: Final = StructType().add("topic", StringType()).add("records", BinaryType())
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

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        for name, data in self._state.iterator():
            yield bytes(name[0]), bytes(data[0])


class TaskProcessor(StatefulProcessor):
    """What Spark calls. `old`: the places of old values among the outputs; None to emit every update.

    With a changelog, it also says what changed of the state, in rows that are no records; and it lets such rows pass that
    come in. These look like the last record that was said, since expressions of the user's see them.
    """

    def __init__(
        self,
        processor: KeyedProcessor,
        ports: int,
        outputs: tuple[str, ...],
        old: tuple[int, ...] | None,
        *,
        name: str,
        tasks: int,
        failures: FailedRows | None = None,
        handed_on: tuple[str, ...] = (),
        changelog: StateChangelog | None = None,
    ) -> None:
        self._name = name
        self._tasks = tasks
        self._processor = processor
        self._ports = ports
        self._outputs = outputs
        self._old = old
        self._changelog = changelog
        self._failures = failures or FailedRows(operator=name, letters=None, topics={})
        self._handed_on = handed_on if changelog is None or STATE in handed_on else (*handed_on, STATE)
        self._columns = ["__key", *outputs, "__timestamp", "__headers", "__order", *self._handed_on]

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._row = Row(*self._columns)
        self._state = MapStore(handle.getMapState(_STATE, "name BINARY", "data BINARY"))

    def handleInitialState(  # noqa: N802  # Spark's name
        self,
        key: Any,
        initialState: Any,  # noqa: N803
        timerValues: Any,  # noqa: N803
    ) -> None:
        assert self._changelog is not None
        rows = latest_rows(self._changelog.read(key[0]))
        store = PagedStore(self._state)
        store.fill(rows, self._changelog.topic_id)
        self._set_timer(store, timerValues)

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        yield from self._run(key, rows, timerValues)

    def handleExpiredTimer(  # noqa: N802  # Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Row]:
        yield from self._run(key, (), timerValues)

    def _run(self, key: Any, rows: Iterable[Row], timer_values: Any) -> Iterator[Row]:
        """A batch, which may have no rows."""
        changelog = self._changelog
        paged = PagedStore(self._state)
        recording = RecordingStore(paged)
        begun = list(paged.begin(None if changelog is None else changelog.topic_id))
        store: ByteStore = paged
        if changelog is not None:
            recording.changes.update(begun)
            store = recording
        own_state(store, self._name, self._tasks)
        failures = replace(self._failures, origins={}, packed=[])
        given, passing = separated(rows, self._ports, failures)
        example: tuple[list[int], UpdateRow] | None = None
        for order, update in self._made(store, given, timer_values, failures):
            example = example or (order, update)
            yield self._said(order, update, None, failures)
        self._set_timer(store, timer_values)
        if STATE not in self._handed_on:
            return
        order, update = self._example(store, example)
        for state in [*passing, *letters_of(failures)]:
            yield self._said(order, update, state, failures)
        if changelog is not None:
            for records in packed(recording.changes, key[0]):
                yield self._said(order, update, {"topic": changelog.topic, "records": records}, failures)

    def _set_timer(self, store: ByteStore, timer_values: Any) -> None:
        """A timer of Spark for what the processor waits for."""
        if not has_wall_clock(self._processor):
            return
        due = next_wall_clock(self._processor, store)
        if due is not None:
            self._handle.registerTimer(max(due, timer_values.getCurrentProcessingTimeInMs() + 1))

    def close(self) -> None:
        pass

    def _made(
        self, store: ByteStore, given: Iterable[InputRow], timer_values: Any, failures: FailedRows
    ) -> Iterable[tuple[list[int], UpdateRow]]:
        timed = has_wall_clock(self._processor)
        now: int = timer_values.getCurrentProcessingTimeInMs() if timed else 0
        made = run_batch(self._processor, store, given, now, failures)
        return made if self._old is None else latest_only(made, self._old)

    def _said(self, order: list[int], update: UpdateRow, state: Any, failures: FailedRows) -> Row:
        more = {STATE: state, ORIGIN: failures.origins.get(tuple(order[1:4]))}
        return self._row(
            update.key,
            *update.values,
            update.timestamp,
            update.headers,
            order,
            *(more[name] for name in self._handed_on),
        )

    def _example(
        self, store: ByteStore, said: tuple[list[int], UpdateRow] | None
    ) -> tuple[list[int], UpdateRow]:
        """A record that was said, in this batch or an earlier one; one that is null all over before the first."""
        kept = store.get(_EXAMPLE)
        if said is None:
            return (
                pickle.loads(kept)
                if kept
                else ([0, 0, 0, 0], UpdateRow(None, (None,) * len(self._outputs), 0))
            )
        if kept is None:
            store.put(_EXAMPLE, pickle.dumps(said, protocol=5))
        return said


def separated(rows: Iterable[Any], ports: int, failures: FailedRows) -> tuple[list[InputRow], list[Any]]:
    """The records, and what passes. The origins of records are remembered for their dead letters."""
    given: list[InputRow] = []
    passing: list[Any] = []
    for row in rows:
        if STATE in row and row[STATE] is not None:
            passing.append(row[STATE])
            continue
        given.append(_input_row(row, ports))
        if ORIGIN in row:
            failures.origins[tuple(row["__order"][1:4])] = row[ORIGIN]
    return given, passing


def letters_of(failures: FailedRows) -> list[dict[str, Any]]:
    """Dead letters, as rows that pass have them."""
    topic = None if failures.letters is None else failures.letters.topic
    return [{"topic": topic, "records": letter} for letter in failures.packed]


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
    tasks: Tasks,
    key: StructType,
    outputs: StructType,
    old: tuple[int, ...] | None = None,
) -> DataFrame:
    """Run a processor. `name` is the operator's: its state belongs to it. `key` is the type of the keys that it says,
    `outputs` its columns.
    """
    rows = _united(ports, tasks.count)
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
    names, count, failures = tuple(outputs.fieldNames()), len(ports), tasks.failures(name)
    groups = rows.groupBy("__task")
    if rows.isStreaming:
        task = TaskProcessor(
            processor,
            count,
            names,
            old,
            name=name,
            tasks=tasks.count,
            failures=failures,
            handed_on=tuple(kinds),
            changelog=changelog,
        )
        initial = None
        if changelog is not None and changelog.ranges:
            numbers = [(number,) for number in range(tasks.count)]
            initial = rows.sparkSession.createDataFrame(numbers, "__task INT").groupBy("__task")
        time_mode = "ProcessingTime" if has_wall_clock(processor) else "None"
        return groups.transformWithState(task, schema, "append", time_mode, initial)
    arrow = to_arrow_schema(schema, timezone="UTC")
    script = tasks.script

    def batch(rows):  # type: ignore[no-untyped-def]  # Spark looks for annotations, and knows few
        return _batch(processor, rows, count, names, old, script, failures, arrow)

    return groups.applyInArrow(batch, schema)


def _batch(
    processor: KeyedProcessor,
    rows: pa.Table,
    ports: int,
    outputs: tuple[str, ...],
    old: tuple[int, ...] | None,
    script: tuple[ScriptStep, ...],
    failures: FailedRows,
    schema: pa.Schema,
) -> pa.Table:
    """A task over rows that are all there: its state begins empty, and nothing of it stays."""
    failures = replace(failures, origins={}, packed=[])
    given, passing = separated(rows.to_pylist(), ports, failures)
    made = list(run_script(processor, MemoryStore(), given, script, old, failures))
    said = [_as_dict(order, update, outputs, None, failures) for order, update in made]
    order, update = made[0] if made else ([0, 0, 0, 0], UpdateRow(None, (None,) * len(outputs), 0))
    for state in [*passing, *letters_of(failures)]:
        said.append(_as_dict(order, update, outputs, state, failures))  # noqa: PERF401 - as the rows of a stream do
    return pa.Table.from_pylist(said, schema=schema)


def _as_dict(
    order: list[int], update: UpdateRow, outputs: tuple[str, ...], state: Any, failures: FailedRows
) -> dict[str, Any]:
    return {
        "__key": update.key,
        **dict(zip(outputs, update.values, strict=True)),
        "__timestamp": update.timestamp,
        "__headers": update.headers,
        "__order": order,
        STATE: state,
        ORIGIN: failures.origins.get(tuple(order[1:4])),
    }


def task_of(port: Port, tasks: int) -> Column:
    """Which task has a row's key, from 0 on."""
    if port.everywhere:
        every = sf.sequence(sf.lit(0), sf.lit(tasks - 1))
        if STATE in port.rows.columns:
            every = sf.when(sf.col(STATE).isNull(), every).otherwise(sf.array(sf.lit(0)))
        return sf.explode(every)
    return sf.pmod(sf.hash(port.key), sf.lit(tasks)).cast("int")


def _united(ports: list[Port], tasks: int) -> DataFrame:
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
                *more,
            )
        )
    united = frames[0]
    for frame in frames[1:]:
        united = united.union(frame)
    return united


def packed(changes: Mapping[bytes, bytes | None], task: int) -> Iterator[bytes]:
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
