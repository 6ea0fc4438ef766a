"""Reading one partition's fetched batches piece by piece, as records and as Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.consumer.completed_fetch import FetchedChunk
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, ControlKind, assign, control_batch

TP = TopicPartition("t", 0)


def batch(base_offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_000, None, value, ())
    built = builder.build(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )
    assign(built, base_offset, 4)
    return built


def marker(offset: int, kind: ControlKind, producer_id: int) -> bytearray:
    built = control_batch(kind, producer_id, 0, coordinator_epoch=0, timestamp=1_000)
    assign(built, offset, 4)
    return built


def chunk(*batches: bytearray, start: int = 0, aborted: list[tuple[int, int]] | None = None) -> FetchedChunk:
    return FetchedChunk(TP, b"".join(batches), start_offset=start, aborted=aborted or (), check_crcs=True)


def drain(made: FetchedChunk, step: int = 100) -> list[tuple[int, bytes | None]]:
    records = []
    while not made.empty:
        records += [(record.offset, record.value) for record in made.next_records(step)]
    made.next_records(step)
    return records


TWO = (batch(10, b"a", b"b", b"c"), batch(13, b"d", b"e"))


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_records_come_in_order_whatever_the_limit(step: int) -> None:
    made = chunk(*TWO, start=10)
    assert drain(made, step) == [(10, b"a"), (11, b"b"), (12, b"c"), (13, b"d"), (14, b"e")]
    assert made.position == made.next_offset == 15


def test_records_before_the_offset_asked_for_are_left_out() -> None:
    assert drain(chunk(*TWO, start=12)) == [(12, b"c"), (13, b"d"), (14, b"e")]
    assert drain(chunk(*TWO, start=13)) == [(13, b"d"), (14, b"e")]


def test_the_position_is_behind_the_last_record_taken() -> None:
    made = chunk(*TWO, start=10)
    made.next_records(2)
    assert made.position == 12
    made.next_records(1)
    assert made.position == 13


def test_a_batch_cut_short_at_the_end_waits_for_the_next_fetch() -> None:
    whole = b"".join(TWO)
    made = FetchedChunk(TP, whole[:-5], start_offset=10, aborted=(), check_crcs=True)
    assert made.next_offset == 13
    assert [offset for offset, _ in drain(made)] == [10, 11, 12]


def test_the_epoch_is_that_of_the_last_batch_whatever_it_is() -> None:
    """A marker that a new leader has written: with the epoch before, its end would be taken for a cut of the log."""
    written = marker(11, ControlKind.ABORT, 7)
    assign(written, 11, 5)
    made = chunk(batch(10, b"a", producer_id=7, transactional=True), written, start=10, aborted=[(7, 10)])
    assert made.empty
    assert (made.next_offset, made.last_epoch) == (12, 5)
    assert chunk(start=10).last_epoch == -1


def test_nothing_at_all_moves_nothing() -> None:
    made = chunk(start=10)
    assert made.empty
    assert made.next_offset == 10


def test_markers_are_skipped_and_passed() -> None:
    made = chunk(batch(0, b"a", producer_id=7, transactional=True), marker(1, ControlKind.COMMIT, 7))
    assert drain(made) == [(0, b"a")]
    assert made.position == 2


def test_records_of_an_aborted_transaction_are_skipped() -> None:
    made = chunk(
        batch(0, b"void", producer_id=7, transactional=True),
        batch(1, b"plain"),
        marker(2, ControlKind.ABORT, 7),
        batch(3, b"kept", producer_id=7, transactional=True),
        aborted=[(7, 0)],
    )
    assert drain(made) == [(1, b"plain"), (3, b"kept")]


def test_a_damaged_batch_is_named_and_stays_in_its_place() -> None:
    damaged = batch(13, b"d")
    damaged[-1] ^= 1
    made = chunk(batch(10, b"a", b"b", b"c"), damaged, start=10)
    assert len(made.next_records(100)) == 3
    for _ in range(2):
        with pytest.raises(
            KafkaError, match=r"t-0: the batch at offset 13 cannot be read .* seek to 14"
        ) as caught:
            made.next_records(100)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert made.position == 13


@pytest.mark.parametrize("read", [FetchedChunk.next_arrow, FetchedChunk.next_columns])
def test_of_batches_that_are_read_together_the_damaged_one_is_named(read: Callable[..., Any]) -> None:
    damaged = batch(13, b"d")
    damaged[-1] ^= 1
    made = chunk(batch(10, b"a", b"b", b"c"), damaged, batch(14, b"e"), start=10)
    for _ in range(2):
        with pytest.raises(KafkaError, match=r"t-0: the batch at offset 13 cannot be read .* seek to 14"):
            read(made, 100)
        assert made.position == 10


def test_what_is_put_back_comes_again() -> None:
    made = chunk(*TWO, start=10)
    taken = made.next_records(2)
    made.put_back(taken[1:])
    assert made.position == 11
    assert [offset for offset, _ in drain(made)] == [11, 12, 13, 14]


# -- Arrow, and the columns that it is made of


def rows(made: FetchedChunk, limit: int = 1_000) -> list[tuple[int, bytes]]:
    table = made.next_arrow(limit)
    return (
        []
        if table is None
        else list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))
    )


def column_rows(made: FetchedChunk, limit: int = 1_000) -> list[tuple[int, bytes]]:
    columns = made.next_columns(limit)
    if columns is None:
        return []
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    ends = memoryview(columns.values.offsets).cast("B").cast("i")
    data = bytes(columns.values.data)
    return [(offsets[row], data[ends[row] : ends[row + 1]]) for row in range(columns.row_count)]


@pytest.fixture(params=[rows, column_rows])
def take_rows(request: pytest.FixtureRequest) -> Callable[..., list[tuple[int, bytes]]]:
    return request.param  # type: ignore[no-any-return]


TakeRows = Callable[..., list[tuple[int, bytes]]]


def test_columns_take_whole_batches_up_to_about_the_limit(take_rows: TakeRows) -> None:
    made = chunk(*TWO, start=10)
    assert take_rows(made, 4) == [(10, b"a"), (11, b"b"), (12, b"c")]
    assert made.position == 13
    assert take_rows(made, 1) == [(13, b"d"), (14, b"e")]
    assert made.empty
    assert take_rows(made) == []


def test_columns_go_on_behind_the_records_taken_one_by_one(take_rows: TakeRows) -> None:
    made = chunk(*TWO, start=10)
    made.next_records(2)
    assert take_rows(made) == [(12, b"c"), (13, b"d"), (14, b"e")]


def test_columns_leave_out_what_read_committed_must_not_see(take_rows: TakeRows) -> None:
    made = chunk(
        batch(0, b"first"),
        batch(1, b"void", producer_id=7, transactional=True),
        batch(2, b"plain"),
        marker(3, ControlKind.ABORT, 7),
        batch(4, b"kept", producer_id=7, transactional=True),
        aborted=[(7, 1)],
    )
    assert take_rows(made, 2) == [(0, b"first"), (2, b"plain")]
    assert take_rows(made) == [(4, b"kept")]


def test_columns_name_the_place_of_damage_and_stay_there(take_rows: TakeRows) -> None:
    damaged = batch(10, b"a")
    damaged[-1] ^= 1
    made = chunk(damaged, start=10)
    with pytest.raises(KafkaError, match="t-0"):
        take_rows(made, 100)
    assert made.position == 10


def test_columns_tell_the_leader_epoch_of_the_last_batch_that_was_taken() -> None:
    later = batch(13, b"d")
    assign(later, 13, 6)
    made = chunk(batch(10, b"a", b"b", b"c"), later, start=10)
    assert made.taken_epoch == -1
    made.next_columns(1)
    assert made.taken_epoch == 4
    made.next_columns(1)
    assert made.taken_epoch == 6
