"""Small batches are fetched once for all queries that read them, and what is not simple is left to workers."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import ReadOptions, read_options
from odradek.spark.reading import prefetch
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.reading.prefetch import (
    BATCH_BYTES_MAX,
    HELD_BYTES_MAX,
    HELD_S,
    LEFT_S,
    PATIENCE_S,
    RECORDS_MAX,
    Fetched,
    SharedFetches,
)

pytest.importorskip("pyarrow")

import pyarrow as pa

WAIT_S = 60.0
OPTIONS = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, Use.STREAM_READ)
RANGE = OffsetRange(partition=TopicPartition("t", 0), start=5, end=7, topic_id=UUID(int=1))


def of_client(**settings: str) -> ReadOptions:
    return replace(
        OPTIONS, client={**OPTIONS.client, **{name.replace("_", "."): settings[name] for name in settings}}
    )


@dataclass
class Hand:
    """A clock that the test moves."""

    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


@dataclass
class Topics:
    """Records of any range, of so many bytes each. `calls`: what was fetched."""

    value_bytes: int = 10
    error: Exception | None = None
    calls: list[tuple[tuple[OffsetRange, ...], ReadOptions]] = field(default_factory=list)
    may_go_on: threading.Event | None = None
    hand: Hand | None = None
    fetch_s: float = 0.0

    def fetch(
        self, extents: Sequence[OffsetRange], options: ReadOptions
    ) -> Generator[tuple[TopicPartition, pa.RecordBatch]]:
        self.calls.append((tuple(extents), options))
        if self.may_go_on is not None:
            assert self.may_go_on.wait(WAIT_S)
        if self.hand is not None:
            self.hand.now += self.fetch_s
        for extent in extents:
            if self.error is not None:
                raise self.error
            values = [b"v" * self.value_bytes for _ in range(extent.size)]
            yield (
                extent.partition,
                pa.record_batch({"offset": list(range(extent.start, extent.end)), "value": values}),
            )


def offsets(records: Fetched | None) -> dict[TopicPartition, list[int]] | None:
    return None if records is None else {at: rows["offset"].to_pylist() for at, rows in records}


def test_a_batch_is_fetched_once_for_all_that_read_it_at_the_same_time_or_soon_after() -> None:
    topics = Topics(may_go_on=threading.Event())
    fetches, together = SharedFetches(topics.fetch, Hand()), threading.Barrier(9)
    results: list[Fetched | None] = []

    def read() -> None:
        together.wait(WAIT_S)
        results.append(fetches.records([RANGE], OPTIONS))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.wait(WAIT_S)
    assert topics.may_go_on is not None
    topics.may_go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    results.append(fetches.records([RANGE], OPTIONS))
    assert [offsets(records) for records in results] == [{RANGE.partition: [5, 6]}] * 9
    assert len(topics.calls) == 1


@pytest.mark.parametrize(
    ("extent", "options"),
    [
        (replace(RANGE, end=8), OPTIONS),
        (replace(RANGE, start=6), OPTIONS),
        (replace(RANGE, partition=TopicPartition("t", 1)), OPTIONS),
        (replace(RANGE, topic_id=UUID(int=2)), OPTIONS),
        (RANGE, of_client(bootstrap_servers="elsewhere:1")),
        (RANGE, of_client(isolation_level="read_committed")),
        (RANGE, of_client(sasl_username="another")),
    ],
)
def test_what_differs_in_anything_is_fetched_by_itself(extent: OffsetRange, options: ReadOptions) -> None:
    topics = Topics()
    fetches = SharedFetches(topics.fetch, Hand())
    fetches.records([RANGE], OPTIONS)
    assert offsets(fetches.records([extent], options)) == {
        extent.partition: list(range(extent.start, extent.end))
    }
    assert len(topics.calls) == 2
    assert topics.calls[1][1].client.items() >= options.client.items()


def test_a_loss_is_never_passed_over_here() -> None:
    topics = Topics()
    SharedFetches(topics.fetch, Hand()).records([RANGE], replace(OPTIONS, fail_on_data_loss=False))
    assert topics.calls[0][1].fail_on_data_loss


def test_large_batches_and_topics_without_an_id_are_left_to_workers() -> None:
    topics = Topics()
    fetches = SharedFetches(topics.fetch, Hand())
    half = replace(RANGE, start=0, end=RECORDS_MAX // 2 + 1)
    assert fetches.records([replace(RANGE, start=0, end=RECORDS_MAX)], OPTIONS) is not None
    assert fetches.records([half, replace(half, partition=TopicPartition("t", 1))], OPTIONS) is None
    assert fetches.records([replace(RANGE, topic_id=ZERO_UUID)], OPTIONS) is None
    assert fetches.records([], OPTIONS) is None
    assert len(topics.calls) == 1


def test_after_a_batch_of_large_records_workers_read_their_topic_for_a_while() -> None:
    hand, topics = Hand(), Topics(value_bytes=BATCH_BYTES_MAX)
    fetches = SharedFetches(topics.fetch, hand)
    assert fetches.records([RANGE], OPTIONS) is None
    topics.value_bytes = 10
    assert fetches.records([replace(RANGE, start=7, end=8)], OPTIONS) is None
    assert len(topics.calls) == 1
    other = replace(RANGE, partition=TopicPartition("u", 0))
    assert fetches.records([other], OPTIONS) is not None
    hand.now += LEFT_S + 1
    assert fetches.records([replace(RANGE, start=7, end=8)], OPTIONS) is not None


@pytest.mark.parametrize(
    "error",
    [KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "lost"), ConnectionError("gone"), pa.ArrowInvalid("odd")],
)
def test_an_error_leaves_the_batch_to_a_worker_and_the_next_one_is_tried_again(error: Exception) -> None:
    topics = Topics(error=error)
    fetches = SharedFetches(topics.fetch, Hand())
    assert fetches.records([RANGE], OPTIONS) is None
    topics.error = None
    assert offsets(fetches.records([RANGE], OPTIONS)) == {RANGE.partition: [5, 6]}


def test_a_topic_whose_records_do_not_come_in_time_is_left_to_workers_for_a_while() -> None:
    """Where a connection takes longer than the wait, each batch would wait for nothing, and connect again."""
    hand = Hand()
    topics = Topics(error=KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"), hand=hand, fetch_s=PATIENCE_S)
    fetches = SharedFetches(topics.fetch, hand)
    assert fetches.records([RANGE], OPTIONS) is None
    assert fetches.records([replace(RANGE, start=7, end=8)], OPTIONS) is None
    assert len(topics.calls) == 1
    topics.error = None
    assert fetches.records([replace(RANGE, partition=TopicPartition("u", 0))], OPTIONS) is not None
    assert fetches.records([RANGE], of_client(sasl_username="another")) is not None
    hand.now += LEFT_S
    assert fetches.records([RANGE], OPTIONS) is not None


class AwaitedHand(Hand):
    """Tells when threads ask for the time, as they do when they begin to read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)

    def monotonic(self) -> float:
        self.asked.release()
        return super().monotonic()


