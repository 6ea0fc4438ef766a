"""A task's rows of a batch as columns, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.streams.processors.ports import InputRow
from odradek.streams.processors.python_values import UnreadableValueError, lists_of_numbers, values_of
from odradek.streams.processors.task import CachedState, key_text

Numbers: TypeAlias = npt.NDArray[np.int64]
_PLAIN_TEXT: Final = r"^[ !#-&(-\[\]-~]*$"
"""Texts whose `repr` is the text in quotes: printable ASCII without quotes and backslashes."""
_KEY_KINDS: Final = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)
"""Tests for the types whose values Arrow and Python compare alike; they differ on 0.0 and -0.0."""


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """A task's rows of a batch, as columns.

    `order`: as `InputRow.order`, a row for each record; None where they are not of one length.
    """

    ports: pa.Array
    keys: pa.Array
    payloads: tuple[pa.Array, ...]
    timestamps: pa.Array
    headers: pa.Array
    orders: pa.Array
    origins: pa.Array | None = None
    """The records as they were read, where a dead letter may be made of them."""

    @classmethod
    def of(cls, rows: pa.Table, port_count: int, origin: str | None = None) -> TaskColumns:
        """Returns the columns of a table made by `translation.adapter`. `origin`: the name of that column, if it exists."""

        def column(name: str) -> pa.Array:
            chunks = rows[name]
            if not chunks.num_chunks:
                return pa.array([], chunks.type)
            return chunks.chunk(0) if chunks.num_chunks == 1 else pa.concat_arrays(chunks.chunks)

        return cls(
            column("__port"),
            column("__key"),
            tuple(column(f"__payload{number}") for number in range(port_count)),
            column("__timestamp"),
            _null_if_empty(column("__headers")),
            column("__order"),
            None if origin is None else column(origin),
        )

    def rows(self) -> list[InputRow]:
        """Returns the rows one by one."""
        ports = values_of(self.ports)
        payloads = [values_of(payload) for payload in self.payloads]
        inputs = payloads[0]
        if len(payloads) > 1:
            inputs = [payloads[port][index] for index, port in enumerate(ports)]
        columns = (
            ports,
            values_of(self.keys),
            inputs,
            values_of(self.timestamps),
            values_of(self.headers),
            _lists(self.orders),
        )
        return list(map(InputRow._make, zip(*columns, strict=True)))

    def readable_rows(self, failed: Callable[[InputRow, Exception], None]) -> list[InputRow]:
        """Returns the rows one by one, but those with values that Python cannot hold: `failed` gets their places and errors."""
        try:
            return self.rows()
        except UnreadableValueError as error:
            count = len(self.ports)
            if count > 1:
                row_numbers = np.arange(count)
                halves = (self.take(row_numbers[: count // 2]), self.take(row_numbers[count // 2 :]))
                return [row for half in halves for row in half.readable_rows(failed)]
            (port,), (timestamp,), (order,) = (
                self.ports.to_pylist(),
                self.timestamps.to_pylist(),
                _lists(self.orders),
            )
            failed(InputRow(port, None, None, timestamp, None, order), error)
            return []

    def take(self, row_numbers: Numbers) -> TaskColumns:
        chosen = pa.array(row_numbers)
        return TaskColumns(
            self.ports.take(chosen),
            self.keys.take(chosen),
            tuple(payload.take(chosen) for payload in self.payloads),
            self.timestamps.take(chosen),
            self.headers.take(chosen),
            self.orders.take(chosen),
            None if self.origins is None else self.origins.take(chosen),
        )


class OrderedColumns:
    """The order of a batch's rows: `row_numbers` has the place of each in the batch. Numbers are put in order; values are taken
    from the batch when it is clear which are needed.
    """

    def __init__(self, rows: TaskColumns, row_numbers: Numbers, codes: KeyCodes) -> None:
        self.batch = rows
        self.row_numbers = row_numbers
        self.codes = codes
        self.times: Numbers = rows.timestamps.to_numpy()[row_numbers]

    @classmethod
    def of(cls, rows: TaskColumns, orders: Numbers) -> tuple[OrderedColumns, Numbers] | None:
        """Returns the rows and their orders; None for keys that have no codes."""
        codes = key_codes(rows.keys)
        if codes is None:
            return None
        row_numbers, orders = order_of(orders)
        return cls(rows, row_numbers, replace(codes, codes=codes.codes[row_numbers])), orders

    def ports(self) -> Numbers:
        ports: Numbers = self.batch.ports.to_numpy()[self.row_numbers]
        return ports

    def keys(self, row_numbers: Numbers) -> pa.StructArray:
        """Returns the keys of the rows at these places in the order."""
        return self.batch.keys.take(pa.array(self.row_numbers[row_numbers]))

    def update(
        self,
        row_numbers: Numbers,
        keys: pa.Array,
        values: tuple[pa.Array, ...],
        timestamps: pa.Array,
        orders: Numbers,
    ) -> UpdateColumns:
        """Returns updates, each with the headers and the origin of the row that caused it. `row_numbers`: the places of these
        rows in the order.
        """
        rows, chosen = self.batch, pa.array(self.row_numbers[row_numbers])
        origins = None if rows.origins is None else rows.origins.take(chosen)
        return UpdateColumns(keys, values, timestamps, rows.headers.take(chosen), orders, origins)


class OriginColumn:
    """The origins of rows, by source, partition and offset. Few are asked for, most often none."""

    def __init__(self, rows: TaskColumns | None = None) -> None:
        self._column = None if rows is None else rows.origins
        self._orders = None if rows is None else rows.orders
        self._rows: dict[tuple[int, ...], int] | None = None

    def get(self, coordinates: tuple[int, ...], /) -> Any:
        row = self._row_of().get(coordinates)
        return None if row is None or self._column is None else self._column[row].as_py()

    def take(self, coordinates_list: Iterable[tuple[int, ...]], kind: pa.DataType) -> pa.Array:
        """Returns the origins of rows, null where one is not known."""
        rows = pa.array([self._row_of().get(coordinates) for coordinates in coordinates_list], pa.int64())
        return pa.nulls(len(rows), kind) if self._column is None else self._column.take(rows).cast(kind)

    def _row_of(self) -> dict[tuple[int, ...], int]:
        if self._rows is None:
            orders = [] if self._orders is None or self._column is None else _lists(self._orders)
            self._rows = {tuple(order[1:4]): row for row, order in enumerate(orders)}
        return self._rows


def _lists(orders: pa.Array) -> list[list[int]]:
    matrix = lists_of_numbers(orders)
    lists: list[list[int]] = orders.to_pylist() if matrix is None else matrix.tolist()
    return lists


def _null_if_empty(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    if not pc.any(pc.greater(lengths, 0)).as_py():
        return pa.nulls(len(lists), lists.type)
    row_numbers = pa.array(range(len(lists)), pa.int64())
    return lists.take(pc.if_else(pc.equal(lengths, 0), None, row_numbers))


@dataclass(frozen=True, slots=True)
class UpdateColumns:
    """Updates of a processor: as `UpdateRow`, with their orders."""

    keys: pa.Array
    values: tuple[pa.Array, ...]
    timestamps: pa.Array
    headers: pa.Array
    orders: Numbers
    origins: pa.Array | None = None


def numbered(orders: Numbers, numbers: Numbers) -> Numbers:
    """Returns the orders of updates: of the rows that caused them, and their number among the row's."""
    return np.concatenate((orders, numbers.reshape(-1, 1)), axis=1)


