"""A batch's rows are added to the aggregates of their groups, all groups at once; their results are made as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from odradek.spark.rows.result_types import ResultType
from odradek.streams.processors.aggregate import ColumnFold, GroupFold
from odradek.streams.processors.columns import Numbers
from odradek.streams.processors.ports import ColumnLists, Fields
from odradek.streams.processors.python_values import values_of


class FoldError(Exception):
    """A fold cannot add a value of a batch, or its result does not fit. Processing row by row then finds and handles it."""


class GroupValues:
    """The arguments of rows that are grouped: group g has those at `starts[g]` to `ends[g]` of `row_numbers`, which are places
    in `arguments`.
    """

    def __init__(
        self, arguments: pa.StructArray, row_numbers: Numbers, starts: Numbers, ends: Numbers
    ) -> None:
        self._arguments = arguments
        self._row_numbers = row_numbers
        self._starts = starts
        self._ends = ends
        self._lists: dict[str, list[Any]] = {}

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each group in the lists of `values`."""
        return list(zip(self._starts.tolist(), self._ends.tolist(), strict=True))

    def values(self, name: str) -> list[Any]:
        """Returns the values of an argument, group by group."""
        if name not in self._lists:
            self._lists[name] = values_of(self._column(name).take(pa.array(self._row_numbers)))
        return self._lists[name]

    def lists(self) -> ColumnLists:
        """Returns the values of all arguments."""
        return {field.name: self.values(field.name) for field in self._arguments.type}

    def present_counts(self, name: str) -> list[int]:
        """Returns how many values of an argument in each group are not null. UnreadableValueError where Python cannot hold one:
        its record fails.
        """
        column = self._column(name)
        if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
            self.values(name)
        if not column.null_count:
            counts = self._ends - self._starts
        else:
            is_present = column.is_valid().to_numpy(zero_copy_only=False)[self._row_numbers]
            sums = np.concatenate(([0], np.cumsum(is_present)))
            counts = sums[self._ends] - sums[self._starts]
        numbers: list[int] = counts.tolist()
        return numbers

    def _column(self, name: str) -> pa.Array:
        return self._arguments.flatten()[self._arguments.type.get_field_index(name)]


@dataclass(frozen=True, slots=True)
class Folding:
    """A fold, and the type of its results. What it raises is a FoldError here."""

    fold: ColumnFold | GroupFold
    result_type: ResultType | None

    def add_groups(self, keys: list[Fields], aggregates: list[Any], values: GroupValues) -> list[Any]:
        """Returns the aggregate of each group with the group's values added. An aggregate may be changed in place."""
        try:
            if isinstance(self.fold, GroupFold):
                return self.fold.add_groups(aggregates, values)
            lists, add_all = values.lists(), self.fold.add_all
            return [
                add_all(key, aggregate, lists, start, end)
                for key, aggregate, (start, end) in zip(keys, aggregates, values.spans, strict=True)
            ]
        except Exception as error:
            raise FoldError from error

    def results(self, aggregates: list[Any], kind: pa.DataType) -> pa.Array:
        """Returns the result of each aggregate."""
        try:
            columns = self._result_columns(aggregates, kind)
            if columns is not None:
                return columns
            results = map(self.fold.result, aggregates)
            fitted = results if self.result_type is None else map(self.result_type.fitted, results)
            return pa.array(list(fitted), kind)
        except Exception as error:
            raise FoldError from error

    def results_before(self, aggregates: list[Any], kind: pa.DataType) -> pa.Array:
        """Returns the results that aggregates had. An earlier version may have kept some that do not fit."""
        try:
            columns = self._result_columns(aggregates, kind)
            if columns is not None:
                return columns
            results = map(self.fold.result, aggregates)
            fitted = results if self.result_type is None else map(self.result_type.fitted_before, results)
            return pa.array(list(fitted), kind)
        except Exception as error:
            raise FoldError from error

    def _result_columns(self, aggregates: list[Any], kind: pa.DataType) -> pa.StructArray | None:
        """Returns the results, column by column; None where each of them must be fitted, or a fold has no columns."""
        fits_as_it_is = self.result_type is None or (
            self.result_type.is_partial and not self.result_type.kind.num_fields
        )
        if not isinstance(self.fold, GroupFold) or not fits_as_it_is:
            return None
        is_there = [aggregate is not None for aggregate in aggregates]
        columns = self.fold.result_columns([aggregate for aggregate in aggregates if aggregate is not None])
        if not pa.types.is_struct(kind) or not columns or list(columns) != [field.name for field in kind]:
            return None
        arrays = [pa.array(columns[field.name], field.type) for field in kind]
        results = pa.StructArray.from_arrays(arrays, fields=list(kind))
        if all(is_there):
            return results
        rows = np.cumsum(is_there) - 1
        return results.take(pa.array(rows, mask=~np.array(is_there, bool)))
