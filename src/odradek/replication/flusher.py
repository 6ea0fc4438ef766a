"""Group commit: appends during a flush share the next one.

A partition is queued when it has records that are not durable. A few workers each take every queued partition that is not
being flushed, run the flushes on a thread, and let the partitions move their high watermarks. A flush that fails is never
retried: after a failed fsync the kernel may have dropped the pages and a second call would lie.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from odradek.replication.partition import Partition
from odradek.runtime.ports import Offload
from odradek.storage.log.log import FlushJob

_WORKERS: Final = 4
_SHARE: Final = 16

OnFailure = Callable[[Partition, OSError], None]


class Flusher:
    """Used on the event loop. `on_failure` takes the partition's log directory offline."""

    def __init__(self, offload: Offload, on_failure: OnFailure) -> None:
        self._offload = offload
        self.on_failure = on_failure
        self._queued: dict[Partition, None] = {}
        self._under_way: dict[Partition, None] = {}
        self._workers: dict[asyncio.Task[None], None] = {}

    def request(self, partition: Partition) -> None:
        """Flush the partition soon; cheap, and idempotent until the flush starts."""
        if partition in self._queued or partition.retired is not None:
            return
        self._queued[partition] = None
        if len(self._workers) < _WORKERS and partition not in self._under_way:
            self._start_worker()

    def _start_worker(self) -> None:
        # It starts in the loop's next round: everything appended in this one shares its flush.
        task = asyncio.get_running_loop().create_task(self._work())
        self._workers[task] = None
        task.add_done_callback(self._finished)

    async def drain(self) -> None:
        """Wait until nothing is queued or under way."""
        while self._workers:
            await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        while jobs := self._next_jobs():
            try:
                outcomes = await self._offload.run(_run, [job for _, job in jobs])
            except BaseException as reason:
                self._abandon(jobs, reason)
                raise
            for partition, _ in jobs:
                self._under_way.pop(partition, None)
            for (partition, job), error in zip(jobs, outcomes, strict=True):
                try:
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
        """No one knows what these flushes did, so nothing they covered may ever be acknowledged."""
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
                self._under_way[partition] = None
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


def _run(jobs: list[FlushJob]) -> list[OSError | None]:
    """Runs on a worker thread."""
    outcomes: list[OSError | None] = []
    for job in jobs:
        try:
            job.run()
        except OSError as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
    return outcomes
