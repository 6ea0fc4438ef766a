"""`Disk` on a POSIX file system.

How a file stays safe across threads: reads and syncs run on offload threads while the event loop may close
the same file. A descriptor number that is closed under a running call could be given to another file at once,
and the call would read or sync that one. So the number lives in a `_Descriptor`, every call holds a reference
to it for its duration, and the last reference to go closes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.runtime.mapped_range import map_range
from odradek.runtime.ports import Buffer
from odradek.runtime.real_cold_reads import ColdReads

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = lazy("ctypes")

LOCK_FILE_NAME: Final = ".lock"
_IOV_MAX: Final = min(1024, os.sysconf("SC_IOV_MAX"))
_FILE_MODE: Final = 0o640
_KNOWS_CACHE: Final = hasattr(os, "RWF_NOWAIT")
_CANNOT_TELL: Final = (errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors of a probe of the page cache on tmpfs, on network file systems and on old kernels."""
_TAKES_ADVICE: Final = hasattr(os, "posix_fadvise")
PROBE_BYTES: Final = 128 * 1024
"""The distance of two probes of the page cache: what is brought or dropped at a time is larger."""
_PROBE_STEP_BYTES: Final = 37 * 4096
"""How far the probes of a range move from one time to the next: they come to the same pages again after 32 times."""
BRING_BYTES: Final = 1 << 20
"""The bytes that a thread brings into memory at a time."""
BRING_BYTES_BESIDE_SYNCS: Final = 256 * 1024
"""The same where the disk has syncs to do: each of them waits for such a piece."""


