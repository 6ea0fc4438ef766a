"""A process that ends when its parent is gone, however that ended: the pipe to its standard input is closed then."""

from __future__ import annotations

import os
import sys
import threading


def end_with_parent() -> None:
    """Ends this process when its parent does: a thread of its own waits for that."""
    threading.Thread(target=_wait, name="lifeline", daemon=True).start()


def _wait() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)
