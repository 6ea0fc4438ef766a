"""Reads where another thread of this process is, and how long it has waited for a core.

Theory. A frame of a thread is only valid while that thread does not run. `sys._current_frames` returns such frames, but Python
code that walks them lets the thread run between two steps: it may then follow a link to memory that holds another object.
`faulthandler` walks all frames in one C call, without a step of Python in between, while it holds the interpreter's lock. So
it reads a consistent stack, and it writes the stack as text, which holds no reference to any object of the thread.
"""

from __future__ import annotations

import faulthandler
import os
import re
import tempfile
from typing import Final

_HEADER: Final = re.compile(rb"(?:Current thread|Thread) 0x([0-9a-f]+)")
_CALL: Final = re.compile(rb'  File "(.*)", line (\d+) in (.*)')
_PACKAGES: Final = re.compile(r".*/(?:site-packages|src)/")
_LIBRARY: Final = re.compile(r".*/lib/python[0-9.]+/")
_TEXT_BYTES_MAX: Final = 256 * 1024
_NS_PER_S: Final = 1e9


def _anonymous_file() -> int:
    """Returns a descriptor of a file without a name. A pipe would block `faulthandler` once it is full."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("odradek-stacks")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _call(line: bytes) -> str | None:
    if (match := _CALL.fullmatch(line)) is None:
        return None
    path, number, name = (part.decode("ascii", "replace") for part in match.groups())
    return f"{name} ({_LIBRARY.sub('', _PACKAGES.sub('', path))}:{number})"


def stack_of(thread_id: int, text: bytes, frames_max: int) -> tuple[str, ...]:
    """Returns a thread's calls from what `faulthandler` wrote of all threads: the innermost last, empty if it is not there."""
    calls: list[str] = []
    is_wanted = False
    for line in text.split(b"\n"):
        if header := _HEADER.match(line):
            if is_wanted:
                break
            is_wanted = int(header[1], 16) == thread_id
        elif is_wanted and len(calls) < frames_max and (call := _call(line)):
            calls.append(call)
    return tuple(reversed(calls))


class ThreadStack:
    """Reads the stack of one thread, from any thread. It owns a descriptor until `close`."""

    def __init__(self, thread_id: int, *, frames_max: int) -> None:
        self._thread_id = thread_id
        self._frames_max = frames_max
        self._file: int | None = _anonymous_file()

    def read(self) -> tuple[str, ...]:
        """Returns the thread's calls, the innermost last; empty if it has ended, or is not among the 100 newest threads."""
        if self._file is None:
            return ()
        os.lseek(self._file, 0, os.SEEK_SET)
        os.ftruncate(self._file, 0)
        faulthandler.dump_traceback(self._file, all_threads=True)
        return stack_of(self._thread_id, os.pread(self._file, _TEXT_BYTES_MAX, 0), self._frames_max)

    def close(self) -> None:
        """Closes the descriptor. A second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class CoreWait:
    """Reads for how long a thread could run but had no core. Linux counts that; elsewhere it is unknown."""

    def __init__(self, native_id: int) -> None:
        try:
            self._file: int | None = os.open(
                f"/proc/self/task/{native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC
            )
        except OSError:
            self._file = None

    def seconds(self) -> float | None:
        """Returns the total since the thread began; None where the kernel does not count it."""
        if self._file is None:
            return None
        try:
            return int(os.pread(self._file, 128, 0).split()[1]) / _NS_PER_S  # digits: the kernel wrote them
        except (OSError, IndexError, ValueError):
            return None

    def close(self) -> None:
        """Closes the descriptor. A second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
