"""A client of the brokers that works in a thread of its own until it is stopped, and outlives errors."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter

from tests.faults.thread_position import thread_position


class ClientThread(ABC):
    """`_run` is its work; it looks at `_stopping` again and again, and notes in `busy_since` when it last got on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.troubles: Counter[str] = Counter()
        self.busy_since = time.monotonic()
        """When it began what it is at."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It ends when it is done with what it is at."""
        self._stopping.set()

    def finish(self, timeout_s: float) -> str | None:
        """Returns where the client hangs; None if it ended in time."""
        self.stop()
        self._thread.join(timeout_s)
        return thread_position(self._thread)

    @abstractmethod
    def _run(self) -> None: ...
