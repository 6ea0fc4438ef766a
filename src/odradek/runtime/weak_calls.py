"""A part that calls its owner, and does not keep it alive.

An owner that holds a part, and a part that holds a method of the owner, are a cycle: when both are out of use, only the
collector finds them, and it looks at what is old seldom (`broker/process.py`). With a `WeakCall` reference counts free both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S")


class WeakCall(Generic[S]):
    """A call of `function(owner)` that does not keep the owner alive. Once the owner is deleted, the call
    does nothing."""

    __slots__ = ("_function", "_owner")

    def __init__(self, function: Callable[[S], object], owner: S) -> None:
        self._function = function
        self._owner = weakref.ref(owner)

    def __call__(self) -> None:
        owner = self._owner()
        if owner is not None:
            self._function(owner)
