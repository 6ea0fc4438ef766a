"""One consumer is for one user at a time: a second one is refused, as Java's consumer does it, and nothing is lost or doubled.

A listener that runs inside `poll` may call its consumer: it is on the same thread, or in a task that `poll` awaits, which
inherits what `TaskUse` notes in the context. `close` and what only asks brokers are free: from any thread, or in any task of
the client's loop.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeVar, cast

from odradek.client.network.errors import ConcurrentUseError

F = TypeVar("F", bound=Callable[..., Any])

_held: ContextVar[frozenset[object]] = ContextVar("odradek_consumer_uses", default=frozenset())


class TaskUse:
    """Which call uses an asynchronous consumer now."""

    def __init__(self) -> None:
        self._holder: object | None = None

    def begin(self) -> object | None:
        """Returns the use, for `end`; None inside the use of a caller."""
        if self._holder is not None:
            if self._holder in _held.get():
                return None
            raise ConcurrentUseError(
                "another task is using this consumer: poll it from one task, or make a consumer for each"
            )
        self._holder = object()
        _held.set(_held.get() | {self._holder})
        return self._holder

    def end(self, use: object | None) -> None:
        if use is not None:
            self._holder = None
            _held.set(_held.get() - {use})


class ThreadUse:
    """Which thread uses a synchronous consumer now."""

    def __init__(self) -> None:
        self._lock: Final = threading.RLock()

    def begin(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUseError(
                "another thread is using this consumer: use it from one thread at a time, or make a consumer for each"
            )

    def end(self) -> None:
        self._lock.release()


def by_one_task(method: F) -> F:
    """Decorates a coroutine method so that it refuses to run concurrently with another one of its kind."""
    assert inspect.iscoroutinefunction(method)

    @wraps(method)
    async def alone(self: Any, *arguments: object, **named: object) -> Any:
        self._loop.check()
        use = self._use.begin()
        try:
            return await method(self, *arguments, **named)
        finally:
            self._use.end(use)

    return cast(F, alone)


def on_own_loop(method: F) -> F:
    """Decorates a method so that it does its work between two steps of the client's loop, so that other tasks may call it at
    any time."""
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def awaited(self: Any, *arguments: object, **named: object) -> Any:
            self._loop.check()
            return await method(self, *arguments, **named)

        return cast(F, awaited)

    @wraps(method)
    def called(self: Any, *arguments: object, **named: object) -> Any:
        self._loop.check()
        return method(self, *arguments, **named)

    return cast(F, called)


def by_one_thread(method: F) -> F:
    """Decorates a method so that it refuses to run while another thread runs one of its kind."""

    @wraps(method)
    def alone(self: Any, *arguments: object, **named: object) -> Any:
        self._loop.check()
        self._use.begin()
        try:
            return method(self, *arguments, **named)
        finally:
            self._use.end()

    return cast(F, alone)
