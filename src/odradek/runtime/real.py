"""The real versions of every port, and `real_runtime()` which puts them together."""

from __future__ import annotations

from odradek.runtime.ports import Runtime
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.runtime.real_disk import LOCK_FILE_NAME, PosixDisk, PosixFile, PosixLock
from odradek.runtime.real_offload import ThreadOffload
from odradek.runtime.real_process import budget

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


def real_runtime(*, threads: int = 4) -> Runtime:
    """Returns a runtime on this machine; `threads` bounds the blocking work under way at once."""
    return Runtime(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        disk=PosixDisk(),
        offload=ThreadOffload(threads),
        descriptors=budget(),
        boot_id=_boot_id(),
    )


def _boot_id() -> str:
    try:
        return PosixDisk().read("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        return ""
