"""Logs the refusals in responses: one event for each request, in every API.

Error codes sit where each API's response has them; which fields lead to one is worked out once for each class of response.
A client that repeats its mistake is not repeated in the log: one event a connection, API and code in `_QUIET_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, islice
from typing import Any, Final, NamedTuple

from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection
from odradek.protocol import Message, RequestHeader, Struct
from odradek.protocol.schema import ArrayKind, Kind, StructKind
from odradek.telemetry import events

_log = events.caused_by_peers("broker")
_QUIET_SECONDS: Final = 60.0
_LARGE_REFUSALS_MAX: Final = 100
_LARGE_VISITED_MAX: Final = 1000
_CODE: Final = "error_code"
_NAMES: Final = ("name", "topic", "resource_name", "log_dir", "topic_id")
_NO_MISTAKE: Final = frozenset(
    {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    }
)
"""Errors by which a protocol tells a client what to do next: they need no attention."""
_INDEXES: Final = ("partition_index", "index", "partition")


class UnfitResponse(Exception):
    """A handler's mistake: its response cannot be sent in the version that was asked for."""


class ResponseError(NamedTuple):
    """One error in a response: the struct that holds the code, and those around it."""

    path: tuple[Struct, ...]

    @property
    def code(self) -> ErrorCode:
        return ErrorCode.of(getattr(self.path[-1], _CODE))

    @property
    def reason(self) -> str:
        return getattr(self.path[-1], "error_message", None) or self.code.meaning

    @property
    def about(self) -> str:
        """The topic, partition or other thing that was asked for, as far as the response names it."""
        names = [value for struct in self.path if (value := _first(struct, _NAMES))]
        index = _first(self.path[-1], _INDEXES)
        return "-".join(str(part) for part in (*names[-1:], index) if part is not None)


def _first(struct: Struct, fields: tuple[str, ...]) -> object:
    return next((value for field in fields if (value := getattr(struct, field, None)) is not None), None)


def refusals(response: Message) -> list[ResponseError]:
    """Returns all errors in a response, in order."""
    response_errors: list[ResponseError] = []
    _collect(_ways(type(response)), (response,), response_errors)
    return response_errors


def log_refusals(
    connection: Connection, header: RequestHeader, api: str, response: Message, now: Callable[[], float]
) -> list[ResponseError]:
    """Logs one event if the response refuses anything, with the first and how many more there are. Returns all of them."""
    if response_errors := refusals(response):
        _log_found(connection, header, api, response_errors, now)
    return response_errors


def log_first_refusals(
    connection: Connection, header: RequestHeader, api: str, response: Message, now: Callable[[], float]
) -> list[ResponseError]:
    """Does the same for a large response, of which only the beginning is looked at."""
    response_errors = list(
        islice(_first_refusals(_ways(type(response)), (response,), count()), _LARGE_REFUSALS_MAX)
    )
    if response_errors:
        _log_found(connection, header, api, response_errors, now)
    return response_errors


def _first_refusals(
    ways: _ErrorPaths, path: tuple[Struct, ...], visited: Iterator[int]
) -> Iterator[ResponseError]:
    struct = path[-1]
    if ways.here and getattr(struct, _CODE):
        yield ResponseError(path)
    for name, inner in ways.structs:
        if (value := getattr(struct, name)) is not None:
            yield from _first_refusals(inner, (*path, value), visited)
    for name, inner in ways.arrays:
        for value in getattr(struct, name) or ():
            if next(visited) >= _LARGE_VISITED_MAX:
                return
            yield from _first_refusals(inner, (*path, value), visited)


def _log_found(
    connection: Connection,
    header: RequestHeader,
    api: str,
    errors: list[ResponseError],
    now: Callable[[], float],
) -> None:
    first = next(
        (response_error for response_error in errors if response_error.code not in _NO_MISTAKE), None
    )
    if first is None:
        return
    mistake = (header.api_key, int(first.code))
    moment = now()
    if moment - connection.reported.get(mistake, moment - _QUIET_SECONDS) < _QUIET_SECONDS:
        return
    connection.reported[mistake] = moment
    values: dict[str, object] = {"about": first.about} if first.about else {}
    if len(errors) > 1:
        values["more"] = len(errors) - 1
    _log.info(
        "request_refused",
        peer=connection.peer,
        client=header.client_id or "",
        api=api,
        version=header.api_version,
        code=first.code.name,
        reason=first.reason,
        **values,
    )


class _ErrorPaths(NamedTuple):
    """The paths from a struct to the error codes in it."""

    here: bool
    structs: tuple[tuple[str, Any], ...]
    arrays: tuple[tuple[str, Any], ...]

    def __bool__(self) -> bool:
        return self.here or bool(self.structs) or bool(self.arrays)


@cache
def _ways(cls: type[Struct]) -> _ErrorPaths:
    structs, arrays, here = [], [], False
    for field in cls.FIELDS:
        kind = field.kind
        if field.name == _CODE:
            here = True
        elif isinstance(kind, ArrayKind):
            if ways := _ways_into(kind.element):
                arrays.append((field.name, ways))
        elif ways := _ways_into(kind):
            structs.append((field.name, ways))
    return _ErrorPaths(here, tuple(structs), tuple(arrays))


def _ways_into(kind: Kind[object]) -> _ErrorPaths | None:
    if not isinstance(kind, StructKind):
        return None
    cls: type[Struct] = kind.cls
    return _ways(cls)


def _collect(ways: _ErrorPaths, path: tuple[Struct, ...], errors: list[ResponseError]) -> None:
    """Adds the errors of a struct and of what it holds. Nearly all structs of a response are leaves without an error, so a call
    for each would be most of the cost."""
    struct = path[-1]
    if ways.here and getattr(struct, _CODE):
        errors.append(ResponseError(path))
    for name, inner in ways.structs:
        if (value := getattr(struct, name)) is not None:
            _collect(inner, (*path, value), errors)
    for name, inner in ways.arrays:
        is_leaf = not inner.structs and not inner.arrays
        for value in getattr(struct, name) or ():
            if not is_leaf:
                _collect(inner, (*path, value), errors)
            elif value.error_code:
                errors.append(ResponseError((*path, value)))
