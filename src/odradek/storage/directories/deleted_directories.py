"""Directories whose partitions were deleted: their files go soon, one at a time, on other threads.

A directory is doomed once it has a name that no one believes (`.deleted`), so removing it needs no order and no sync: what a
crash leaves is found by its name at the next start. Each file is a job of its own, for a large one takes a file system a while,
and others need the threads, too.
"""

from __future__ import annotations

import asyncio

from odradek.runtime.ports import Disk, Offload
from odradek.storage.files import naming
from odradek.telemetry import events

log = events.get("storage")


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
        """Returns when everything that could be removed is gone."""
        self.remove_soon()
        if self._removing is not None:
            await asyncio.shield(self._removing)

    async def close(self) -> None:
        """Ends the removal under way after the next file; the next start continues it."""
        self._is_over = True
        if self._removing is not None:
            await asyncio.gather(self._removing, return_exceptions=True)

    async def _remove_all(self) -> None:
        tried: set[str] = set()
        while not self._is_over and (
            path := next((doomed for doomed in self._doomed if doomed not in tried), None)
        ):
            tried.add(path)
            try:
                await self._remove_one(path)
            except OSError as error:
                log.warning("directory_not_removed", path=path, error=error)

    async def _remove_one(self, path: str) -> None:
        for name in await self._offload.run(self._files_in, path):
            if self._is_over:
                return
            await self._offload.run(self._disk.remove, naming.join(path, name))
        await self._offload.run(self._disk.remove_directory, path)
        self._doomed.pop(path, None)

    def _files_in(self, path: str) -> list[str]:
        """Returns the files of a directory, the largest first, so that space becomes free soon."""
        if not self._disk.exists(path):
            return []
        names = [
            name
            for name in self._disk.list_directory(path)
            if not self._disk.is_directory(naming.join(path, name))
        ]
        return sorted(names, key=lambda name: -self._disk.length(naming.join(path, name)))
