"""Turns Spark's errors into one line: what is wrong, where, and what exists instead. The stack of the JVM helps no one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ConfigError, OdradekError
from odradek.model.exception_text import ERROR_OF_OURS
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyspark import errors, logger
else:
    errors = lazy("pyspark.errors")
    logger = lazy("pyspark.logger")

LINE_CHARS_MAX: Final = 1_000
_RAISED: Final = re.compile(r"^(?:[\w.]*\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_JAVA: Final = re.compile(r"^\s+at [\w.$/]+\(", re.MULTILINE)
_CODE: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_POSITION: Final = re.compile(r"[;.\s]*(?:\(line [0-9]+, pos [0-9]+\)|; line [0-9]+ pos [0-9]+)")
_HIDDEN: Final = re.compile(r"`__\w+`(?:\.`\w+`)?,? ?")
"""Columns of ours among those that Spark proposes."""
_QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_TRACEBACK: Final = "Traceback (most recent call last)"
_CAUSES: Final = re.compile(
    r"(?:Caused by: |^)(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (\[[A-Z0-9_.]+\] .+)", re.MULTILINE
)


class QueryFailedError(OdradekError):
    """A query ended with an error of Spark or of the program's code. The message is one line."""


@contextmanager
def in_one_line(where: str = "") -> Iterator[None]:
    """A context for calls of Spark. ConfigError for an expression or plan that Spark refuses, QueryFailedError for errors while
    it runs.
    """
    try:
        with _quiet_loggers():
            yield
    except errors.AnalysisException as error:
        raise ConfigError(_at(where, refusal(error))) from None
    except errors.PySparkException as error:
        raise QueryFailedError(_at(where, failure(str(error)))) from None


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Silences PySpark's log of errors in expressions: each is 10 kB of JSON with the stack of the JVM."""
    loggers = [logger.PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    loggers = [query_logger for query_logger in loggers if _nothing not in query_logger.filters]
    for query_logger in loggers:
        query_logger.addFilter(_nothing)
    try:
        yield
    finally:
        for query_logger in loggers:
            query_logger.removeFilter(_nothing)


def _nothing(record: object) -> bool:
    return False


def _at(where: str, line: str) -> str:
    return f"{where}: {line}" if where else line


def refusal(error: errors.AnalysisException) -> str:
    """Returns Spark's error about an expression. A syntax error is shown in its text."""
    message = str(error).strip()
    head = _POSITION.sub("", _cleaned(message.partition("\n")[0])).rstrip(". ")
    _, _, text = message.partition("== SQL ==\n")
    lines = text.splitlines()
    for line, below in pairwise(lines):
        if below.strip("-") == "^^^":
            return f"{head}\n  {line}\n  {' ' * below.index('^')}^"
    return head


def failure(text: str) -> str:
    """Returns a query's error in one line: our own error, the last line of a traceback, or Spark's error that caused it."""
    ours = ERROR_OF_OURS.search(text)
    if ours is not None:
        kind, message = ours["kind"], ours["message"]
        return _cut(message if kind in ("RecordFailedError", "ConfigError") else f"{kind}: {message}")
    if _TRACEBACK in text:
        raised = _RAISED.findall(_JAVA.split(text[text.rindex(_TRACEBACK) :])[0])
        if raised:
            return _cut(": ".join(raised[-1]))
    causes = _CAUSES.findall(text)
    if causes:
        return _cut(_cleaned(causes[-1]))
    lines = [line for line in text.splitlines() if line.strip()]
    return _cut(_cleaned(lines[0])) if lines else "it failed without a message"


def _cleaned(line: str) -> str:
    """Removes Spark's codes, and columns that no program has."""
    line = _STATE.sub("", _CODE.sub("", line.strip()))
    return _HIDDEN.sub("", line).replace(", ]", "]").rstrip(";, ")


def _cut(line: str) -> str:
    return " ".join(line.split())[:LINE_CHARS_MAX]
