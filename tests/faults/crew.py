"""Clients that work beside the ledger. One whose library stands still is replaced by another."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from tests.faults.standstill import left, stopped_clients

_LOOK_SECONDS: Final = 5.0
_STUCK_SECONDS: Final = 60.0  # longer than any of their calls should take


class Worker(Protocol):
    name: str
    busy_since: float
    troubles: Counter[str]

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def finish(self, timeout_s: float) -> str | None:
        """Returns where the client hangs; None if it ended in time."""


class Crew:
    """`makers` make the workers. One that is stuck, with a client that stands still, is left where it is, and another is made.

    One that is stuck for any other reason stays: `finish` tells of it.
    """

    def __init__(self, makers: Sequence[Callable[[], Worker]]) -> None:
        self._makers = list(makers)
        self._workers = [make() for make in makers]
        self._left: list[Worker] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="crew", daemon=True)

    def __iter__(self) -> Iterator[Worker]:
        """All that there were."""
        yield from self._left
        yield from self._workers

    @property
    def replaced(self) -> list[str]:
        """The names of those whose client stood still."""
        return [worker.name for worker in self._left]

    def start(self) -> None:
        for worker in self._workers:
            worker.start()
        self._thread.start()

    def finish(self, timeout_s: float) -> list[str]:
        """Returns the workers that did not end though their clients were alive, each with the line where it hangs."""
        self._stopping.set()
        self._thread.join()
        for worker in self._workers:
            worker.stop()
        hanging = [
            (worker, where) for worker in self._workers if (where := worker.finish(timeout_s)) is not None
        ]
        explained = max(stopped_clients() - len(self._left), 0) if hanging else 0
        for worker, _ in hanging[:explained]:
            self._workers.remove(worker)
            self._leave(worker)
        return [where for _, where in hanging[explained:]]

    def _look_after(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            for place, worker in enumerate(self._workers):
                if time.monotonic() - worker.busy_since < _STUCK_SECONDS:
                    continue
                if stopped_clients() > len(self._left):
                    worker.stop()
                    self._leave(worker)
                    self._workers[place] = self._makers[place]()
                    self._workers[place].start()

    def _leave(self, worker: Worker) -> None:
        self._left.append(worker)
        left.append(worker)
