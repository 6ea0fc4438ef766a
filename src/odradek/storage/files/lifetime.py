"""Tells work on other threads whether a log is still open, and which errors of the system pass."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.runtime.ports import SyncGroup

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that pass when there is space again."""
NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of the process or the machine, not of a disk: nothing was touched, and the same call may succeed later."""


class LogSync(NamedTuple):
    """The sync of a log's file in a group of `FileSyncs`."""

    group: SyncGroup
    position: int
    """Which file of the group it is."""


class LogLifetime:
    """Whether a log is still open and sound, for work on other threads.

    Work that touches files by name runs under the lock. Closing takes it, too, so it waits for such work, and work that
    comes later does nothing: the directory may be another topic's by then. After an OSError all later work fails with it:
    an fsync that is tried again succeeds without having written anything.

    A sync by `FileSyncs` is work as well, but no thread of Python holds the lock for it: the loop would have to release it, and
    may wait for it. Whatever takes the lock waits for the sync itself, which needs neither the loop nor the interpreter.
    """

    __slots__ = ("_failure", "_lock", "_sync", "alive", "replaced", "truncation_count")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._sync: LogSync | None = None
        """The sync by `FileSyncs` that is under way, or whose outcome was not noted yet."""
        self.alive = True
        self.truncation_count = 0
        """How often the files were cut: a job that was made for earlier files must not touch them."""
        self.replaced: dict[str, int] = {}
        """The number of the last change to each small file, by path. An older job must not undo it."""

    def end(self) -> None:
        with self._lock:
            self._finish_sync()
            self.alive = False

    def end_unless_busy(self) -> bool:
        """Ends the life like `end`, unless work is under way; returns False, without an effect, in that case."""
        if not self._lock.acquire(blocking=False):
            return False
        is_free = self._sync is None or self._sync.group.is_over
        if is_free:
            self._finish_sync()
            self.alive = False
        self._lock.release()
        return is_free

    def attempt(self, work: Callable[[], object]) -> bool:
        """Runs work that the log can do without; its errors do not fail the log. Returns False, without running it, when the
        log is closed or failed.
        """
        with self._lock:
            self._finish_sync()
            if not self.alive or self._failure is not None:
                return False
            work()
            return True

    def run(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._finish_sync()
            if not self.alive:
                return
            self.check_sound()
            try:
                work()
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:  # nothing was tried, so nothing is lost
                    self._failure = str(error)
                raise

    def check_sound(self) -> None:
        """Raises OSError after one that was final. For work of the life's holder, and for the last work, after `end`."""
        if self._failure is not None:
            raise OSError(errno.EIO, f"an earlier error was final: {self._failure}")

    # ---- syncs by `FileSyncs` -----------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Takes the lock for the beginning of a sync, on the loop: no work begins until `release`. Returns False, without
        waiting, if there is work under way, or the log is closed or failed: its flush belongs on a thread."""
        if not self._lock.acquire(blocking=False):
            return False
        if self.alive and self._failure is None and self._sync is None:
            return True
        self._lock.release()
        return False

    def release(self) -> None:
        """Ends a `hold`."""
        self._lock.release()

    def sync_begun(self, sync: LogSync) -> None:
        """Notes, during a `hold`, that the sync is under way."""
        self._sync = sync

    def sync_ended(self, sync: LogSync) -> OSError | None:
        """Notes on the loop that the sync's group is over; returns the error, which is final. Takes no lock: work that has it
        notes the same."""
        error = sync.group.error(sync.position)
        if error is not None:
            self._failure = str(error)
        if self._sync is sync:
            self._sync = None
        return error

    def _finish_sync(self) -> None:
        """Waits for the sync under way, if any, and notes its outcome; with the lock."""
        sync = self._sync
        if sync is not None:
            sync.group.wait()
            self.sync_ended(sync)
