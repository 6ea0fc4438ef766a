"""A broker's background work: rounds that repeat until it stops, and tasks that run once when it has time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.broker.handlers import DATA_PATH, Handlers
from odradek.model.lazy import lazy
from odradek.protocol import api_by_name
from odradek.runtime.ports import Offload
from odradek.runtime.real_process import return_free_memory
from odradek.telemetry import events

_log = events.get("broker")
_RETURN_AFTER_SECONDS: Final = 1.0
"""More is freed by then; each time takes some milliseconds in which other threads may wait for memory."""
_IMPORT_AFTER_SECONDS: Final = 0.001
INTERVAL_SECONDS_MIN: Final = 0.05
_OF_HANDLERS: Final = (
    "odradek.security.acls",
    "odradek.security.audit",
    "odradek.security.acl_index",
    "odradek.security.authorizer",
    "odradek.broker.access.conditions",
    "odradek.broker.produce.record_validation",
)
"""Modules that handlers import. All at once would hold the event loop for 60 ms of CPU."""


class Round(NamedTuple):
    """Work that runs periodically; if the number of seconds is a function, it is called for each pause."""

    name: str
    seconds: float | Callable[[], float]
    work: Callable[[], Awaitable[object]]

    def pause_seconds(self) -> float:
        return max(self.seconds() if callable(self.seconds) else self.seconds, INTERVAL_SECONDS_MIN)


class BackgroundWork:
    """The tasks of one broker."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._returning: asyncio.Task[None] | None = None

    def start(self, rounds: Iterable[Round]) -> None:
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(repeat(work, self._stopping)) for work in rounds]

    def import_handlers(self, handlers: Handlers) -> None:
        """Imports soon, in a task, the handlers that every client uses."""
        self._tasks.append(asyncio.get_running_loop().create_task(_import_handlers(handlers)))

    def return_free_memory(self) -> None:
        """Give freed memory back to the system, on another thread, soon: calls until then come to one."""
        if self._returning is None or self._returning.done():
            self._returning = asyncio.get_running_loop().create_task(
                self._return_soon(), name="return free memory"
            )

    async def _return_soon(self) -> None:
        if not await _set_within(self._stopping, _RETURN_AFTER_SECONDS):
            await self._offload.run(return_free_memory)

    async def stop(self) -> None:
        """Stops the rounds. A round under way comes to its end: its work on other threads must not go on after this returns."""
        self._stopping.set()
        await asyncio.gather(*self._tasks, *([self._returning] if self._returning is not None else []))
        self._tasks.clear()


async def repeat(work: Round, stopping: asyncio.Event) -> None:
    """Repeats the work, with its pauses, until `stopping` is set. An error is logged and does not end it."""
    while not await _set_within(stopping, work.pause_seconds()):
        try:
            await work.work()
        except Exception:  # noqa: BLE001 - the root of a task: the next round may succeed
            _log.exception("background_work_failed", work=work.name)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


_IMPORT_ERRORS: Final = (OSError, SystemError)
"""Errors that pass: no descriptor for a module's file; and two threads that parse at once, which Python refuses before 3.11.8
(cpython issue 106905). It happens under pytest, which parses the modules of its plugins' packages."""


async def _import_handlers(handlers: Handlers) -> None:
    """Imports one handler in each round of the event loop, for requests wait meanwhile. Waiters for the start go first."""
    await asyncio.sleep(_IMPORT_AFTER_SECONDS)
    for module in _OF_HANDLERS:
        await asyncio.sleep(0)
        with suppress(*_IMPORT_ERRORS):  # the handler tries again, and reports the error
            _ = lazy(module).__file__
    for name in DATA_PATH:
        await asyncio.sleep(0)
        try:
            handlers.load(api_by_name(name))
        except _IMPORT_ERRORS as error:  # the first request that needs it tries again
            _log.warning("handler_not_imported", api=name, error=error)
