"""Group commit: appends during a flush share the next one.

A partition is queued when it has records that are not durable. A few workers each take every queued partition that is not
being flushed, run the flushes on a thread, and let the partitions move their high watermarks. A flush that fails is never
retried: after a failed fsync the kernel may have dropped the pages and a second call would wrongly succeed.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import Final

from odradek.model.ids import TopicPartition
from odradek.replication.partition import Partition
from odradek.runtime.ports import Offload
from odradek.storage.log.log import FlushJob

_WORKERS: Final = 4
_SHARE: Final = 16

OnFailure = Callable[[Partition, OSError], None]
OnSynced = Callable[[Partition, float], None]


class Flusher:
    """Flushes partitions in group commits. `on_failure` takes a partition's log directory offline. Used on the event loop."""

    def __init__(
        self,
        offload: Offload,
        on_failure: OnFailure,
        *,
        now: Callable[[], float] = float,
        on_synced: OnSynced | None = None,
    ) -> None:
        """`on_synced` is called with the time that each flush took, by the clock of `now`."""
        self._offload = offload
        self.on_failure = on_failure
        self._now = now
        self._on_synced = on_synced
        self._queued: dict[Partition, None] = {}
        self._under_way: dict[Partition, float] = {}
        """Flushes by when they began."""
        self._workers: dict[asyncio.Task[None], None] = {}

    def request(self, partition: Partition) -> None:
        """Flushes the partition soon; cheap, and idempotent until the flush starts."""
        if partition in self._queued or partition.retired is not None:
            return
        self._queued[partition] = None
        if len(self._workers) < _WORKERS and partition not in self._under_way:
            self._start_worker()

    @property
    def under_way(self) -> Mapping[TopicPartition, float]:
        """Flushes that did not end yet, by when they began."""
        return {partition.name: began for partition, began in self._under_way.items()}

    def _start_worker(self) -> None:
        # It starts in the loop's next round: everything appended in this one shares its flush.
        task = asyncio.get_running_loop().create_task(self._work())
        self._workers[task] = None
        task.add_done_callback(self._finished)

    async def drain(self) -> None:
        """Waits until nothing is queued or under way."""
        while self._workers:
            await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while jobs := self._next_jobs():
            try:
                outcomes = await self._offload.run(_run, [job for _, job in jobs], self._now)
            except BaseException as reason:
                self._abandon(jobs, reason)
                raise
            for partition, _ in jobs:
                self._under_way.pop(partition, None)
            for (partition, job), (error, seconds) in zip(jobs, outcomes, strict=True):
                try:
                    if self._on_synced is not None:
                        self._on_synced(partition, seconds)
                    self._done(partition, job, error)
                except Exception as reason:  # noqa: BLE001 - one partition's trouble must not keep the others waiting
                    _report(reason)

    def _done(self, partition: Partition, job: FlushJob, error: OSError | None) -> None:
        if error is not None:
            self.on_failure(partition, error)
        elif partition.retired is None:
            partition.log.flushed(job)
            partition.flushed()

    def _abandon(self, jobs: list[tuple[Partition, FlushJob]], error: BaseException) -> None:
        """Fails these flushes, whose effect is unknown: nothing that they covered may ever be acknowledged."""
        for partition, _ in jobs:
            self._under_way.pop(partition, None)
            self.on_failure(partition, OSError(errno.EIO, f"a flush ended without a result: {error!r}"))

    def _next_jobs(self) -> list[tuple[Partition, FlushJob]]:
        jobs: list[tuple[Partition, FlushJob]] = []
        for partition in list(self._queued):
            if partition in self._under_way:
                continue
            del self._queued[partition]
            job = None if partition.retired is not None else partition.log.flush_job()
            if job is not None:
                self._under_way[partition] = self._now()
                jobs.append((partition, job))
                if len(jobs) == _SHARE:
                    break
        return jobs

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._workers.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _report(error)
            if self._queued and not self._workers:
                self._start_worker()


def _report(error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "the flusher failed", "exception": error})


def _run(jobs: list[FlushJob], now: Callable[[], float]) -> list[tuple[OSError | None, float]]:
    """Runs on a worker thread; returns for each job its error, if any, and how many seconds it took."""
    outcomes: list[tuple[OSError | None, float]] = []
    for job in jobs:
        began, failure = now(), None
        try:
            job.run()
        except OSError as error:
            failure = error
        outcomes.append((failure, now() - began))
    return outcomes
