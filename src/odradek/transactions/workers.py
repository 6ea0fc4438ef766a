"""One worker per shard takes what the machine cannot do itself: it aborts what is overdue, and ends what was decided."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from odradek.model.errors import KafkaError
from odradek.shards import Moment, Outcome, Shard, Shards
from odradek.telemetry import events
from odradek.transactions.decisions import ProducerIdRequired
from odradek.transactions.finisher import Finisher
from odradek.transactions.machine import TransactionMachine
from odradek.transactions.work import Overdue, Prepared, Work

_log = events.caused_by_peers("transactions")
T = TypeVar("T")
Decision = Callable[[TransactionMachine, Moment, int | None], Outcome[T]]
"""An operation that may need a fresh producer id, the third argument: None at first."""

_AGAIN_SECONDS_MIN: Final = 0.02
_AGAIN_SECONDS_MAX: Final = 0.5
_FINISHING_MAX: Final = 2_000
"""Transactions of one shard whose markers are under way at once; the next wait until one of them is complete."""


async def decided(
    find: Callable[[], Shard[TransactionMachine]],
    decision: Decision[T],
    next_producer_id: Callable[[], Awaitable[int]],
) -> T:
    """Runs the decision on the shard, once more with a fresh producer id if it turns out to need one."""
    try:
        return await find().execute(lambda machine, now: decision(machine, now, None))
    except ProducerIdRequired:
        fresh = await next_producer_id()
    return await find().execute(lambda machine, now: decision(machine, now, fresh))


class Workers:
    """Runs one worker for each shard of transactions. Used on the event loop only."""

    def __init__(
        self,
        shards: Shards[TransactionMachine],
        finisher: Finisher,
        next_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._shards = shards
        self._finisher = finisher
        self._next_producer_id = next_producer_id
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._room: dict[int, asyncio.Semaphore] = {}
        self._finishing: dict[tuple[int, str], tuple[tuple[int, int], asyncio.Task[None]]] = {}
        """(shard, transactional id) -> the leader epoch and the offset of the decision, and who carries it out."""
        self._aborting: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._closed = False

    def start_worker(self, index: int) -> None:
        """Starts the shard's worker unless it runs. The worker stops by itself when the shard is closed."""
        worker = self._workers.get(index)
        if not self._closed and (worker is None or worker.done()):
            self._room.setdefault(index, asyncio.Semaphore(_FINISHING_MAX))
            self._workers[index] = asyncio.get_running_loop().create_task(self._work(index))

    async def close(self) -> None:
        self._closed = True
        finishing = (task for _, task in self._finishing.values())
        tasks = [*self._workers.values(), *self._aborting.values(), *finishing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def completed(
        self, index: int, transactional_id: str, pause_seconds: float, seconds_max: float
    ) -> bool:
        """Waits for the end of the id's transaction; returns False when that takes too long. The work that ends it may not have
        begun yet: then a pause is all there is."""
        running = self._finishing.get((index, transactional_id))
        if running is None:
            await asyncio.sleep(min(pause_seconds, seconds_max))
            return seconds_max > 0
        try:
            async with asyncio.timeout(seconds_max):
                await asyncio.shield(running[1])
        except TimeoutError:
            return False
        except asyncio.CancelledError:
            if not running[1].cancelled():
                raise
            return False  # the broker is stopping
        return True

    async def _work(self, index: int) -> None:
        pause_seconds = _AGAIN_SECONDS_MIN
        while True:
            try:
                shard = self._shards.shard(index)
            except KafkaError:
                return
            try:
                work = await _next_work(shard)
                await self._process(index, shard.leader_epoch, work)
                pause_seconds = _AGAIN_SECONDS_MIN
                continue
            except KafkaError:  # it is being loaded, or its log cannot be written
                pass
            except Exception:  # noqa: BLE001 - the root of a task, without which nothing of this shard would ever end
                _log.exception("worker_failed", shard=index)
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _AGAIN_SECONDS_MAX)

    async def _process(self, index: int, epoch: int, work: Work) -> None:
        for overdue in work.overdue:
            self._begin_to_abort(index, overdue)
        for prepared in work.prepared:
            await self._begin_to_finish(index, epoch, prepared)

    def _begin_to_abort(self, index: int, overdue: Overdue) -> None:
        """Aborts an overdue transaction in its own task: it may wait long for a producer id, and decided transactions must
        not wait for that."""
        key = (index, overdue.transactional_id)
        if key not in self._aborting:  # else it is found again at the next check
            task = self._aborting[key] = asyncio.get_running_loop().create_task(self._abort(index, overdue))
            task.add_done_callback(lambda _: self._aborting.pop(key))

    async def _abort(self, index: int, overdue: Overdue) -> None:
        try:
            await decided(
                lambda: self._shards.shard(index),
                lambda machine, now, fresh: machine.abort_overdue(overdue, fresh_producer_id=fresh, now=now),
                self._next_producer_id,
            )
        except KafkaError as error:  # it is found again at the next check
            _log.warning(
                "overdue_not_aborted", transactional_id=overdue.transactional_id, reason=error.message
            )
        except Exception:  # noqa: BLE001 - the root of a task; it is found again, too
            _log.exception("abort_failed", transactional_id=overdue.transactional_id)

    async def _begin_to_finish(self, index: int, epoch: int, prepared: Prepared) -> None:
        key, decision = (index, prepared.transactional_id), (epoch, prepared.offset)
        running = self._finishing.get(key)
        if running is not None and running[0] == decision:
            return  # the shard was loaded again; who carries the decision out is still at it
        if running is not None:
            running[1].cancel()
        room = self._room[index]
        await room.acquire()
        task = asyncio.get_running_loop().create_task(self._finish(index, epoch, prepared))
        self._finishing[key] = (decision, task)
        task.add_done_callback(lambda done: self._finished(key, done, room))

    async def _finish(self, index: int, epoch: int, prepared: Prepared) -> None:
        while True:
            try:
                await self._finisher.finish(index, epoch, prepared)
                return
            except Exception:  # noqa: BLE001 - the root of a task, without which the transaction would never end
                _log.exception("finisher_failed", transactional_id=prepared.transactional_id)
            await asyncio.sleep(_AGAIN_SECONDS_MAX)

    def _finished(self, key: tuple[int, str], task: asyncio.Task[None], room: asyncio.Semaphore) -> None:
        room.release()
        running = self._finishing.get(key)
        if running is not None and running[1] is task:
            del self._finishing[key]


async def _next_work(shard: Shard[TransactionMachine]) -> Work:
    return await shard.execute_deferred(lambda machine, _now, ticket: machine.wait_for_work(ticket))
