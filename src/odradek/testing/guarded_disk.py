"""A disk that refuses work which makes the event loop wait: syncs, changes of names, large reads and writes.

An fsync on the loop stops every client of the broker for as long as the disk takes. Code that does it looks right and passes
its tests, so tests and the simulator use this disk: the call raises, and `violations` keeps it for a root that swallows the
error.

What counts as the loop's thread: one on which an event loop is running. The simulator's offload runs work on
threads of its own, on which no loop runs, so the guard allows it everything. A test's offload that runs work
on the calling thread marks it with `off_loop`. Exceptions are in `ALLOWED`, each with its reason.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, NamedTuple

from odradek.runtime.ports import Buffer, DirectoryLock, Disk, DiskFile, OpenDescriptor

LARGE_READ_BYTES: Final = 2 * 1024 * 1024
"""The size above which one read belongs on a thread: the copy alone takes half a millisecond, and the disk may be slow."""
LARGE_WRITE_BYTES: Final = 128 * 1024 * 1024
"""An append is one write of the loop into the page cache, as large as a request may be."""


class AllowedPlace(NamedTuple):
    """A function that may block the loop, with everything that it calls."""

    module: str
    function: str
    """Its qualified name."""
    reason: str


ALLOWED: Final = (
    AllowedPlace("odradek.broker.stores", "open_stores", "start-up: nothing is served yet"),
    AllowedPlace(
        "odradek.storage.directories.log_manager", "LogManager.open", "start-up: nothing is served yet"
    ),
    AllowedPlace("odradek.registry.embedded", "EmbeddedRegistry.open", "start-up: nothing is served yet"),
    AllowedPlace(
        "odradek.storage.directories.log_manager",
        "LogManager.close",
        "the end: nothing is served any more",
    ),
    AllowedPlace(
        "odradek.storage.cleaning.access",
        "CleaningAccess.abort",
        "a truncation meets a compaction that is putting a segment in place: three renames, before the segments change",
    ),
    AllowedPlace(
        "odradek.storage.log.log",
        "Log.open",
        "for tests and tools: a broker opens logs with `Log.opening`, on threads",
    ),
)


class LoopBlockedError(AssertionError):
    """The event loop's thread was about to wait for a disk."""


class _Here(threading.local):
    is_off_loop = 0


_HERE: Final = _Here()
violations: Final[list[str]] = []
"""The refusals since the list was cleared: a root that logs every error must not hide them from a test."""


@contextmanager
def off_loop() -> Iterator[None]:
    """Treats this thread as a thread of an offload while the context is open."""
    _HERE.is_off_loop += 1
    try:
        yield
    finally:
        _HERE.is_off_loop -= 1


def check_off_loop(operation: str, path: str) -> None:
    """Raises LoopBlockedError on a thread that runs an event loop, unless an allowed function asked for it."""
    if asyncio._get_running_loop() is None or _HERE.is_off_loop:
        return
    frame: FrameType | None = sys._getframe(1)
    asked_by = []
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        if any(place.module == module and place.function == function for place in ALLOWED):
            return
        if module.startswith("odradek.") and module != __name__:
            asked_by.append(f"{module.removeprefix('odradek.')}.{function}")
        frame = frame.f_back
    message = f"{operation} of {path} on the event loop: give it to the offload; asked for by {' < '.join(asked_by)}"
    violations.append(message)
    raise LoopBlockedError(message)


class GuardedFile:
    """A file that refuses operations that block the event loop: implements `DiskFile`."""

    __slots__ = ("_file", "_path")

    def __init__(self, file: DiskFile, path: str) -> None:
        self._file = file
        self._path = path

    def pread(self, length: int, position: int) -> bytes:
        if length > LARGE_READ_BYTES:
            check_off_loop(f"a read of {length} bytes", self._path)
        return self._file.pread(length, position)

    @property
    def can_probe(self) -> bool:
        return self._file.can_probe

    def is_at_hand(self, length: int, position: int) -> bool:
        return self._file.is_at_hand(length, position)

    def bring(self, length: int, position: int) -> None:
        check_off_loop(f"a read of {length} bytes ahead", self._path)
        self._file.bring(length, position)

    def map(self, length: int, position: int) -> memoryview | None:
        return self._file.map(length, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._check_write(memoryview(data).nbytes)
        self._file.pwrite(data, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check_write(sum(memoryview(buffer).nbytes for buffer in buffers))
        self._file.pwritev(buffers, position)

    def _check_write(self, length: int) -> None:
        if length > LARGE_WRITE_BYTES:
            check_off_loop(f"a write of {length} bytes", self._path)

    def truncate(self, length: int) -> None:
        self._file.truncate(length)

    def sync(self) -> None:
        check_off_loop("a sync", self._path)
        self._file.sync()

    def begin_sync(self) -> None:
        self._file.begin_sync()

    def descriptor(self) -> OpenDescriptor | None:
        return self._file.descriptor()

    def length(self) -> int:
        return self._file.length()

    def rest(self) -> bool:
        return self._file.rest()

    def close(self) -> None:
        self._file.close()


class GuardedDisk:
    """A disk that refuses operations that block the event loop: implements `Disk`."""

    __slots__ = ("_disk",)

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        return GuardedFile(self._disk.open(path, create=create, write=write), path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._disk.is_directory(path)

    def length(self, path: str) -> int:
        return self._disk.length(path)

    def modified_ms(self, path: str) -> int:
        return self._disk.modified_ms(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._disk.set_modified(path, modified_ms)

    def list_directory(self, path: str) -> list[str]:
        return self._disk.list_directory(path)

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(path)

    def remove_directory(self, path: str) -> None:
        check_off_loop("the removal of a directory", path)
        self._disk.remove_directory(path)

    def rename(self, source: str, target: str) -> None:
        check_off_loop("a rename", source)
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        check_off_loop("the removal", path)
        self._disk.remove(path)

    def sync_directory(self, path: str) -> None:
        check_off_loop("a sync", path)
        self._disk.sync_directory(path)

    def read(self, path: str) -> bytes:
        if self._disk.exists(path) and self._disk.length(path) > LARGE_READ_BYTES:
            check_off_loop("a large read", path)
        return self._disk.read(path)

    def replace(self, path: str, data: bytes) -> None:
        check_off_loop("the replacement", path)
        self._disk.replace(path, data)

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._disk.total_bytes(path)

    def lock(self, path: str) -> DirectoryLock:
        return self._disk.lock(path)

    def lock_file(self, path: str, *, create: bool = True) -> DirectoryLock:
        return self._disk.lock_file(path, create=create)
