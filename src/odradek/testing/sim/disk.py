"""`SimDisk`: the Disk port over a `Medium`, one mount for each life of a host.

Each operation is an I/O point: first the point is counted, traced and shown to the faults, then the operation
acts. A crash revokes the mount before anything else, so that every later call on it, or on a file opened
through it, raises `HostCrashed`: nothing can be tidied up by a process that is dead.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Final
from zlib import crc32

from odradek.runtime.ports import Buffer
from odradek.testing.sim.disk_faults import Crash, CrashKind, DiskFault, Failure, Outcome, Point
from odradek.testing.sim.failures import HostCrashed
from odradek.testing.sim.medium import Folder, Inode, Medium, split_path
from odradek.testing.sim.trace import Trace


class SimDisk:
    """The simulated disk of one life of a host: implements `Disk`. The medium survives it."""

    def __init__(
        self,
        medium: Medium,
        *,
        rng: Random,
        trace: Trace | None = None,
        now_ms: Callable[[], int] = int,
        faults: Sequence[DiskFault] = (),
        on_crash: Callable[[CrashKind], None] | None = None,
        on_point: Callable[[], None] | None = None,
    ) -> None:
        """`on_point` runs before each operation (a worker gives way there); `on_crash` when a
        fault kills the host.
        """
        self.medium = medium
        self.faults: list[DiskFault] = list(faults)
        self.point_count = 0
        self.failure_count = 0
        """Operations that faults answered with an error."""
        self.points: list[Point] | None = None
        self._rng = rng
        self._trace = trace or Trace()
        self._now_ms = now_ms
        self._on_crash = on_crash
        self._on_point = on_point
        self._revoked = False

    # -- dying -----------------------------------------------------------------------------------------------

    @property
    def is_revoked(self) -> bool:
        return self._revoked

    def crash(self, kind: CrashKind) -> None:
        """End this mount. After a power loss the medium holds only what survived."""
        if self._revoked:
            return
        self._revoked = True
        self._trace.note("crash", kind.value)
        if kind is CrashKind.POWER_LOSS:
            self.medium.lose_power(self._rng)
        if self._on_crash is not None:
            self._on_crash(kind)

    def enter(self, operation: str, path: str, detail: object = None) -> Outcome | None:
        """Pass an I/O point: raise if the host is dead, else return the planned fault."""
        self.check_alive()
        if self._on_point is not None:
            self._on_point()
            if self._revoked:
                raise HostCrashed
        self.point_count += 1
        self._trace.note(operation, path, detail)
        if self.points is None and not self.faults:
            return None
        point = Point(number=self.point_count, operation=operation, path=path)
        if self.points is not None:
            self.points.append(point)
        for fault in self.faults:
            outcome = fault.at(point)
            if outcome is not None:
                self._trace.note("fault", outcome)
                self.failure_count += isinstance(outcome, Failure)
                return outcome
        return None

    def check_alive(self) -> None:
        if self._revoked:
            raise HostCrashed

    def settle(self, outcome: Outcome | None, path: str, act: Callable[[], object] | None = None) -> None:
        """Carry out an operation that happens as a whole or not at all: `act`, an error, or a
        crash around it.
        """
        if isinstance(outcome, Failure):
            raise OSError(outcome.number, os.strerror(outcome.number), path)
        if isinstance(outcome, Crash):
            if outcome.done >= 0.5 and act is not None:
                act()
            self.die(outcome)
        if act is not None:
            act()

    def die(self, crash: Crash) -> None:
        self.crash(crash.kind)
        raise HostCrashed

    # -- files -----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = True) -> SimFile:
        outcome = self.enter("create" if create else "open", path)
        parent, name = split_path(path)
        folder = self.medium.folder(parent)
        if name not in folder.names and create:
            self._need_space(path)
            self.settle(outcome, path, lambda: folder.link(name, Inode(self._now_ms())))
        else:
            self.settle(outcome, path)
        return SimFile(self, self.medium.file(path), path, writable=write)

    def read(self, path: str) -> bytes:
        self.settle(self.enter("read", path), path)
        return bytes(self.medium.file(path).cache)

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            file.sync()
            self.rename(temporary, path)
        except OSError:
            if self.exists(temporary):
                self.remove(temporary)
            raise
        finally:
            file.close()
        self.sync_directory(split_path(path)[0])

    def _need_space(self, path: str) -> None:
        if self.medium.free_bytes() == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def now_ms(self) -> int:
        return self._now_ms()

    def chance(self) -> Random:
        return self._rng

    # -- names -----------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        self.check_alive()
        try:
            self.medium.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, path: str) -> bool:
        self.check_alive()
        return self.exists(path) and isinstance(self.medium.find(path), Folder)

    def length(self, path: str) -> int:
        self.check_alive()
        return len(self.medium.file(path).cache)

    def modified_ms(self, path: str) -> int:
        self.check_alive()
        return self.medium.file(path).modified_ms

    def set_modified(self, path: str, modified_ms: int) -> None:
        self.check_alive()
        self.medium.file(path).modified_ms = modified_ms

    def list_directory(self, path: str) -> list[str]:
        self.check_alive()
        return sorted(self.medium.folder(path).names)

    def make_directory(self, path: str) -> None:
        outcome = self.enter("make_directory", path)
        self.settle(outcome, path, lambda: self._make_folders(path))

    def _make_folders(self, path: str) -> None:
        if self.exists(path):
            if not self.is_directory(path):
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            return
        parent, name = split_path(path)
        if not self.exists(parent):
            self._make_folders(parent)
        self.medium.folder(parent).link(name, Folder())

    def remove_directory(self, path: str) -> None:
        if not self.exists(path):
            self.settle(self.enter("remove_directory", path), path)
            return
        folder = self.medium.folder(path)
        for name in sorted(folder.names):
            below = f"{path}/{name}"
            if self.is_directory(below):
                self.remove_directory(below)
            else:
                self.remove(below)
        parent, name = split_path(path)
        self.settle(
            self.enter("remove_directory", path), path, lambda: self.medium.folder(parent).unlink(name)
        )

    def rename(self, source: str, target: str) -> None:
        outcome = self.enter("rename", source, target)
        self.medium.find(source)
        (parent, name), (target_parent, target_name) = split_path(source), split_path(target)
        if parent != target_parent:
            raise OSError(errno.EXDEV, "the simulated disk renames only within one directory", source)
        self._check_replaceable(source, target)
        self.settle(outcome, source, lambda: self.medium.folder(parent).move(name, target_name))

    def _check_replaceable(self, source: str, target: str) -> None:
        if not self.exists(target):
            return
        entry = self.medium.find(target)
        if isinstance(self.medium.find(source), Inode):
            self.medium.file(target)
        elif isinstance(entry, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "a file is in the way", target)
        elif entry.names:
            raise OSError(errno.ENOTEMPTY, "the directory is not empty", target)

    def remove(self, path: str) -> None:
        outcome = self.enter("remove", path)
        self.medium.file(path)
        parent, name = split_path(path)
        self.settle(outcome, path, lambda: self.medium.folder(parent).unlink(name))

    def sync_directory(self, path: str) -> None:
        outcome = self.enter("sync_directory", path)
        folder = self.medium.folder(path)
        self.settle(outcome, path, folder.sync)

    def free_bytes(self, path: str) -> int:
        self.check_alive()
        self.medium.find(path)
        return self.medium.free_bytes()

    def total_bytes(self, path: str) -> int:
        self.check_alive()
        self.medium.find(path)
        return self.medium.total_bytes()

    def lock(self, path: str) -> SimLock:
        try:
            return self.lock_file(f"{path.rstrip('/')}/.lock")
        except BlockingIOError as error:
            message = "another process uses this directory and holds its lock"
            raise BlockingIOError(errno.EWOULDBLOCK, message, error.filename) from None

    def lock_file(self, path: str, *, create: bool = True) -> SimLock:
        self.open(path, create=create).close()
        inode = self.medium.file(path)
        if isinstance(inode.lock, SimLock) and inode.lock.is_held:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds its lock", path)
        taken = inode.lock = SimLock(self)
        return taken

    # -- for tests -------------------------------------------------------------------------------------------

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Yields every file with its path; also after a crash."""
        return self.medium.root.files("")


