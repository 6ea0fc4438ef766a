"""The event loop, shared out between pieces of work that take long, so that a short one never waits long.

How it works. Work of many steps calls `await turn.step()` between them. Its first `FREE_SECONDS` cost it nothing: what is short
never notices. After them it queues for turns of `SLICE_SECONDS`. However many queue, one of them runs in each iteration of the
loop, and between two iterations the loop serves its sockets and timers. So ninety long requests slow each other down, and hold
up a short one by a slice for each time that it comes back to the loop.

The contract: a step between two calls takes well under a millisecond. A plain pass over elements that were counted against a
budget (a comprehension, a set, a sort) is one step; what does real work for each element calls `step` for each element.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
)
from heapq import merge
from typing import Final, TypeVar

S = TypeVar("S")
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
C = TypeVar("C", str, int)

FREE_SECONDS: Final = 0.001
SLICE_SECONDS: Final = 0.002
SLICE_ITEMS: Final = 32
"""How many items are handled together where one at a time would take too long, and all would stop the loop."""

_PLAIN_ITEMS: Final = 4096
"""How many items a plain pass handles in one step."""

_CALM_SECONDS: Final = 0.5
_LOOKS_MAX: Final = 120


class _Nothing(Awaitable[None]):
    """An awaitable that is over at once."""

    __slots__ = ()

    def __await__(self) -> Iterator[object]:  # type: ignore[override]
        return _NEVER


_NEVER: Final[Iterator[object]] = iter(())
_NOTHING: Final = _Nothing()


class Turns:
    """The turns of one event loop."""

    __slots__ = (
        "_is_busy",
        "_is_passing",
        "_looks_left",
        "_now",
        "_queue",
        "_queued_since_look",
        "free_seconds",
        "on_busy",
        "slice_seconds",
    )

    def __init__(
        self,
        now: Callable[[], float],
        *,
        free_seconds: float = FREE_SECONDS,
        slice_seconds: float = SLICE_SECONDS,
    ) -> None:
        self._now = now
        self.free_seconds = free_seconds
        self.slice_seconds = slice_seconds
        self._queue: deque[asyncio.Future[None]] = deque()
        self._is_passing = False
        self._is_busy = False
        self._looks_left = 0
        self._queued_since_look = False
        """One long request is not in the queue most of the time: it works, or waits for the controller."""
        self.on_busy: Callable[[bool], None] = lambda is_busy: None
        """Called when long work begins, and when it is over; now and then, too, when it never is."""

    def begin(self) -> Turn:
        """Returns a turn for a piece of work that begins now."""
        return Turn(self, self._now)

    def queue(self) -> asyncio.Future[None]:
        """Returns a place in the queue, done when it is the caller's turn. Cancel it to leave."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        self._queue.append(place)
        self._queued_since_look = True
        if not self._is_passing:
            self._is_passing = True
            loop.call_soon(self._pass_on, loop)
            if not self._is_busy:
                self._is_busy = True
                self._looks_left = _LOOKS_MAX
                self.on_busy(True)
                loop.call_later(_CALM_SECONDS, self._check_busy, loop)
        return place

    def _check_busy(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks_left -= 1
        was_busy, self._queued_since_look = self._queued_since_look, False
        if (was_busy or self._is_passing) and self._looks_left:
            loop.call_later(_CALM_SECONDS, self._check_busy, loop)
        else:
            self._is_busy = False
            self.on_busy(False)

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wakes the first in the queue: once in each iteration of the loop."""
        queue = self._queue
        while queue:
            place = queue.popleft()
            if not place.done():  # else it was cancelled
                place.set_result(None)
                break
        if queue:
            loop.call_soon(self._pass_on, loop)
        else:
            self._is_passing = False


class Turn:
    """One piece of work, and how long it may go on before others come first."""

    __slots__ = ("_ends", "_now", "_turns")

    def __init__(self, turns: Turns, now: Callable[[], float]) -> None:
        self._turns = turns
        self._now = now
        self._ends = now() + turns.free_seconds

    @property
    def is_over(self) -> bool:
        return self._now() >= self._ends

    def step(self) -> Awaitable[None]:
        """Await it between two steps; it returns at once until the turn is over."""
        return self.next() if self._now() >= self._ends else _NOTHING

    async def next(self) -> None:
        """Gives up this turn and waits for another."""
        await self._turns.queue()
        self.renew()

    def renew(self) -> None:
        """Begins the next slice: the caller waited in the queue, and its turn has come."""
        self._ends = self._now() + self._turns.slice_seconds

    async def map(self, make: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Returns `[make(item) for item in items]`, with a step before each."""
        made = []
        for element in items:
            if self._now() >= self._ends:
                await self.next()
            made.append(make(element))
        return made

    async def unique(self, items: Sequence[H]) -> list[H]:
        """Returns each item once, in the order of their first places."""
        seen: dict[H, None] = {}
        for some in slices(items, _PLAIN_ITEMS):
            await self.step()
            seen.update(dict.fromkeys(some))
        return list(seen)

    async def sort(self, items: Sequence[C]) -> list[C]:
        """Returns `sorted(items)`, in steps."""
        runs = []
        for some in slices(items, _PLAIN_ITEMS):
            await self.step()
            runs.append(sorted(some))
        return runs[0] if len(runs) == 1 else await self.map(lambda element: element, merge(*runs))

    async def gather(self, work: Callable[[S], Awaitable[T]], items: Sequence[S]) -> list[T]:
        """Returns the result of `work` for each item, in order. A few are under way at once: each is a task."""
        done: list[T] = []
        for some in slices(items):
            await self.step()
            done += await asyncio.gather(*map(work, some))
        return done

    async def drive(self, work: Generator[None, None, T]) -> T:
        """Runs a generator that yields between its steps; returns its result."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                value: T = end.value
                return value
            if self._now() >= self._ends:
                await self.next()


def in_one_go(work: Generator[None, None, T]) -> T:
    """Returns the result of a generator of few steps."""
    try:
        while True:
            next(work)
    except StopIteration as end:
        value: T = end.value
        return value


def slices(items: Sequence[S], size: int = SLICE_ITEMS) -> Iterator[Sequence[S]]:
    """Yields `items`, a few at a time, for work that is done for several at once: take a step before each slice.

    Without items there is one slice, an empty one: a request for nothing may have an error of its own."""
    return (items[start : start + size] for start in range(0, max(len(items), 1), size))


class StartedCoroutine(Awaitable[T]):
    """A coroutine that was begun outside a task, and what it waits for: awaited, the rest of it."""

    __slots__ = ("_coroutine", "_wanted")

    def __init__(self, coroutine: Coroutine[object, None, T], wanted: object) -> None:
        self._coroutine = coroutine
        self._wanted = wanted

    def __await__(self) -> Generator[object, None, T]:
        wanted = self._wanted
        while True:
            try:
                try:
                    given = yield wanted
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's own to handle: a cancellation, most of all
                    wanted = self._coroutine.throw(error)
                else:
                    wanted = self._coroutine.send(given)
            except StopIteration as end:
                value: T = end.value
                return value
