"""Where in the code a thread is that does not end."""

from __future__ import annotations

import threading

from odradek.runtime.real_thread_stack import ThreadStack


def thread_position(thread: threading.Thread) -> str | None:
    """Returns its name and its innermost calls; None once it has ended."""
    if not thread.is_alive() or thread.ident is None:
        return None
    stack = ThreadStack(thread.ident, frames_max=3)
    try:
        calls = stack.read()
    finally:
        stack.close()
    return f"{thread.name} in {' > '.join(calls)}" if calls else None
