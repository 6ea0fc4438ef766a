"""A task in transformWithState, in Spark's own tester: no JVM."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from odradek.model.errors import ConfigError
from odradek.streams.processors.custom import CustomProcessor, Processor, Timers
from odradek.streams.processors.joins import LatestProcessor
from odradek.streams.processors.keyed_state import KeyedState
from odradek.streams.records import StreamRecord

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from odradek.streams.changelogs import StateChangelog
from odradek.streams.translation.adapter import PACKED_BYTES, TaskProcessor, packed


def row(key: str, value: Any, *, at: int, offset: int) -> Row:
    names = ("__port", "__key", "__payload0", "__timestamp", "__headers", "__order")
    return Row(*names)(0, {"key": key}, value, at, None, [at, 0, 0, offset])


def task(*, old: Any = None, name: str = "users", tasks: int = 2) -> TaskProcessor:
    return TaskProcessor(LatestProcessor(), 1, ("__value", "__old"), old, name=name, tasks=tasks)


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (None, [("a", 1, None), ("b", 2, None), ("a", 3, 1)]),
        ((1,), [("b", 2, None), ("a", 3, None)]),
    ],
)
def test_a_task_has_many_keys_and_remembers_them(old: Any, expected: list[Any]) -> None:
    tester = TwsTester(task(old=old))
    batch = [row("a", 3, at=9, offset=2), row("a", 1, at=5, offset=0), row("b", 2, at=7, offset=1)]
    said = [
        (update["__key"]["key"], update["__value"], update["__old"]) for update in tester.test((0,), batch)
    ]
    assert said == expected
    (later,) = tester.test((0,), [row("a", None, at=11, offset=3)])
    assert (later["__value"], later["__old"], later["__timestamp"]) == (None, 3, 11)
    (gone,) = tester.test((0,), [row("a", 4, at=12, offset=4)])
    assert (gone["__old"], gone["__order"]) == (None, [12, 0, 0, 4, 0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"name": "orders"}, "state of the operator 'users'"), ({"tasks": 3}, "partitions was 2")],
)
def test_a_task_refuses_the_state_of_another(changed: dict[str, Any], message: str) -> None:
    first = TwsTester(task())
    first.test((0,), [row("a", 1, at=1, offset=0)])
    second = TwsTester(task(**changed))
    second.updateMapState("state", (0,), first.peekMapState("state", (0,)))
    with pytest.raises(ConfigError, match=message):
        second.test((0,), [row("a", 2, at=2, offset=1)])


CHANGELOG = StateChangelog(options={}, topic="app.out-users-changelog", topic_id="7d")


def records_in(states: list[Any]) -> dict[bytes, Any]:
    """What rows take to the changelog: names and unpickled data."""
    records: dict[bytes, Any] = {}
    for state in states:
        for rows in pa.ipc.open_stream(state["records"]):
            assert set(rows["partition"].to_pylist()) == {1}
            records.update(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
    return {name: data and pickle.loads(data) for name, data in records.items() if name.startswith(b"value/")}


def test_changes_of_state_follow_the_records_and_look_like_one() -> None:
    names = (*row("a", 1, at=1, offset=0).__fields__, "__state")

    def with_state(key: str | None, value: Any, *, at: int, offset: int, state: Any = None) -> Row:
        return Row(*names)(*row(key or "", value, at=at, offset=offset), state)

    tester = TwsTester(
        TaskProcessor(
            LatestProcessor(), 1, ("__value", "__old"), None, name="users", tasks=2, changelog=CHANGELOG
        )
    )
    passing = {"topic": "app.out-earlier-changelog", "records": b"packed"}
    said = tester.test(
        1, [with_state("a", 1, at=1, offset=0), with_state(None, None, at=0, offset=0, state=passing)]
    )
    assert [(update["__value"], update["__state"] and update["__state"]["topic"]) for update in said] == [
        (1, None),
        (1, "app.out-earlier-changelog"),
        (1, CHANGELOG.topic),
    ]
    assert records_in([said[2]["__state"]]) == {b"value/('a',)": 1}

    said = tester.test(1, [with_state("a", None, at=2, offset=1), with_state("b", 5, at=3, offset=2)])
    assert records_in([update["__state"] for update in said if update["__state"]]) == {
        b"value/('a',)": None,
        b"value/('b',)": 5,
    }
    said = tester.test(1, [with_state(None, None, at=0, offset=0, state=passing)])
    assert [(update["__value"], update["__state"]["topic"]) for update in said] == [(1, passing["topic"])]


def test_many_changes_are_cut_into_several_rows() -> None:
    changes = {b"%d" % number: bytes(PACKED_BYTES // 4) for number in range(10)}
    parts = list(packed(changes, 1))
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
    tester = TwsTester(
        TaskProcessor(echo, 1, ("__value",), None, name="echo", tasks=1), timeMode="ProcessingTime"
    )
    tester.setProcessingTime(1_000)
    assert tester.test((0,), [row("a", {"n": 1}, at=5, offset=0)]) == []
    tester.setProcessingTime(1_050)
    assert tester.test((0,), [row("b", {"n": 2}, at=6, offset=1)]) == []
    (first,) = tester.setProcessingTime(1_120)
    assert (first["__key"], first["__value"], first["__timestamp"]) == ({"key": "a"}, {"n": 1}, 1_100)
    assert [said["__value"] for said in tester.setProcessingTime(1_200)] == [{"n": 2}]
    assert tester.setProcessingTime(9_000) == []
