"""Turns rows of a DataFrame into rows for the producer: checked, grouped by topic, and marked, a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.model.errors import ErrorCode, KafkaError
from odradek.spark.dead_letters.left_out import LeftOutRecords
from odradek.spark.dead_letters.letters import current_micro_batch, letter_rows, letters_in
from odradek.spark.dead_letters.passing import passing_rows
from odradek.spark.rows.record_bytes import record_encoder
from odradek.spark.writing.outgoing import PACKED, Marks, RowFormat
from odradek.spark.writing.row_marks import HEADERS_TYPE, marked
from odradek.values.formats import format_of_text

BYTES_FOR_EACH_PARTITION: Final = 64 << 10
GATHERED_BYTES_MAX: Final = 16 << 20
_US_PER_MS: Final = 1_000


def outgoing_rows(
    batch: pa.RecordBatch,
    layout: RowFormat,
    *,
    marks: Marks | None,
    first_sequence: int,
    left_out: LeftOutRecords | None = None,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the rows of one Arrow batch as `Producer.send_arrow` takes them, by topic; rows of a topic keep their order.

    A row with a dead letter becomes a record of the dead-letter topic, and nothing else. KafkaError INVALID_RECORD names a
    row that cannot become a record by its number in the task: `first_sequence` and on. `left_out`: of the task.
    """
    numbers: Sequence[int] = range(first_sequence, first_sequence + batch.num_rows)
    if layout.has_packed and batch[PACKED].null_count < batch.num_rows:
        is_row = pc.is_null(batch[PACKED])
        yield from _unpacked(batch.filter(pc.invert(is_row)), left_out)
        numbers = [number for number, is_record in zip(numbers, is_row.to_pylist(), strict=True) if is_record]
        batch = batch.filter(is_row)
    if layout.dead_letter_topic is not None and (letters := letters_in(batch)):
        yield layout.dead_letter_topic, letter_rows(letters.values())
        good = [row for row in range(batch.num_rows) if row not in letters]
        batch, numbers = batch.take(pa.array(good, pa.int64())), [numbers[row] for row in good]
    if batch.num_rows == 0:
        return
    columns = {"value": _bytes(batch["value"], layout.value_format)}
    if "key" in layout.columns:
        columns["key"] = _bytes(batch["key"], layout.key_format)
    if "partition" in layout.columns:
        columns["partition"] = batch["partition"]
        _refuse(pc.less(batch["partition"], 0), numbers, "its partition is negative")
    if "timestamp" in layout.columns:
        columns["timestamp"] = _milliseconds(batch["timestamp"])
    headers = _headers(batch, layout, marks, numbers)
    if headers is not None:
        columns["headers"] = headers
    rows = pa.RecordBatch.from_pydict(columns)
    if layout.topic is not None:
        yield layout.topic, rows
        return
    topics = batch["topic"]
    _refuse(pc.fill_null(pc.equal(topics, ""), True), numbers, "its topic is null")
    for topic, of_topic in _by_topic(topics, rows):
        yield f"{topic}{layout.suffix}", of_topic


def _unpacked(batch: pa.RecordBatch, left_out: LeftOutRecords | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    records = (data.as_buffer() for data in batch[PACKED])
    return passing_rows(
        zip(batch["topic"].to_pylist(), records, strict=True), current_micro_batch(), left_out
    )


class OutgoingRows:
    """The rows of a task, by topic, and how many there were. For one iteration."""

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        layout: RowFormat,
        marks: Marks | None,
        left_out: LeftOutRecords,
        traced: Callable[[str, pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        self.count = 0
        self._batches = batches
        self._layout = layout
        self._marks = marks
        self._left_out = left_out
        self._traced = traced

    def __iter__(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in self._batches:
            for topic, rows in outgoing_rows(
                batch, self._layout, marks=self._marks, first_sequence=self.count, left_out=self._left_out
            ):
                yield topic, self._traced(topic, rows)
            self.count += batch.num_rows


def send_gathered(
    first: tuple[str, pa.RecordBatch],
    others: Iterable[tuple[str, pa.RecordBatch]],
    send: Callable[[str, pa.RecordBatch], None],
    partition_count: Callable[[str], int],
) -> None:
    """Sends the rows of a task, of which some are gathered before. Both deliveries send by it."""
    gathering = RowBatcher(send, partition_count)
    for topic, rows in chain((first,), others):
        gathering.add(topic, rows)
    gathering.send_all()


class RowBatcher:
    """Sends rows once there are enough of them that each partition gets a batch of a good size.

    Spark gives some thousand rows at a time; over many partitions these would be many small batches.
    """

    def __init__(
        self, send: Callable[[str, pa.RecordBatch], None], partition_count: Callable[[str], int]
    ) -> None:
        self._send = send
        self._partition_count = partition_count
        self._enough_bytes: dict[str, int] = {}
        self._buffered: dict[str, list[pa.RecordBatch]] = {}
        self._buffered_bytes: dict[str, int] = {}

    def add(self, topic: str, rows: pa.RecordBatch) -> None:
        """Sends these rows now or later; rows of a topic go in order."""
        enough = self._enough_bytes.get(topic)
        if enough is None:
            enough = min(GATHERED_BYTES_MAX, BYTES_FOR_EACH_PARTITION * self._partition_count(topic))
            self._enough_bytes[topic] = enough
        self._buffered.setdefault(topic, []).append(rows)
        self._buffered_bytes[topic] = self._buffered_bytes.get(topic, 0) + rows.nbytes
        if self._buffered_bytes[topic] >= enough:
            self._send_buffered(topic)

    def send_all(self) -> None:
        """Sends what was kept."""
        for topic in list(self._buffered):
            self._send_buffered(topic)

    def _send_buffered(self, topic: str) -> None:
        batches = self._buffered.pop(topic)
        self._buffered_bytes.pop(topic)
        whole = batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()
        for rows in whole:
            self._send(topic, rows)


def _by_topic(topics: pa.Array, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = pc.unique(topics).to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    for name in names:
        yield name, rows.filter(pc.equal(topics, name))


def _refuse(faults: pa.Array, numbers: Sequence[int], reason: str) -> None:
    """Raises what is wrong with the first row that `faults` marks."""
    row = pc.index(faults, True).as_py()
    if row >= 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"row {numbers[row]} of this task cannot be written: {reason}"
        )


def _bytes(column: pa.Array, form: str | None) -> pa.Array:
    """Returns keys or values as they are written. `form`: the text of the format of structs."""
    if form is not None:
        return record_encoder(format_of_text(form))(column)
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _milliseconds(column: pa.Array) -> pa.Array:
    """Returns times in milliseconds since 1970, rounded down; null means now."""
    microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    below = pc.if_else(pc.less(microseconds, 0), _US_PER_MS - 1, 0)
    return pc.divide(pc.subtract(microseconds, below), _US_PER_MS)


def _headers(
    batch: pa.RecordBatch, layout: RowFormat, marks: Marks | None, numbers: Sequence[int]
) -> pa.Array | None:
    headers = batch["headers"] if "headers" in layout.columns else None
    if headers is not None:
        _refuse_nameless(headers, numbers)
        headers = headers.cast(HEADERS_TYPE)
    return headers if marks is None else marked(headers, marks, numbers)


def _refuse_nameless(headers: pa.Array, numbers: Sequence[int]) -> None:
    flat = pc.list_flatten(headers)
    nameless = pc.index(pc.is_null(pc.struct_field(flat, "key")), True).as_py()
    if nameless >= 0:
        row = pc.list_parent_indices(headers)[nameless].as_py()
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"row {numbers[row]} of this task cannot be written: one of its headers has no key",
        )
