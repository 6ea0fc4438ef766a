"""The columns of a read: those of Spark's Kafka connector, with the same names, types and order."""

from __future__ import annotations

from typing import Final

DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COLUMN_NAMES: Final = (*DEFAULT_COLUMNS, "headers", "record")
HEADERS_TYPE: Final = "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
"""Header names may repeat, so an array; a header's value may be null."""
RECORD_TYPE: Final = f"STRUCT<`key`: BINARY, `value`: BINARY, `headers`: {HEADERS_TYPE}>"
"""A record as it was read, beside what was decoded of it: what a dead letter is made of."""
DEAD_LETTER: Final = "deadLetter"
DEAD_LETTER_FIELDS: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ",
    "key": "BINARY",
    "value": "BINARY",
    "headers": HEADERS_TYPE,
    "stage": "STRING",
    "exception": "STRING",
    "message": "STRING",
    "stacktrace": "STRING",
}
"""The column `deadLetter`: null in good rows; in others the record as it was, and what went wrong with it."""
DEAD_LETTER_TYPE: Final = (
    f"STRUCT<{', '.join(f'`{name}`: {kind}' for name, kind in DEAD_LETTER_FIELDS.items())}>"
)

COLUMN_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ",
    "timestampType": "INT",
    "headers": HEADERS_TYPE,
    "record": RECORD_TYPE,
    DEAD_LETTER: DEAD_LETTER_TYPE,
}
