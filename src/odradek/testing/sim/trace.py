"""The record of one run, as a hash: two runs of one seed must give the same. The broker's events go into it, too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

_LINES_AT_ONCE: Final = 256


class Trace:
    """Hashes events as they happen; with `keep` it also holds them as lines, to show where two runs part."""

    __slots__ = ("_hash", "_now", "_unhashed", "event_count", "lines")

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = blake2b(digest_size=12)
        self._now: Callable[[], float] = float
        self._unhashed: list[str] = []
        self.event_count = 0
        self.lines: list[str] | None = [] if keep else None

    def timed_by(self, now: Callable[[], float]) -> None:
        """Stamp later events with `now()`."""
        self._now = now

    def stop_clock(self) -> None:
        """Stamps later events with the time of now. A trace that outlives its world holds nothing of it any more."""
        end_s = self._now()
        self._now = lambda: end_s

    def note(self, kind: str, *details: object) -> None:
        """Add an event. Details must print the same in every process: no ids, addresses, sets or
        default names.
        """
        line = f"{self._now():.9f} {kind} {details!r}\n"
        unhashed = self._unhashed
        unhashed.append(line)
        if len(unhashed) == _LINES_AT_ONCE:
            self._hash_lines()
        self.event_count += 1
        if self.lines is not None:
            self.lines.append(line)

    def remark(self, text: str) -> None:
        """Adds a line for people, kept with the others but no part of the hash."""
        if self.lines is not None:
            self.lines.append(f"{self._now():.9f} # {text}\n")

    def _hash_lines(self) -> None:
        self._hash.update("".join(self._unhashed).encode())
        self._unhashed.clear()

    def digest(self) -> str:
        self._hash_lines()
        return self._hash.hexdigest()


def first_difference(trace: Trace, other: Trace) -> str:
    """Describes the first event in which two kept traces differ, with a few lines before it."""
    left, right = trace.lines or [], other.lines or []
    limit = min(len(left), len(right))
    index = next((i for i in range(limit) if left[i] != right[i]), limit)
    before = "".join(left[max(0, index - 3) : index])
    mine = left[index] if index < len(left) else "(end)\n"
    theirs = right[index] if index < len(right) else "(end)\n"
    return f"event {index}:\n{before}first  > {mine}second > {theirs}"


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
