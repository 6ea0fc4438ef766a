"""What is asked for in one round of the event loop is done together, on another thread, so that its parts share the syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from odradek.runtime.ports import Offload

T = TypeVar("T")
R = TypeVar("R")


class OffloadedRounds(Generic[T, R]):
    """Gathers requests of a round, and has `work` do up to `portion` of them at a time. Used on the event loop.

    `work` blocks. It returns the outcome of each request, or its error, which does not affect the others. Other threads, if
    there are any, begin with the rest.
    """

    def __init__(
        self, offload: Offload, work: Callable[[Sequence[T]], Sequence[R | Exception]], *, portion: int
    ) -> None:
        self._offload = offload
        self._work = work
        self._portion = portion
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def carry_out(self, request: T) -> R:
        """Does the request with others of this round, and returns its outcome or raises its error."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[R] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._begin)
        self._waiting.append((request, outcome))
        return await outcome

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), self._portion):
            task = asyncio.get_running_loop().create_task(
                self._carry_out(waiting[start : start + self._portion])
            )
            self._under_way[task] = None
            task.add_done_callback(lambda done: self._under_way.pop(done, None))

    async def _carry_out(self, together: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        outcomes: Sequence[R | BaseException]
        try:
            outcomes = await self._offload.run(self._work, [request for request, _ in together])
        except asyncio.CancelledError:
            for _, waiting in together:
                waiting.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - it belongs to the waiters
            outcomes = [error] * len(together)
        for (_, waiting), outcome in zip(together, outcomes, strict=True):
            if waiting.done():
                continue
            if isinstance(outcome, BaseException):
                waiting.set_exception(outcome)
            else:
                waiting.set_result(outcome)
