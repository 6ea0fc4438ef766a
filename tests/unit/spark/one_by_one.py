"""What a write makes of rows, said a row at a time: plain, slow, and what `outgoing_rows` is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from odradek.dead_letters.headers import HeaderPairs
from odradek.model.errors import ErrorCode, KafkaError
from odradek.spark.dead_letters.letters import letters_in
from odradek.spark.writing.duplicates import MARK_HEADERS
from odradek.spark.writing.outgoing import Marks, RowFormat
from odradek.spark.writing.outgoing_rows import outgoing_rows

_US_PER_MS: Final = 1_000


class OutgoingRecord(NamedTuple):
    """A record to send. A partition of None leaves the choice to the key; a timestamp of None means now."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int | None


def sent(batch: pa.RecordBatch, layout: RowFormat, marks: Marks | None = None) -> list[OutgoingRecord]:
    """The outcome of rows, one by one and a column at a time: the same."""
    one_by_one = list(outgoing_records(batch, layout, marks=marks, first_sequence=40))
    together = [
        record
        for topic, rows in outgoing_rows(batch, layout, marks=marks, first_sequence=40)
        for record in as_records(topic, rows)
    ]
    assert sorted(together, key=repr) == sorted(one_by_one, key=repr)
    return one_by_one


def as_records(topic: str, rows: pa.RecordBatch) -> Iterator[OutgoingRecord]:
    for row in rows.to_pylist():
        headers = tuple((header["key"], header["value"]) for header in row.get("headers") or ())
        yield OutgoingRecord(
            topic, row.get("partition"), row.get("key"), row["value"], headers, row.get("timestamp")
        )


def outgoing_records(
    batch: pa.RecordBatch, layout: RowFormat, *, marks: Marks | None, first_sequence: int
) -> Iterator[OutgoingRecord]:
    """The records of one Arrow batch, in order. KafkaError INVALID_RECORD for a row that cannot become
    one. A row with a dead letter becomes that, and nothing else.
    """
    count = batch.num_rows
    letters = letters_in(batch) if layout.dead_letter_topic is not None else {}
    topics = [layout.topic] * count if layout.topic is not None else batch["topic"].to_pylist()
    partitions = _list_or_nones(batch, layout, "partition")
    keys = _bytes_or_nones(batch, layout, "key")
    values = _bytes_or_nones(batch, layout, "value")
    headers = _list_or_nones(batch, layout, "headers")
    timestamps = _timestamps(batch, layout)
    rows = zip(topics, partitions, keys, values, headers, timestamps, strict=True)
    for sequence, (topic, partition, key, value, given, timestamp) in enumerate(rows, first_sequence):
        letter = letters.get(sequence - first_sequence) if letters else None
        if letter is not None and layout.dead_letter_topic is not None:
            yield OutgoingRecord(layout.dead_letter_topic, None, *letter, None)
            continue
        if not topic:
            raise _refused(sequence, "its topic is null")
        if partition is not None and partition < 0:
            raise _refused(sequence, f"its partition is {partition}")
        pairs = _header_pairs(given, sequence) if given else ()
        if marks is not None:  # those of an earlier write say nothing about this one
            pairs = tuple(pair for pair in pairs if pair[0] not in MARK_HEADERS)
            pairs += marks.headers(sequence)
        yield OutgoingRecord(topic, partition, key, value, pairs, timestamp)


def _header_pairs(given: Sequence[dict[str, Any] | None], sequence: int) -> HeaderPairs:
    if any(header is None or header["key"] is None for header in given):
        raise _refused(sequence, "one of its headers has no key")
    return tuple((header["key"], header["value"]) for header in given if header is not None)


def _refused(row: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"row {row} of this task cannot be written: {reason}")


def _list_or_nones(batch: pa.RecordBatch, layout: RowFormat, name: str) -> list[Any]:
    return batch[name].to_pylist() if name in layout.columns else [None] * batch.num_rows


def _bytes_or_nones(batch: pa.RecordBatch, layout: RowFormat, name: str) -> list[bytes | None]:
    if name not in layout.columns:
        return [None] * batch.num_rows
    column = batch[name]
    target = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    as_bytes: list[bytes | None] = (
        column.to_pylist() if pa.types.is_large_binary(column.type) else column.cast(target).to_pylist()
    )
    return as_bytes


def _timestamps(batch: pa.RecordBatch, layout: RowFormat) -> list[int | None]:
    if "timestamp" not in layout.columns:
        return [None] * batch.num_rows
    microseconds = batch["timestamp"].cast(pa.int64()).to_pylist()
    return [None if microsecond is None else microsecond // _US_PER_MS for microsecond in microseconds]
