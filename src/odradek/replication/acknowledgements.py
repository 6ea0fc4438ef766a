"""Waiters until a record is below the high watermark, and until a flush has ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from odradek.model.errors import ErrorContent
from odradek.runtime.prompt import PromptFuture

_Waiting = asyncio.Future[None] | PromptFuture[None]


class Acknowledgements:
    """Futures in the order of the offsets that they wait for."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, _Waiting]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait(self, last_offset: int) -> asyncio.Future[None]:
        """Returns a future for the moment when `last_offset` is below the mark."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(last_offset, future)
        return future

    def wait_promptly(self, last_offset: int) -> PromptFuture[None]:
        """Returns a future that calls back within `reached`."""
        future: PromptFuture[None] = PromptFuture()
        self._add(last_offset, future)
        return future

    def _add(self, last_offset: int, future: _Waiting) -> None:
        if self._waiting and self._waiting[-1][0] > last_offset:
            # A duplicate of an earlier batch that waits, too: keep the queue in order.
            waiting = [*self._waiting, (last_offset, future)]
            self._waiting = deque(sorted(waiting, key=lambda entry: entry[0]))
        else:
            self._waiting.append((last_offset, future))

    def reached(self, offset: int) -> None:
        """Answers waiters: the mark is at `offset`."""
        while self._waiting and self._waiting[0][0] < offset:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    def refuse(self, refusal: ErrorContent) -> None:
        """Refuses all waiters with the error."""
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(refusal.error())


class FlushEnd:
    """The end of a partition's flush under way, and the calls that wait for it."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] | None = None
        """None while nothing is flushed."""

    def begin(self) -> None:
        """Notes that a flush has begun."""
        self._waiting = []

    def reach(self) -> None:
        """Makes the calls: the flush has ended, and what they append shares the next one."""
        waiting, self._waiting = self._waiting, None
        for call in waiting or ():
            call()

    def try_wait(self, call: Callable[[], None]) -> bool:
        """Calls `call` when the flush has ended, before the next begins. Returns False, and never calls, without a flush."""
        if self._waiting is None:
            return False
        self._waiting.append(call)
        return True
