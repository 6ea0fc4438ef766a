"""What a batch has read, from Spark's checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.archive.sink import batch_ranges
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.reading.offsets import OffsetRange


def checkpoint(directory: Path, *batches: Any) -> str:
    (directory / "offsets").mkdir()
    for number, document in enumerate(batches):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(document)}'
        (directory / "offsets" / str(number)).write_text(text)
    return str(directory)


def extent(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=TopicPartition("t", partition), start=start, end=end)


def test_the_first_batch_says_where_it_begins(tmp_path: Path) -> None:
    where = checkpoint(tmp_path, {"t": {"0": 10, "1": 5}, "@from": {"t": {"0": 4, "1": 5}}})
    assert batch_ranges(where, 0) == [extent(0, 4, 10)]


def test_a_batch_begins_where_the_one_before_it_ended(tmp_path: Path) -> None:
    first = {"t": {"0": 10}, "@from": {"t": {"0": 4}}}
    where = checkpoint(tmp_path, first, {"t": {"0": 12, "1": 7}, "@from": {"t": {"1": 2}}})
    assert batch_ranges(where, 1) == [extent(0, 10, 12), extent(1, 2, 7)]


def test_a_first_batch_that_reads_nothing_does_not_say_where_it_begins(tmp_path: Path) -> None:
    assert batch_ranges(checkpoint(tmp_path, {"t": {"0": 10}}), 0) == []


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read from"):
        batch_ranges(str(tmp_path), 0)
