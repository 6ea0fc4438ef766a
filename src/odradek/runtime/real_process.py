"""The process's resources: open files, up to their limit, and memory."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.runtime.descriptors import DescriptorBudget

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = lazy("ctypes")

_ENOUGH: Final = 1_048_576
"""The limit to set where there is none: the most that Linux gives a process unless something sets another limit."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_MAX: Final = 32 << 20
"""glibc refuses more."""


def raise_limit() -> None:
    """Raises the soft limit of open files to the hard one, as servers do. If that is refused, the limit stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS refuses more than kern.maxfilesperproc
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def budget() -> DescriptorBudget:
    """Returns the shares of this process's present limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorBudget.of(_ENOUGH if soft == resource.RLIM_INFINITY else soft)


def return_free_memory() -> None:
    """Returns freed memory, which the C library keeps for later, to the system.

    Blocks for some milliseconds per 100 MB. Does nothing where the C library has no such call (it is glibc's).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_freed_memory(kept_bytes: int) -> None:
    """Makes the C library keep about this much of freed memory for later, instead of returning large blocks at once.

    For those who make and free buffers of megabytes all the time: else each has fresh pages, which the system clears and
    maps one by one. That takes longer than to fill them. Does nothing where the C library has no such call (it is glibc's).
    """
    options = getattr(ctypes.CDLL(None), "mallopt", None)
    if options is not None:
        options(_M_MMAP_THRESHOLD, min(kept_bytes, _MMAP_THRESHOLD_MAX))
        options(_M_TRIM_THRESHOLD, kept_bytes)
