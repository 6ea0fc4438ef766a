"""A task in transformWithState, in Spark's own tester: no JVM."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.model.errors import ConfigError
from odradek.streams.processors.custom import CustomProcessor, Processor, Timers
from odradek.streams.processors.joins import LatestProcessor
from odradek.streams.processors.keyed_state import KeyedState
from odradek.streams.processors.records import StreamRecord
from odradek.streams.processors.state.state_bytes import state_value

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from odradek.streams.processors.columns import TaskColumns
from odradek.streams.processors.failures import FailedRows, Letters, RecordFailedError
from odradek.streams.processors.ports import KeyedProcessor
from odradek.streams.processors.task import MemoryStore
from odradek.streams.restore.changelogs import StateChangelog
from odradek.streams.translation.adapter import TaskProcessor, TaskRun, packed_changes
from odradek.streams.translation.packing import PACKED_BYTES, ROWS, packed, unpacked

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PASSING = pa.struct([("topic", pa.string()), ("records", pa.binary())])


def record(key: str, value: Any, *, at: int, offset: int, **more: Any) -> dict[str, Any]:
    return {
        "__port": 0,
        "__key": {"key": key},
        "__payload0": value,
        "__timestamp": at,
        "__headers": None,
        "__order": [at, 0, 0, offset],
        **more,
    }


def said(
    tester: TwsTester, task: int, records: list[dict[str, Any]], value: pa.DataType
) -> list[dict[str, Any]]:
    """What a task says of records, which it gets packed in two rows."""
    columns = {"__port": pa.int32(), "__key": pa.struct([("key", pa.string())]), "__payload0": value}
    columns |= {"__timestamp": pa.int64(), "__headers": HEADERS, "__order": pa.list_(pa.int64())}
    if records and "__state" in records[0]:
        columns["__state"] = PASSING
    rows = pa.Table.from_pylist(records, schema=pa.schema(columns))
    middle = len(records) // 2
    parts = [packed(rows.slice(0, middle)), packed(rows.slice(middle))]
    return unpacked_all(tester.test(task, [Row(ROWS)(part) for part in parts]))


def unpacked_all(rows: list[Row]) -> list[dict[str, Any]]:
    return [update for row in rows for update in unpacked(row[ROWS]).to_pylist()]


def task_run(
    processor: KeyedProcessor,
    outputs: dict[str, pa.DataType],
    old: Any = None,
    *more: tuple[str, pa.DataType],
) -> TaskRun:
    fields = [("__key", pa.struct([("key", pa.string())])), *outputs.items(), ("__timestamp", pa.int64())]
    fields += [("__headers", HEADERS), ("__order", pa.list_(pa.int64())), *more]
    return TaskRun(processor, 1, tuple(outputs), old, pa.schema(fields))


LATEST = {"__value": pa.int64(), "__old": pa.int64()}


def task(*, old: Any = None, name: str = "users", tasks: int = 2) -> TaskProcessor:
    return TaskProcessor(task_run(LatestProcessor(), LATEST, old), name=name, tasks=tuple(range(tasks)))


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (None, [("a", 1, None), ("b", 2, None), ("a", 3, 1)]),
        ((1,), [("b", 2, None), ("a", 3, None)]),
    ],
)
def test_a_task_has_many_keys_and_remembers_them(old: Any, expected: list[Any]) -> None:
    tester = TwsTester(task(old=old))
    batch = [record("a", 3, at=9, offset=2), record("a", 1, at=5, offset=0), record("b", 2, at=7, offset=1)]
    updates = said(tester, 0, batch, pa.int64())
    assert [(update["__key"]["key"], update["__value"], update["__old"]) for update in updates] == expected
    (later,) = said(tester, 0, [record("a", None, at=11, offset=3)], pa.int64())
    assert (later["__value"], later["__old"], later["__timestamp"]) == (None, 3, 11)
    (gone,) = said(tester, 0, [record("a", 4, at=12, offset=4)], pa.int64())
    assert (gone["__old"], gone["__order"]) == (None, [12, 0, 0, 4, 0])


LATE_US = 10**18
"""The year 33658, in microseconds."""


def of_times(*times_us: int) -> pa.Table:
    kind = pa.timestamp("us", "UTC")
    count = len(times_us)
    return pa.table(
        {
            "__port": pa.array([0] * count, pa.int32()),
            "__key": [{"key": f"{place % 2}"} for place in range(count)],
            "__payload0": pa.array(times_us, pa.int64()).cast(kind),
            "__timestamp": pa.array(range(count), pa.int64()),
            "__headers": pa.nulls(count, HEADERS),
            "__order": pa.array([[place, 0, 0, place] for place in range(count)], pa.list_(pa.int64())),
        }
    )


def test_a_record_with_a_time_that_python_does_not_have_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    kind = pa.timestamp("us", "UTC")
    run = task_run(LatestProcessor(), {"__value": kind, "__old": kind})
    table = of_times(1, 2, LATE_US, 4, 5, 6, -LATE_US)
    failures = FailedRows(operator="users", letters=Letters(topic=None), topics={0: "users"})
    said_of = run.updates(MemoryStore(), table, 0, failures)
    assert said_of["__value"].cast(pa.int64()).to_pylist() == [1, 2, 4, 5, 6]
    assert [line.getMessage().split(": Unreadable")[0] for line in caplog.records] == [
        f"left out: users failed at users-0 offset {offset}" for offset in (2, 6)
    ]
    ending = FailedRows(operator="users", letters=None, topics={0: "users"})
    with pytest.raises(
        RecordFailedError, match=r"^users failed at users-0 offset 2: Unread.* years 1 to 9999"
    ):
        run.updates(MemoryStore(), table, 0, ending)


@pytest.mark.parametrize("bad_places", [(), (3,), (0, 999)])
def test_the_unreadable_record_is_searched_for_by_halves(bad_places: tuple[int, ...]) -> None:
    times = [LATE_US if place in bad_places else place for place in range(1_000)]
    columns = TaskColumns.of(of_times(*times), 1)
    failed: list[int] = []
    read = columns.readable_rows(lambda row, error: failed.append(row.order[3]))
    assert failed == list(bad_places)
    assert [row.order[3] for row in read] == [place for place in range(1_000) if place not in bad_places]


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"name": "orders"}, "state of the operator 'users'"), ({"tasks": 3}, "partitions was 2")],
)
def test_a_task_refuses_the_state_of_another(changed: dict[str, Any], message: str) -> None:
    first = TwsTester(task())
    said(first, 0, [record("a", 1, at=1, offset=0)], pa.int64())
    second = TwsTester(task(**changed))
    second.updateMapState("state", 0, first.peekMapState("state", 0))
    with pytest.raises(ConfigError, match=message):
        said(second, 0, [record("a", 2, at=2, offset=1)], pa.int64())


CHANGELOG = StateChangelog(options={}, topic="app.out-users-changelog", topic_id="7d")


def records_in(states: list[Any]) -> dict[bytes, Any]:
    """What rows take to the changelog: names and unpickled data."""
    records: dict[bytes, Any] = {}
    for state in states:
        for rows in pa.ipc.open_stream(state["records"]):
            assert set(rows["partition"].to_pylist()) == {1}
            records.update(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
    return {name: data and state_value(data) for name, data in records.items() if name.startswith(b"value/")}


def test_changes_of_state_follow_the_records_and_look_like_one() -> None:
    def with_state(key: str, value: Any, *, at: int, offset: int, state: Any = None) -> dict[str, Any]:
        return record(key, value, at=at, offset=offset, __state=state)

    run = task_run(LatestProcessor(), LATEST, None, ("__state", PASSING))
    tester = TwsTester(TaskProcessor(run, name="users", tasks=(0, 1), changelog=CHANGELOG))
    passing = {"topic": "app.out-earlier-changelog", "records": b"packed"}
    updates = said(
        tester,
        1,
        [with_state("a", 1, at=1, offset=0), with_state("", None, at=0, offset=0, state=passing)],
        pa.int64(),
    )
    assert [(update["__value"], update["__state"] and update["__state"]["topic"]) for update in updates] == [
        (1, None),
        (1, "app.out-earlier-changelog"),
        (1, CHANGELOG.topic),
    ]
    assert records_in([updates[2]["__state"]]) == {b"value/('a',)": 1}

    changes = [with_state("a", None, at=2, offset=1), with_state("b", 5, at=3, offset=2)]
    updates = said(tester, 1, changes, pa.int64())
    assert records_in([update["__state"] for update in updates if update["__state"]]) == {
        b"value/('a',)": None,
        b"value/('b',)": 5,
    }
    updates = said(tester, 1, [with_state("", None, at=0, offset=0, state=passing)], pa.int64())
    assert [(update["__value"], update["__state"]["topic"]) for update in updates] == [(1, passing["topic"])]


def test_many_changes_are_cut_into_several_rows() -> None:
    changes = {b"%d" % number: bytes(PACKED_BYTES // 4) for number in range(10)}
    parts = list(packed_changes(changes, 1))
    assert len(parts) == 3
    assert sum(rows.num_rows for part in parts for rows in pa.ipc.open_stream(part)) == 10


class Echo(Processor):
    """Says each value again 100 ms later, on the clock."""

    def process(self, record: StreamRecord, state: KeyedState, timers: Timers) -> None:
        state["value"] = record.value
        timers.at(timers.wall_clock + 100, wall_clock=True)

    def on_wall_clock_timer(self, key: Any, time: int, state: KeyedState, timers: Timers) -> Any:
        yield state.pop("value")


def test_timers_on_the_clock_are_timers_of_spark() -> None:
    echo = CustomProcessor(Echo(), bare_key="key", bare_value=None, outputs={"": None})
    number = pa.struct([("n", pa.int64())])
    run = task_run(echo, {"__value": number})
    tester = TwsTester(TaskProcessor(run, name="echo", tasks=(0,)), timeMode="ProcessingTime")
    tester.setProcessingTime(1_000)
    assert said(tester, 0, [record("a", {"n": 1}, at=5, offset=0)], number) == []
    tester.setProcessingTime(1_050)
    assert said(tester, 0, [record("b", {"n": 2}, at=6, offset=1)], number) == []
    (first,) = unpacked_all(tester.setProcessingTime(1_120))
    assert (first["__key"], first["__value"], first["__timestamp"]) == ({"key": "a"}, {"n": 1}, 1_100)
    assert [update["__value"] for update in unpacked_all(tester.setProcessingTime(1_200))] == [{"n": 2}]
    assert tester.setProcessingTime(9_000) == []
