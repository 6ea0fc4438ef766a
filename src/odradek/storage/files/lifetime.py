"""Tells work on other threads whether a log is still open, and which errors of the system pass."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Final

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that pass when there is space again."""
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of the process or the machine, not of a disk: nothing was touched, and the same call may succeed later."""


class LogLifetime:
    """Whether a log is still open and sound, for work on other threads.

    Work that touches files by name runs under the lock. Closing takes it, too, so it waits for such work, and work that
    comes later does nothing: the directory may be another topic's by then. After an OSError all later work fails with it:
    an fsync that is tried again succeeds without having written anything.
    """

    __slots__ = ("_failure", "_lock", "alive", "replaced", "truncation_count")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failure: str | None = None
        self.alive = True
        self.truncation_count = 0
        """How often the files were cut: a job that was made for earlier files must not touch them."""
        self.replaced: dict[str, int] = {}
        """The number of the last change to each small file, by path. An older job must not undo it."""

    def end(self) -> None:
        with self._lock:
            self.alive = False

    def end_unless_busy(self) -> bool:
        """Ends the life like `end`, unless work is under way; returns False, without an effect, in that case."""
        if not self._lock.acquire(blocking=False):
            return False
        self.alive = False
        self._lock.release()
        return True

    def attempt(self, work: Callable[[], object]) -> bool:
        """Runs work that the log can do without; its errors do not fail the log. Returns False, without running it, when the
        log is closed or failed.
        """
        with self._lock:
            if not self.alive or self._failure is not None:
                return False
            work()
            return True

    def run(self, work: Callable[[], None]) -> None:
        with self._lock:
            if not self.alive:
                return
            if self._failure is not None:
                raise OSError(errno.EIO, f"an earlier error was final: {self._failure}")
            try:
                work()
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:  # nothing was tried, so nothing is lost
                    self._failure = str(error)
                raise
