"""The end of the engine's JVM. It ends by itself when its standard input closes: unless it is short of memory, and collects
garbage all the time. Such a JVM would never end, and take a core.
"""

from __future__ import annotations

import os
import select
import signal
from typing import Final

TIMEOUT_S: Final = 60.0
"""A JVM that writes an archive of its classes takes some seconds more."""


def kill_later(process_id: int, timeout_s: float = TIMEOUT_S) -> None:
    """Returns at once. A process of its own waits for the JVM, which may outlive this process, and kills it when time is up.

    It holds nothing of this process: no pipe, no socket. Only where the system has descriptors for processes (Linux).
    """
    if not hasattr(os, "pidfd_open"):
        return
    try:
        jvm = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    if os.fork():
        os.close(jvm)
        return
    try:
        os.setsid()
        os.closerange(3, jvm)
        os.closerange(jvm + 1, os.sysconf("SC_OPEN_MAX"))
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        ended = select.poll()
        ended.register(jvm, select.POLLIN)
        if not ended.poll(timeout_s * 1000):
            signal.pidfd_send_signal(jvm, signal.SIGKILL)
    finally:
        os._exit(0)
