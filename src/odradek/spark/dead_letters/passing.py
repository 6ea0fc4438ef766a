"""Side outputs, in rows that pass through a plan to its sink: records in Arrow's stream format, or one that failed, as JSON.

Spark itself can write the JSON, so no operator need ask Python about good records:
`{"origin": {topic, partition, offset, timestamp, key, value, headers}, "exception", "message", "stage", "stacktrace"}`, with
bytes in base 64, the timestamp in milliseconds, and no stack trace where Python did not run.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from odradek.dead_letters.headers import RecordFailure
from odradek.spark.dead_letters.left_out import LeftOutRecords
from odradek.spark.dead_letters.letters import Letter, MicroBatch, letter_of, letter_rows

log: Final = logging.getLogger("odradek.spark")
LOGGED: Final = ""
"""Replaces a topic: the record is logged, and nothing is written."""
_JSON: Final = b"{"
"""Arrow's format begins with four bytes 0xFF."""


def passing_rows(
    rows: Iterable[tuple[str, pa.Buffer]], micro_batch: MicroBatch, left_out: LeftOutRecords | None = None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the records in rows (topic, records) that pass, by topic. Those that failed are dead letters, or go to
    `left_out`; its owner closes it. Without one, they are lines of the log."""
    letters: dict[str, list[Letter]] = {}
    for topic, records in rows:
        if topic == LOGGED:
            if left_out is None:
                log_failure(records)
            elif _is_failure(records):
                left_out.add(records)
        elif _is_failure(records):
            letters.setdefault(topic, []).append(_letter(records, micro_batch))
        else:
            with pa.ipc.open_stream(records) as stream:
                for batch in stream:
                    yield topic, batch
    for topic, of_topic in letters.items():
        yield topic, letter_rows(of_topic)


def log_failure(records: pa.Buffer) -> None:
    """Logs where and why a row failed that passes through. Logs nothing for rows with records."""
    if _is_failure(records):
        failure = json.loads(records.to_pybytes())
        origin = failure["origin"]
        coordinates = f"{origin['topic']}-{origin['partition']} offset {origin['offset']}"
        log.warning("left out: %s failed at %s: %s", failure["stage"], coordinates, failure["message"])


def failure_json(origin: Mapping[str, Any], failure: RecordFailure) -> bytes:
    """Returns the JSON in a row for a record that failed in Python. `origin` has the fields above, with bytes."""
    document = {
        "origin": {
            **origin,
            "key": _text(origin["key"]),
            "value": _text(origin["value"]),
            "headers": [
                {"key": header["key"], "value": _text(header["value"])} for header in origin["headers"] or ()
            ],
        },
        "exception": failure.exception,
        "message": failure.message,
        "stage": failure.stage,
        "stacktrace": failure.stacktrace,
    }
    return json.dumps(document).encode()


def _is_failure(records: pa.Buffer) -> bool:
    return bytes(memoryview(records)[:1]) == _JSON


def _letter(text: pa.Buffer, micro_batch: MicroBatch) -> Letter:
    failure = json.loads(text.to_pybytes())
    origin = failure["origin"]
    headers = [{"key": header["key"], "value": _data(header["value"])} for header in origin["headers"] or ()]
    record = {**origin, "key": _data(origin["key"]), "value": _data(origin["value"]), "headers": headers}
    return letter_of({**failure, **record}, origin["timestamp"], micro_batch)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
