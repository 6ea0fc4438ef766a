"""Interleaved transactions, with restarts and crashes, against what a reader of committed records must see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchBuilder, data_batches, decode_batch, read_header, split_batches
from odradek.storage.producers.producer_state import Marker
from odradek.storage.producers.verification import UNVERIFIED
from odradek.testing.sim import CrashKind

Bench = Any
PLAIN = 3
"""A producer without transactions, beside three with."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, PLAIN), st.integers(1, 3)),
        st.tuples(st.just("send"), st.integers(0, PLAIN), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, PLAIN - 1), st.booleans()),
        st.tuples(st.just("late"), st.integers(0, PLAIN - 1), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 100), st.just(0)),
        st.tuples(st.sampled_from(["flush", "reopen", "kill", "power"]), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@dataclass
class Ended:
    producer: int
    first: int
    marker: int
    commit: bool


@dataclass
class Model:
    """Dicts and lists: what was sent, which transactions are open, how the others ended."""

    values: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """(Value, the offset at which its transaction began, or -1) by offset."""
    open: dict[int, int] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    start: int = 0
    end: int = 0

    @property
    def stable(self) -> int:
        return max(min([*self.open.values(), self.end]), self.start)

    def visible(self) -> dict[int, bytes]:
        committed = {transaction.first for transaction in self.ended if transaction.commit} | {-1}
        return {
            offset: value
            for offset, (value, first) in self.values.items()
            if self.start <= offset < self.stable and first in committed
        }

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        return [
            (transaction.producer, transaction.first)
            for transaction in self.ended
            if not transaction.commit and transaction.marker >= start and transaction.first < end
        ]


class Writers:
    """Sequences and epochs as clients and coordinators keep them; producer 1 has transaction version 2."""

    def __init__(self) -> None:
        self.sequences = [0] * (PLAIN + 1)
        self.epochs = [0] * (PLAIN + 1)

    def batch(self, producer: int, values: list[bytes], now_ms: int) -> Any:
        builder = BatchBuilder()
        for value in values:
            builder.append(now_ms, b"key", value)
        built = builder.build(
            producer_id=producer,
            producer_epoch=self.epochs[producer],
            base_sequence=self.sequences[producer],
            transactional=producer != PLAIN,
        )
        return [(read_header(built), memoryview(built))]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, segment_bytes=st.sampled_from([300, 700, 100_000]))
def test_a_reader_sees_what_is_committed_and_nothing_else_whatever_happens(
    bench_of: type[Bench], steps: list[tuple[str, Any, Any]], segment_bytes: int
) -> None:
    bench = bench_of(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100))
    log, model, writers = bench.open(), Model(), Writers()
    for number, (what, which, more) in enumerate(steps):
        match what:
            case "send":
                send(bench, log, model, writers, which, [b"%d.%d" % (number, index) for index in range(more)])
            case "end":
                end(bench, log, model, writers, which, commit=more)
            case "late":
                assert which in model.open or is_refused(bench, log, writers, which)
            case "delete":
                model.start = max(model.start, model.start + (model.stable - model.start) * which // 100)
                log.delete_records(model.start)
                log.apply_retention(bench.now_ms, below=log.flushed_offset)
                bench.remove(log)
            case _:
                log = again(bench, log, what)
    check(log, model)
    log.close()
    check(bench.open(start_offset=log.start_offset), model)


def send(bench: Bench, log: Any, model: Model, writers: Writers, producer: int, values: list[bytes]) -> None:
    batch = writers.batch(producer, values, bench.now_ms)
    first = log.append(batch, leader_epoch=0, now_ms=bench.now_ms).first_offset
    assert first == model.end
    writers.sequences[producer] += len(values)
    began = -1 if producer == PLAIN else model.open.setdefault(producer, first)
    model.values.update((first + number, (value, began)) for number, value in enumerate(values))
    model.end += len(values)


def end(bench: Bench, log: Any, model: Model, writers: Writers, producer: int, *, commit: bool) -> None:
    version = 2 if producer == 1 else 1
    if version == 2:
        writers.epochs[producer] += 1
        writers.sequences[producer] = 0
    marker = Marker(producer, writers.epochs[producer], 0, commit, bench.now_ms)
    appended = log.append_marker(marker, transaction_version=version, leader_epoch=0, now_ms=bench.now_ms)
    assert appended.first_offset == model.end
    if producer in model.open:
        model.ended.append(Ended(producer, model.open.pop(producer), model.end, commit))
    model.end += 1


def is_refused(bench: Bench, log: Any, writers: Writers, producer: int) -> bool:
    """A client's batch that no one verified, while its producer has no transaction here."""
    try:
        batch = writers.batch(producer, [b"late"], bench.now_ms)
        log.append(batch, leader_epoch=0, now_ms=bench.now_ms, guard=UNVERIFIED)
    except KafkaError as error:
        return error.code is ErrorCode.INVALID_TXN_STATE
    return False


def again(bench: Bench, log: Any, what: str) -> Any:
    bench.flush(log)
    if what == "flush":
        return log
    if what == "reopen":
        log.close()
        return bench.open(start_offset=log.start_offset)
    point, start_offset = log.flushed_offset, log.start_offset
    bench.crash(CrashKind.POWER_LOSS if what == "power" else CrashKind.PROCESS_KILL)
    return bench.open(clean=False, recovery_point=point, start_offset=start_offset)


def check(log: Any, model: Model) -> None:
    assert (log.end_offset, log.last_stable_offset(log.end_offset)) == (model.end, model.stable)
    states = {state.producer_id: state.transaction_first_offset for state in log.producers}
    assert {producer: first for producer, first in states.items() if first >= 0} == model.open
    for start in range(log.start_offset, model.end + 1, max((model.end - log.start_offset) // 5, 1)):
        for end_offset in {start, start + 1, model.stable, model.end}:
            assert log.aborted_transactions(start, end_offset) == model.aborted(start, end_offset)
    seen: dict[int, bytes | None] = {}
    offset = log.start_offset
    while offset < model.stable:
        read = log.read(offset, 150, end_offset=model.stable, at_least_one=True)
        aborted = log.aborted_transactions(offset, read.next_offset)
        for header, batch in data_batches(split_batches(read.records), aborted=aborted):
            records = decode_batch(batch, header, from_offset=offset)
            seen.update((record.offset, record.value) for record in records)
        offset = read.next_offset
    assert seen == model.visible()
