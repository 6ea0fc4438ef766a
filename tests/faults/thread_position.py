"""Where in the code a thread is that does not end."""

from __future__ import annotations

import sys
import threading
import traceback


def thread_position(thread: threading.Thread) -> str | None:
    """Its name and its innermost lines; None once it has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    if not thread.is_alive() or frame is None:
        return None
    lines = [f"{entry.name}:{entry.lineno}" for entry in traceback.extract_stack(frame)[-3:]]
    return f"{thread.name} in {' > '.join(lines)}"
