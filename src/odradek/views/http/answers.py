"""The bodies of HTTP answers: one line of JSON for rows, for freshness, for errors. No I/O."""

from __future__ import annotations

import base64
import binascii
import json
import math
from datetime import datetime
from typing import Final

from odradek.client.network.errors import ClientClosedError
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.model.java_numbers import is_digits, whole_number
from odradek.views.freshness import Freshness
from odradek.views.reads import KeyRange, TableRow
from odradek.views.windows import WindowedKey

_STATUS_OF: Final = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}


def line(value: object) -> bytes:
    """Returns one line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def row_as_json(row: TableRow) -> dict[str, object]:
    """Returns a row as JSON: `key` and `value`, or `key_base64` and `value_base64` for bytes that are not text; `window`
    where there is one."""
    key = row.key
    document: dict[str, object] = {}
    if isinstance(key, WindowedKey):
        document |= _named("key", key.key) | {"window": {"start_ms": key.start_ms, "end_ms": key.end_ms}}
    else:
        document |= _named("key", key)
    return document | _named("value", row.value)


def _named(name: str, value: object) -> dict[str, object]:
    if isinstance(value, bytes):
        try:
            return {name: value.decode()}
        except UnicodeDecodeError:
            return {f"{name}_base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {name: str(value)}
    return {name: value}


def freshness_as_json(freshness: Freshness, how: str) -> dict[str, object]:
    """Returns a view's freshness as JSON. `how`: full, or brief: without partitions."""
    if how not in ("full", "brief"):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"freshness={how}: it is full or brief")
    document = freshness.as_json()
    if how == "brief":
        del document["partitions"]
    return document


def error_as_json(error: Exception) -> tuple[int, dict[str, object]]:
    """HTTP status and body: Kafka's code, its name and one sentence."""
    if isinstance(error, KafkaError):
        code, message = error.code, error.message
    elif isinstance(error, ClientClosedError):
        return 503, _error(ErrorCode.BROKER_NOT_AVAILABLE, str(error))
    elif isinstance(error, ConfigError):
        return 400, _error(ErrorCode.INVALID_REQUEST, str(error))
    elif isinstance(error, OdradekError):
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
    else:
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the server met an unexpected error; its log has more"
    return _STATUS_OF.get(code, 500), _error(code, message)


def _error(code: ErrorCode, message: str) -> dict[str, object]:
    return {"error": {"code": int(code), "name": code.name, "retriable": code.retriable, "message": message}}


# -- what clients write


def token_of(next_start: bytes | None) -> str | None:
    """Returns the token with which a client requests the next page; None after the last one."""
    return None if next_start is None else base64.urlsafe_b64encode(next_start).decode()


def continued(keys: KeyRange, token: str | None) -> KeyRange:
    """Returns the rest of a range. Raises INVALID_REQUEST for an invalid token, or one of another range."""
    if token is None:
        return keys
    try:
        start = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"token={token[:80]} is not one of ours") from None
    if start < keys.start:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"token={token[:80]} is of another range")
    return KeyRange(start, keys.end)


def limit_of(text: str | None, default: int, at_most: int) -> int:
    """Parses a limit. Raises INVALID_REQUEST outside of 1 to `at_most`."""
    if text is None:
        return default
    if not is_digits(text) or not 1 <= int(text[:10]) <= at_most:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"limit={text[:80]}: it is a number from 1 to {at_most}")
    return int(text)


def time_of(text: str | None, name: str) -> int | None:
    """Milliseconds since 1970, given as such or as ISO 8601 with a zone."""
    if text is None:
        return None
    try:
        return whole_number(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name}={text[:80]}: it is milliseconds since 1970, or a time with a zone (2013-07-04T12:00:00Z)",
        )
    return round(moment.timestamp() * 1000)
