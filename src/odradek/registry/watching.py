"""Watchers by path, which are called once per turn of the event loop, however much changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class Watches:
    """Callbacks by path; they run on the loop, never within the call that reports the change."""

    __slots__ = ("_by_path", "_count", "_due")

    def __init__(self) -> None:
        self._by_path: dict[str, dict[int, Callable[[], None]]] = {}
        self._due: dict[int, Callable[[], None]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def add(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        self._count += 1
        number = self._count
        self._by_path.setdefault(path, {})[number] = on_change

        def end() -> None:
            watching = self._by_path.get(path, {})
            if watching.pop(number, None) is not None and not watching:
                del self._by_path[path]
            self._due.pop(number, None)

        return end

    def notify(self, paths: Iterable[str]) -> None:
        """Notifies that the nodes at these paths, or their children, may have changed."""
        for path in paths:
            for number, on_change in self._by_path.get(path, {}).items():
                if number not in self._due:
                    self._due[number] = on_change
                    asyncio.get_running_loop().call_soon(self._call, number)

    def notify_all(self) -> None:
        """Notifies that anything may have changed."""
        self.notify(list(self._by_path))

    def clear(self) -> None:
        self._by_path.clear()
        self._due.clear()

    def _call(self, number: int) -> None:
        on_change = self._due.pop(number, None)
        if on_change is not None:
            on_change()
