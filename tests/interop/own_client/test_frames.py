"""Frames of pyarrow, polars and pandas, end to end: what is sent from a frame is read into one, without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.interop import logins

from odradek import Consumer, Producer, TopicPartition

SECONDS = 20.0
COUNT = 1_000
KEYS = [None if number % 7 == 0 else b"key %d" % number for number in range(COUNT)]
VALUES = [
    None if number % 5 == 0 else b"a value that no view can hold inside, number %d" % number
    for number in range(COUNT)
]

MakeTopic = Callable[..., str]


def read_arrow(bootstrap: str, topic: str, count: int) -> pa.Table:
    """The first `count` records of partition 0."""
    batches: list[pa.RecordBatch] = []
    with Consumer(**logins.ours(bootstrap), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while sum(batch.num_rows for batch in batches) < count:
            batches.append(consumer.poll_arrow(SECONDS))
            assert batches[-1].num_rows, "no records came"
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("library", [pa.table, pl.DataFrame, pd.DataFrame])
def test_a_frame_that_is_sent_is_read(bootstrap: str, topic: MakeTopic, library: Callable[..., Any]) -> None:
    name = topic()
    headers = [[{"key": "n", "value": b"%d" % number}] if number % 3 else [] for number in range(COUNT)]
    times = list(range(1_000, 1_000 + COUNT))
    columns = {"key": KEYS, "value": VALUES, "headers": headers, "timestamp": times, "partition": [0] * COUNT}
    frame = library(
        columns
    )  # rows with a partition of their own keep their order, whether they have keys or not
    with Producer(**logins.ours(bootstrap), compression_type="zstd") as producer:
        producer.send_arrow(name, frame)
        producer.flush(SECONDS)
    rows = read_arrow(bootstrap, name, COUNT).to_pydict()
    assert rows["offset"] == list(range(COUNT))
    assert (rows["key"], rows["value"], rows["timestamp"]) == (KEYS, VALUES, times)
    assert rows["headers"] == headers


def addresses(column: pa.Array) -> list[int]:
    """Returns the addresses of the memory that holds a column's numbers or bytes."""
    buffers = [buffer for buffer in column.buffers() if buffer is not None]
    if column.type == pa.binary_view():
        return [buffer.address for buffer in buffers[-1:]]
    return [buffers[-1].address]


def test_polars_and_pandas_share_the_memory_of_what_was_polled(bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    with Producer(**logins.ours(bootstrap)) as producer:
        producer.send_arrow(name, pl.DataFrame({"value": [value for value in VALUES if value]}))
        producer.flush(SECONDS)
    with Consumer(**logins.ours(bootstrap), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, 0)])
        rows = consumer.poll_arrow(SECONDS)
    assert rows.num_rows
    of_polars = pl.DataFrame(rows)
    of_pandas = rows.to_pandas(types_mapper=pd.ArrowDtype)
    for column in ("offset", "timestamp", "value"):
        expected = addresses(rows[column])
        exported = of_polars[column].to_arrow(compat_level=pl.CompatLevel.newest())
        assert addresses(exported) == expected, column
        (chunk,) = of_pandas[column].array.__arrow_array__().chunks
        assert addresses(chunk) == expected, column
    numbers = rows.to_pandas(split_blocks=True)["offset"].to_numpy()
    assert [numbers.__array_interface__["data"][0]] == addresses(rows["offset"])
