"""Rows that a streams program hands to the sink as it packed them, and what is computed of them.

The last operator with state in Python packs its rows. Where only simple expressions are between it and the sink, the sink gets
them packed, and computes its columns itself: the JVM passes on one row for some thousand records. The
instructions are read from Spark's plan by `spark/engine/column_plans.py`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from odradek.model.aliases import Json
from odradek.model.errors import ConfigError

ROWS: Final = "__rows"
"""The column of packed rows, in Arrow's stream format. A sink with the option `packedRows` gets this one alone."""
ROWS_MAX: Final = 10_000
"""The most rows that are computed at once."""
BYTES_MAX: Final = 8 << 20
"""The size of the rows that are computed at once, roughly: rows of a megabyte are taken a few at a time."""
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES: Final = {
    "headers": _HEADERS,
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
}
_NO_HEADERS: Final = pa.scalar([], _HEADERS)
_COMPARISONS: Final = frozenset({"equal", "less", "less_equal", "greater", "greater_equal"})
_US_PER_MS: Final = 1_000
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_Values: TypeAlias = "pa.Array | pa.ChunkedArray | pa.Scalar"
"""The values of a column, or the one value that it has in all rows."""
_OWN: Final = "option packedRows is of ours alone, and is set by a streams program; leave it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRows:
    """What a sink makes of packed rows.

    `packed` is the schema of the rows that are packed, `computed` the schema of the rows that are made of them, `written` the
    same in Spark's types, as JSON. `instructions`, `keep` and `outputs` are fields of a `ColumnPlan`.
    """

    packed: pa.Schema
    computed: pa.Schema
    written: Json
    instructions: Sequence[Sequence[Json]]
    keep: int | None
    outputs: Mapping[str, int]

    def to_text(self) -> str:
        """Returns the text for the option `packedRows`."""
        schemas = {
            name: b64encode(schema.serialize().to_pybytes()).decode()
            for name, schema in (("packed", self.packed), ("computed", self.computed))
        }
        return json.dumps(
            {
                **schemas,
                "written": self.written,
                "instructions": self.instructions,
                "keep": self.keep,
                "outputs": self.outputs,
            }
        )

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads the option; ConfigError for a text that is none of ours."""
        try:
            document = json.loads(text)
            schemas = {
                name: pa.ipc.read_schema(pa.py_buffer(b64decode(document.pop(name))))
                for name in ("packed", "computed")
            }
            rows = cls(**schemas, **document)
        except (ValueError, TypeError, KeyError, AttributeError, pa.ArrowInvalid) as error:
            raise ConfigError(_OWN) from error
        return rows

    @property
    def struct(self) -> StructType:
        """The schema of the rows that are written, as Spark has it."""
        return StructType.fromJson(self.written)  # type: ignore[arg-type]  # it is an object

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows that are packed in batches of ROWS, computed: as many at a time as bounds allow."""
        for batch in batches:
            for data in batch[ROWS]:
                with pa.ipc.open_stream(data.as_buffer()) as stream:
                    for packed in stream:
                        yield from self._pieces(packed)

    def _pieces(self, packed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = packed.cast(self.packed)
        if not rows.num_rows:
            return
        step = max(1, min(ROWS_MAX, rows.num_rows * BYTES_MAX // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, step):
            computed = self.computed_of(rows.slice(start, step))
            if computed.num_rows:
                yield computed

    def computed_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows that are made of a batch."""
        if self.keep is not None:
            stays = _Computing(self.instructions, rows).array(self.keep)
            rows = rows.filter(stays)  # null is no
            if not rows.num_rows:
                return pa.RecordBatch.from_pylist([], schema=self.computed)
        computing = _Computing(self.instructions, rows)
        arrays = [computing.array(self.outputs[field.name]).cast(field.type) for field in self.computed]
        return pa.RecordBatch.from_arrays(arrays, schema=self.computed)


class _Computing:
    """The values of instructions over one batch, each computed when it is first asked for."""

    def __init__(self, instructions: Sequence[Sequence[Json]], rows: pa.RecordBatch) -> None:
        self._instructions = instructions
        self._rows = rows
        self._values: dict[int, _Values] = {}

    def array(self, number: int) -> pa.Array:
        value = self.value(number)
        return pa.repeat(value, self._rows.num_rows) if isinstance(value, pa.Scalar) else value

    def value(self, number: int) -> _Values:
        """Returns an array, or a scalar for what is the same in all rows."""
        if number not in self._values:
            name, *arguments = self._instructions[number]
            self._values[number] = _MEANINGS[str(name)](self, *arguments)
        return self._values[number]

    def values(self, numbers: Sequence[int]) -> list[_Values]:
        return [self.value(number) for number in numbers]

    def column(self, index: int) -> _Values:
        return self._rows.column(index)

    def field(self, number: int, index: int) -> _Values:
        return pc.struct_field(self.value(number), [index])

    def constant(self, value: Json, kind: str) -> _Values:
        return pa.scalar(value, _TYPES[kind])

    def no_headers(self) -> _Values:
        return _NO_HEADERS

    def concat(self, *numbers: int) -> _Values:
        values = self.values(numbers)
        separator = pa.scalar("" if pa.types.is_string(values[0].type) else b"", values[0].type)
        return pc.binary_join_element_wise(*values, separator, null_handling="emit_null")

    def cast(self, number: int, kind: str) -> _Values:
        return self.value(number).cast(_TYPES[kind])

    def coalesce(self, *numbers: int) -> _Values:
        values = self.values(numbers)
        if isinstance(values[0], pa.ListArray):
            return _empty_for_null(values[0]) if values[1:] == [_NO_HEADERS] else pc.coalesce(*values)
        return pc.coalesce(*values)

    def choice(self, condition: int, then: int, otherwise: int) -> _Values:
        return pc.if_else(pc.fill_null(self.value(condition), False), self.value(then), self.value(otherwise))

    def both(self, left: int, right: int) -> _Values:
        return pc.and_kleene(self.value(left), self.value(right))

    def either(self, left: int, right: int) -> _Values:
        return pc.or_kleene(self.value(left), self.value(right))

    def negation(self, number: int) -> _Values:
        return pc.invert(self.value(number))

    def is_valid(self, number: int) -> _Values:
        return pc.is_valid(self.value(number))

    def compare(self, comparison: str, left: int, right: int) -> _Values:
        if comparison not in _COMPARISONS:
            raise ConfigError(_OWN)
        return getattr(pc, comparison)(self.value(left), self.value(right))

    def timestamp(self, number: int) -> _Values:
        return pc.multiply_checked(self.value(number), _US_PER_MS).cast(_TIMESTAMP)


def _empty_for_null(lists: pa.ListArray) -> pa.ListArray:
    """Returns the lists, empty where they are null. Arrow's own `coalesce` builds lists one by one: a microsecond for each."""
    if not lists.null_count:
        return lists
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, pc.list_flatten(lists), type=lists.type)


_MEANINGS: Final[Mapping[str, Callable[..., _Values]]] = {
    "column": _Computing.column,
    "field": _Computing.field,
    "constant": _Computing.constant,
    "no_headers": _Computing.no_headers,
    "concat": _Computing.concat,
    "cast": _Computing.cast,
    "coalesce": _Computing.coalesce,
    "if": _Computing.choice,
    "and": _Computing.both,
    "or": _Computing.either,
    "not": _Computing.negation,
    "is_valid": _Computing.is_valid,
    "compare": _Computing.compare,
    "timestamp": _Computing.timestamp,
}
