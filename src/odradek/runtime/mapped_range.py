"""A range of a file as memory that only the kernel may read: what a large answer is sent from without being copied.

Python code that touches such memory risks the process: where the disk cannot give a page, the process gets SIGBUS. A system
call that is handed the memory gets EFAULT instead. So a view of a range may be measured, sliced and passed to a socket, and
nothing else.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_GRANULARITY: Final = mmap.ALLOCATIONGRANULARITY


class MappedRange(mmap.mmap):
    """A mapped range of a file, which is unmapped when its last view goes. The reader that got EFAULT calls `on_unreadable`."""

    on_unreadable: Callable[[], None]


def map_range(
    descriptor: int, length: int, position: int, on_unreadable: Callable[[], None]
) -> memoryview | None:
    """Returns a view of `length` bytes at `position`; None where the file cannot be mapped there."""
    before = position % _GRANULARITY
    with suppress(OSError, ValueError):
        mapped = MappedRange(descriptor, before + length, access=mmap.ACCESS_READ, offset=position - before)
        mapped.on_unreadable = on_unreadable
        return memoryview(mapped)[before:]
    return None


def is_mapped(view: object) -> bool:
    """Returns whether a view is of a mapped range, so that it costs no memory."""
    return isinstance(view, memoryview) and isinstance(view.obj, MappedRange)


def report_unreadable(views: list[memoryview]) -> None:
    """Reports to the files of these views that a system call got EFAULT."""
    for view in views:
        if isinstance(view.obj, MappedRange):
            view.obj.on_unreadable()
