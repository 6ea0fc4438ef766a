"""Runs orders in parallel: one query's orders in their order, different queries' orders at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from odradek.telemetry import events

_log = events.get("sql")


@dataclass(slots=True, eq=False)
class _Job:
    work: Callable[[], None]
    names: frozenset[str]
    pool: ThreadPoolExecutor
    waits_for: int = 0
    """The number of jobs that must end before this one begins."""
    followers: list[_Job] = field(default_factory=list)


class Lanes:
    """A lane is the jobs of one name, in the order in which they came. A job may be in several lanes: it begins when it is the
    first of each. Any thread may call `add`.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._last: dict[str, _Job] = {}
        """The last job of each lane; a lane without jobs is not kept."""

    def __len__(self) -> int:
        """Returns the number of lanes with jobs that have not ended."""
        return len(self._last)

    def add(self, names: Collection[str], work: Callable[[], None], pool: ThreadPoolExecutor) -> None:
        """Runs `work` on a thread of `pool` as soon as all earlier jobs of these names have ended. An error of it is logged."""
        job = _Job(work, frozenset(names), pool)
        with self._lock:
            for earlier in {self._last[name] for name in job.names if name in self._last}:
                earlier.followers.append(job)
                job.waits_for += 1
            self._last.update(dict.fromkeys(job.names, job))
            is_ready = not job.waits_for
        if is_ready:
            pool.submit(self._run, job)

    def _run(self, job: _Job) -> None:
        try:
            job.work()
        except Exception as error:  # noqa: BLE001 - the root of a thread: the next jobs must run
            _log.warning("sql_order_failed", reason=f"{type(error).__name__}: {error}")
        finally:
            for follower in self._ended(job):
                follower.pool.submit(self._run, follower)

    def _ended(self, job: _Job) -> list[_Job]:
        """Returns the jobs that may begin now."""
        with self._lock:
            for name in job.names:
                if self._last.get(name) is job:
                    del self._last[name]
            for follower in job.followers:
                follower.waits_for -= 1
            return [follower for follower in job.followers if not follower.waits_for]
