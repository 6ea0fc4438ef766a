"""The record of one run, as a hash: two runs of one seed must give the same."""

from __future__ import annotations

from collections.abc import Callable
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
