"""A directory for what an engine needs only while it lives, such as checkpoints of push queries.

An engine holds a lock on a file in its directory. The system ends the lock with the process, however that ends, so the next
engine knows what it may remove.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "odradek-sql-"
_LOCK: Final = "engine.lock"
_TRIES: Final = 5


class EngineScratch:
    """The directory of one engine. `parent` is the directory of all engines' directories, by default the directory for
    temporary files."""

    def __init__(self, parent: Path | None = None) -> None:
        """Removes the files of engines that ended without `close`."""
        self._parent = Path(tempfile.gettempdir()) if parent is None else parent
        remove_abandoned(self._parent)
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._parent))
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if (self.path / _LOCK).exists():
                return
            os.close(self._lock)  # another engine took it for abandoned, just before the lock
        raise OSError(f"no directory could be kept in {self._parent}")

    def directory(self, name: str) -> Path:
        """Makes a new directory in it."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.path))

    def close(self) -> None:
        """Removes it. Once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned(parent: Path) -> list[Path]:
    """Removes and returns directories of engines that have ended. Other users' directories stay."""
    removed = []
    for path in sorted(parent.glob(f"{PREFIX}*")):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR)
        except OSError:
            continue  # no engine's, or of another user
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # its engine lives
        else:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
        finally:
            os.close(lock)
    return removed
