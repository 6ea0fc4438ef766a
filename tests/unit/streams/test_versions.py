"""Versioned tables and joins with them: what was true at a record's time."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.streams.processors.ports import InputRow, KeyedProcessor
from odradek.streams.processors.task import MemoryStore, run_batch
from odradek.streams.processors.versions import VersionedJoinProcessor, VersionedProcessor

STREAM, TABLE = 0, 1


def said(processor: KeyedProcessor, rows: list[tuple[int, str | None, Any, int]]) -> list[Any]:
    given = [
        InputRow(
            port,
            None if key is None else {"key": key},
            {"key": {"key": key}, "value": value} if port == STREAM else value,
            at,
            None,
            [place, 0, 0, place],
        )
        for place, (port, key, value, at) in enumerate(rows)
    ]
    return [(*update.values, update.timestamp) for _, update in run_batch(processor, MemoryStore(), given)]


def join(kind: Any, grace: int | None = None) -> VersionedJoinProcessor:
    return VersionedJoinProcessor(kind, history_ms=20, grace_ms=grace)


def test_a_record_finds_what_was_true_at_its_time() -> None:
    rows = [(TABLE, "a", "v10", 10), (TABLE, "a", "v20", 20), (TABLE, "a", "v15", 15)]
    asked = [(STREAM, "a", f"s{at}", at) for at in (9, 10, 14, 15, 19, 20, 99)]
    assert [(left, right) for left, right, _ in said(join("left"), [*rows, *asked])] == [
        ("s9", None),
        ("s10", "v10"),
        ("s14", "v10"),
        ("s15", "v15"),
        ("s19", "v15"),
        ("s20", "v20"),
        ("s99", "v20"),
    ]


def test_a_delete_is_a_version_too() -> None:
    rows = [(TABLE, "a", "v1", 1), (TABLE, "a", None, 5), (STREAM, "a", "s4", 4), (STREAM, "a", "s6", 6)]
    assert said(join("inner"), rows) == [("s4", "v1", 4)]


def test_what_is_older_than_the_history_is_forgotten_unless_it_is_still_true() -> None:
    rows = [
        (TABLE, "a", "v1", 1),
        (TABLE, "a", "v2", 10),
        (TABLE, "b", "w1", 1),
        (TABLE, "c", "late", 40),
        (STREAM, "a", "s5", 5),
        (STREAM, "b", "s6", 6),
        (STREAM, "a", "s30", 30),
    ]
    assert said(join("inner"), rows) == [("s6", "w1", 6), ("s30", "v2", 30)]


def test_records_wait_for_versions_that_come_late() -> None:
    rows = [
        (STREAM, "a", "s10", 10),
        (TABLE, "a", "v8", 8),
        (STREAM, "b", "s14", 14),
        (STREAM, "c", "s15", 15),
        (TABLE, "b", "v14", 14),
        (STREAM, "a", "too late to wait", 5),
        (STREAM, "c", "s30", 30),
    ]
    assert said(join("left", grace=5), rows) == [
        ("s10", "v8", 10),
        ("too late to wait", None, 5),
        ("s14", "v14", 14),
        ("s15", None, 15),
    ]


@pytest.mark.parametrize(("kind", "expected"), [("left", [("x", None, 1)]), ("inner", [])])
def test_a_record_without_key_does_not_wait(kind: Any, expected: list[Any]) -> None:
    assert said(join(kind, grace=5), [(STREAM, None, "x", 1)]) == expected


def test_a_versioned_table_says_which_updates_are_the_latest() -> None:
    rows = [(TABLE, "a", "v10", 10), (TABLE, "a", "v5", 5), (TABLE, "a", None, 30), (TABLE, "a", "v9", 9)]
    assert said(VersionedProcessor(20), rows) == [
        ("v10", None, True, 10),
        ("v5", "v10", False, 5),
        (None, "v10", True, 30),
    ]


def test_deleted_keys_leave_the_state_when_their_history_is_over() -> None:
    store = MemoryStore()
    for processor, port in ((VersionedProcessor(20), TABLE), (join("left"), TABLE)):
        rows = [
            InputRow(port, {"key": key}, value, at, None, [at, 0, 0, at])
            for key, value, at in (("a", {"v": 1}, 1), ("a", None, 2), ("b", {"v": 2}, 60))
        ]
        store = MemoryStore()
        list(run_batch(processor, store, rows))
        assert not [name for name in store.data if b"'a'" in name and b"calendar" not in name]
