"""The lock that a user's thread and a client's loop share, and the news that one side waits for and the other brings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final


class SharedNews:
    """The lock that two sides share, and a signal that something changed. Methods are called with `lock` held."""

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._watchers: dict[Callable[[], None], None] = {}

    @property
    def watcher_count(self) -> int:
        """The number of callers that wait without blocking."""
        return len(self._watchers)

    def wait(self, timeout_s: float) -> None:
        """Blocks this thread until something changed, or `timeout_s` passed."""
        self._changed.wait(timeout_s)

    def watch(self, notify: Callable[[], None]) -> None:
        """Does what `wait` does for a caller that cannot block: `notify` is called once, unless `unwatch`ed."""
        self._watchers[notify] = None

    def unwatch(self, notify: Callable[[], None]) -> None:
        """Removes the callback of a caller that waits no longer."""
        self._watchers.pop(notify, None)

    def publish(self) -> None:
        """Wakes waiters and calls watchers, because something changed."""
        self._changed.notify_all()
        watchers, self._watchers = self._watchers, {}
        for notify in watchers:
            notify()
