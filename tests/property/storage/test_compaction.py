"""Whatever is written, and whenever it is compacted: readers find what a dict says, in its order, at its offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.simulation.compaction.keyed_log import KeyedLog

from odradek.config.broker import BrokerConfig
from odradek.config.server import CleanerConfig
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import Codec, decode_batch, split_batches
from odradek.testing.sim import CrashKind

Step: TypeAlias = tuple[object, ...]

RETENTION_MS = 1000
CONFIG = LogConfig(
    segment_bytes=1300,
    index_interval_bytes=200,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
)
KEYS = [b"a", b"b", b"c", b"", b"d" * 40]
PRODUCERS = (-1, 3, 4)
TRANSACTIONAL = (7, 8)

pair = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=30), st.just(b"x" * 250)))
pairs = st.lists(pair, min_size=1, max_size=4)
codec = st.sampled_from(Codec)
writing = st.one_of(
    st.tuples(st.just("write"), pairs, codec, st.sampled_from(PRODUCERS)),
    st.tuples(st.just("within"), pairs, codec, st.sampled_from(TRANSACTIONAL)),
    st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.tuples(st.just("roll")),
)
keeping = st.one_of(
    st.tuples(st.just("compact")),
    st.tuples(st.just("again")),
    st.tuples(st.just("wait"), st.sampled_from((1, RETENTION_MS - 1, RETENTION_MS))),
    st.tuples(st.just("restart")),
    st.tuples(st.just("crash"), st.sampled_from(CrashKind)),
    st.tuples(st.just("delete"), st.floats(0, 1)),
)
quietly = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def take(keyed: KeyedLog, step: Step) -> None:
    """One step; what is written is durable."""
    match step:
        case ("write", list(records), Codec() as how, int(producer_id)):
            keyed.write(*records, codec=how, producer_id=producer_id)
        case ("within", list(records), Codec() as how, int(producer_id)):
            keyed.write(*records, codec=how, producer_id=producer_id, transactional=True)
        case ("end", int(producer_id), bool(is_commit)) if producer_id in keyed.model.open:
            keyed.end_transaction(producer_id, is_commit=is_commit)
        case ("roll",):
            keyed.roll()
        case ("compact",):
            keyed.compact()
        case ("again",):
            keyed.compact_again()
        case ("wait", int(ms)):
            keyed.now_ms += ms
        case ("restart",):
            keyed.close()
            keyed.open()
        case ("crash", CrashKind() as kind):
            keyed.crash(kind)
            keyed.open()
        case ("delete", float(part)):
            keyed.log.delete_records(int(part * keyed.log.flushed_offset))
            keyed.apply_retention()
    keyed.flush()


@quietly
@given(
    steps=st.lists(st.one_of(writing, writing, keeping), max_size=40),
    map_bytes=st.sampled_from((1, 24 * 40, 1 << 20)),
    window_bytes=st.sampled_from((1, 1 << 20)),
    seed=st.integers(0, 99),
)
def test_a_compacted_log_keeps_what_it_must(
    steps: list[Step], map_bytes: int, window_bytes: int, seed: int
) -> None:
    broker = BrokerConfig(cleaner=CleanerConfig(dedupe_buffer_size=map_bytes, io_buffer_size=window_bytes))
    keyed = KeyedLog(CONFIG, seed=seed, broker=broker)
    for step in steps:
        take(keyed, step)
    keyed.check()
    keyed.roll()
    keyed.compact()
    keyed.check()
    keyed.close()
    keyed.open()
    keyed.check()


@quietly
@given(steps=st.lists(st.one_of(writing, writing, keeping), max_size=30), seed=st.integers(0, 99))
def test_a_compaction_of_a_compacted_log_changes_nothing(steps: list[Step], seed: int) -> None:
    keyed = KeyedLog(CONFIG, seed=seed)
    for step in steps:
        take(keyed, step)
    # One to take out what is superseded and aborted, one for the markers that are alone then, one for what it merged.
    keyed.roll()
    for _ in range(4):
        keyed.compact_again()
    before = [bytes(batch) for _, batch in keyed.batches()]
    keyed.compact_again()
    assert [bytes(batch) for _, batch in keyed.batches()] == before


@quietly
@given(
    before=st.lists(st.one_of(writing, writing, keeping), max_size=20),
    during=st.lists(
        st.one_of(writing, st.sampled_from([("compact",), ("again",), ("read",), ("read",)])), max_size=40
    ),
    waits=st.lists(st.integers(0, 200), max_size=40),
    map_bytes=st.sampled_from((1, 24 * 40, 1 << 20)),
)
def test_a_reader_that_keeps_up_misses_no_tombstone(
    before: list[Step], during: list[Step], waits: list[int], map_bytes: int
) -> None:
    """It begins at the start and is done within delete.retention.ms: it ends with what a dict holds."""
    keyed = KeyedLog(CONFIG, broker=BrokerConfig(cleaner=CleanerConfig(dedupe_buffer_size=map_bytes)))
    plain = ("write", "roll", "compact", "again", "wait", "read")
    for step in before:
        if step[0] in plain:
            take(keyed, step)
    state: dict[bytes | None, bytes | None] = {}
    offset, deadline = 0, keyed.now_ms + RETENTION_MS

    def read() -> None:
        nonlocal offset
        log_read = keyed.log.read(offset, 300, end_offset=keyed.log.flushed_offset, at_least_one=True)
        for header, batch in split_batches(log_read.records):
            state.update(
                {record.key: record.value for record in decode_batch(batch, header, from_offset=offset)}
            )
        offset = log_read.next_offset

    pauses = iter(waits)
    for step in during:
        if step == ("read",):
            read()
        elif step[0] in plain:
            take(keyed, step)
        keyed.now_ms = min(keyed.now_ms + next(pauses, 0), deadline - 1)
    while offset < keyed.log.flushed_offset:
        read()
    left = {key: value for key, value in state.items() if value is not None}
    latest = keyed.model.latest()
    assert left == {key: record.value for key, record in latest.items() if record.value is not None}


@quietly
@given(
    steps=st.lists(st.one_of(writing, writing, keeping), max_size=30),
    mine=st.lists(pairs, min_size=1, max_size=4),
    crashes=st.booleans(),
)
def test_what_an_idempotent_producer_sends_again_is_known(
    steps: list[Step], mine: list[list[tuple[bytes, bytes | None]]], crashes: bool
) -> None:
    keyed = KeyedLog(CONFIG)
    for records in mine:
        sent = keyed.write(*records, producer_id=99)
        keyed.flush()
    first_sequence = keyed.last_sequence(99) - len(mine[-1]) + 1
    for step in steps:
        if step[0] != "delete":
            take(keyed, step)
    keyed.roll()
    keyed.compact()
    if crashes:
        keyed.crash(CrashKind.POWER_LOSS)
    else:
        keyed.close()
    keyed.open()
    assert keyed.send(mine[-1], Codec.NONE, 99, first_sequence) == sent._replace(duplicate=True)
    with pytest.raises(KafkaError) as gap:
        keyed.send([(b"a", b"")], Codec.NONE, 99, keyed.last_sequence(99) + 2)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@quietly
@given(
    steps=st.lists(st.one_of(writing, writing, keeping), max_size=40), retention_bytes=st.integers(0, 4000)
)
def test_compaction_and_retention_get_along(steps: list[Step], retention_bytes: int) -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_bytes=retention_bytes)
    keyed = KeyedLog(config)
    for step in steps:
        take(keyed, step)
    keyed.compact()
    take(keyed, ("delete", 0.0))
    keyed.check()
