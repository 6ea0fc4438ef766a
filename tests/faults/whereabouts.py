"""Where a thread is that should have ended."""

from __future__ import annotations

import sys
import threading
import traceback


def coordinator_of(thread: threading.Thread) -> str | None:
    """Its name and its innermost lines; None once it has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    if not thread.is_alive() or frame is None:
        return None
    lines = [f"{one.name}:{one.lineno}" for one in traceback.extract_stack(frame)[-3:]]
    return f"{thread.name} in {' > '.join(lines)}"
