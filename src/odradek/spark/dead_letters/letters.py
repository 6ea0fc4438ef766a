"""Dead letters in a sink: rows with a `deadLetter` become the records of the dead-letter topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.sql.types import DataType, StructType

from odradek.dead_letters.headers import FailedConsumer, HeaderPairs, Origin, RecordFailure, letter_headers
from odradek.model.errors import ConfigError
from odradek.model.ids import NO_TIMESTAMP
from odradek.spark.rows.columns import DEAD_LETTER, DEAD_LETTER_FIELDS

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

_US_PER_MS: Final = 1_000

_HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)

Letter = tuple[bytes | None, bytes | None, HeaderPairs]
"""Key, value and headers: the record's own bytes, and what is known of its failure."""


def check_letter_column(fields: Mapping[str, StructField], topic: str | None) -> None:
    """Raises ConfigError unless the column and the option deadLetterTopic are both there, or neither."""
    field = fields.get(DEAD_LETTER)
    if field is None and topic is not None:
        raise ConfigError(
            f"deadLetterTopic needs the column {DEAD_LETTER}, and these rows have none: keep it in every select()."
            " It comes with decodeErrors=dead-letter and from odradek.spark.guarded"
        )
    if field is not None and topic is None:
        raise ConfigError(
            f"these rows have the column {DEAD_LETTER}, and what is in it would be lost: set the option deadLetterTopic"
        )
    if field is not None and not _is_letter(field.dataType):
        raise ConfigError(
            f"column {DEAD_LETTER} must be as a read or odradek.spark.guarded makes it, not"
            f" {field.dataType.simpleString().upper():.200}"
        )


def _is_letter(kind: DataType) -> bool:
    return isinstance(kind, StructType) and kind.fieldNames() == list(DEAD_LETTER_FIELDS)


def letters_in(batch: pa.RecordBatch) -> dict[int, Letter]:
    """Returns the dead letters of a batch, by row. Call it in the task that writes them: they name its query and batch."""
    column = batch[DEAD_LETTER]
    if column.null_count == len(column):
        return {}
    rows = pc.indices_nonzero(pc.is_valid(column))
    micro_batch = current_micro_batch()
    letters = _with_plain_timestamps(column.take(rows)).to_pylist()
    return {
        row: letter_of(letter, _milliseconds(letter["timestamp"]), micro_batch)
        for row, letter in zip(rows.to_pylist(), letters, strict=True)
    }


def letter_rows(letters: Iterable[Letter]) -> pa.RecordBatch:
    """Returns letters, at least one, as a batch that `Producer.send_arrow` takes."""
    keys, values, headers = zip(*letters, strict=True)
    pairs = [[{"key": name, "value": value} for name, value in of_letter] for of_letter in headers]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(pairs, _HEADERS),
        }
    )


def _with_plain_timestamps(column: pa.StructArray) -> pa.StructArray:
    """Timestamps as microseconds: a datetime cannot hold all of them."""
    fields = [
        pa.field(field.name, pa.int64()) if pa.types.is_timestamp(field.type) else field
        for field in column.type
    ]
    return column.cast(pa.struct(fields))


def _milliseconds(timestamp: int | None) -> int:
    return NO_TIMESTAMP if timestamp is None else timestamp // _US_PER_MS


def letter_of(row: Mapping[str, Any], timestamp_ms: int, micro_batch: MicroBatch) -> Letter:
    """Returns a row's letter. `row` has the record's fields, and exception, message, stage and perhaps stacktrace."""
    origin = Origin(
        topic=row["topic"], partition=row["partition"], offset=row["offset"], timestamp_ms=timestamp_ms
    )
    failure = RecordFailure(
        exception=row["exception"],
        message=row["message"] or "",
        stage=row["stage"] or "",
        stacktrace=row.get("stacktrace") or "",
    )
    own = [(header["key"], header["value"]) for header in row["headers"] or ()]
    by = FailedConsumer(query=micro_batch.query, batch=micro_batch.batch)
    return row["key"], row["value"], letter_headers(own, origin, failure, by)


QUERY_PROPERTY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """A micro-batch of a streaming query; None for both in a batch write of its own."""

    query: str | None
    batch: int | None


NO_BATCH: Final = MicroBatch(query=None, batch=None)


def current_micro_batch() -> MicroBatch:
    """Returns the query and the batch of the task that runs on this thread."""
    context = pyspark.TaskContext.get()
    query = context.getLocalProperty(QUERY_PROPERTY) if context is not None else None
    batch = context.getLocalProperty(_BATCH) if context is not None else None
    return MicroBatch(query=query, batch=None if batch is None else int(batch))
