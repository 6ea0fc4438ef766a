"""Where each face of a view reads its store: beside the event loop, or on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from odradek.runtime.real_offload import ThreadOffload

T = TypeVar("T")

READS_AT_ONCE: Final = 4


class OffloadedReads:
    """On threads, at most READS_AT_ONCE at a time: a read may have to wait for the disk."""

    def __init__(self) -> None:
        self._offload = ThreadOffload(threads=READS_AT_ONCE)

    async def run(self, read: Callable[..., T], *arguments: object) -> T:
        """What `read(*arguments)` returns or raises."""
        return await self._offload.run(read, *arguments)

    def close(self) -> None:
        self._offload.close()


class BlockingReads:
    """At once."""

    def run(self, read: Callable[..., T], *arguments: object) -> T:
        """As in `OffloadedReads`."""
        return read(*arguments)

    def close(self) -> None:
        """There is nothing to end."""