def _sync_descriptor(number: int) -> None:
    if sys.platform == "darwin":  # fsync there stops at the drive's cache
        fcntl.fcntl(number, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(number)


_SYNC_FILE_RANGE_WRITE: Final = 2
_NOT_STARTED: Final = frozenset(
    (
        errno.EINVAL,
        errno.ESPIPE,
        errno.ENOSYS,
        errno.EPERM,
        errno.EOPNOTSUPP,
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EINTR,
    )
)
"""Errors by which nothing is lost: it cannot be done, or is left to the sync. `_sync_threads.py` has the same ones."""


@cache
def sync_file_range() -> Any | None:
    """Returns sync_file_range(2) of the C library; None where there is none."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


def start_writing(number: int) -> int:
    """Starts to write the file without a wait. Returns the errno if content was lost: a sync need not report it again."""
    call = sync_file_range()
    if call is None or call(number, 0, 0, _SYNC_FILE_RANGE_WRITE) == 0:
        return 0
    code = ctypes.get_errno()
    return 0 if code in _NOT_STARTED else code


class _Descriptor:
    """Owns a descriptor number, and closes it when the last reference goes: implements `OpenDescriptor`."""

    __slots__ = ("_cold_reads", "_probe_bytes", "_reads_ahead", "number", "path")

    def __init__(self, number: int, path: str, cold_reads: ColdReads) -> None:
        self.number: Final = number
        self.path: Final = path
        self._cold_reads = cold_reads
        self._probe_bytes = 0
        self._reads_ahead = _TAKES_ADVICE

    def sync_began(self) -> None:
        self._cold_reads.sync_began()

    def sync_ended(self) -> None:
        self._cold_reads.sync_ended()

    def stop_reading_ahead(self) -> None:
        """Makes the kernel read what it is asked for, and no more. Otherwise even a probe of the page cache, on the event loop,
        starts reads of the disk's whole `read_ahead_kb`, which may be megabytes."""
        if self._reads_ahead:
            os.posix_fadvise(self.number, 0, 0, os.POSIX_FADV_RANDOM)
            self._reads_ahead = False

    def probes(self, length: int, position: int) -> tuple[int, ...]:
        """Returns positions in the range at which to ask whether it is in memory. Those between the first and the last byte are
        others each time: a probe brings its own page, which would answer for its neighbours the next time."""
        self._probe_bytes = (self._probe_bytes + _PROBE_STEP_BYTES) % PROBE_BYTES
        last = position + length - 1
        return (position, *range(position + self._probe_bytes % max(length, 1), last, PROBE_BYTES), last)

    def __del__(self) -> None:
        with suppress(OSError):  # a late write error: `sync` is where durability is promised
            os.close(self.number)


class PosixFile:
    """An open file of this machine: implements `DiskFile`. Several threads may use it at once, `close` included."""

    __slots__ = (
        "_access",
        "_cold_reads",
        "_descriptor",
        "_lost_errno",
        "_mappable",
        "can_probe",
        "path",
    )

    def __init__(self, number: int, path: str, access: int, cold_reads: ColdReads) -> None:
        self._cold_reads = cold_reads
        self._descriptor: _Descriptor | None = _Descriptor(number, path, cold_reads)
        self.path = path
        self._access: int | None = access
        """How it is opened again after a rest; None once it is closed."""
        self._mappable = True
        self._lost_errno = 0
        """Why content was lost when it began to be written; 0 if none was."""
        self.can_probe = _KNOWS_CACHE

    def _held(self) -> _Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            if self._access is None:
                raise OSError(errno.EBADF, "the file is closed", self.path)
            number = os.open(self.path, self._access | os.O_CLOEXEC)
            descriptor = self._descriptor = _Descriptor(number, self.path, self._cold_reads)
        return descriptor

    def rest(self) -> bool:
        descriptor = self._descriptor
        if descriptor is not None and not _names(self.path, descriptor.number):
            return False
        self._descriptor = None
        return self._access is not None

    def pread(self, length: int, position: int) -> bytes:
        descriptor = self._held()
        try:
            first = os.pread(descriptor.number, length, position)
            if len(first) == length or not first:
                return first
            return first + self._pread_rest(descriptor.number, length - len(first), position + len(first))
        except OSError as error:
            error.filename = self.path
            del descriptor  # who keeps the error keeps this frame, and must not keep the file open
            raise

    @staticmethod
    def _pread_rest(number: int, length: int, position: int) -> bytes:
        pieces = []
        while length > 0:
            piece = os.pread(number, length, position)
            if not piece:
                break
            pieces.append(piece)
            length -= len(piece)
            position += len(piece)
        return b"".join(pieces)

    def is_at_hand(self, length: int, position: int) -> bool:
        if not self.can_probe:
            return False
        descriptor, probe = self._held(), bytearray(1)
        try:
            descriptor.stop_reading_ahead()
            for at in descriptor.probes(length, position):
                os.preadv(descriptor.number, [probe], at, os.RWF_NOWAIT)
        except OSError as error:  # not there; or the file system cannot tell: then it may not be there
            self.can_probe = error.errno not in _CANNOT_TELL
            return False
        return True

    def bring(self, length: int, position: int) -> None:
        buffer, end = memoryview(bytearray(min(length, BRING_BYTES))), position + length
        with suppress(OSError):  # closed or removed meanwhile, or the disk fails: a later read meets that
            descriptor = self._held()
            descriptor.stop_reading_ahead()
            while position < end:
                limit = BRING_BYTES_BESIDE_SYNCS if self._cold_reads.meet_syncs else BRING_BYTES
                piece = buffer[: min(limit, end - position)]
                count = self._cold_reads.read(partial(os.preadv, descriptor.number, [piece], position))
                if count == 0:
                    break
                position += count

    def map(self, length: int, position: int) -> memoryview | None:
        if not self._mappable or length <= 0:
            return None
        descriptor = self._held()  # until it is mapped: its number may be another file's once it is closed
        return map_range(descriptor.number, length, position, self._unreadable)

    def _unreadable(self) -> None:
        self._mappable = False  # from now on `pread` meets the error, and raises it

    def pwrite(self, data: Buffer, position: int) -> None:
        descriptor = self._held()
        try:
            written = os.pwrite(descriptor.number, data, position)
            total = memoryview(data).nbytes
            while written < total:
                rest = memoryview(data).cast("B")[written:]
                written += _progress(os.pwrite(descriptor.number, rest, position + written))
        except OSError as error:
            error.filename = self.path
            del descriptor  # who keeps the error keeps this frame, and must not keep the file open
            raise

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        descriptor = self._held()
        try:
            for start in range(0, len(buffers), _IOV_MAX):
                position = _write_vector(descriptor.number, buffers[start : start + _IOV_MAX], position)
        except OSError as error:
            error.filename = self.path
            del descriptor  # who keeps the error keeps this frame, and must not keep the file open
            raise

    def truncate(self, length: int) -> None:
        descriptor = self._held()
        try:
            os.ftruncate(descriptor.number, length)
        except OSError as error:
            error.filename = self.path
            del descriptor  # who keeps the error keeps this frame, and must not keep the file open
            raise

    def sync(self) -> None:
        descriptor = self._held()
        self._cold_reads.sync_began()
        try:
            _sync_descriptor(descriptor.number)
            if self._lost_errno:
                raise OSError(self._lost_errno, os.strerror(self._lost_errno))
        except OSError as error:
            error.filename = self.path
            del descriptor  # who keeps the error keeps this frame, and must not keep the file open
            raise
        finally:
            self._cold_reads.sync_ended()

    def begin_sync(self) -> None:
        descriptor = self._descriptor
        if descriptor is not None:
            # The sync of a new file allocates its blocks, and where there is a journal that needs a commit; files that were
            # begun together share one.
            self._lost_errno = self._lost_errno or start_writing(descriptor.number)

    def descriptor(self) -> _Descriptor | None:
        return self._descriptor

    def length(self) -> int:
        descriptor = self._held()
        return os.fstat(descriptor.number).st_size

    def close(self) -> None:
        self._access = self._descriptor = None


def _progress(written: int) -> int:
    if written == 0:  # POSIX allows it, and endless retries would hang the broker
        raise OSError(errno.EIO, "the file system accepted no bytes and gave no reason")
    return written


def _write_vector(number: int, buffers: Sequence[Buffer], position: int) -> int:
    """Writes at most `_IOV_MAX` buffers, going on after short writes; returns the position after them."""
    total = sum(memoryview(buffer).nbytes for buffer in buffers)
    if total == 0:
        return position
    written = _progress(os.pwritev(number, buffers, position))
    while written < total:
        rest = _skip(buffers, written)
        written += _progress(os.pwritev(number, rest, position + written))
    return position + total


def _skip(buffers: Sequence[Buffer], count: int) -> list[memoryview]:
    """Returns `buffers` without their first `count` bytes."""
    rest = []
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if count < view.nbytes:
            rest.append(view[count:])
        count = max(0, count - view.nbytes)
    return rest


class PosixLock:
    """A lock on a directory by flock(2), which the kernel releases however the process ends: implements `DirectoryLock`."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number: int | None = number

    def release(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            os.close(number)


class PosixDisk:
    """The file system of this machine: implements `Disk`."""

    __slots__ = ("_cold_reads",)

    def __init__(self) -> None:
        self._cold_reads: dict[int, ColdReads] = {}
        """Its keys are numbers of devices: syncs of one hold up no reads of another."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> PosixFile:
        access = os.O_RDWR if write else os.O_RDONLY
        number = os.open(path, access | os.O_CLOEXEC | (os.O_CREAT if create else 0), _FILE_MODE)
        try:
            device = os.fstat(number).st_dev
        except OSError:
            os.close(number)
            raise
        cold_reads = self._cold_reads.get(device)
        if cold_reads is None:
            cold_reads = self._cold_reads.setdefault(device, ColdReads())
        return PosixFile(number, path, access, cold_reads)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def length(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified(self, path: str, modified_ms: int) -> None:
        nanoseconds = modified_ms * 1_000_000
        os.utime(path, ns=(nanoseconds, nanoseconds))

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(number)

    def read(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        try:
            self._write_and_sync(temporary, data)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        self.sync_directory(os.path.dirname(path))

    def _write_and_sync(self, path: str, data: bytes) -> None:
        file = self.open(path, create=True)
        try:
            file.truncate(0)  # what an earlier crash may have left
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> PosixLock:
        try:
            return self.lock_file(os.path.join(path, LOCK_FILE_NAME))
        except BlockingIOError as error:
            message = "another process uses this directory and holds its lock"
            raise BlockingIOError(errno.EWOULDBLOCK, message, error.filename) from None

    def lock_file(self, path: str, *, create: bool = True) -> PosixLock:
        while True:
            number = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), _FILE_MODE)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _names(path, number):
                    return PosixLock(number)
                os.close(
                    number
                )  # it was removed in between: the lock of a file without a name keeps no one out
            except BlockingIOError:
                os.close(number)
                raise BlockingIOError(errno.EWOULDBLOCK, "another process holds its lock", path) from None
            except OSError as error:
                os.close(number)
                error.filename = path
                raise


def _names(path: str, number: int) -> bool:
    """Returns whether the path leads to the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(number))
    except FileNotFoundError:
        return False
