"""Waits for a task that continues when its waiter is cancelled."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from odradek.model.errors import OdradekError

T = TypeVar("T")


async def outcome_of(task: asyncio.Task[T]) -> T:
    """Returns or raises the task's outcome. Cancelling the wait does not cancel the task. An OdradekError of a task without a
    waiter is not reported; any other error is, with its traceback."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(unheard)
        raise
    finally:
        del task  # its error's traceback has this frame: a cycle


def unheard(task: asyncio.Task[T]) -> None:
    """Handles the end of a task that perhaps nothing waits for, as its done callback: see `outcome_of`."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, OdradekError):
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a task failed that nothing waits for", "exception": error, "future": task}
        )
