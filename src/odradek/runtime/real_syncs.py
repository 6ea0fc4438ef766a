"""`FileSyncs` on threads that never wait for the interpreter's lock: compiled, and for Linux alone.

A thread of Python that syncs a file waits for the interpreter's lock before and after it, and the loop waits while it has it:
five to seven switches of threads for each sync (decision 0100). These threads are woken by a condition of the C library,
and wake the loop by a descriptor that it watches. Where they are not built, with `ODRADEK_PURE=1`, and on other systems
there is no `FileSyncs`: `Offload` does the same work.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final, Protocol, cast

from odradek.runtime.ports import DiskFile, OpenDescriptor, SyncGroup

_MODULE: Final = "odradek.runtime._sync_threads"


class _Group(SyncGroup, Protocol):
    def finish(self) -> None: ...


class _Threads(Protocol):
    def fileno(self) -> int: ...

    def begin(self, group: _Group) -> bool: ...

    def ended(self) -> list[_Group]: ...

    def close(self) -> None: ...


class _Compiled(Protocol):
    """The module `_sync_threads`."""

    @property
    def GROUP_FILES_MAX(self) -> int: ...  # noqa: N802 - a module's constant

    def SyncThreads(self, threads_max: int) -> _Threads: ...  # noqa: N802 - a module's class

    def DescriptorGroup(  # noqa: N802 - a module's class
        self, descriptors: Sequence[OpenDescriptor], done: Callable[[SyncGroup], None]
    ) -> _Group: ...


class ThreadSyncs:
    """Syncs files for one event loop at a time, on at most `threads` threads, which start when they are first needed:
    implements `FileSyncs`.
    """

    __slots__ = ("_compiled", "_is_closed", "_loop", "_process", "_threads", "_threads_max", "_under_way")

    def __init__(self, compiled: _Compiled, threads: int) -> None:
        self._compiled = compiled
        self._threads_max = threads
        self._threads: _Threads | None = None
        self._under_way: dict[SyncGroup, list[OpenDescriptor]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._process = os.getpid()
        """The process that the threads belong to: one that is forked off shares the loop's selector, and must not change it."""

    def __del__(self) -> None:
        if self._threads is not None:  # what is under way keeps them alive, and no one hears of its end
            self._close_threads(self._threads)

    def begin(self, files: Sequence[DiskFile], done: Callable[[SyncGroup], None]) -> SyncGroup | None:
        threads = self._threads_of(asyncio.get_running_loop())
        if threads is None or not 0 < len(files) <= self._compiled.GROUP_FILES_MAX:
            return None
        descriptors: list[OpenDescriptor] = []
        for file in files:
            descriptor = file.descriptor()
            if descriptor is None:
                return None
            descriptors.append(descriptor)
        group = self._compiled.DescriptorGroup(descriptors, done)
        if not threads.begin(group):
            return None
        self._under_way[group] = descriptors
        for opened in descriptors:
            opened.sync_began()
        return group

    def _threads_of(self, loop: asyncio.AbstractEventLoop) -> _Threads | None:
        if loop is self._loop or self._is_closed:
            return self._threads
        if self._loop is not None and not self._loop.is_closed():
            return None
        if self._threads is not None:  # what is under way belongs to the loop that was closed
            self._close_threads(self._threads)
            self._threads = None
        try:
            threads = self._compiled.SyncThreads(self._threads_max)
        except OSError:  # no descriptor is left: the next flush tries again
            return None
        loop.add_reader(threads.fileno(), self._deliver)
        self._threads, self._loop = threads, loop
        return threads

    def _deliver(self) -> None:
        threads, loop = self._threads, self._loop
        if threads is None or loop is None:
            return
        groups = threads.ended()
        for group in groups:  # all of them first: what is done at the end of one may close these syncs
            self._note_end(group)
        for group in groups:
            try:
                group.finish()
            except Exception as error:  # noqa: BLE001 - the trouble of one group must not keep the others waiting
                loop.call_exception_handler(
                    {"message": "the end of a sync was not noted", "exception": error}
                )

    def _note_end(self, group: SyncGroup) -> None:
        for descriptor in self._under_way.pop(group):
            descriptor.sync_ended()

    def _close_threads(self, threads: _Threads) -> None:
        threads.close()
        for group in list(self._under_way):  # their end reached no loop
            self._note_end(group)

    def close(self) -> None:
        self._is_closed = True
        threads, self._threads = self._threads, None
        loop, self._loop = self._loop, None
        if threads is None:
            return
        if loop is not None and not loop.is_closed() and self._process == os.getpid():
            loop.remove_reader(threads.fileno())
        self._close_threads(threads)


def thread_syncs(threads: int) -> ThreadSyncs | None:
    """Returns threads of this kind; None where they are not built, or `ODRADEK_PURE` asks for none."""
    if os.environ.get("ODRADEK_PURE", "") not in ("", "0") or sys.platform != "linux":
        return None
    spec = find_spec(_MODULE)
    if spec is None or spec.origin is None or not spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
        return None
    # late-import: the module exists only where it was built
    return ThreadSyncs(cast(_Compiled, importlib.import_module(_MODULE)), threads)