def order_of(orders: Numbers) -> tuple[Numbers, Numbers]:
    """Sorts as `task.in_order` does; returns the places of the rows in their order, and the orders at these places."""
    by_partition = _sorted(orders[:, 1:])
    ordered = orders[by_partition]
    when = ordered[:, 0].copy()
    ends = np.flatnonzero((np.diff(ordered[:, 1:3], axis=0) != 0).any(axis=1)) + 1
    for part in np.split(when, ends):
        np.maximum.accumulate(part, out=part)
    ordered[:, 0] = when
    if len(ends) == 0:
        return by_partition, ordered
    by_time = np.argsort(when, kind="stable")
    return by_partition[by_time], ordered[by_time]


def _sorted(columns: Numbers) -> Numbers:
    """Returns the indices that sort the rows in ascending order. Rows that are in order already, as most are, cost little."""
    lowest = columns.min(axis=0)
    spans = [int(span) + 1 for span in columns.max(axis=0) - lowest]
    mixed = np.zeros(len(columns), np.int64)
    total = 1
    for index in range(len(spans)):
        total *= spans[index]
        if total > 1 << 62:
            return np.lexsort(tuple(columns[:, column] for column in reversed(range(columns.shape[1]))))
        mixed = mixed * spans[index] + (columns[:, index] - lowest[index])
    return np.argsort(mixed, kind="stable")


