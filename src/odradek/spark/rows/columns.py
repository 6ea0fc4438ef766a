"""The columns of a read: the same as in Spark's Kafka connector, with the same names, types and order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import compute as pc
else:
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COLUMN_NAMES: Final = (*DEFAULT_COLUMNS, "timestampMs", "headers", "record")
HEADERS_TYPE: Final = "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
"""Header names may repeat, so an array; a header's value may be null."""
RECORD_TYPE: Final = f"STRUCT<`key`: BINARY, `value`: BINARY, `headers`: {HEADERS_TYPE}>"
"""A record as it was read, in addition to what was decoded of it: what a dead letter is made of."""
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
    "timestampMs": "BIGINT",
    "headers": HEADERS_TYPE,
    "record": RECORD_TYPE,
    DEAD_LETTER: DEAD_LETTER_TYPE,
}

US_PER_MS: Final = 1_000
TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // US_PER_MS
"""The latest time, and the earliest before 1970, that a timestamp of Spark can hold: years 294247 and -290308. It counts
microseconds in 64 bits, where Kafka counts milliseconds.
"""


def spark_timestamps(milliseconds: pa.Array) -> pa.Array:
    """Times of records as timestamps; the nearest one where a timestamp cannot hold the time, so that order stays."""
    limited = pc.min_element_wise(pc.max_element_wise(milliseconds, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX)
    return pc.multiply(limited, US_PER_MS).cast(pa.timestamp("us", tz="UTC"))
