"""State as it is shown: names and values of a changelog's rows, the last ones of many, files."""

from __future__ import annotations

import json
import pickle
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.pipelines.test_upgrade import PYSPARK, outline, totals

from odradek.model.errors import ConfigError, KafkaError
from odradek.pipelines.carrying import OperatorState
from odradek.pipelines.outline import ProgramOutline
from odradek.pipelines.state_export import state_file
from odradek.pipelines.state_reading import LastRows, NoSuchState, StateRow, chosen_states
from odradek.pipelines.state_values import name_in, value_in
from odradek.pipelines.status import Phase, PipelineStatus
from odradek.streams.processors.task import CachedState, MemoryStore

PLACE = OperatorState(output="out", operator="totals", topic="shop.out-totals-changelog")


@dataclass
class Basket:
    """What a user's function may keep."""

    items: list[str]


class Trap:
    """A pickle that runs something when it is read as Python reads it."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("trapped"),)


def kept(part: str, key: dict[str, Any] | None, value: Any) -> tuple[bytes, bytes]:
    """Name and data as an operator writes them."""
    store = MemoryStore()
    state = CachedState(store)
    state.put(part, key, value)
    state.flush()
    [(name, data)] = store.data.items()
    return name, data


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ({"user": "ann"}, "ann"),
        ({"user": "a/(b", "day": 3}, ["a/(b", 3]),
        ({"user": None}, None),
        (
            {"at": datetime(2026, 1, 2, tzinfo=UTC)},
            "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)",
        ),
        (None, None),
    ],
)
def test_a_name_says_part_and_key(key: dict[str, Any] | None, shown: Any) -> None:
    name, _ = kept("aggregate", key, 1)
    assert name_in(name) == ("aggregate", shown)


@pytest.mark.parametrize("name", [b"clock", b"owner", b"example"])
def test_what_a_task_keeps_of_itself_has_no_key(name: bytes) -> None:
    assert name_in(name) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (({"n": 3, "sum": 2.5}, 17), [{"n": 3, "sum": 2.5}, 17]),
        ({"open": {1: "a"}, "seen": {2, 1}}, {"open": {"1": "a"}, "seen": [1, 2]}),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Decimal("1.50"), "1.50"),
        (float("nan"), "nan"),
        (deque([1]), [1]),
        (b"text", "text"),
        (b"\xff", {"base64": "/w=="}),
        (
            Basket(["tea"]),
            {"class": f"{__name__}.Basket", "fields": {"items": ["tea"]}},
        ),
        (Counter("aa"), {"class": "collections.Counter", "parts": [{"a": 2}]}),
    ],
)
def test_a_value_is_shown_as_json(value: Any, shown: Any) -> None:
    _, data = kept("aggregate", {"key": 1}, value)
    assert value_in(data) == shown
    json.dumps(shown, allow_nan=False)


def test_nothing_in_a_topic_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value_in(pickle.dumps(Trap()))
    assert list(tmp_path.iterdir()) == []


def test_what_no_operator_wrote_is_refused() -> None:
    with pytest.raises(KafkaError, match="a row of state is unreadable"):
        value_in(b"no pickle")


def rows_of(tmp_path: Path, *changes: tuple[int, str, Any]) -> list[StateRow]:
    last = LastRows(tmp_path / "rows")
    for task, key, value in changes:
        name, data = kept("aggregate", {"key": key}, value or 0)
        last.put([(task, name, None if value is None else data)])
    last.put([(0, b"clock", b"17")])
    try:
        return list(last.rows())
    finally:
        last.close()


def test_the_last_value_of_each_key_counts(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, (0, "b", 1), (1, "a", 2), (0, "b", 3), (1, "c", 4), (1, "c", None))
    assert [(row.task, row.key, row.value) for row in rows] == [(1, "a", 2), (0, "b", 3)]


def test_files_hold_all_rows(tmp_path: Path) -> None:
    rows = [
        StateRow(task=0, part="aggregate", key=["a", 1], value={"n": 2}),
        StateRow(task=1, part="x", key=None, value=3),
    ]
    for ending in ("jsonl", "parquet"):
        with state_file(tmp_path / f"state.{ending}") as file:
            assert file.write(PLACE, iter(rows)) == 2
    lines = [json.loads(line) for line in (tmp_path / "state.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "output": "out",
        "operator": "totals",
        "task": 0,
        "part": "aggregate",
        "key": ["a", 1],
        "value": {"n": 2},
    }
    table = pq.read_table(tmp_path / "state.parquet").to_pylist()
    assert [(row["task"], row["key"], row["value"]) for row in table] == [
        (0, '["a", 1]', '{"n": 2}'),
        (1, None, "3"),
    ]


@pytest.mark.parametrize(
    ("name", "why"), [("state.csv", "ends in .parquet"), ("there.jsonl", "is there already")]
)
def test_what_is_no_new_file_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "there.jsonl").touch()
    with pytest.raises(ConfigError, match=why), state_file(tmp_path / name):
        pass


def status_of(program: ProgramOutline | None) -> PipelineStatus:
    return PipelineStatus(
        name="shop", phase=Phase.RUNNING, revision=1, version=1, since_ms=0, supervisor="me", outline=program
    )


def test_an_operator_is_chosen_by_its_name() -> None:
    assert chosen_states("shop", status_of(outline(totals())), "totals", None) == [PLACE]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (None, "start it once"),
        (PYSPARK, "plain PySpark"),
        (outline(totals()), r"no operator 'sums' with state: there is totals \(output out\)"),
    ],
)
def test_why_there_is_no_state(program: ProgramOutline | None, why: str) -> None:
    with pytest.raises(NoSuchState, match=why):
        chosen_states("shop", status_of(program), "sums", None)
