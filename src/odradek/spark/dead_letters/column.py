"""The column `deadLetter` of a read: null, but in the rows whose key or value could not be decoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from odradek.model.ids import TopicPartition
from odradek.spark.dead_letters.mismatch import Mismatch, why_not
from odradek.spark.options.option_table import Decoding
from odradek.spark.rows.columns import spark_timestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class UndecodedRow:
    """A row whose key or value, the `stage`, is not what was declared."""

    row: int
    stage: str
    data: bytes
    decoding: Decoding
    kind: pa.DataType

    def reason(self) -> Mismatch:
        return why_not(self.data, self.decoding, self.kind)


def dead_letter_column(
    records: pa.RecordBatch, partition: TopicPartition, undecoded: Iterable[UndecodedRow], kind: pa.StructType
) -> pa.Array:
    """Returns an element for each row of `records`. For a row that failed twice, the first failure counts."""
    by_row: dict[int, UndecodedRow] = {}
    for undecoded_row in undecoded:
        by_row.setdefault(undecoded_row.row, undecoded_row)
    if not by_row:
        return pa.nulls(records.num_rows, kind)
    rows = sorted(by_row)
    letters = _letters(records.take(pa.array(rows)), partition, [by_row[row] for row in rows], kind)
    indexes: list[int | None] = [None] * records.num_rows
    for index, row in enumerate(rows):
        indexes[row] = index
    return letters.take(pa.array(indexes, pa.int64()))


def _letters(
    records: pa.RecordBatch, partition: TopicPartition, failures: list[UndecodedRow], kind: pa.StructType
) -> pa.StructArray:
    count = records.num_rows
    reasons = [failure.reason() for failure in failures]
    columns: Mapping[str, pa.Array | list[str | None]] = {
        "topic": [partition.topic] * count,
        "partition": pa.array([partition.partition] * count),
        "offset": records["offset"],
        "timestamp": spark_timestamps(records["timestamp"]),
        "key": records["key"],
        "value": records["value"],
        "headers": records["headers"],
        "stage": [failure.stage for failure in failures],
        "exception": [reason.exception for reason in reasons],
        "message": [reason.message for reason in reasons],
        "stacktrace": [None] * count,
    }
    fields = list(kind)
    return pa.StructArray.from_arrays(
        [_as(columns[field.name], field.type) for field in fields], fields=fields
    )


def _as(column: pa.Array | list[str | None], kind: pa.DataType) -> pa.Array:
    return pa.array(column, kind) if isinstance(column, list) else column.cast(kind)
