"""Blocking work that is done piece by piece, so that whoever drives it can wait, stop, or let others have the thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import final


class Abandoned(Exception):
    """The log was closed or deleted meanwhile: its directory may be another's by now."""


class Pieces(ABC):
    """`advance` on any thread, one call at a time, until it says that all is done; `close` in any case."""

    def __init__(self) -> None:
        self.moved_bytes = 0
        """Read and written so far."""
        self._work: Iterator[None] | None = None

    @abstractmethod
    def _steps(self) -> Iterator[None]:
        """The work; between two steps it may be left."""

    @final
    def advance(self, piece_bytes: int) -> bool:
        """Go on for about so many bytes; True when all is done."""
        if self._work is None:
            self._work = self._steps()
        until = self.moved_bytes + piece_bytes
        return all(self.moved_bytes < until for _ in self._work)

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""
