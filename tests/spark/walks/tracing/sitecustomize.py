"""Python imports this file at its start, with this directory in PYTHONPATH: the process, and what it forks, records its calls.

Each process writes a file of its own in the directory that ODRADEK_WALK names. A line is a call of a function of Odradek, with
the time of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

_DIRECTORY: Final = "ODRADEK_WALK"
_PACKAGE: Final = "/src/odradek/"


class CallFile:
    """The calls of one process, in the order in which they begin, as lines of a file."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / str(os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            _, package, file = frame.f_code.co_filename.partition(_PACKAGE)
            if package:
                line = f"{time.monotonic_ns()} {file} {frame.f_code.co_qualname}\n"
                os.write(self._file, line.encode())

    def begin(self) -> None:
        """Records calls on this thread, and on threads that begin later."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def end(self) -> None:
        """Stops recording on this thread, and on threads that begin later. Other threads record until they end."""
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed does not know that this ends it


class _FirstImport:
    """Begins to record when the process first imports Odradek: until then a worker starts as fast as without it."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name.partition(".")[0] == "odradek":
            sys.meta_path.remove(self)
            _begin_here()


def _begin_here() -> None:
    CallFile(Path(os.environ[_DIRECTORY])).begin()


def _begin_in_fork() -> None:
    if "odradek" in sys.modules:
        _begin_here()


if _DIRECTORY in os.environ:
    os.register_at_fork(after_in_child=_begin_in_fork)
    sys.meta_path.insert(0, _FirstImport())
