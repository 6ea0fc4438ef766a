"""Events instead of sentences: `log.info("segment_rolled", partition="flights-0", base_offset=4096)`.

An event is a snake_case name and a few values. It travels through the standard library's `logging` under the logger
`odradek.<room>`, so that an application which embeds a broker treats it like any other log. `configure` installs the
broker process's own output: one line an event, either `key=value` text or JSON.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any, Final, TextIO

_ROOT: Final = "odradek"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+*[]%")


class Events:
    """The events of one room. Values may be anything with a `str`; bytes and secrets have no business here."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **values: Any) -> None:
        self._emit(logging.DEBUG, event, values)

    def info(self, event: str, **values: Any) -> None:
        self._emit(logging.INFO, event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._emit(logging.WARNING, event, values)

    def error(self, event: str, **values: Any) -> None:
        self._emit(logging.ERROR, event, values)

    def exception(self, event: str, **values: Any) -> None:
        """An error of our own making: the traceback goes into the log, at the root of a connection or a task only."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error(event, exc_info=True, extra={"odradek_values": values})

    def _emit(self, level: int, event: str, values: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"odradek_values": values})


def get(room: str) -> Events:
    """The events of `room`, e.g. `get("storage")`."""
    return Events(logging.getLogger(f"{_ROOT}.{room}"))


def configure(*, level: str = "INFO", json_lines: bool = False, stream: TextIO | None = None) -> None:
    """Send all events of this process to `stream` (standard error by default), one line each."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if json_lines else _TextFormatter())
    logger = logging.getLogger(_ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: object) -> str:
    text = str(value)
    if text and all(character in _PLAIN for character in text):
        return text
    return json.dumps(text, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = getattr(record, "odradek_values", {})
        room = record.name.removeprefix(f"{_ROOT}.")
        pairs = "".join(f" {key}={_text(value)}" for key, value in values.items())
        line = f"{_timestamp(record)} {record.levelname:<7} {room}: {record.getMessage()}{pairs}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = getattr(record, "odradek_values", {})
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix(f"{_ROOT}."),
            "event": record.getMessage(),
            **values,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
