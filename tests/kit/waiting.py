"""Waits for what a test gets no call for: another process, thread or task makes it true.

A test says what it waits for, and no more. The limit only ends a run that would wait for ever: it is long, because machines of
CI are busy, and no test may pass or fail by how fast something is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.model.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client import Admin

PATIENCE_S: Final = 120.0
"""How long a wait lasts before it fails, unless the test says otherwise."""
LOOK_EVERY_S: Final = 0.02
_TASKS_LOOK_EVERY_S: Final = 0.005
_SHOWN_CHARACTERS_MAX: Final = 2000

T = TypeVar("T")


def eventually(
    look: Callable[[], T],
    what: str | Callable[[], object] = "",
    *,
    holds: Callable[[T], object] = bool,
    seconds: float = PATIENCE_S,
    every_s: float = LOOK_EVERY_S,
) -> T:
    """Returns the first value of `look` that `holds`: the first that is true, unless the test asks for more.

    Blocks the thread between two looks. `what`: what the test waits for, or a function whose value shows how far it came.
    Raises AssertionError with it, and with the last value, after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not holds(value := look()):
        assert time.monotonic() < deadline, _late(seconds, what, value)
        time.sleep(every_s)
    return value


async def until(
    look: Callable[[], T | Awaitable[T]],
    what: str | Callable[[], object] = "",
    *,
    holds: Callable[[T], object] = bool,
    seconds: float = PATIENCE_S,
    every_s: float = _TASKS_LOOK_EVERY_S,
) -> T:
    """Returns the first value of `look` that `holds`, as `eventually` does; other tasks run between two looks.

    `look` may be a coroutine function: it is cancelled if it hangs. `seconds` are the event loop's, which are virtual in a
    simulation.
    """
    last: T | None = None
    try:
        async with asyncio.timeout(seconds) as limit:
            while not holds(value := await _awaited(look())):
                last = value
                await asyncio.sleep(every_s)
            return value
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_late(seconds, what, last)) from None


def seconds_until(holds: Callable[[], object], seconds: float, *, every_s: float = 0.05) -> float | None:
    """Returns after how many seconds it was so; None when it was not in time, for reports that go on then."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(every_s)
    return time.monotonic() - began


def wait_until_led(admin: Admin, topic: str, partitions: int) -> None:
    """Waits until a topic has so many partitions and each has a leader: Kafka's metadata follows its answers later."""

    def is_led() -> bool:
        try:
            described = admin.describe_topics([topic])[topic].partitions
        except KafkaError:
            return False
        return len(described) == partitions and all(partition.leader >= 0 for partition in described)

    eventually(is_led, f"{topic} with {partitions} partitions that are led")


async def _awaited(value: T | Awaitable[T]) -> T:
    return await value if isinstance(value, Awaitable) else value


def _late(seconds: float, what: str | Callable[[], object], last: object) -> str:
    expected = what() if callable(what) else what
    text = f"it did not come true within {seconds:g} s"
    if expected != "":
        text += f": {expected}"
    shown = (
        ""
        if last is None or isinstance(last, bool)
        else f"; the last value is {last!r:.{_SHOWN_CHARACTERS_MAX}}"
    )
    return text + shown
