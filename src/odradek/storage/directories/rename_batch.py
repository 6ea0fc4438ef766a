"""Directories that are renamed at the same time are renamed together: on one thread, and one sync makes their names durable.

A topic's deletion renames a directory for each of its partitions, and a request may delete a thousand topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.runtime.ports import Disk, Offload

_PORTION: Final = 64
"""How many renames one task carries out together; other threads, if there are any, begin with the rest."""


class Rename(NamedTuple):
    """A directory that gets another name in the same parent directory."""

    parent: str
    path: str
    target: str


class RenameBatch:
    """Renames directories together that are to be renamed in the same round of the event loop, on which it is used."""

    def __init__(self, disk: Disk, offload: Offload) -> None:
        self._disk = disk
        self._offload = offload
        self._waiting: list[tuple[Rename, asyncio.Future[None]]] = []
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def rename(self, wanted: Rename) -> None:
        """Renames a path durably; does nothing when it is not there. Raises OSError, which does not affect the others."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._begin)
        self._waiting.append((wanted, outcome))
        await outcome

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _PORTION):
            portion = waiting[start : start + _PORTION]
            task = asyncio.get_running_loop().create_task(self._carry_out(portion))
            self._under_way[task] = None
            task.add_done_callback(lambda done: self._under_way.pop(done, None))

    async def _carry_out(self, together: Sequence[tuple[Rename, asyncio.Future[None]]]) -> None:
        errors: Sequence[BaseException | None]
        try:
            errors = await self._offload.run(self._rename_all, [wanted for wanted, _ in together])
        except asyncio.CancelledError:
            for _, waiting in together:
                waiting.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - it belongs to the waiters
            errors = [error] * len(together)
        for (_, waiting), outcome in zip(together, errors, strict=True):
            if waiting.done():
                continue
            if outcome is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(outcome)

    def _rename_all(self, together: Sequence[Rename]) -> list[OSError | None]:
        """Renames all, and then syncs each parent once. Blocks; runs on another thread. Returns the error of each rename."""
        errors: list[OSError | None] = []
        changed: dict[str, list[int]] = {}
        for number, wanted in enumerate(together):
            errors.append(self._renamed(wanted, changed.setdefault(wanted.parent, []), number))
        for parent, numbers in changed.items():
            if not numbers:
                continue
            try:
                self._disk.sync_directory(parent)
            except OSError as error:
                for number in numbers:
                    errors[number] = error
        return errors

    def _renamed(self, wanted: Rename, changed: list[int], number: int) -> OSError | None:
        """Renames a path, and appends its number to `changed`; returns the error."""
        try:
            if self._disk.exists(wanted.path):
                self._disk.rename(wanted.path, wanted.target)
                changed.append(number)
        except OSError as error:
            return error
        return None
