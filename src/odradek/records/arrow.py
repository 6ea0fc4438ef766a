"""Record batches to Arrow and back, without an object per record on the way.

The one module of the room that needs pyarrow; import it only where that is wanted (120 ms, 50 MB).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from odradek.records import engine
from odradek.records.batch import BatchHeader, split_batches
from odradek.records.builder import seal
from odradek.records.codec import READ_LIMITS, Codec, Limits
from odradek.records.columns import BinaryColumn, Columns, Headers, ListColumn
from odradek.records.content import read_batches
from odradek.records.control import data_batches
from odradek.records.frame import Written
from odradek.runtime.ports import Buffer

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(HEADER_TYPE), nullable=False),
    ]
)
"""Timestamps are milliseconds since 1970, -1 for none; the type is 0 for CreateTime, 1 for LogAppendTime."""

DEFAULT_BATCH_BYTES: Final = 1 << 20
_NO_HEADERS: Final = pa.array([], HEADER_TYPE)


def batches_to_arrow(
    buffer: Buffer,
    *,
    from_offset: int = 0,
    aborted: Iterable[tuple[int, int]] = (),
    allow_partial: bool = True,
    verify_crc: bool = True,
    limits: Limits = READ_LIMITS,
) -> pa.RecordBatch:
    """Returns all records of the batches in `buffer`, as one Arrow batch with `SCHEMA`.

    Left out: records below `from_offset` (a fetch answers whole batches), control batches, what belongs to
    `aborted` transactions (producer id, first offset; of use to `read_committed` alone), and a batch cut
    short at the end unless `allow_partial` is off.

    Raises CORRUPT_MESSAGE and INVALID_RECORD as reading records does, and OverflowError when keys, values or
    headers come to 2 GiB.
    """
    batches = data_batches(split_batches(buffer, allow_partial=allow_partial), aborted=aborted)
    return data_batches_to_arrow(batches, from_offset=from_offset, verify_crc=verify_crc, limits=limits)


def data_batches_to_arrow(
    batches: Iterable[tuple[BatchHeader, memoryview]],
    *,
    from_offset: int = 0,
    verify_crc: bool = True,
    limits: Limits = READ_LIMITS,
) -> pa.RecordBatch:
    """Does what `batches_to_arrow` does, for batches that were split and chosen before; they need not be neighbours."""
    wanted = [(header, batch) for header, batch in batches if header.next_offset > from_offset]
    reader = engine.columns().ColumnReader(sum(len(batch) for _, batch in wanted))
    read_batches(reader, wanted, from_offset=from_offset, verify_crc=verify_crc, limits=limits)
    return _record_batch(reader.finish())


def _record_batch(columns: Columns) -> pa.RecordBatch:
    rows = columns.row_count
    return pa.RecordBatch.from_arrays(
        [
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.timestamps)]),
            pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(columns.timestamp_types)]),
            _binary_array(pa.binary(), rows, columns.keys),
            _binary_array(pa.binary(), rows, columns.values),
            _headers_array(rows, columns.headers),
        ],
        schema=SCHEMA,
    )


def _binary_array(kind: pa.DataType, rows: int, column: BinaryColumn) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.null_count)


def _headers_array(rows: int, headers: Headers | None) -> pa.Array:
    kind = SCHEMA.field("headers").type
    if headers is None:
        structs = _NO_HEADERS
        offsets = pa.py_buffer(bytes(4 * (rows + 1)))
    else:
        count = len(memoryview(headers.names.offsets).cast("B")) // 4 - 1
        names = _mend_text(_binary_array(pa.string(), count, headers.names))
        values = _binary_array(pa.binary(), count, headers.values)
        structs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
        offsets = pa.py_buffer(headers.lists.offsets)
    return pa.Array.from_buffers(kind, rows, [None, offsets], 0, children=[structs])


def _mend_text(names: pa.Array) -> pa.Array:
    """Replaces invalid UTF-8 in header names, as when single records are read: producers may send any
    bytes.
    """
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.cast(pa.binary())
        return pa.array([name.decode("utf-8", "replace") for name in raw.to_pylist()], pa.string())
    return names


def arrow_to_batches(
    rows: pa.RecordBatch,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    max_bytes: int = DEFAULT_BATCH_BYTES,
    default_timestamp: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> list[bytearray]:
    """Returns the rows as batches of at most `max_bytes` before compression (a single larger record gets a batch of
    its own).

    Columns have the names of `SCHEMA`: `value` (or none: null values) and, optionally, `key`, `headers` and
    `timestamp` (int64 milliseconds, or an Arrow timestamp); other columns are ignored. Keys and values may be
    binary or string, of either width. Rows without a timestamp get `default_timestamp`. With a
    `base_sequence`, sequence numbers continue from one batch to the next.

    Raises ValueError or pyarrow's own errors for columns of other types.
    """
    batches: list[bytearray] = []
    start = 0
    for written in written_batches(rows, max_bytes=max_bytes, default_timestamp=default_timestamp):
        sequence = base_sequence if base_sequence < 0 else (base_sequence + start) & 0x7FFF_FFFF
        batch = seal(
            written,
            codec=codec,
            level=level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        batches.append(batch)
        start += written.record_count
    return batches


def written_batches(
    rows: pa.RecordBatch, *, max_bytes: int = DEFAULT_BATCH_BYTES, default_timestamp: int = -1
) -> Iterator[Written]:
    """Yields the rows as batches that have no header yet, in order; columns and errors as in `arrow_to_batches`."""
    if rows.num_rows == 0:
        return
    writer = engine.columns().ColumnWriter(_columns(rows, default_timestamp))
    start = 0
    while start < rows.num_rows:
        written = writer.write(start, max_bytes)
        yield written
        start += written.record_count


def _columns(rows: pa.RecordBatch, default_timestamp: int) -> Columns:
    return Columns(
        row_count=rows.num_rows,
        timestamps=_timestamps(rows, default_timestamp),
        keys=_binary_column(_column(rows, "key", pa.binary())),
        values=_binary_column(_column(rows, "value", pa.binary())),
        headers=_headers(rows),
    )


def _column(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Returns the column, cast where it must be; all null where there is none."""
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    column = rows.column(name)
    return column if column.type.equals(kind) else column.cast(kind)


