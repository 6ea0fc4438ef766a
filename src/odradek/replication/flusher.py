"""Group commit: appends during a flush share the next one.

A partition is queued when it has records that are not durable. A group of flushes takes every queued partition that is not
being flushed, runs on a thread, and lets the partitions move their high watermarks; a few groups run at a time. A flush that
fails is never retried: after a failed fsync the kernel may have dropped the pages and a second call would wrongly succeed.
Callbacks, and no task: an acknowledgement waits for each round of the loop (decision 0095). Flushes that only sync log files
need no thread of Python, where the runtime has `FileSyncs` (decision 0100).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from odradek.model.ids import TopicPartition
from odradek.replication.partition import Partition
from odradek.runtime.ports import FileSyncs, Offload
from odradek.storage.log.log import FlushJob
from odradek.storage.log.plain_flush import FlushOutcomes, begin_flushes

_GROUPS_MAX: Final = 4
"""The most groups of flushes at a time."""
_GROUP_FLUSHES_MAX: Final = 16
"""The most flushes of a group."""

_GATHER_ROUNDS_MAX: Final = 8
"""The most rounds of the loop for which a flush by `FileSyncs` waits for more appends to share it."""

OnFailure = Callable[[Partition, OSError], None]
OnSynced = Callable[[Partition, float], None]


class Flusher:
    """Flushes partitions in group commits. `on_failure` takes a partition's log directory offline. Used on the event loop."""

    def __init__(
        self,
        offload: Offload,
        on_failure: OnFailure,
        *,
        syncs: FileSyncs | None = None,
        now: Callable[[], float] = float,
        on_synced: OnSynced | None = None,
    ) -> None:
        """`syncs` carries out the flushes that need no thread of Python. `on_synced` is called with the time that each flush
        took, by the clock of `now`."""
        self._offload = offload
        self._syncs = syncs
        self.on_failure = on_failure
        self._now = now
        self._on_synced = on_synced
        self._queued: dict[Partition, None] = {}
        self._under_way: dict[Partition, float] = {}
        """Flushes by when they began."""
        self._is_ending = False
        """A group of flushes has ended, and the next is about to begin: it takes what is requested now."""
        self._is_growing = False
        """Something was appended since the loop's last round."""
        self._group_count = 0
        """Groups of flushes that are about to begin or under way."""
        self._idle: list[asyncio.Future[None]] = []
        """Waiters for the end of all flushes."""

    def request(self, partition: Partition) -> None:
        """Flushes the partition soon; cheap, and idempotent until the flush starts."""
        self._is_growing = True
        if partition in self._queued or partition.retired is not None:
            return
        self._queued[partition] = None
        if self._group_count < _GROUPS_MAX and partition not in self._under_way and not self._is_ending:
            self._begin_soon()

    @property
    def under_way(self) -> Mapping[TopicPartition, float]:
        """Flushes that did not end yet, by when they began."""
        return {partition.name: began for partition, began in self._under_way.items()}

    def _begin_soon(self) -> None:
        # It begins in the loop's next round: everything appended in this one shares its flush.
        self._group_count += 1
        asyncio.get_running_loop().call_soon(self._gather if self._syncs is not None else self._begin)

    def _gather(self, rounds: int = _GATHER_ROUNDS_MAX) -> None:
        """Begins when a round of the loop brought no append, or after a few: a thread of Python waits for the same, as it gets
        the interpreter's lock when the loop waits for its sockets."""
        if self._is_growing and rounds > 0:
            self._is_growing = False
            asyncio.get_running_loop().call_soon(self._gather, rounds - 1)
        else:
            self._begin()

    async def drain(self) -> None:
        """Waits until nothing is queued or under way."""
        while self._group_count:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def _begin(self) -> None:
        """Begins the next group of flushes, or ends this one's turn if there is nothing to flush."""
        jobs: list[tuple[Partition, FlushJob]] = []
        try:
            jobs = self._next_jobs()
            if jobs:
                self._start(jobs)
                return
        except Exception as reason:  # noqa: BLE001 - whatever it is, the partitions that wait must be flushed
            self._abandon(jobs, reason)
            _report(reason)
        self._group_count -= 1
        if self._group_count:
            return
        if any(partition not in self._under_way for partition in self._queued):
            self._begin_soon()
            return
        waiting, self._idle = self._idle, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _start(self, jobs: list[tuple[Partition, FlushJob]]) -> None:
        flushes = [job for _, job in jobs]
        if self._syncs is not None and begin_flushes(flushes, self._syncs, partial(self._ended, jobs)):
            return
        self._offload.submit(partial(self._ended, jobs), _run, flushes, self._now)

    def _ended(
        self,
        jobs: list[tuple[Partition, FlushJob]],
        outcomes: FlushOutcomes | None,
        error: BaseException | None = None,
    ) -> None:
        if outcomes is None:
            reason = error or RuntimeError("the flush has neither a result nor an error")
            self._abandon(jobs, reason)
            if not isinstance(reason, asyncio.CancelledError):
                _report(reason)
            self._begin()
            return
        answered: list[Partition] = []
        for partition, _ in jobs:
            self._under_way.pop(partition, None)
        for (partition, job), (failure, _) in zip(jobs, outcomes, strict=True):
            try:
                if failure is not None:
                    self.on_failure(partition, failure)
                elif partition.retired is None:
                    partition.log.flushed(job)
                    answered.append(partition)
            except Exception as raised:  # noqa: BLE001 - one partition's trouble must not keep the others waiting
                _report(raised)
        self._call_waiting(jobs)
        self._begin()  # before the answers are written, which takes as long as a sync: the disk works meanwhile
        for partition in answered:
            try:
                partition.flushed()
            except Exception as raised:  # noqa: BLE001 - as above
                _report(raised)
        self._count_synced(jobs, outcomes)

    def _count_synced(self, jobs: list[tuple[Partition, FlushJob]], outcomes: FlushOutcomes) -> None:
        """Comes last: acknowledgements wait for the rest."""
        if self._on_synced is None:
            return
        for (partition, _), (_, seconds) in zip(jobs, outcomes, strict=True):
            try:
                self._on_synced(partition, seconds)
            except Exception as raised:  # noqa: BLE001 - as above
                _report(raised)

    def _abandon(self, jobs: list[tuple[Partition, FlushJob]], error: BaseException) -> None:
        """Fails these flushes, whose effect is unknown: nothing that they covered may ever be acknowledged."""
        for partition, _ in jobs:
            self._under_way.pop(partition, None)
            self._fail(partition, f"a flush ended without a result: {error!r}")
        self._call_waiting(jobs)

    def _call_waiting(self, jobs: list[tuple[Partition, FlushJob]]) -> None:
        """Makes the calls that waited for the end of these flushes."""
        self._is_ending = True
        for partition, _ in jobs:
            try:
                partition.flush_end.reach()
            except Exception as raised:  # noqa: BLE001 - one partition's trouble must not keep the others waiting
                _report(raised)
        self._is_ending = False

    def _fail(self, partition: Partition, reason: str) -> None:
        self.on_failure(partition, OSError(errno.EIO, reason))

    def _next_jobs(self) -> list[tuple[Partition, FlushJob]]:
        jobs: list[tuple[Partition, FlushJob]] = []
        for partition in list(self._queued):
            if partition in self._under_way:
                continue
            del self._queued[partition]
            job = self._job_of(partition)
            if job is not None:
                self._under_way[partition] = self._now()
                partition.flush_end.begin()
                jobs.append((partition, job))
                if len(jobs) == _GROUP_FLUSHES_MAX:
                    break
        return jobs

    def _job_of(self, partition: Partition) -> FlushJob | None:
        if partition.retired is not None:
            return None
        try:
            return partition.log.flush_job()
        except Exception as reason:  # noqa: BLE001 - whatever it is, the others of its group must be flushed
            self._fail(partition, f"there is no telling what to flush: {reason!r}")
            _report(reason)
            return None


def _report(error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "the flusher failed", "exception": error})


def _run(jobs: list[FlushJob], now: Callable[[], float]) -> FlushOutcomes:
    """Runs on a worker thread; returns for each job its error, if any, and how many seconds it took."""
    outcomes: FlushOutcomes = []
    for job in jobs:
        began, failure = now(), None
        try:
            job.run()
        except OSError as error:
            failure = error
        outcomes.append((failure, now() - began))
    return outcomes
