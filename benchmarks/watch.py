"""What a broker process costs: CPU time and memory, from /proc."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident set size, and the proportional one, which counts shared pages by their share."""

    rss_bytes: int
    pss_bytes: int


def cpu_seconds(pid: int) -> float:
    """CPU time of the process and the children it has waited for, user and system."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def memory(pid: int) -> Memory:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    rss, pss = (int(re.search(rf"^{key}:\s+(\d+) kB", text, re.M)[1]) * 1024 for key in ("Rss", "Pss"))  # type: ignore[index]
    return Memory(rss_bytes=rss, pss_bytes=pss)


class PeakMemory:
    """Samples a process's memory until left; `peak` holds the largest of each."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.peak = memory(pid)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            now = memory(self._pid)
            self.peak = Memory(
                rss_bytes=max(self.peak.rss_bytes, now.rss_bytes),
                pss_bytes=max(self.peak.pss_bytes, now.pss_bytes),
            )
