"""Directories that are renamed at the same time are renamed together: on one thread, and one sync makes their names durable.

A topic's deletion renames a directory for each of its partitions, and a request may delete a thousand topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.runtime.ports import Disk, Offload
from odradek.storage.directories.offloaded_rounds import OffloadedRounds

_PORTION: Final = 64
"""How many renames one task carries out together."""


class Rename(NamedTuple):
    """A directory that gets another name in the same parent directory."""

    parent: str
    path: str
    target: str


class RenameBatch:
    """Renames directories together that are due in the same round of the event loop. Used on the loop
    only."""

    def __init__(self, disk: Disk, offload: Offload) -> None:
        self._disk = disk
        self._rounds: Final = OffloadedRounds(offload, self._rename_all, portion=_PORTION)

    async def rename(self, wanted: Rename) -> None:
        """Renames a path durably; does nothing when it is not there. Raises OSError, which does not affect the others."""
        await self._rounds.carry_out(wanted)

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
