"""The system's limit of open files, and the most that may be had of it."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

from odradek.runtime.descriptors import DescriptorBudget

_ENOUGH: Final = 1_048_576
"""Where there is no limit at all: what Linux gives a process at most unless told otherwise."""


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard one, as servers do. Where that is refused it stays as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS refuses more than kern.maxfilesperproc
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def budget() -> DescriptorBudget:
    """The shares of this process's present limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorBudget.of(_ENOUGH if soft == resource.RLIM_INFINITY else soft)
