"""Makes each fdatasync of a process slow while the file INCIDENT_SLOW_DISK exists. Python imports this at its start.

The broker's compiled threads, which call the system's fdatasync, are hidden from it: it flushes on threads of Python's.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_SECONDS = 1.2
_flag = os.environ.get("INCIDENT_SLOW_DISK", "")
_fdatasync = os.fdatasync


def _slow(fd: FileDescriptorLike) -> None:
    if os.path.exists(_flag):
        time.sleep(_SECONDS)
    _fdatasync(fd)


if _flag:
    os.fdatasync = _slow
    sys.modules["odradek.runtime._sync_threads"] = None  # type: ignore[assignment]
