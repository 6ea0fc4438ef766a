"""A record's time in Spark SQL, from a TIMESTAMP column and its TIMESTAMP_FORMAT."""

from __future__ import annotations

from odradek.sql.analysis.typed_text import quoted
from odradek.sql.metastore.catalog import SqlSource
from odradek.values.errors import SqlError
from odradek.values.types import SqlType


def timestamp_text(source: SqlSource) -> str:
    """Returns the expression of a record's milliseconds, over the columns of the source's own records."""
    assert source.timestamp is not None
    columns = [(column, f"key_{index}") for index, column in enumerate(source.key)]
    columns += [(column, f"value_{index}") for index, column in enumerate(source.value)]
    for column, text in columns:
        if column.name == source.timestamp.name:
            return f"coalesce({milliseconds(text, column.type, source.timestamp.format)}, _timestamp)"
    raise SqlError(f"the TIMESTAMP column {source.timestamp.name} of {source.name} does not exist")


def milliseconds(text: str, kind: SqlType, pattern: str | None) -> str:
    """Returns the expression of a column's milliseconds. Raises SqlError for a column that holds no time."""
    if kind.kind == "BIGINT":
        return text
    if kind.kind == "TIMESTAMP":
        return f"unix_millis({text})"
    if kind.kind == "STRING" and pattern is not None:
        return f"unix_millis(try_to_timestamp({text}, {quoted(pattern)}))"
    if kind.kind == "STRING":
        raise SqlError("a TIMESTAMP column that is a STRING needs TIMESTAMP_FORMAT")
    raise SqlError(f"a TIMESTAMP column is a BIGINT, a TIMESTAMP or a STRING, not a {kind}")
