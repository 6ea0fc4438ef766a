"""Client libraries that stand still.

librdkafka 2.16 may lock itself up when all brokers are gone for a moment: it begins again from its first addresses
(KIP-1102), and its main thread waits for good for the thread of a broker that it dropped. Every call of its application then
waits, too. No broker can make that happen, or mend it: a main thread wakes up every second, whatever it waits for.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

_MAIN: Final = "rdk:main"
_SECONDS: Final = 5.0
_TASKS: Final = Path("/proc/self/task")
left: Final[list[object]] = []
"""Clients that stand still, or that have one, kept for ever: ending one waits for its end. So does Python's own end."""


def stopped_clients() -> int:
    """How many clients of this process stand still; it takes some seconds to tell. 0 where there is no /proc to look at."""
    before = _switches()
    time.sleep(_SECONDS)
    after = _switches()
    return sum(after.get(thread) == count for thread, count in before.items())


def _switches() -> dict[str, int]:
    """How often each client's main thread went to sleep, by the thread's id."""
    gaps = {}
    for task in _TASKS.glob("*"):
        try:
            if (task / "comm").read_text().strip() == _MAIN:
                lines = (task / "status").read_text().splitlines()
                gaps[task.name] = next(
                    int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches")
                )
        except OSError:
            continue  # it has just ended
    return gaps
