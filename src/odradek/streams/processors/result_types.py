"""The type of what an operator says: what code of the program's gives is fitted to it, record by record."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from odradek.model.lazy import lazy
from odradek.streams.processors.exact_values import Fitter, fitter

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")


@dataclass(slots=True)
class ResultType:
    """The type of a column. `is_partial`: it has some of the fields that a result has; the others fit as they are."""

    kind: pa.DataType
    is_partial: bool = False
    _fit: Fitter | None = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> tuple[pa.DataType, bool]:
        return self.kind, self.is_partial

    def __setstate__(self, state: tuple[pa.DataType, bool]) -> None:
        self.kind, self.is_partial = state
        self._fit = None

    def fitted(self, value: Any) -> Any:
        """The value as the type holds it, exactly. ValueError where the type cannot hold it."""
        if self._fit is None:
            self._fit = fitter(self.kind, is_partial=self.is_partial)
        try:
            return self._fit(value)
        except ValueError as error:
            raise ValueError(f"{value!s:.200} does not fit the type {self.kind!s:.200}: {error}") from None

    def fitted_before(self, value: Any) -> Any:
        """An earlier result. An earlier version of the program, with another type, may have kept one that does not fit."""
        try:
            return self.fitted(value)
        except ValueError:
            return pa.array([value], self.kind)[0].as_py()  # what it said then


@cache
def timestamp_type() -> ResultType:
    """Of a record's timestamp, in milliseconds."""
    return ResultType(pa.int64())


@cache
def headers_type() -> ResultType:
    """Of a record's headers."""
    return ResultType(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