def _timestamps(rows: pa.RecordBatch, default_timestamp: int) -> memoryview:
    if "timestamp" in rows.schema.names and pa.types.is_timestamp(rows.column("timestamp").type):
        stamps = rows.column("timestamp")
        column = stamps.cast(pa.timestamp("ms", stamps.type.tz), safe=False).cast(pa.int64())
    else:
        column = _column(rows, "timestamp", pa.int64())
    if column.null_count:
        column = column.fill_null(default_timestamp)
    return memoryview(column.buffers()[1])[8 * column.offset :]


def _binary_column(column: pa.Array) -> BinaryColumn:
    validity, offsets, data = column.buffers()
    return BinaryColumn(
        first=column.offset,
        validity=None if validity is None else memoryview(validity),
        offsets=memoryview(offsets),
        data=b"" if data is None else memoryview(data),
        null_count=column.null_count,
    )


def _headers(rows: pa.RecordBatch) -> Headers | None:
    if "headers" not in rows.schema.names:
        return None
    column = rows.column("headers")
    if not column.type.equals(SCHEMA.field("headers").type):
        column = column.cast(pa.list_(HEADER_TYPE))
    validity, offsets = column.buffers()[:2]
    structs = column.values
    if len(structs) == 0:
        return None
    lists = ListColumn(column.offset, None if validity is None else memoryview(validity), memoryview(offsets))
    names, values = structs.field("key"), structs.field("value")
    return Headers(lists, _binary_column(names.cast(pa.binary())), _binary_column(values))