@dataclass(frozen=True, slots=True)
class KeyCodes:
    """The keys of rows, as numbers.

    `codes`: a number for each row, the same for equal keys, from 0 to `count`. `keys`: the keys by number, as dicts.
    """

    codes: Numbers
    keys: list[dict[str, Any]]
    columns: pa.StructArray
    """The same keys."""

    def entry_names(self, name: str) -> list[bytes]:
        """Returns the names of the keys' entries of state, as `CachedState.entry_name` makes them."""
        texts = _shown(self.columns)
        if texts is None:
            return [CachedState.entry_name(name, key) for key in self.keys]
        begin, end = (pa.scalar(part, pa.binary()) for part in (f"{name}/(".encode(), b",)"))
        nothing = pa.scalar(b"", pa.binary())
        names: list[bytes] = pc.binary_join_element_wise(begin, texts, end, nothing).to_pylist()
        return names

    def texts(self) -> list[str]:
        """Returns the texts of the keys, as `task.key_text` makes them."""
        texts = _shown(self.columns)
        if texts is None:
            return list(map(key_text, self.keys))
        begin, end, nothing = (pa.scalar(part, pa.binary()) for part in (b"(", b",)", b""))
        shown: list[str] = (
            pc.binary_join_element_wise(begin, texts, end, nothing).cast(pa.string()).to_pylist()
        )
        return shown


def _shown(keys: pa.StructArray) -> pa.Array | None:
    """Returns the `repr` of keys of one text or number; None where that takes Python."""
    if keys.type.num_fields != 1:
        return None
    (column,) = keys.flatten()
    if column.null_count:
        return None
    if pa.types.is_integer(column.type):
        return column.cast(pa.string()).cast(pa.binary())
    if (
        not pa.types.is_string(column.type)
        or not pc.all(pc.match_substring_regex(column, _PLAIN_TEXT)).as_py()
    ):
        return None
    quote = pa.scalar(b"'", pa.binary())
    return pc.binary_join_element_wise(quote, column.cast(pa.binary()), quote, pa.scalar(b"", pa.binary()))


def key_codes(keys: pa.StructArray) -> KeyCodes | None:
    """Returns the codes of keys; None for null keys, or types whose values do not compare as their Python values do."""
    kinds = [field.type for field in keys.type]
    if (
        keys.null_count
        or not kinds
        or not all(any(is_kind(kind) for is_kind in _KEY_KINDS) for kind in kinds)
    ):
        return None
    names = [field.name for field in keys.type]
    codes: Numbers | None = None
    for field in keys.flatten():
        encoded = pc.dictionary_encode(field, null_encoding="encode")
        numbers = encoded.indices.to_numpy().astype(np.int64)
        if len(names) == 1:
            distinct = pa.StructArray.from_arrays([encoded.dictionary], fields=list(keys.type))
            return KeyCodes(numbers, [{names[0]: value} for value in values_of(encoded.dictionary)], distinct)
        if codes is not None:
            numbers = np.unique(codes * len(encoded.dictionary) + numbers, return_inverse=True)[1]
        codes = numbers
    assert codes is not None
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    distinct = keys.take(pa.array(first))
    return KeyCodes(codes, values_of(distinct), distinct)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows with equal codes. `row_numbers` has the rows, group by group, in their order within each; group g is at
    `starts[g]` to `ends[g]` of them. `by_last` has the groups in the order of their last rows."""

    row_numbers: Numbers
    starts: Numbers
    ends: Numbers
    by_last: Numbers

    @classmethod
    def of(cls, codes: Numbers) -> Groups:
        """Groups rows, at least one, by their code."""
        row_numbers = np.argsort(codes, kind="stable")
        ordered = codes[row_numbers]
        edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        starts = np.concatenate(([0], edges))
        ends = np.concatenate((edges, [len(codes)]))
        return cls(row_numbers, starts, ends, np.argsort(row_numbers[ends - 1], kind="stable"))

    @property
    def last(self) -> Numbers:
        """The last row of each group."""
        return self.row_numbers[self.ends - 1]
