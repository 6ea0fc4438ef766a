"""What Spark says, in one line, with the record."""

from __future__ import annotations

import pytest

from odradek.model.errors import KafkaError
from odradek.model.exception_text import class_name
from odradek.model.ids import TopicPartition
from odradek.pipelines.failure_line import (
    LINE_CHARS_MAX,
    batch_positions,
    batch_start,
    coordinates_in,
    failure_line,
)

USER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 2, in main
    process()
  File "/home/ann/totals.py", line 12, in price
ValueError: no price in {'item': 'pen'}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
Caused by: java.io.IOException: other
"""
OURS = """[STREAM_FAILED] Query [id = 1] terminated with exception: x
odradek.model.errors.KafkaError: INVALID_RECORD: the value at orders-7-2 offset 31 is not JSON: set decodeErrors
\tat org.apache
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (USER, "ValueError: no price in {'item': 'pen'}"),
        (OURS, "INVALID_RECORD: the value at orders-7-2 offset 31 is not JSON: set decodeErrors"),
        (f"x\n{class_name(KafkaError)}: INVALID_RECORD: no JSON\n\tat y", "INVALID_RECORD: no JSON"),
        ("\n[CANNOT_LOAD] what\n\tat org", "[CANNOT_LOAD] what"),
        (
            "An error occurred while calling o9.start.\n: java.io.IOException: mkdir of /a failed\n\tat java.x(Y.java:1)",
            "IOException: mkdir of /a failed",
        ),
        ("An error occurred while calling o9.start.", "An error occurred while calling o9.start."),
        ("", "it failed without a word"),
        ("x" * 1_000, "x" * LINE_CHARS_MAX),
    ],
)
def test_one_line_is_left(text: str, line: str) -> None:
    assert failure_line(text) == line


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("the value at orders-7-2 offset 31 is not JSON", "orders-7-2 at offset 31"),
        ("no JSON: a.b_c-0 at offset 5", "a.b_c-0 at offset 5"),
        ("no place here, offset 3", None),
    ],
)
def test_the_record_is_found_in_it(line: str, place: str | None) -> None:
    record_place = coordinates_in(line)
    assert (None if record_place is None else str(record_place)) == place


def test_where_a_batch_begins_is_reported_for_three_partitions() -> None:
    positions = {TopicPartition("in", number): number * 10 for number in range(5)}
    assert batch_start(positions) == (
        "the batch begins at in-0 at offset 0, in-1 at offset 10, in-2 at offset 20 and 2 more"
    )


@pytest.mark.parametrize(
    ("committed", "available", "expected"),
    [
        ("{}", '{src: {"in":{"0":5},"@from":{"in":{"0":2}}}}', {TopicPartition("in", 0): 2}),
        (
            '{src: {"in":{"0":5}}}',
            '{src: {"in":{"0":9,"1":3},"@from":{"in":{"1":0}}}}',
            {TopicPartition("in", 0): 5, TopicPartition("in", 1): 0},
        ),
        (
            '{src: {"in":{"0":5},"@ids":{"in":"00000000-0000-0000-0000-000000000001"}}}',
            '{src: {"in":{"0":9},"@from":{"in":{"0":0}},"@ids":{"in":"00000000-0000-0000-0000-000000000002"}}}',
            {TopicPartition("in", 0): 0},
        ),
        (
            '{a: {"in":{"0":5}}, b: {"more":{"2":7}}}',
            "{}",
            {TopicPartition("in", 0): 5, TopicPartition("more", 2): 7},
        ),
        ('{rate: 17, other: {"seconds":3}}', "{}", {}),
        ("{", '{"broken', {}),
    ],
)
def test_where_a_batch_begins_stands_in_what_spark_adds(
    committed: str, available: str, expected: dict[TopicPartition, int]
) -> None:
    text = f"boom\n=== Streaming Query ===\nCurrent Committed Offsets: {committed}\nCurrent Available Offsets: {available}\n"
    assert batch_positions(text) == expected
