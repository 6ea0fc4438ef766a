"""A task in transformWithState, in Spark's own tester: no JVM."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.streams.processors.joins import LatestProcessor

pytest.importorskip("pyspark")

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from odradek.streams.translation.adapter import TaskProcessor


def row(key: str, value: Any, *, at: int, offset: int) -> Row:
    names = ("__port", "__key", "__payload0", "__timestamp", "__headers", "__order")
    return Row(*names)(0, {"key": key}, value, at, None, [at, 0, 0, offset])


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (None, [("a", 1, None), ("b", 2, None), ("a", 3, 1)]),
        ((1,), [("b", 2, None), ("a", 3, None)]),
    ],
)
def test_a_task_has_many_keys_and_remembers_them(old: Any, expected: list[Any]) -> None:
    tester = TwsTester(TaskProcessor(LatestProcessor(), 1, ("__value", "__old"), old))
    batch = [row("a", 3, at=9, offset=2), row("a", 1, at=5, offset=0), row("b", 2, at=7, offset=1)]
    said = [(each["__key"]["key"], each["__value"], each["__old"]) for each in tester.test((0,), batch)]
    assert said == expected
    (later,) = tester.test((0,), [row("a", None, at=11, offset=3)])
    assert (later["__value"], later["__old"], later["__timestamp"]) == (None, 3, 11)
    (gone,) = tester.test((0,), [row("a", 4, at=12, offset=4)])
    assert (gone["__old"], gone["__order"]) == (None, [12, 0, 0, 4, 0])
