"""Where the broker's events go while a world runs: into its trace, or nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.testing.sim.trace import Trace


class _TraceHandler(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        values = getattr(record, "odradek_values", {})
        text = " ".join(f"{key}={value}" for key, value in values.items())
        self._trace.remark(f"{record.levelname} {record.name} {record.getMessage()} {text}")


@contextmanager
def events_into(trace: Trace) -> Iterator[None]:
    """Within, what the package logs is added to a kept trace (outside of its hash), and printed nowhere."""
    logger = logging.getLogger("odradek")
    before = (logger.handlers[:], logger.propagate, logger.level)
    logger.handlers[:] = [_TraceHandler(trace)]
    logger.propagate = False
    logger.setLevel(logging.INFO if trace.lines is not None else logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before[:2]
        logger.setLevel(before[2])
