"""Logs that are made at the same time are made together: on one thread, in step, so that they share the syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from odradek.runtime.ports import Offload
from odradek.storage.files.steps import Steps, carry_out_together

T = TypeVar("T")

_PORTION: Final = 16
"""How many creations one task carries out together; other threads, if there are any, begin with the rest."""


class LogCreationBatch:
    """Creates logs together that are asked for in the same round of the event loop, on which it is used."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._waiting: list[tuple[Steps[Any], asyncio.Future[Any]]] = []
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def carry_out(self, steps: Steps[T]) -> T:
        """Runs the steps on another thread, together with others of this round, and returns their outcome."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._begin)
        self._waiting.append((steps, outcome))
        return await outcome

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _PORTION):
            portion = waiting[start : start + _PORTION]
            task = asyncio.get_running_loop().create_task(self._carry_out(portion))
            self._under_way[task] = None
            task.add_done_callback(lambda done: self._under_way.pop(done, None))

    async def _carry_out(self, together: Sequence[tuple[Steps[object], asyncio.Future[object]]]) -> None:
        outcomes: list[object]
        try:
            outcomes = await self._offload.run(carry_out_together, [steps for steps, _ in together])
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
