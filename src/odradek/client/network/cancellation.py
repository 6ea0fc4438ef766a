"""Work that must not stop half-way when the task that asked for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


def _never() -> bool:
    return False


async def to_its_end(
    work: Coroutine[object, None, T] | asyncio.Task[T],
    *,
    grace_s: float,
    may_stop: Callable[[], bool] = _never,
) -> T:
    """Awaits `work`. A cancellation of the caller lets it go on for `grace_s`, then cancels it too, and is raised last.

    So nothing of it runs any more when the cancellation reaches the caller, unless that is cancelled a second
    time. The work is cancelled without grace where `may_stop` returns true.
    """
    task = work if isinstance(work, asyncio.Task) else asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if may_stop():
            task.cancel()
        if not await has_ended(task, grace_s):
            task.cancel()
            await has_ended(task)
        raise


async def has_ended(task: asyncio.Task[object], timeout_s: float | None = None) -> bool:
    """Waits for the end of a task, whatever that is; False when it lasts longer than `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(asyncio.shield(task), return_exceptions=True)
    except TimeoutError:
        return task.done()
    return True
