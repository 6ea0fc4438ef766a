"""Work on logs: for one partition one step after another, for several partitions at the same time.

A step that takes long, because the disk does, delays the later steps of its own partition and nothing else. As long as fewer
than the bound are at work: then the others wait for one of them to end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.telemetry import events

T = TypeVar("T")
Step = Callable[[], Awaitable[None]]

_log = events.get("broker")


class PendingSteps:
    """Steps that belong together: one future for the end of all. Used on the event loop only."""

    def __init__(self) -> None:
        self._count = 0
        self._ended: asyncio.Future[None] | None = None

    def begin(self) -> None:
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        if not self._count and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def ended(self) -> asyncio.Future[None] | None:
        """Returns a future for the end of the steps; None when nothing is left to wait for."""
        if not self._count:
            return None
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        return self._ended


class _Queue:
    """Lanes that share a bound."""

    def __init__(self, at_once: int) -> None:
        self.at_once: Final = at_once
        self.ready: Final[deque[TopicPartition]] = deque()
        self.worker_count = 0


class PartitionLanes:
    """Runs steps of work in a lane for each partition: one after another within a partition, several partitions at a time.
    Used on the event loop only. A step that raises is logged, and `on_failed` is called; the next one follows."""

    def __init__(
        self, *, at_once: int, shared_at_once: int, on_failed: Callable[[TopicPartition, Exception], None]
    ) -> None:
        """Allows at most `shared_at_once` lanes whose steps share their syncs with each other, and `at_once` others, to work at
        the same time."""
        self._sharing = _Queue(shared_at_once)
        self._others = _Queue(at_once)
        self._on_failed = on_failed
        self._steps: dict[TopicPartition, list[tuple[Step, PendingSteps | None]]] = {}
        """The steps of each busy lane; the first is at work, or waits for a worker."""
        self._workers: dict[asyncio.Task[None], None] = {}
        self._is_over = False

    def is_busy(self, name: TopicPartition) -> bool:
        """Tells whether a step of the partition has not ended."""
        return name in self._steps

    @property
    def busy(self) -> list[TopicPartition]:
        return list(self._steps)

    def put(
        self, name: TopicPartition, step: Step, *, shares: bool = False, pending: PendingSteps | None = None
    ) -> None:
        """Does this after all that was put before for the partition. `shares`: it most likely shares its syncs with other
        partitions, as the making of a log does. Nothing happens after `close`."""
        if self._is_over:
            return
        if pending is not None:
            pending.begin()
        lane = self._steps.get(name)
        if lane is not None:
            lane.append((step, pending))
            return
        self._steps[name] = [(step, pending)]
        queue = self._sharing if shares else self._others
        queue.ready.append(name)
        if queue.worker_count < queue.at_once:
            queue.worker_count += 1
            worker = asyncio.get_running_loop().create_task(self._work(queue), name="change replicas")
            self._workers[worker] = None
            worker.add_done_callback(lambda done: self._workers.pop(done, None))

    async def run(self, name: TopicPartition, work: Callable[[], Awaitable[T]]) -> T:
        """Puts the work into the lane and returns, or raises, its outcome. It continues if the caller is cancelled."""
        if self._is_over:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker is stopping")
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.put(name, partial(_settle, outcome, work))
        try:
            return await outcome
        finally:
            del outcome  # its error's traceback has this frame: a cycle

    async def drain(self) -> None:
        """Return when nothing is left to do."""
        while self._workers:
            await asyncio.gather(*self._workers)

    async def close(self) -> None:
        """Let everything come to its end; nothing begins after that."""
        await self.drain()
        self._is_over = True

    async def _work(self, queue: _Queue) -> None:
        try:
            while queue.ready:
                await self._empty(queue.ready.popleft())
        finally:
            queue.worker_count -= 1

    async def _empty(self, name: TopicPartition) -> None:
        lane = self._steps[name]
        while lane:
            step, pending = lane[0]
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - what stops one partition must not stop the others
                _log.exception("partition_step_failed", partition=name)
                self._on_failed(name, error)
            del step, lane[0]
            if not lane:
                del self._steps[name]
            if pending is not None:
                pending.end()


async def _settle(outcome: asyncio.Future[T], work: Callable[[], Awaitable[T]]) -> None:
    """Do the work, and set `outcome` to what it comes to."""
    try:
        value = await work()
    except Exception as error:
        if outcome.cancelled():
            raise
        outcome.set_exception(error.as_outcome() if isinstance(error, OdradekError) else error)
    else:
        if not outcome.cancelled():
            outcome.set_result(value)
