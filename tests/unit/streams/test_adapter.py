"""A task in transformWithState, in Spark's own tester: no JVM."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.model.errors import ConfigError
from odradek.streams.processors.custom import CustomProcessor, Processor, Timers
from odradek.streams.processors.joins import LatestProcessor
from odradek.streams.processors.keyed_state import KeyedState
from odradek.streams.records import StreamRecord

pytest.importorskip("pyspark")

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from odradek.streams.translation.adapter import TaskProcessor


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
