"""The compiled half for compaction against its plain twin: the same answers for whatever bytes, and the same refusals."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import KafkaError
from odradek.records import BatchBuilder, engine, read_header
from odradek.records.batch import HEADER_BYTES, assign
from odradek.records.content import frame_of
from odradek.records.frame import Frame

Damage: TypeAlias = list[tuple[int, int]]

pytestmark = pytest.mark.skipif(
    engine.compiled() is None, reason="the package was installed without a compiler"
)
quickly = settings(deadline=None, max_examples=150)
SEED = bytes(range(16))
ENGINES = ("odradek.records._fast_cleaning", "odradek.records._plain_cleaning")

keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"bb", b"c" * 30, b"d" * 9]), st.binary(max_size=3))
values = st.one_of(st.none(), st.binary(max_size=20))
times = st.one_of(st.integers(-2, 5), st.just(1_700_000_000_000), st.integers(-(1 << 60), 1 << 60))
headers = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2)
records = st.lists(st.tuples(times, keys, values, headers), min_size=1, max_size=12)
damage = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2)
bases = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.just(1_700_000_000_000), st.just(0))


def built(
    rows: list[Any], base_offset: int, hurt: Damage, *, append_time: bool = False
) -> tuple[bytes, Frame]:
    builder = BatchBuilder()
    for timestamp, key, value, extra in rows:
        builder.append(timestamp, key, value, extra)
    batch = builder.build()
    assign(batch, base_offset, 3, log_append_time=77 if append_time else None)
    data = bytearray(batch[HEADER_BYTES:])
    for at, byte in hurt:
        data[at % len(data)] = byte
    return bytes(data), frame_of(read_header(batch))


def both(ask: Callable[[Any], object]) -> tuple[object, object]:
    answers: list[object] = []
    for name in ENGINES:
        try:
            answers.append(ask(importlib.import_module(name)))
        except (KafkaError, OverflowError) as error:
            answers.append(type(error))
    return answers[0], answers[1]


def sieved(made: Any, *arguments: Any) -> object:
    sieve_outcome = made.sieve(*arguments)
    return (
        sieve_outcome.batch and bytes(sieve_outcome.batch[HEADER_BYTES:]),
        *sieve_outcome[1:],
    )  # the header's place may hold anything


@quickly
@given(
    batches=st.lists(st.tuples(records, damage, st.booleans()), min_size=1, max_size=4),
    capacity=st.integers(1, 40),
    from_offset=st.integers(0, 20),
    end_offset=st.integers(0, 60),
    drops_tombstones=st.booleans(),
)
def test_maps_are_filled_and_batches_sieved_alike(
    batches: list[tuple[list[Any], Damage, bool]],
    capacity: int,
    from_offset: int,
    end_offset: int,
    drops_tombstones: bool,
) -> None:
    def ask(module: Any) -> object:
        made = module.KeyMap(capacity + 1, capacity, SEED)
        answers: list[object] = []
        offset = 0
        placed = []
        for rows, hurt, append_time in batches:
            placed.append(built(rows, offset, hurt, append_time=append_time))
            offset += len(rows)
        for data, frame in placed:
            try:
                answers.append(made.note(data, frame, from_offset))
            except KafkaError:
                return "refused"  # how much of a damaged batch is in the map by then is no one's business
            answers.append(made.key_count)
        for data, frame in placed:
            answers.append(sieved(made, data, frame, end_offset, drops_tombstones))
        return answers

    fast, plain = both(ask)
    assert fast == plain


@quickly
@given(rows=records, hurt=damage, base=bases, append_time=st.booleans())
def test_times_get_the_same_new_base(rows: list[Any], hurt: Damage, base: int, append_time: bool) -> None:
    try:
        data, frame = built(rows, 5, hurt, append_time=append_time)
    except OverflowError:  # the rows themselves are too far from each other
        return
    fast, plain = both(lambda module: bytes(module.rebase(data, frame, base)[HEADER_BYTES:]))
    assert fast == plain


@quickly
@given(data=st.binary(max_size=80), count=st.integers(-1, 12), delta=st.integers(-1, 40))
def test_hostile_bytes_are_refused_alike(data: bytes, count: int, delta: int) -> None:
    from odradek.records import TimestampType

    frame = Frame(count, delta, 0, 0, 0, TimestampType.CREATE_TIME, -1)
    for ask in (
        lambda module: module.KeyMap(64, 60, SEED).note(data, frame, 0),
        lambda module: sieved(module.KeyMap(64, 60, SEED), data, frame, 99, False),
        lambda module: bytes(module.rebase(data, frame, 9)[HEADER_BYTES:]),
    ):
        fast, plain = both(ask)
        assert fast == plain
