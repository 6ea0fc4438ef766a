"""Directories whose partitions were deleted: their files go soon, a few at a time, on other threads.

A directory is doomed once it has a name that no one believes (`.deleted`), so removing it needs no order and
no sync: what a crash leaves is found by its name at the next start. A large file is a job of its own, for it
takes a file system a while, and others need the threads, too. Directories with little in them, for example of
a thousand empty topics, are removed many at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

from odradek.runtime.ports import Disk, Offload
from odradek.storage.files import naming
from odradek.telemetry import events

log = events.get("storage")

_PORTION: Final = 32
"""How many small directories one job removes."""
_SMALL_BYTES: Final = 1024 * 1024
"""The size up to which a directory is small."""


class DeletedDirectories:
    """Removes the directories of deleted partitions in the background. Used on the event loop."""

    def __init__(self, disk: Disk, offload: Offload) -> None:
        self._disk = disk
        self._offload = offload
        self._doomed: dict[str, None] = {}
        self._removing: asyncio.Task[None] | None = None
        self._is_over = False

    def add(self, path: str) -> None:
        self._doomed[path] = None

    def remove_soon(self) -> None:
        """Starts to remove the directories in the background; the next call tries again what cannot be removed now."""
        if self._doomed and not self._is_over and (self._removing is None or self._removing.done()):
            self._removing = asyncio.get_running_loop().create_task(self._remove_all(), name="remove deleted")

    async def remove(self) -> None:
        """Returns when everything that could be removed is removed."""
        self.remove_soon()
        if self._removing is not None:
            await asyncio.shield(self._removing)

    async def close(self) -> None:
        """Ends the removal under way after the next job; the next start continues it."""
        self._is_over = True
        if self._removing is not None:
            await asyncio.gather(self._removing, return_exceptions=True)

    async def _remove_all(self) -> None:
        tried: set[str] = set()
        while not self._is_over and (
            paths := list(islice((doomed for doomed in self._doomed if doomed not in tried), _PORTION))
        ):
            tried.update(paths)
            for path, outcome in zip(paths, await self._offload.run(self._remove_small, paths), strict=True):
                try:
                    await self._finish(path, outcome)
                except OSError as error:
                    log.warning("directory_not_removed", path=path, error=error)

    async def _finish(self, path: str, outcome: OSError | list[str] | None) -> None:
        """Removes what is left of a directory: `outcome` is from `_remove_small`."""
        if isinstance(outcome, OSError):
            raise outcome
        if outcome is not None:
            for name in outcome:
                if self._is_over:
                    return
                await self._offload.run(self._disk.remove, naming.join(path, name))
            await self._offload.run(self._disk.remove_directory, path)
        self._doomed.pop(path, None)

    def _remove_small(self, paths: Sequence[str]) -> list[OSError | list[str] | None]:
        """Removes the directories that are small. Blocks; runs on another thread. Returns for each directory
        None when it is removed, the error, or its files, the largest first, so that space becomes free
        soon."""
        outcomes: list[OSError | list[str] | None] = []
        for path in paths:
            try:
                outcomes.append(self._left_of(path))
            except OSError as error:
                outcomes.append(error)
        return outcomes

    def _left_of(self, path: str) -> list[str] | None:
        if not self._disk.exists(path):
            return None
        sizes = {
            name: self._disk.length(naming.join(path, name))
            for name in self._disk.list_directory(path)
            if not self._disk.is_directory(naming.join(path, name))
        }
        if sum(sizes.values()) > _SMALL_BYTES:
            return sorted(sizes, key=lambda name: -sizes[name])
        for name in sizes:
            self._disk.remove(naming.join(path, name))
        self._disk.remove_directory(path)
        return None
