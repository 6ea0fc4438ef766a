"""Events instead of sentences: `log.info("segment_rolled", partition="flights-0", base_offset=4096)`.

An event is a snake_case name and a few values. It travels through the standard library's `logging` under the logger
`odradek.<room>`, so that an application which embeds a broker treats it like any other log. `configure` installs the
broker process's own output: one line an event, either `key=value` text or JSON.
"""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Mapping
from typing import Final, TextIO

from odradek.model.safe_text import safe_json, safe_line, safe_lines
from odradek.telemetry.limiting import LINES_AT_ONCE, Cause, LineLimiter

_ROOT: Final = "odradek"
_ASYNCIO: Final = "asyncio"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+*[]%")


class _Line:
    """An event and its values: what a handler of the application writes."""

    __slots__ = ("_values", "event")

    def __init__(self, event: str, values: Mapping[str, object]) -> None:
        self.event = event
        self._values = values

    def __str__(self) -> str:
        return self.event + _pairs(self._values)


class Events:
    """The events of one room. Values may be anything with a `str`; bytes and secrets have no business here."""

    __slots__ = ("_is_limited", "_logger")

    def __init__(self, logger: logging.Logger, *, is_limited: bool = False) -> None:
        self._logger = logger
        self._is_limited = is_limited

    def debug(self, event: str, **values: object) -> None:
        self._emit(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        self._emit(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        self._emit(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        self._emit(logging.ERROR, event, values)

    def exception(self, event: str, **values: object) -> None:
        """Logs an error of our own with its traceback, at the root of a connection or a task only."""
        if self._logger.isEnabledFor(logging.ERROR):
            extra = {"odradek_values": values, "odradek_limited": self._is_limited}
            self._logger.error(_Line(event, values), exc_info=True, extra=extra)

    def _emit(self, level: int, event: str, values: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"odradek_values": values, "odradek_limited": self._is_limited}
            self._logger.log(level, _Line(event, values), extra=extra)


def get(room: str) -> Events:
    """Returns the events of `room`, e.g. `get("storage")`. None of them is ever dropped: see `caused_by_peers`."""
    return Events(logging.getLogger(f"{_ROOT}.{room}"))


def caused_by_peers(room: str) -> Events:
    """Events of `room` that any client of a listener can cause as often as it likes, by what it asks or by how it behaves.

    In a broker's own output there is a limit of their number, for each event and address. The log reports how
    many were dropped.
    """
    return Events(logging.getLogger(f"{_ROOT}.{room}"), is_limited=True)


def configure(
    *,
    level: str = "INFO",
    json_lines: bool = False,
    stream: TextIO | None = None,
    peer_lines_max: int = LINES_AT_ONCE,
    node: int | None = None,
) -> None:
    """Sends all events of this process to `stream` (standard error by default), one line each. `peer_lines_max`: of one event,
    caused by one address, at once; 0 for no limit. `node`: the broker's id, for every line of a log that several share."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter(node) if json_lines else _TextFormatter(node))
    if peer_lines_max:
        handler.addFilter(_LineLimitFilter(handler, peer_lines_max))
    logger = logging.getLogger(_ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    # asyncio's log lines about failed requests, connections and tasks go the same way, and within a limit.
    logging.getLogger(_ASYNCIO).handlers[:] = [handler]


class _LineLimitFilter(logging.Filter):
    """Drops the lines that `LineLimiter` refuses, and writes its reports about them. The clock is the
    records' time."""

    def __init__(self, handler: logging.Handler, lines_max: int) -> None:
        super().__init__()
        self._handler = handler
        self._limiter = LineLimiter(burst=lines_max)

    def filter(self, record: logging.LogRecord) -> bool:
        for cause, overdue_count in self._limiter.overdue(record.created):
            self._log_suppressed(record, cause, overdue_count)
        if not getattr(record, "odradek_limited", record.name == _ASYNCIO):
            return True
        values: dict[str, object] = getattr(record, "odradek_values", {})
        host = str(values.get("peer", "")).rpartition(":")[0]
        event = event_of(record).partition("\n")[0]
        dropped_count = self._limiter.admit(Cause(record.name, event, host), record.created)
        if dropped_count is None:
            return False
        if dropped_count:
            values["suppressed"] = dropped_count
            record.odradek_values = values
        return True

    def _log_suppressed(self, occasion: logging.LogRecord, cause: Cause, dropped_count: int) -> None:
        line = logging.LogRecord(cause.room, logging.WARNING, "", 0, "events_suppressed", None, None)
        line.created = occasion.created
        values: dict[str, object] = {"of": cause.event, "suppressed": dropped_count}
        if cause.host:
            values["host"] = cause.host
        line.odradek_values = values
        self._handler.emit(line)


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: object) -> str:
    text = str(value)
    if text and all(character in _PLAIN for character in text):
        return text
    return safe_json(text)


def _pairs(values: Mapping[str, object]) -> str:
    return "".join(f" {key}={_text(value)}" for key, value in values.items())


def event_of(record: logging.LogRecord) -> str:
    """Returns the name of a record's event; of another's record, its message."""
    return record.msg.event if isinstance(record.msg, _Line) else record.getMessage()


class _EventFormatter(logging.Formatter):
    def __init__(self, node: int | None = None) -> None:
        super().__init__()
        self._of_all: Final[dict[str, object]] = {} if node is None else {"node": node}

    def _values(self, record: logging.LogRecord) -> dict[str, object]:
        return {**getattr(record, "odradek_values", {}), **self._of_all}


class _TextFormatter(_EventFormatter):
    def format(self, record: logging.LogRecord) -> str:
        values = self._values(record)
        room = record.name.removeprefix(f"{_ROOT}.")
        line = f"{_timestamp(record)} {record.levelname:<7} {room}: {safe_line(event_of(record))}{_pairs(values)}"
        if record.exc_info:
            # Indented, so that no line of an error's text looks like an event.
            line += "".join(
                f"\n  {part}" for part in safe_lines(self.formatException(record.exc_info)).split("\n")
            )
        return line


class _JsonFormatter(_EventFormatter):
    def format(self, record: logging.LogRecord) -> str:
        values = self._values(record)
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix(f"{_ROOT}."),
            "event": event_of(record),
            **values,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return safe_json(line, default=str)
