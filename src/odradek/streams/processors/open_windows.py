"""The windows of one key that are still kept, and how a record changes them: what kinds of windows share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias

from odradek.streams.plan.user_code import Fold
from odradek.streams.processors.ports import Fields

Window: TypeAlias = tuple[int, int]
"""Start and end in milliseconds."""
Held: TypeAlias = tuple[object, int]
"""An aggregate, and the largest timestamp of its records. An aggregate that is None is not kept."""
WindowChange: TypeAlias = tuple[Window, Held | None, Held | None]
"""A window, what it holds now, and what it held before. None: there is, or was, no such window."""


class Arrival(NamedTuple):
    """A record, and the windows of its key."""

    key: Fields
    values: Fields
    timestamp: int
    windows: dict[Window, Held]
    stream_time: int
    needs_old: bool
    """Must what windows held before stay as it is?"""

    def add_to(self, fold: Fold, held: Held | None) -> Held:
        """Returns a window's aggregate and time with this record added to `held`, which is that before."""
        if held is None:
            return fold.add(self.key, None, self.values), self.timestamp
        aggregate = fold.copied(held[0]) if self.needs_old else held[0]
        return fold.add(self.key, aggregate, self.values), max(held[1], self.timestamp)

    def keep(self, window: Window, held: Held) -> None:
        """Stores a window's aggregate; null deletes the window, as in a store of Kafka Streams."""
        if held[0] is None:
            self.windows.pop(window, None)
        else:
            self.windows[window] = held


class OpenWindows(Protocol):
    """A kind of windows."""

    def add(self, arrival: Arrival) -> Iterator[WindowChange]:
        """Changes the windows of the record's key; emits each that changed."""
        ...

    def open_until(self, window: Window) -> int:
        """Returns the last stream time at which a window is open: after it, its result is final."""
        ...

    def retained_until(self, window: Window) -> int:
        """Returns the last stream time at which other records may need what it holds."""
        ...
