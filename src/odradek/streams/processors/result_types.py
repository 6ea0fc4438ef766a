"""The type of what an operator says: what code of the program's gives is fitted to it, record by record."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

EXACT: Final = Context(prec=76, rounding=ROUND_HALF_UP)
"""For decimals: Python's own context keeps 28 digits, and a column has up to 38, as does what is added to it."""


@dataclass(frozen=True, slots=True)
class ResultType:
    """Of a column. Decimals are rounded to its scale, half up."""

    kind: pa.DataType

    def rounded(self, value: Any) -> Any:
        return _rounded(value, self.kind) if _has_decimals(self.kind) else value

    def fitted(self, value: Any) -> Any:
        """ValueError where the type cannot hold it."""
        try:
            fitting = self.rounded(value)
            pa.array([fitting], self.kind)
        except Exception as error:
            raise ValueError(f"{value!s:.200} does not fit the type {self.kind!s:.200}: {error}") from error
        return fitting


@cache
def timestamp_type() -> ResultType:
    """Of a record's timestamp, in milliseconds."""
    return ResultType(pa.int64())


@cache
def headers_type() -> ResultType:
    """Of a record's headers."""
    return ResultType(pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(place).type) for place in range(kind.num_fields))


def _rounded(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, Decimal) and pa.types.is_decimal(kind) and value.is_finite():
        return value.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT)
    if isinstance(value, dict) and pa.types.is_struct(kind):
        fitted = {
            field.name: _rounded(value[field.name], field.type) for field in kind if field.name in value
        }
        return {**value, **fitted}
    if isinstance(value, (list, tuple)) and pa.types.is_list(kind):
        return [_rounded(element, kind.value_type) for element in value]
    if isinstance(value, dict) and pa.types.is_map(kind):
        return {name: _rounded(element, kind.item_type) for name, element in value.items()}
    return value
