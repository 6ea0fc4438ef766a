"""What a task reads goes to the JVM in pieces."""

from __future__ import annotations

import pyarrow as pa
import pytest

from odradek.spark.reading.fetch import pieces


def _rows(count: int, value_bytes: int = 1_000) -> pa.RecordBatch:
    values = [None if number % 7 == 3 else b"%d" % number * (value_bytes // 4) for number in range(count)]
    return pa.RecordBatch.from_pydict(
        {"offset": pa.array(range(count)), "value": pa.array(values, pa.binary())}
    )


@pytest.mark.parametrize("count", [1, 2, 10, 999, 1_000])
def test_pieces_are_the_rows_in_order_and_none_is_empty(count: int) -> None:
    rows = _rows(count)
    parts = list(pieces(rows, 10_000))
    assert pa.Table.from_batches(parts).combine_chunks().to_batches()[0].equals(rows)
    assert all(part.num_rows and part.schema.equals(rows.schema) for part in parts)
    assert all(part.nbytes <= 12_000 for part in parts)


def test_what_is_small_enough_stays_whole() -> None:
    rows = _rows(10)
    assert [part.num_rows for part in pieces(rows, rows.nbytes)] == [10]


def test_a_row_that_is_too_large_goes_alone() -> None:
    assert [part.num_rows for part in pieces(_rows(3, 5_000), 1_000)] == [1, 1, 1]


def test_no_rows_are_one_empty_piece() -> None:
    assert [part.num_rows for part in pieces(_rows(5).slice(5))] == [0]
