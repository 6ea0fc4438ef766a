"""Values of columns as Python holds them, and rows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

SqlValue: TypeAlias = (
    "str | float | bytes | bytearray | Decimal | Sequence[SqlValue] | Mapping[str, SqlValue] | None"
)
"""The value of a column: a list for an ARRAY, a dict for a MAP or a STRUCT. A DATE, TIME or TIMESTAMP is a number here, as in
records.
"""
Row: TypeAlias = Mapping[str, SqlValue]
"""Values by the names of their columns."""
