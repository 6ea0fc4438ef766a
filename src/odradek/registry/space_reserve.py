"""Space that the registry keeps for itself on its disk: a file that gives way when there is no other space.

It gives way by a little more than a write needs, right before that write: others that write to the full disk
can take little of it. What a rewriting of the journal frees fills it up again. It is larger than the growth
of the journal until its rewriting plus the new journal: so the registry can work for as long as the disk is
full.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable
from typing import Final, TypeVar

from odradek.runtime.ports import Disk, DiskFile
from odradek.telemetry import events

T = TypeVar("T")
RESERVE_NAME: Final = "registry.reserve"
RESERVE_BYTES: Final = 4 * 1024 * 1024
PORTION_BYTES: Final = 64 * 1024
_BLOCK_BYTES: Final = 4096
_JOURNALS: Final = 3
"""How many journals of the present length the reserve holds."""
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_log = events.get("registry")


class SpaceReserve:
    """The reserve's file. Methods block, so they run on a thread; `fill` and `spending` need the journal's lock."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = posixpath.join(directory, RESERVE_NAME)
        self._disk = disk
        self._directory = directory
        self._gives_way = False
        """True if the reserve has given way since it was last filled."""

    def size(self) -> int:
        try:
            return self._disk.length(self.path)
        except FileNotFoundError:
            return 0

    def is_short(self, journal_length: int) -> bool:
        """Returns whether `fill` would make it larger if there was space."""
        return self.size() + PORTION_BYTES <= _wanted_bytes(journal_length)

    def fill(self, journal_length: int) -> None:
        """Makes the reserve as large as it should be, or as large as the space allows."""
        present, wanted = self.size(), _wanted_bytes(journal_length)
        if not self.is_short(journal_length) or self._disk.free_bytes(self._directory) < PORTION_BYTES:
            return
        file = self._disk.open(self.path, create=True)
        try:
            portion = bytes(PORTION_BYTES)
            while present + PORTION_BYTES <= wanted and self._grow(file, portion, present):
                present += PORTION_BYTES
            file.sync()
        finally:
            file.close()
        self._gives_way = False

    def spending(self, length: int, write: Callable[[], T]) -> T:
        """Returns the result of `write`, which needs about `length` bytes. While the disk is full, the reserve gives way
        for it.

        `write` must undo its changes when it fails, for it is called again.
        """
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in _NO_SPACE or not self._give_way(length):
                    raise

    def _grow(self, file: DiskFile, portion: bytes, present: int) -> bool:
        try:
            file.pwrite(portion, present)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            file.truncate(present)
            return False
        return True

    def _give_way(self, length: int) -> bool:
        """Shrinks the reserve by the space that these bytes need on any file system; returns False if nothing is left."""
        present = self.size()
        if not present:
            return False
        left = max(0, present - (length // _BLOCK_BYTES + 2) * _BLOCK_BYTES)
        file = self._disk.open(self.path)
        try:
            file.truncate(left)
            file.sync()
        finally:
            file.close()
        if not self._gives_way:
            self._gives_way = True
            _log.warning("registry_reserve_used", path=self.path, left_bytes=left, reason="the disk is full")
        return True


def _wanted_bytes(journal_length: int) -> int:
    return max(RESERVE_BYTES, _JOURNALS * journal_length)
