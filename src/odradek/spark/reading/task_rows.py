"""Rows of a stream that its source packs for the tasks of an operator with state.

Between a source and such an operator, Spark makes a row of each record and writes it to Arrow again, only for it to be packed.
Where nothing is computed on the way, the source makes the columns of the operator's rows itself, as `translation.adapter` does
in Spark's expressions, and packs them: the JVM sees one row for some thousand records.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.model.aliases import Json
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.spark.reading import key_hashes
from odradek.spark.rows.columns import TIMESTAMP_MS_MAX

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyarrow import compute as pc
else:
    np = lazy("numpy")
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

TASK: Final = "__task"
ROWS: Final = "__rows"
TASK_ROWS_DDL: Final = f"`{TASK}` INT, `{ROWS}` BINARY"
ROW_BYTES_MAX: Final = 8 << 20
"""The size of the rows that are packed together, roughly."""
_HOPS: Final = 4
"""The index, in an order, of the repartitions that the record went through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """How records become rows of tasks.

    `records` is the schema in which they are read, `rows` the schema of the rows. `tasks` are Spark's names of the tasks,
    `source` is the source's number, `port` the input's. `key` and `value` are the fields of bare keys and values; None: they
    are structs as they are read.
    """

    records: pa.Schema
    rows: pa.Schema
    tasks: tuple[int, ...]
    source: int
    port: int
    key: str | None
    value: str | None
    arguments: tuple[tuple[str, str | None], ...] | None = None
    """The fields of the struct `new` of the payload: a field of the value for each, or None for true. None: the payload is the
    value."""
    has_key_beside: bool = False
    """The payload is a struct of key and value."""
    needs_key: bool = False
    needs_value: bool = False
    skips_negative_times: bool = False
    hops: int = 0
    steps: tuple[int, ...] = ()
    """What follows in the records' order, after offset and hops."""

    def to_text(self) -> str:
        """Returns the text for the option `taskRows`."""
        document: dict[str, Json] = {name: getattr(self, name) for name in _PLAIN}
        for name in ("records", "rows"):
            document[name] = b64encode(getattr(self, name).serialize().to_pybytes()).decode()
        return json.dumps(document)

    @classmethod
    def of(cls, text: str) -> TaskRows:
        """Reads the option; ConfigError for a text that is none of ours."""
        try:
            document = json.loads(text)
            schemas = {
                name: pa.ipc.read_schema(pa.py_buffer(b64decode(document.pop(name))))
                for name in ("records", "rows")
            }
            arguments = document.pop("arguments")
            return cls(
                **schemas,
                tasks=tuple(document.pop("tasks")),
                steps=tuple(document.pop("steps")),
                arguments=None if arguments is None else tuple((name, of) for name, of in arguments),
                **document,
            )
        except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowInvalid) as error:
            raise ConfigError(
                "option taskRows is of ours alone, and is set by a streams program; leave it out"
            ) from error

    def packed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the records of batches as rows (TASK, ROWS): one for each task and some megabytes."""
        waiting: dict[int, list[pa.RecordBatch]] = {}
        size = 0
        for batch in batches:
            rows = self.rows_of(self._wanted(batch))
            if not rows.num_rows:
                continue
            task_column = rows.column(0).to_numpy()
            for task in np.unique(task_column).tolist():
                is_mine = task_column == task
                part = rows if is_mine.all() else rows.filter(pa.array(is_mine))
                waiting.setdefault(task, []).append(part)
            size += rows.nbytes
            if size >= ROW_BYTES_MAX:
                yield _as_rows(waiting)
                waiting, size = {}, 0
        if waiting:
            yield _as_rows(waiting)

    def rows_of(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the operator's rows of records, in the columns of `rows`."""
        fields = {field.name: field.type for field in self.rows}
        key = _struct(records["key"], self.key)
        value = _struct(records["value"], self.value)
        names = np.array(self.tasks, np.int32)
        tasks = names[np.mod(key_hashes.hashes(key).astype(np.int64), len(names))]
        times = np.clip(records["timestampMs"].to_numpy(), -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
        columns: dict[str, pa.Array] = {
            TASK: pa.array(tasks),
            "__port": pa.array(np.full(records.num_rows, self.port, np.int32)),
            "__key": _renamed(key, fields["__key"]),
            "__timestamp": pa.array(times),
            "__headers": records["headers"],
            "__order": self._orders(records, times),
        }
        payload = f"__payload{self.port}"
        columns[payload] = _renamed(self._payload(key, value), fields[payload])
        arrays = [
            columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(records.num_rows, field.type)
            for field in self.rows
        ]
        return pa.RecordBatch.from_arrays(arrays, names=self.rows.names)

    def _wanted(self, records: pa.RecordBatch) -> pa.RecordBatch:
        conditions = [
            pc.is_valid(records[name])
            for name, is_needed in (("key", self.needs_key), ("value", self.needs_value))
            if is_needed and records[name].null_count
        ]
        if self.skips_negative_times:
            is_in_time = pc.greater_equal(records["timestampMs"], 0)
            if not pc.all(is_in_time).as_py():
                conditions.append(is_in_time)
        for condition in conditions[1:]:
            conditions[0] = pc.and_(conditions[0], condition)
        return records.filter(conditions[0]) if conditions else records

    def _payload(self, key: pa.StructArray, value: pa.StructArray) -> pa.StructArray:
        if self.has_key_beside:
            return pa.StructArray.from_arrays([key, value], names=["key", "value"])
        if self.arguments is None:
            return value
        parts = dict(zip((field.name for field in value.type), value.flatten(), strict=True))
        count = len(value)
        arrays = [pa.repeat(pa.scalar(True), count) if of is None else parts[of] for _, of in self.arguments]
        new = pa.StructArray.from_arrays(arrays, names=[name for name, _ in self.arguments])
        return pa.StructArray.from_arrays([new, pa.nulls(count, pa.int32())], names=["new", "old"])

    def _orders(self, records: pa.RecordBatch, times: NDArray[np.int64]) -> pa.Array:
        rest = (self.hops, *self.steps)
        width, count = _HOPS + len(rest), records.num_rows
        orders = np.empty((count, width), np.int64)
        orders[:, 0] = times
        orders[:, 1] = self.source
        orders[:, 2] = records["partition"].to_numpy()
        orders[:, 3] = records["offset"].to_numpy()
        orders[:, _HOPS:] = rest
        return pa.ListArray.from_arrays(
            pa.array(np.arange(0, count * width + 1, width, dtype=np.int32)), pa.array(orders.ravel())
        )


_PLAIN: Final = tuple(name for name in TaskRows.__dataclass_fields__ if name not in ("records", "rows"))


def _struct(column: pa.Array, bare: str | None) -> pa.StructArray:
    """Returns a key or a value as a struct, null where it is null."""
    if bare is None:
        return column
    mask = pc.is_null(column) if column.null_count else None
    return pa.StructArray.from_arrays([column], names=[bare], mask=mask)


def _renamed(struct: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    """Returns the struct with the names of `kind`, whose fields have the same types in the same order."""
    if struct.type.num_fields != kind.num_fields:
        raise AssertionError(f"{struct.type} is not of the fields of {kind}")
    mask = pc.is_null(struct) if struct.null_count else None
    parts = [
        _renamed(part, field.type)
        if pa.types.is_struct(field.type) and pa.types.is_struct(part.type)
        else part.cast(field.type)
        for part, field in zip(struct.flatten(), kind, strict=True)
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)


def _as_rows(waiting: dict[int, list[pa.RecordBatch]]) -> pa.RecordBatch:
    """Returns a row for each task: its rows in Arrow's stream format, one after another in one buffer."""
    sink, ends = pa.BufferOutputStream(), [0]
    for batches in waiting.values():
        table = pa.Table.from_batches(batches).combine_chunks()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        ends.append(sink.tell())
    datas = pa.BinaryArray.from_buffers(
        pa.binary(), len(waiting), [None, pa.array(ends, pa.int32()).buffers()[1], sink.getvalue()]
    )
    return pa.RecordBatch.from_arrays([pa.array(list(waiting), pa.int32()), datas], names=[TASK, ROWS])