def test_an_error_that_is_not_expected_settles_the_batch_for_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefetch, "PATIENCE_S", 3_600.0)
    hand, topics = AwaitedHand(), Topics(error=ZeroDivisionError(), may_go_on=threading.Event())
    fetches, results = SharedFetches(topics.fetch, hand), list[object]()

    def read() -> None:
        try:
            results.append(fetches.records([RANGE], OPTIONS))
        except ZeroDivisionError as error:
            results.append(type(error))

    threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(len(threads) + 2):  # the one that fetches notes when it begins, too
        assert hand.asked.acquire(timeout=WAIT_S)
    assert topics.may_go_on is not None
    topics.may_go_on.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(results) == 3
    assert ZeroDivisionError in results
    assert set(results) <= {None, ZeroDivisionError}


def test_what_is_held_is_bounded_in_time_and_memory() -> None:
    hand, topics = Hand(), Topics(value_bytes=BATCH_BYTES_MAX // 4)
    fetches = SharedFetches(topics.fetch, hand)
    batches = [replace(RANGE, start=start, end=start + 2) for start in range(0, 200, 2)]
    for extent in batches:
        assert fetches.records([extent], OPTIONS) is not None
    assert fetches.held_bytes <= HELD_BYTES_MAX
    calls = len(topics.calls)
    assert fetches.records([batches[-1]], OPTIONS) is not None
    assert len(topics.calls) == calls, "the newest are held"
    assert fetches.records([batches[0]], OPTIONS) is not None
    assert len(topics.calls) == calls + 1, "the oldest were released"
    hand.now += HELD_S + 1
    assert fetches.records([batches[-1]], OPTIONS) is not None
    assert len(topics.calls) == calls + 2
    assert fetches.held_bytes < BATCH_BYTES_MAX, "what was held for too long is gone"
