"""The columns of a read: those of Spark's Kafka connector, with the same names, types and order."""

from __future__ import annotations

from typing import Final

DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COLUMN_NAMES: Final = (*DEFAULT_COLUMNS, "headers")
HEADERS_TYPE: Final = "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
"""Header names may repeat, so an array; a header's value may be null."""

COLUMN_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ",
    "timestampType": "INT",
    "headers": HEADERS_TYPE,
}
