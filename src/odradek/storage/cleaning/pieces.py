"""Blocking work that is done piece by piece, so that its driver can wait, stop, or let others have the thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol


class Abandoned(Exception):
    """The log was closed or deleted meanwhile: its directory may be another's by now."""


class IncrementalWork(Protocol):
    """Work that can be left between two steps."""

    @property
    def moved_bytes(self) -> int:
        """Read and written so far."""

    def steps(self) -> Iterator[None]:
        """Does the work, once. Blocks, on any thread."""

    def close(self) -> None:
        """Closes the files, wherever the work stopped."""


class IncrementalRun:
    """Runs incremental work piece by piece: call `advance` on any thread, one call at a time, until it returns True."""

    def __init__(self, work: IncrementalWork) -> None:
        self._work: Final = work
        self._steps: Iterator[None] | None = None

    def advance(self, piece_bytes: int) -> bool:
        """Continues for about `piece_bytes` bytes; returns True when all is done."""
        if self._steps is None:
            self._steps = self._work.steps()
        until = self._work.moved_bytes + piece_bytes
        return all(self._work.moved_bytes < until for _ in self._steps)


class CleanerThrottle:
    """How long compaction must wait to stay below its share of the disk: one for all its threads. Pure.

    Bytes read and written count alike.
    """

    __slots__ = ("_free_at",)

    def __init__(self) -> None:
        self._free_at = 0.0

    def delay(self, moved_bytes: int, bytes_per_second: float, now: float) -> float:
        """Seconds to wait after this many bytes were moved; `now` in seconds on a clock that never goes back."""
        self._free_at = max(self._free_at, now) + moved_bytes / bytes_per_second
        return self._free_at - now
