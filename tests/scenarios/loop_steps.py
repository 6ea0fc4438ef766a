"""Counts what callbacks of the event loop do, in steps rather than seconds: how busy the machine is changes nothing.

A step is a call of a function or its return; those of compiled functions count, too. The broker's turns are measured in steps
as well. So a callback of work that takes turns has little more than `TURN_STEPS`, and one that does all of it in one go has as
many as there is work.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from odradek.runtime.turns import SLICE_SECONDS, Turns

TURN_STEPS: Final = 10_000
HELD_STEPS_MAX: Final = 3 * TURN_STEPS
"""In one callback: a turn, and the step that ends it."""


class LoopSteps:
    """`turns` stands in for the broker's own class."""

    def __init__(self) -> None:
        self._count = 0
        self.longest: list[tuple[int, str]] = []
        """The callbacks that took more than a turn: their steps, and which they were; the longest first."""

    def turns(self, now: object) -> Turns:
        return Turns(lambda: self._count * SLICE_SECONDS / TURN_STEPS)

    @property
    def most(self) -> int:
        """Of one callback."""
        return self.longest[0][0] if self.longest else 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Within, this thread's callbacks are counted. The collector is off: it would finalize in one what others left."""
        real = asyncio.Handle._run
        counted_thread = threading.get_ident()
        gc.collect()
        gc.disable()

        def run(handle: asyncio.Handle) -> None:
            if threading.get_ident() != counted_thread:
                return real(handle)
            before = self._count
            sys.setprofile(self._note)
            try:
                real(handle)
            finally:
                sys.setprofile(None)
                count = self._count - before
                if count > TURN_STEPS:
                    self.longest = sorted([*self.longest, (count, repr(handle)[:300])], reverse=True)[:3]

        asyncio.Handle._run = run  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = real  # type: ignore[method-assign]
            gc.enable()

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        self._count += 1
