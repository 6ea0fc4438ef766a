"""The process's resources: open files, up to their limit, memory, and CPUs."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from odradek.model.java_numbers import whole_number
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
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")


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

    A process that allocates and frees buffers of megabytes all the time needs this: otherwise each buffer has
    fresh pages, which the system clears and maps one by one. That takes longer than to fill them. Does
    nothing where the C library has no such call (it is glibc's).
    """
    options = getattr(ctypes.CDLL(None), "mallopt", None)
    if options is not None:
        options(_M_MMAP_THRESHOLD, min(kept_bytes, _MMAP_THRESHOLD_MAX))
        options(_M_TRIM_THRESHOLD, kept_bytes)


def usable_cpu_count(control_groups: Path = _CONTROL_GROUPS, own_groups: Path = _OWN_GROUPS) -> int:
    """Returns the number of CPUs that this process may use, at least 1, as the JVM counts them.

    Its threads may run on these CPUs, or on fewer where a control group of Linux (a container's limit) grants
    less time. `control_groups` is where these are mounted, `own_groups` lists this process's groups.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    count = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    granted = min(map(_granted_cpus, _groups(control_groups, own_groups)), default=math.inf)
    return count if granted >= count else max(1, math.ceil(granted))


def _groups(control_groups: Path, own_groups: Path) -> Iterator[Path]:
    """Yields the directories of the control groups that limit the process's time: its own ones, and those above them."""
    try:
        lines = own_groups.read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        group = PurePosixPath(path.lstrip("/"))
        if not controllers:  # version 2
            yield from (control_groups / directory for directory in (group, *group.parents))
        elif "cpu" in controllers.split(","):
            yield from (control_groups / "cpu" / directory for directory in (group, *group.parents))


def _granted_cpus(group: Path) -> float:
    """Returns how many CPUs' time a control group grants; infinity where it has no limit, or is not visible from here."""
    try:
        if (limit := group / "cpu.max").exists():
            quota, period = limit.read_text(encoding="ascii").split()
        else:
            files = [group / f"cpu.cfs_{name}_us" for name in ("quota", "period")]
            quota, period = (file.read_text(encoding="ascii").strip() for file in files)
        granted = whole_number(quota) / whole_number(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max" is no number
        return math.inf
    return granted if granted > 0 else math.inf
