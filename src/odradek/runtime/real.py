"""The real versions of every port, and `real_runtime()` which puts them together."""

from __future__ import annotations

from typing import Final

from odradek.runtime.ports import Runtime
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.runtime.real_disk import LOCK_FILE_NAME, PosixDisk, PosixFile, PosixLock
from odradek.runtime.real_offload import ThreadOffload
from odradek.runtime.real_process import budget
from odradek.runtime.real_syncs import thread_syncs

__all__ = [
    "LOCK_FILE_NAME",
    "PosixDisk",
    "PosixFile",
    "PosixLock",
    "SystemClock",
    "SystemEntropy",
    "ThreadOffload",
    "real_runtime",
]

_SYNC_THREADS: Final = 4
"""The most syncs of files at once: as many as the flusher has groups under way."""


def real_runtime(*, threads: int = 4) -> Runtime:
    """Returns a runtime on this machine; `threads` bounds the blocking work under way at once."""
    return Runtime(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        disk=PosixDisk(),
        offload=ThreadOffload(threads),
        descriptors=budget(),
        file_syncs=thread_syncs(_SYNC_THREADS),
        boot_id=_boot_id(),
    )


def _boot_id() -> str:
    try:
        return PosixDisk().read("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        return ""
