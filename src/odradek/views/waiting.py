"""The thread on which each face of a view reads its store: one apart from the event loop, or the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from odradek.runtime.real_offload import ThreadOffload

T = TypeVar("T")

READS_AT_ONCE: Final = 4


class OffloadedReads:
    """Reads on threads, at most READS_AT_ONCE at a time: a read may have to wait for the disk."""

    def __init__(self) -> None:
        self._offload = ThreadOffload(threads=READS_AT_ONCE)

    async def run(self, read: Callable[..., T], *arguments: object) -> T:
        """Returns, or raises, the outcome of `read(*arguments)`."""
        return await self._offload.run(read, *arguments)

    def close(self) -> None:
        self._offload.close()


class BlockingReads:
    """Reads on the calling thread."""

    def run(self, read: Callable[..., T], *arguments: object) -> T:
        """Returns, or raises, the outcome of `read(*arguments)`."""
        return read(*arguments)

    def close(self) -> None:
        """Does nothing: there is nothing to close."""
