"""Records with their place, on each engine."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import pytest

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.records import BatchBuilder, Record, decode_batch, engine


class Pair(NamedTuple):
    first: Any
    second: Any


def _records() -> list[Record]:
    builder = BatchBuilder()
    builder.append(1_000, b"key", b"value", [("name", b"content"), ("name", None)])
    builder.append(1_001, None, None)
    builder.append(1_002, b"", b"")
    return decode_batch(builder.build())


def test_each_record_becomes_a_tuple_of_the_kind_behind_its_place() -> None:
    records = _records()
    made = engine.active.placed(records, ConsumerRecord, ("topic", 7))
    assert [type(placed) for placed in made] == [ConsumerRecord] * 3
    assert made == [ConsumerRecord("topic", 7, *record) for record in records]
    assert made[0].headers == (("name", b"content"), ("name", None))
    assert (made[1].key, made[1].value) == (None, None)


def test_no_records_become_no_tuples() -> None:
    assert engine.active.placed([], ConsumerRecord, ("topic", 7)) == []


def test_the_tuples_outlive_the_records_and_the_collector() -> None:
    made = engine.active.placed(_records(), ConsumerRecord, (str(b"topic", "ascii"), 1 << 20))
    gc.collect()
    assert made[2] == ("topic", 1 << 20, 2, 1_002, 0, b"", b"", (), -1)
    assert len({placed.timestamp_ms for placed in made}) == 3


def test_what_is_no_tuple_is_refused() -> None:
    with pytest.raises(TypeError):
        engine.active.placed([5], ConsumerRecord, ("topic", 7))  # type: ignore[list-item]
    with pytest.raises(TypeError):
        engine.active.placed(_records(), list, ("topic", 7))  # type: ignore[type-var]


def test_memory_of_a_size_is_writable_and_shared_with_no_other() -> None:
    first, second = engine.active.allocate(100_000), engine.active.allocate(100_000)
    assert (len(first), first.readonly, first.format) == (100_000, False, "B")
    first[:] = b"a" * 100_000
    second[:] = b"b" * 100_000
    assert bytes(first) == b"a" * 100_000
    assert len(engine.active.allocate(0)) == 0


def test_memory_that_a_view_refers_to_is_not_used_again() -> None:
    memory = engine.active.allocate(1 << 20)
    memory[:5] = b"magic"
    part = memory[:5]
    del memory
    others = [engine.active.allocate(1 << 20) for _ in range(4)]
    for other in others:
        other[:5] = b"other"
    assert bytes(part) == b"magic"


def test_memory_of_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"-1|negative"):
        engine.active.allocate(-1)
