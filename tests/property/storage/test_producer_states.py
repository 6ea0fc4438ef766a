"""Producer state against the plain meaning of idempotence: each sequence number enters the log once, in order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.storage.producers.producer_state import SEQUENCE_MAX, ProducerState, WrittenBatch, following
from odradek.storage.producers.snapshot import decode_snapshot, encode_snapshot
from odradek.testing.sim import CrashKind

Bench = Any
REFUSALS = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH}

ATTEMPTS = st.lists(
    st.tuples(
        st.integers(0, 1),  # producer
        st.integers(-1, 1),  # epoch, relative to the newest
        st.integers(-12, 3),  # first sequence, relative to the next one
        st.integers(1, 3),  # records
        st.sampled_from(["keep", "keep", "keep", "reopen", "crash"]),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(attempts=ATTEMPTS, start=st.sampled_from([0, 5, SEQUENCE_MAX - 7]))
def test_each_sequence_is_in_the_log_once_whatever_is_sent(
    bench_of: type[Bench], attempts: list[tuple[int, int, int, int, str]], start: int
) -> None:
    bench = bench_of(LogConfig(segment_bytes=500, index_interval_bytes=100))
    log = bench.open()
    newest: dict[int, int] = {}
    sent: dict[tuple[int, int], list[int]] = {}
    for producer, epoch_step, sequence_step, count, what in attempts:
        epoch = max(newest.get(producer, 0) + epoch_step, 0)
        done = sent.get((producer, epoch), [])
        expected = following(done[-1]) if done else (start if producer not in newest else 0)
        sequence = (expected + sequence_step) % (SEQUENCE_MAX + 1)
        batch = bench.batch([b"v"] * count, producer=(producer, epoch, sequence))
        numbers = [(sequence + number) % (SEQUENCE_MAX + 1) for number in range(count)]
        outcome = attempt(bench, log, batch)
        if isinstance(outcome, KafkaError):
            assert outcome.code in REFUSALS
            assert epoch < newest.get(producer, 0) or sequence != expected
        elif outcome.duplicate:
            assert all(number in done for number in numbers)
        else:
            assert producer not in newest or (epoch >= newest[producer] and sequence == expected)
            sent[producer, epoch] = done + numbers
            newest[producer] = epoch
        if what == "reopen":
            log.close()
            log = bench.open()
        elif what == "crash":
            bench.flush(log)
            bench.crash(CrashKind.POWER_LOSS)
            log = bench.open(clean=False)
    assert log.end_offset == sum(map(len, sent.values()))
    for numbers in sent.values():
        assert all(following(before) == after for before, after in pairwise(numbers))


def attempt(bench: Bench, log: Any, batch: Any) -> Any:
    try:
        return log.append(batch, leader_epoch=0, now_ms=bench.now_ms)
    except KafkaError as error:
        return error


BATCHES = st.builds(
    lambda first, delta, last_offset, timestamp: WrittenBatch(
        first, (first + delta) & SEQUENCE_MAX, last_offset + delta, delta, timestamp
    ),
    st.integers(0, SEQUENCE_MAX),
    st.integers(0, 2**20),
    st.integers(0, 2**40),
    st.integers(0, 2**41),
)
STATES = st.dictionaries(
    st.integers(0, 2**63 - 1),
    st.tuples(
        st.integers(0, 2**15 - 1),
        st.lists(BATCHES, max_size=1),
        st.integers(-1, 2**31 - 1),
        st.integers(-1, 2**62),
    ),
    max_size=20,
).map(
    lambda entries: [
        ProducerState(
            producer,
            epoch,
            tuple(batches),
            batches[0].timestamp if batches else 0,
            coordinator,
            transaction,
            batches[0].timestamp if batches else 0,
        )
        for producer, (epoch, batches, coordinator, transaction) in sorted(entries.items())
    ]
)


@settings(max_examples=100, deadline=None)
@given(states=STATES)
def test_a_snapshot_gives_back_what_was_put_in(states: list[ProducerState]) -> None:
    assert decode_snapshot(encode_snapshot(states), 2**62) == states
