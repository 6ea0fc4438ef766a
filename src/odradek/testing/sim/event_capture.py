"""Captures the broker's events while a world runs: they go into its trace, and an unexpected error into its verdict."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.testing.sim.trace import Trace


class _TraceHandler(logging.Handler):
    def __init__(self, trace: Trace, on_traceback: Callable[[str, BaseException], None]) -> None:
        super().__init__()
        self._trace = trace
        self._on_traceback = on_traceback

    def emit(self, record: logging.LogRecord) -> None:
        values = getattr(record, "odradek_values", {})
        text = " ".join(f"{key}={value}" for key, value in values.items())
        self._trace.remark(f"{record.levelname} {record.name} {record.getMessage()} {text}")
        if record.exc_info and record.exc_info[1] is not None:
            self._on_traceback(record.getMessage(), record.exc_info[1])


@contextmanager
def events_into(trace: Trace, on_traceback: Callable[[str, BaseException], None]) -> Iterator[None]:
    """Adds the package's log events to a kept trace (outside of its hash) while the context is open; prints none of them.

    An event that comes with a traceback is one that its author did not expect: `on_traceback` gets it.
    """
    logger = logging.getLogger("odradek")
    before = (logger.handlers[:], logger.propagate, logger.level)
    logger.handlers[:] = [_TraceHandler(trace, on_traceback)]
    logger.propagate = False
    logger.setLevel(logging.INFO if trace.lines is not None else logging.ERROR)
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before[:2]
        logger.setLevel(before[2])
