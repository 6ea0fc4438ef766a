"""What no broker can beat on this machine: a bare fsync of a small append, and copying memory.

A row of `docs/benchmarks.md` that waits for the disk is read beside the first, one that moves bytes beside the second.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Final, TypedDict

APPENDED: Final = b"x" * 1024
COPIED_BYTES: Final = 64 << 20
"""More than the caches of a processor hold."""


class Limits(TypedDict):
    """Figures of one machine at one time. `fsync_p50_ms` and `fsync_p99_ms` are of 1 KiB appended, then `fdatasync`, as the log
    does for a batch; `copy_gb_s` is 10^9 bytes of memory copied in a second by one core."""

    fsync_p50_ms: float
    fsync_p99_ms: float
    copy_gb_s: float


def limits(directory: Path, *, appends: int = 500, copies: int = 9) -> Limits:
    """Returns the limits of the file system that has `directory`, and of the memory. It appends for at most three seconds,
    and at least ten times."""
    times = _fsync_times(directory / "bare-fsync", appends)
    return {
        "fsync_p50_ms": round(statistics.median(times), 3),
        "fsync_p99_ms": round(statistics.quantiles(times, n=100)[98], 3),
        "copy_gb_s": round(_copy_rate(copies), 1),
    }


def as_text(measured: Limits) -> str:
    return (
        f"a bare fsync of 1 KiB took {measured['fsync_p50_ms']:.2f} ms (p99 {measured['fsync_p99_ms']:.2f} ms), "
        f"one core copied {measured['copy_gb_s']:.1f} GB/s"
    )


def _fsync_times(path: Path, appends: int) -> list[float]:
    times: list[float] = []
    end = time.monotonic() + 3
    number = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        while len(times) < 10 or (len(times) < appends and time.monotonic() < end):
            started = time.perf_counter()
            os.write(number, APPENDED)
            os.fdatasync(number)
            times.append((time.perf_counter() - started) * 1000)
    finally:
        os.close(number)
        path.unlink()
    return times


def _copy_rate(copies: int) -> float:
    source = memoryview(bytearray(COPIED_BYTES))
    target = memoryview(bytearray(COPIED_BYTES))
    target[:] = source  # the pages are there from now on
    times = []
    for _ in range(copies):
        started = time.perf_counter()
        target[:] = source
        times.append(time.perf_counter() - started)
    return COPIED_BYTES / statistics.median(times) / 1e9
