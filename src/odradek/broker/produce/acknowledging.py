"""How long Produce requests wait for their disk and their replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from odradek.model.errors import KafkaError
from odradek.replication.partition import Partition


class PersistedTimes(Protocol):
    """Keeps how long appends waited for the disk, and for followers, in seconds."""

    def persisted(self, *, fsync_s: float, replicated_s: float | None) -> None: ...


class AppendWaits:
    """How long the appends of one request waited for the disk here, and then for followers."""

    __slots__ = ("_durable_at", "_is_replicated", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._is_replicated = False
        """Whether an append waits for followers, too."""
        self._durable_at = -1.0
        """The time when the last of the replicated appends was durable here; -1 if none was."""

    def watch(self, partition: Partition) -> None:
        """Notes when what was appended is durable here: the rest of its wait is for followers."""
        self._is_replicated = True
        flushed = partition.when_durable()
        if flushed is None:
            self._flushed()
        else:
            flushed.add_done_callback(self._flushed)

    def _flushed(self, future: asyncio.Future[None] | None = None) -> None:
        if future is not None and not future.cancelled():
            future.exception()  # the acknowledgement raises it, too
        self._durable_at = self._now()

    def note(self, figures: PersistedTimes, began: float) -> None:
        """Counts a wait that began then and is over now."""
        ended = self._now()
        durable_at = ended
        if self._is_replicated and self._durable_at >= 0:
            durable_at = min(max(self._durable_at, began), ended)
        figures.persisted(
            fsync_s=durable_at - began, replicated_s=ended - durable_at if self._is_replicated else None
        )


async def settled(future: asyncio.Future[None], timeout_ms: int) -> None:
    """Waits for one future without raising what it holds; cheaper than the general case."""
    if not future.done():
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(timeout_ms, 0) / 1000, future.cancel)
        try:
            await future
        except (KafkaError, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        finally:
            timer.cancel()


async def all_settled(futures: list[asyncio.Future[None]]) -> None:
    """Waits for all futures without raising what they hold."""
    await asyncio.gather(*futures, return_exceptions=True)
