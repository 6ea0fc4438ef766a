"""Decodes records for Spark: one Arrow batch in, one Arrow batch of the declared schema out.

JSON is decoded by Arrow's own parser, a whole batch at a time. Each value is wrapped as `{"i": <row>, "v":
<value>}`, so a value that is broken, or holds two documents, or would swallow its neighbour, cannot shift the
rows after it: the numbers that come back must be 0, 1, 2... If they are not, values that are plainly wrong are
sorted out, and the rest is halved until the bad ones stand alone.

What follows an object in a value, as in `{"a":1},"z":5`, would be one more field of the wrapper, which Arrow drops. Where a
text may have that, each value is wrapped in lists, too: `"v": [[[<value>]]]`. It is then one more element, or has three closing
brackets and a comma before it: few values have these, and they are looked at one by one. Lists take a third more time.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.dead_letters.column import UndecodedRow, dead_letter_column
from odradek.spark.dead_letters.mismatch import is_plainly_wrong
from odradek.spark.options.option_table import Decoding, OnDecodeError
from odradek.spark.options.options import Projection
from odradek.spark.rows.columns import DEAD_LETTER, spark_timestamps
from odradek.spark.rows.record_bytes import record_decoder
from odradek.values.formats import format_of_text

_PARSE_BLOCK_BYTES: Final = 1 << 20
_MAY_GO_ON: Final = (re.compile(rb'\}\s*,\s*"'), re.compile(rb'"v":\s*null\s*,'))
"""Matches values that continue after their object, or after null; it may match others, too."""
_LISTS: Final = 3
_LEAVES_THE_LISTS: Final = re.compile(rb"\]\s*\]\s*\]\s*,")


def to_columns(
    records: pa.RecordBatch, partition: TopicPartition, schema: pa.Schema, projection: Projection
) -> pa.RecordBatch:
    """Builds exactly the columns of `schema` from record columns as `odradek.records.arrow` makes them.

    KafkaError INVALID_RECORD names partition and offset of a value that cannot be decoded, unless such become
    null, or dead letters.
    """
    undecoded: list[UndecodedRow] = []
    arrays = []
    for field in schema:
        form = projection.key_format if field.name == "key" else projection.value_format
        if field.name in ("key", "value") and form is not None:
            decode = record_decoder(format_of_text(form), field.type.field("value").type)
            arrays.append(decode(records[field.name]).cast(field.type))
        elif field.name in ("key", "value"):
            decoding = projection.key if field.name == "key" else projection.value
            decoded = _decoded(records[field.name], field, decoding)
            arrays.append(decoded)
            if projection.on_error is not OnDecodeError.NULL:
                undecoded += _undecoded_rows(field, records[field.name], decoded, decoding)
        elif field.name == DEAD_LETTER:
            arrays.append(dead_letter_column(records, partition, undecoded, field.type))
        else:
            arrays.append(_column(field, records, partition))
    if undecoded and projection.on_error is OnDecodeError.FAIL:
        raise _refused(undecoded[0], records, partition)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(field: pa.Field, records: pa.RecordBatch, partition: TopicPartition) -> pa.Array:
    count = records.num_rows
    if field.name == "topic":
        return pa.repeat(pa.scalar(partition.topic, pa.string()), count)
    if field.name == "partition":
        return pa.repeat(pa.scalar(partition.partition, pa.int32()), count)
    if field.name == "timestamp":
        return spark_timestamps(records["timestamp"].cast(pa.int64())).cast(field.type)
    if field.name == "timestampMs":
        return records["timestamp"].cast(pa.int64())
    if field.name == "timestampType":
        return records["timestamp_type"].cast(pa.int32())
    if field.name == "record":
        fields = list(field.type)
        parts = [records[column.name].cast(column.type) for column in fields]
        return pa.StructArray.from_arrays(parts, fields=fields)
    return records[field.name].cast(field.type)


def _decoded(raw: pa.Array, field: pa.Field, decoding: Decoding) -> pa.Array:
    if decoding is Decoding.BINARY:
        return raw
    return decode_utf8(raw) if decoding is Decoding.UTF8 else decode_json(raw, field.type)


def _undecoded_rows(
    field: pa.Field, raw: pa.Array, decoded: pa.Array, decoding: Decoding
) -> Iterator[UndecodedRow]:
    """Rows that are null after decoding and were not before."""
    if decoding is Decoding.BINARY or decoded.null_count == raw.null_count:
        return
    for row in pc.indices_nonzero(pc.and_(pc.is_null(decoded), pc.is_valid(raw))).to_pylist():
        data = raw[row].as_py()
        if decoding is not Decoding.JSON or data.strip() != b"null":
            yield UndecodedRow(row=row, stage=field.name, data=data, decoding=decoding, kind=field.type)


def _refused(undecoded: UndecodedRow, records: pa.RecordBatch, partition: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"the {undecoded.stage} at {partition} offset {records['offset'][undecoded.row].as_py()} is not"
        f" {_expectation(undecoded.decoding, undecoded.stage)}: {undecoded.data[:80]!r} ({undecoded.reason().message});"
        " decodeErrors=dead-letter keeps such records, decodeErrors=null makes them null",
    )


def _expectation(decoding: Decoding, name: str) -> str:
    return "UTF-8 text" if decoding is Decoding.UTF8 else f"JSON that fits {name}Schema"


def decode_utf8(raw: pa.Array) -> pa.Array:
    """Decodes binary to string; null where the bytes are not UTF-8."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text_or_none(data) for data in raw.to_pylist()], pa.string())


