"""The broker's needs from the outside world, as protocols: clock, chance, disk, and threads.

The network is asyncio's event loop itself (`loop.create_server`, `loop.create_connection`, `asyncio.sleep`):
the simulator replaces the loop. Everything else arrives as an argument through `Runtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from odradek.runtime.descriptors import UNLIMITED, DescriptorBudget

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """The wall clock and the monotonic clock, which must not be mixed up."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC. It may jump either way: use it only for what is stored."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back: use it for every duration and deadline."""


class Entropy(Protocol):
    """The source of random values."""

    def uuid(self) -> UUID:
        """Returns a random (version 4) UUID."""

    def uniform(self) -> float:
        """Returns a float in [0, 1)."""


class Offload(Protocol):
    """Runs blocking work (fsync, cold reads, large decompression) away from the event loop."""

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Calls `work(*arguments)` on another thread and returns (or raises) its outcome."""

    def submit(
        self,
        done: Callable[[T | None, BaseException | None], None],
        work: Callable[..., T],
        *arguments: object,
    ) -> None:
        """Calls `work(*arguments)` on another thread, and then `done(value, error)` on the loop: `run` for callers that have
        no coroutine. Work that has not begun when the offload closes may end with CancelledError, or never."""


class OpenDescriptor(Protocol):
    """A descriptor of a file, open as long as this object lives."""

    @property
    def number(self) -> int: ...

    @property
    def path(self) -> str:
        """The path by which the file was opened."""

    def sync_began(self) -> None:
        """Notes that `FileSyncs` syncs the file: reads that bring data of the same disk into memory give way."""

    def sync_ended(self) -> None:
        """Notes that this sync is over."""


class DiskFile(Protocol):
    """An open file. All methods block, raise OSError, and take positions in bytes from the file's start."""

    def pread(self, length: int, position: int) -> bytes:
        """Returns up to `length` bytes at `position`; fewer only at the end of the file."""

    def map(self, length: int, position: int) -> memoryview | None:
        """Returns the bytes of the file for the kernel to read, not for this process: see `runtime/mapped_range.py`.

        None where there is no such thing: use `pread`.
        """

    @property
    def can_probe(self) -> bool:
        """False once it is known that the system cannot tell what is in memory: `is_at_hand` is never true then."""

    def is_at_hand(self, length: int, position: int) -> bool:
        """Returns whether, by a few probes, a read would not have to wait for the disk. Never blocks."""

    def bring(self, length: int, position: int) -> None:
        """Reads it into the page cache, not into this process's memory. Blocks. Raises nothing, even if the file is
        closed, cut or removed meanwhile: the reader meets the error."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Writes all of `data` at `position`. When it raises, any part of `data` may be in the file."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes several buffers one after another as `pwrite` does, in as few system calls as possible."""

    def truncate(self, length: int) -> None:
        """Cuts (or extends with zeros) to `length` bytes."""

    def sync(self) -> None:
        """Makes content and length durable (fdatasync). After an OSError the content must not be trusted."""

    def begin_sync(self) -> None:
        """Makes the disk begin to write the content, so that a `sync` that follows waits less. Promises nothing, and raises
        nothing: the `sync` meets the error."""

    def descriptor(self) -> OpenDescriptor | None:
        """Returns the file's descriptor, for `FileSyncs`; None while the file rests, is closed, or where files have none."""

    def length(self) -> int:
        """Returns the bytes in the file now."""

    def rest(self) -> bool:
        """Closes the descriptor until the file is used again, by its path. Returns False, without an effect, where that no
        longer leads to it. For files whose content is synced."""

    def close(self) -> None:
        """Closes the file. Idempotent. Does not sync."""


class DirectoryLock(Protocol):
    """An exclusive lock on a file, or on a directory by a file in it, held until released or until the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings. All methods block and raise OSError.

    A new, renamed or removed name is durable only after `sync_directory` of its parent.
    """

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """Opens for reading and (by default) writing. Raises FileNotFoundError unless it exists or `create`."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def length(self, path: str) -> int:
        """Returns the bytes in the file, without opening it."""

    def modified_ms(self, path: str) -> int:
        """Returns the time of the content's last change, in ms since 1970."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Sets the time of the file's last change, which `modified_ms` then returns."""

    def list_directory(self, path: str) -> list[str]:
        """Returns the names, sorted, so that no decision can depend on the file system's order."""

    def make_directory(self, path: str) -> None:
        """Creates it and its missing parents; no error if it exists."""

    def remove_directory(self, path: str) -> None:
        """Removes a directory and all it holds; no error if it is missing."""

    def rename(self, source: str, target: str) -> None:
        """Renames atomically; replaces a file at `target`."""

    def remove(self, path: str) -> None:
        """Removes a file; raises FileNotFoundError if it is missing."""

    def sync_directory(self, path: str) -> None:
        """Makes the names in this directory durable."""

    def read(self, path: str) -> bytes:
        """Returns the whole file."""

    def replace(self, path: str, data: bytes) -> None:
        """Puts `data` durably at `path` so that a crash leaves the old content or the new one, never a mix."""

    def free_bytes(self, path: str) -> int:
        """Returns the bytes that may still be written to the file system that holds `path`."""

    def total_bytes(self, path: str) -> int:
        """Returns the size of the file system that holds `path`."""

    def lock(self, path: str) -> DirectoryLock:
        """Takes the directory's exclusive lock (a file `.lock` in it).

        BlockingIOError when another process holds it.
        """

    def lock_file(self, path: str, *, create: bool = True) -> DirectoryLock:
        """Takes the exclusive lock of the file at `path`, which it makes; if `create` is false, raises FileNotFoundError
        instead.

        BlockingIOError when it is held, also by this process. It is advice to others who lock: it stops no one from
        writing.
        """


class SyncGroup(Protocol):
    """Files that `FileSyncs` syncs one after another."""

    @property
    def is_over(self) -> bool:
        """Whether every file was synced, or could not be."""

    def wait(self) -> None:
        """Waits until it is over; on any thread, the loop's own included."""

    def error(self, index: int) -> OSError | None:
        """Returns why the sync of a file failed; None if it did not. Once the group is over."""

    def seconds(self, index: int) -> float:
        """Returns how long the sync of a file took; once the group is over."""


class FileSyncs(Protocol):
    """Syncs files without a thread of Python: what `DiskFile.sync` on `Offload` does, for less."""

    def begin(self, files: Sequence[DiskFile], done: Callable[[SyncGroup], None]) -> SyncGroup | None:
        """Begins to make the contents of the files durable, and calls `done` on the running loop when that is over.

        The descriptors stay open until then, also if the files are closed. Returns None, with nothing begun, for files without
        a descriptor, for too many of them, and after `close`: use `Offload`.
        """

    def close(self) -> None:
        """Waits for what was begun, whose `done` may never be called. Idempotent. On the loop, or after its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The outside world in one value, passed down from `broker/app.py`."""

    clock: Clock
    entropy: Entropy
    disk: Disk
    offload: Offload
    descriptors: DescriptorBudget = UNLIMITED
    file_syncs: FileSyncs | None = None
    """None where only `offload` syncs files."""
    boot_id: str = ""
    """The id of the machine's current boot: another one after each start. Data that was only in its memory is
    lost then. Empty where the system does not provide one.
    """