class SimLock:
    """A lock on a simulated directory: implements `DirectoryLock`. It ends with its mount."""

    __slots__ = ("_disk",)

    def __init__(self, disk: SimDisk) -> None:
        self._disk: SimDisk | None = disk

    @property
    def is_held(self) -> bool:
        return self._disk is not None and not self._disk.is_revoked

    def release(self) -> None:
        self._disk = None


_COLD_SHARE: Final = 0.1


class SimFile:
    """A file of one simulated mount: implements `DiskFile`. It keeps working when its name is removed, as POSIX requires."""

    __slots__ = ("_closed", "_disk", "_inode", "_path", "_rests", "_writable")

    def __init__(self, disk: SimDisk, inode: Inode, path: str, *, writable: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._writable = writable
        self._closed = False
        self._rests = False

    def map(self, length: int, position: int) -> memoryview | None:
        """Simulated files have no pages."""
        return None

    @property
    def can_probe(self) -> bool:
        return True

    def is_at_hand(self, length: int, position: int) -> bool:
        """Answers by chance: what a real machine keeps in memory is not guaranteed."""
        self._disk.check_alive()
        return self._disk.chance().random() >= _COLD_SHARE

    def bring(self, length: int, position: int) -> None:
        with suppress(OSError):
            self._disk.settle(self._enter("bring", (length, position)), self._path)

    def pread(self, length: int, position: int) -> bytes:
        self._disk.settle(self._enter("pread", (length, position)), self._path)
        return bytes(self._inode.cache[position : position + length])

    def pwrite(self, data: Buffer, position: int) -> None:
        self._write("pwrite", bytes(data), position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._write("pwritev", b"".join(bytes(buffer) for buffer in buffers), position)

    def _write(self, operation: str, data: bytes, position: int) -> None:
        outcome = self._enter(operation, (position, len(data), crc32(data)))
        self._check_writable()
        if not data and outcome is None:
            return
        room = self._room(position, len(data))
        if outcome is None and room == len(data):
            self._inode.write(data, position, self._disk.now_ms())
            return
        share = len(data) if outcome is None else int(outcome.done * len(data))
        if min(room, share) > 0:
            self._inode.write(data[: min(room, share)], position, self._disk.now_ms())
        if isinstance(outcome, Crash):
            self._disk.die(outcome)
        number = outcome.number if isinstance(outcome, Failure) else errno.ENOSPC
        raise OSError(number, os.strerror(number), self._path)

    def _room(self, position: int, length: int) -> int:
        """Returns how many of `length` bytes the medium can still take."""
        if self._disk.medium.capacity_bytes is None:
            return length
        growth = max(0, position + length - len(self._inode.cache))
        return length - max(0, growth - self._disk.medium.free_bytes())

    def truncate(self, length: int) -> None:
        outcome = self._enter("truncate", length)
        self._check_writable()
        if self._room(0, length) < length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._disk.settle(outcome, self._path, lambda: self._inode.truncate(length, self._disk.now_ms()))

    def sync(self) -> None:
        outcome = self._enter("sync", None)
        if isinstance(outcome, Failure):
            self._inode.fail_sync(self._disk.chance())
        self._disk.settle(outcome, self._path, self._inode.sync)

    def begin_sync(self) -> None:
        """Does nothing: at a power cut any part of what is not synced may be on the disk in any case."""

    def descriptor(self) -> None:
        """Returns None: what is simulated has no descriptor, and each sync is an I/O point of a worker."""

    def length(self) -> int:
        self._disk.check_alive()
        self._check_open()
        return len(self._inode.cache)

    def rest(self) -> bool:
        self._disk.check_alive()
        if self._closed or not self._leads_here():
            return False
        if self._inode.is_dirty:
            # The kernel writes it back while no one has it open: no one learns of an error of that.
            self._inode.fail_sync(self._disk.chance())
        self._rests = True
        return True

    def _leads_here(self) -> bool:
        try:
            return self._disk.medium.file(self._path) is self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Closes the file. That needs no live host: a dead process has closed everything."""
        self._closed = True

    def _enter(self, operation: str, detail: object) -> Outcome | None:
        if self._closed or self._rests:
            self._wake()
        return self._disk.enter(operation, self._path, detail)

    def _wake(self) -> None:
        """Opens a file that rests. Raises OSError when it is closed."""
        self._disk.check_alive()
        self._check_open()
        if self._rests:
            self._disk.settle(self._disk.enter("open", self._path), self._path)
            if not self._leads_here():
                raise FileNotFoundError(errno.ENOENT, "the name of a resting file was removed", self._path)
            self._rests = False

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self._path)

    def _check_writable(self) -> None:
        if not self._writable:
            raise OSError(errno.EBADF, "the file is open for reading only", self._path)
