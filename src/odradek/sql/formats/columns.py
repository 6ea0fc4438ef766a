"""What a format knows of a column."""

from __future__ import annotations

from typing import NamedTuple

from odradek.sql.types import SqlType


class FormatColumn(NamedTuple):
    """`name`: in records; `column`: in Spark."""

    name: str
    column: str
    type: SqlType