def _text_or_none(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def decode_json(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decodes binary to `kind` (a struct); null where the bytes are not one JSON object that fits it. Unknown
    fields are dropped.
    """
    texts = decode_utf8(raw)
    present = pc.indices_nonzero(pc.is_valid(texts))
    if len(present) == 0:
        return pa.nulls(len(raw), kind)
    parsed = _parse(texts.drop_null().cast(pa.binary()).to_pylist(), kind)
    if len(present) == len(raw):
        return parsed
    positions = pc.subtract(pc.cumulative_sum(pc.is_valid(texts).cast(pa.int64())), 1)
    return parsed.take(pc.if_else(pc.is_valid(texts), positions, None))


def _parse(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Parses all values; if that fails, those not plainly wrong. Halving alone takes 50 times as long when all are wrong."""
    parsed = _parse_all(values, kind)
    if parsed is not None:
        return parsed
    indexes: list[int | None] = []
    rest: list[bytes] = []
    for value in values:
        indexes.append(None if is_plainly_wrong(value, kind) else len(rest))
        if indexes[-1] is not None:
            rest.append(value)
    if not rest:
        return pa.nulls(len(values), kind)
    return _parse_by_halves(rest, kind).take(pa.array(indexes, pa.int64()))


def _parse_by_halves(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    parsed = _parse_all(values, kind)
    if parsed is not None:
        return parsed
    if len(values) == 1:
        return pa.nulls(1, kind)
    middle = len(values) // 2
    return pa.concat_arrays(
        [_parse_by_halves(values[:middle], kind), _parse_by_halves(values[middle:], kind)]
    )


def _parse_all(values: Sequence[bytes], kind: pa.DataType) -> pa.Array | None:
    """Parses all values; returns None if any is not a document of its own that fits."""
    text = b"\n".join([b'{"i":%d,"v":%b}' % (row, value) for row, value in enumerate(values)])
    wrapped_kind, list_count = kind, 0
    if any(pattern.search(text) for pattern in _MAY_GO_ON):
        if any(_LEAVES_THE_LISTS.search(value) and is_plainly_wrong(value, kind) for value in values):
            return None
        text = b"\n".join([b'{"i":%d,"v":[[[%b]]]}' % (row, value) for row, value in enumerate(values)])
        wrapped_kind, list_count = pa.list_(pa.list_(pa.list_(kind))), _LISTS
    longest = max(map(len, values)) + 64
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(text),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=max(_PARSE_BLOCK_BYTES, 2 * longest)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([("i", pa.int64()), ("v", wrapped_kind)]),
                newlines_in_values=text.count(b"\n") >= len(values),
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    rows = table["i"].combine_chunks()
    if len(rows) != len(values) or not rows.equals(pa.array(range(len(values)), pa.int64())):
        return None
    parsed = pa.concat_arrays(table["v"].chunks)
    for _ in range(list_count):
        if parsed.null_count or not pc.all(pc.equal(pc.list_value_length(parsed), 1)).as_py():
            return None
        parsed = parsed.flatten()
    return parsed.cast(kind)
