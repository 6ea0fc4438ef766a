"""Sessions of the processes that share a journal: a file each, locked for as long as its process lives.

A process that is killed loses its lock at once. One that is stopped keeps it but leaves no new heartbeat in the file, which
also tells the session's timeout. Whether it has been silent for too long is judged by each observer on his own clock, by how
long he has looked on.
"""

from __future__ import annotations

import posixpath
from contextlib import suppress
from typing import Final

from odradek.registry.space_reserve import SpaceReserve
from odradek.runtime.ports import DirectoryLock, Disk, DiskFile, Entropy

FOLDER_NAME: Final = "registry.sessions"
_NAME_LENGTH: Final = 16
_OBSERVED_SECONDS_MAX: Final = 0.5
"""The most seconds that one check counts: an observer that was held up has seen nothing in the meantime."""


class SessionFiles:
    """The own session's file, and a view of the others'."""

    def __init__(
        self, disk: Disk, directory: str, entropy: Entropy, timeout_s: float, reserve: SpaceReserve
    ) -> None:
        self.folder = posixpath.join(directory, FOLDER_NAME)
        self._disk = disk
        self._entropy = entropy
        self._timeout_s = timeout_s
        self._reserve = reserve
        self._own = 0
        self._lock: DirectoryLock | None = None
        self._file: DiskFile | None = None
        self._beats = 0

    def begin(self) -> int:
        """Begins a session with a new id."""
        return self._reserve.spending(0, self._begin)

    def _begin(self) -> int:
        self.end()
        self._disk.make_directory(self.folder)
        while self._lock is None:
            self._own = (self._entropy.uuid().int >> 66) or 1
            with suppress(BlockingIOError):  # someone looks whether it is held: there are enough ids
                self._lock = self._disk.lock_file(self._path(self._own))
        self._file = self._disk.open(self._path(self._own), create=True)
        self.beat()
        return self._own

    def end(self) -> None:
        """Ends the session, and removes its file. Blocks, on any thread."""
        lock, self._lock = self._lock, None
        file, self._file = self._file, None
        if file is not None:
            file.close()
        if lock is not None:
            with suppress(OSError):  # others remove what is not locked
                self._disk.remove(self._path(self._own))
            lock.release()

    def relinquish(self) -> None:
        """Ends the session without waiting for a disk: the file stays, and the next process that checks removes it."""
        lock, self._lock = self._lock, None
        file, self._file = self._file, None
        if file is not None:
            file.close()
        if lock is not None:
            lock.release()

    def beat(self) -> None:
        if self._file is not None:
            self._beats += 1
            self._file.pwrite(b"%016x %016x" % (self._beats, int(self._timeout_s * 1000)), 0)

    def others(self) -> list[int]:
        """Sessions with a file, whether alive or not."""
        own = _name(self._own)
        try:
            names = self._disk.list_directory(self.folder)
        except FileNotFoundError:
            return []
        return [int(name, 16) for name in names if name != own and _is_name(name)]

    def heartbeat(self, session: int) -> bytes | None:
        """Returns the last content of the file of the session's process; None when the process has ended."""
        path = self._path(session)
        try:
            self._disk.lock_file(path, create=False).release()
        except BlockingIOError:
            with suppress(FileNotFoundError):
                return self._disk.read(path)
        except FileNotFoundError:
            pass
        return None

    def forget(self, session: int) -> None:
        """Removes the file of a process that has ended. Blocks, on any thread."""
        path = self._path(session)
        with suppress(FileNotFoundError, BlockingIOError):
            lock = self._disk.lock_file(path, create=False)
            try:
                self._disk.remove(path)
            finally:
                lock.release()

    def _path(self, session: int) -> str:
        return posixpath.join(self.folder, _name(session))


def _name(session: int) -> str:
    return f"{session:0{_NAME_LENGTH}x}"


def _is_name(name: str) -> bool:
    return len(name) == _NAME_LENGTH and all(digit in "0123456789abcdef" for digit in name)


class SessionMonitor:
    """How long each session has given no sign of life while someone looked on."""

    __slots__ = ("_heard", "_looked_at", "_silent_s")

    def __init__(self) -> None:
        self._heard: dict[int, bytes] = {}
        self._silent_s: dict[int, float] = {}
        self._looked_at: float | None = None

    def expired_sessions(self, heartbeats: dict[int, bytes | None], now: float) -> list[int]:
        """Returns the sessions that are over, judged by all heartbeats there are (None: the process has
        ended)."""
        since = 0.0 if self._looked_at is None else min(now - self._looked_at, _OBSERVED_SECONDS_MAX)
        self._looked_at = now
        for session in [known for known in self._heard if known not in heartbeats]:
            del self._heard[session], self._silent_s[session]
        for session, beat in heartbeats.items():
            if beat is not None:
                is_new = self._heard.get(session) != beat
                self._silent_s[session] = 0.0 if is_new else self._silent_s[session] + since
                self._heard[session] = beat
        return [session for session, beat in heartbeats.items() if self.is_over(session, beat)]

    def is_over(self, session: int, beat: bytes | None) -> bool:
        if beat is None:
            return True
        timeout_s = int(beat.partition(b" ")[2] or b"0", 16) / 1000
        return bool(timeout_s) and self._heard.get(session) == beat and self._silent_s[session] > timeout_s
